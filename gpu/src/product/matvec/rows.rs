//! `matvec_q8_*_x2`, `_x4` and `_x8`: some rows of 8-bit activations times quantized weights, by the tensor cores'
//! integers. With the bits that [`Matvec`](super::Matvec) gives each of them alone. `matvec_q8_*_split_k` is the same
//! for one row.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = pass of 1, 2, 4 or 8 rows of input, y = group of 16 outputs, the jobs' one after another
//! block: 8 warps, which share K: of each 32 pieces of 32 elements a warp has four, one for each place t
//!
//!              K in pieces
//!              0 1 2 3 | 4 5 6 7 | ... | 28 29 30 31 | 32 33 34 35 | ...
//!   16 outputs warp 0  | warp 1  | ... | warp 7      | warp 0      | ...
//! ```
//!
//! A lane (g, t) loads and unpacks the warp's piece t of outputs g and g + 8, and multiplies it with every row of
//! the pass. The next pieces are under way while these are multiplied.
//!
//! # A product whose columns are pieces
//!
//! What a lane has unpacked is its part of A of `mma.m16n8k32` as it stands: two words of a run of each output, so
//! four products take a piece. Their k is no stretch of K but a part of four pieces, which have scales of their own
//! and must not be added. The columns of B keep them apart. Columns 2t and 2t + 1 are the coarse and the fine
//! quants of piece t, and zero wherever k is another lane's:
//!
//! ```text
//!            column  0  1   2  3   4  5   6  7
//! k of lane t = 0    c  f   .  .   .  .   .  .       c, f  coarse and fine quants of one row of input
//!               1    .  .   c  f   .  .   .  .       .     zero
//!               2    .  .   .  .   c  f   .  .
//!               3    .  .   .  .   .  .   c  f
//! ```
//!
//! So lane (g, t) has something to load where g / 2 = t, and finds among its accumulators, which are those of
//! columns 2t and 2t + 1, the sums of its own piece: nothing is exchanged between lanes, and scales stay where they
//! were unpacked.
//!
//! # Shared memory
//!
//! One sum of each lane for each of its elements of out, f32: of an element 32, and 33 to the next, so that
//! threads that add those of neighbouring elements meet in no bank.
//!
//! # Who waits for whom
//!
//! One barrier, when all pieces are added up. The launch begins early and waits for its input as `Matvec` does.
//!
//! # Numeric contract
//!
//! That of `Matvec` with q8 rows: the sums of a piece are integers, `256 · coarse + fine`; each lane adds its pieces
//! in order of k with the same two or four operations, and the 32 sums of an element are added in the order of the
//! butterfly of `warp_sum`. So the bits are those of `Matvec`, which tests hold to.

use core::marker::PhantomData;

use super::super::activations::{AsQ8, Q8Row};
use super::{Job, MatvecGeometry, Named};
use crate::fragment::{group, mma, place};
use crate::quant::planes::{PIECE_ELEMENTS, Pieces, Planes, RUNS, Run, plane_value_bytes};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Shared, Simt, Unit, WARP_LANES,
    Work,
};

/// Launch of the kernels for some rows.
#[derive(Clone, Copy, Debug)]
pub struct RowsGeometry;

impl RowsGeometry {
    /// Outputs of a block: rows of A.
    pub const OUTPUTS: u32 = 16;
    /// Warps of a block.
    pub const WARPS: u32 = 8;
    /// Sums of an element of out: as many as lanes of a warp of `Matvec`.
    pub const SUMS: u32 = Self::WARPS * PLACES;
    /// Blocks that take one row for which a multiprocessor has registers.
    pub const RESIDENT: u32 = 3;
    /// Threads of a block.
    pub(super) const THREADS: u32 = Self::WARPS * WARP_LANES;
}

/// Places of a group of lanes.
const PLACES: u32 = 4;
const _: () = assert!(RowsGeometry::SUMS == WARP_LANES);
/// Outputs of a lane.
const LANE_OUTPUTS: usize = 2;
/// Words of a run.
const WORDS: usize = 4;
/// Products of a run: two words each, so that B is pairs of registers as they are loaded.
const PRODUCTS: usize = WORDS / 2;
/// From one element's sums to the next one's.
const SUMS_STRIDE: u32 = RowsGeometry::SUMS + 1;

/// The arguments of a kernel that takes `ROWS` rows of input in a pass.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatvecRows<B, const ROWS: usize> {
    /// What weights there are, and where their products go: at most [`Job::MOST_GROUPS`] groups of
    /// [`RowsGeometry::OUTPUTS`] outputs.
    pub jobs: [Job; Job::MOST],
    /// `rows` q8 rows, aligned to 16 bytes.
    pub input: Global<u8>,
    /// Rows of input, at most 2^31 - 1.
    pub rows: u32,
    /// Columns of input and weights: a multiple of the format's block, not 0; rows have fewer than 2^31 bytes.
    pub k: u32,
    /// The weights' format.
    pub format: PhantomData<B>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<B, const ROWS: usize> bytemuck::Zeroable for MatvecRows<B, ROWS> {}

/// A lane's part of a piece of one row of input.
#[derive(Clone, Copy)]
struct Input {
    /// What it has of B: words of both runs.
    quants: [[u32; WORDS]; RUNS],
    scale: f32,
    sums: [f32; RUNS],
}

impl<B: Pieces + Named, const ROWS: usize> Contract for MatvecRows<B, ROWS> {
    // All of them split K; with one row that is how the kernel differs from `Matvec`.
    const NAME: &'static str = if ROWS == 1 { B::Q8_SPLIT_K } else { B::Q8[ROWS.ilog2() as usize] };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new(
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
                Count::Exactly(Self::PRODUCTS),
            )
            .since(80),
        ],
        // Two blocks on a multiprocessor; with eight rows a format or two take a few registers more, and would spill
        // if they might not. One row takes 56 to 80 on compute capability 9.0: `RESIDENT` blocks. On
        // 12.0 it is up to 89.
        registers: if ROWS == 8 { 144 } else { 128 },
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        type G = RowsGeometry;
        let groups = Job::groups(&self.jobs, G::OUTPUTS);
        Launch {
            grid: Dim3 { x: self.rows.div_ceil(ROWS as u32), y: groups, z: 1 },
            threads: G::THREADS,
            shared_bytes: ROWS as u32 * G::OUTPUTS * SUMS_STRIDE * 4,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = u64::from(self.rows) * Q8Row::new(self.k).read_bytes(B::HAS_MIN);
        let weights = plane_value_bytes(B::FORMAT, self.k);
        Some(Job::work(&self.jobs, [self.rows, self.k], weights, input, Unit::TensorS8))
    }
}

impl<S: Simt, B: Pieces + Named, const ROWS: usize> Kernel<S> for MatvecRows<B, ROWS> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: pass, y: group, .. } = s.block();
        // SAFETY: the caller's; each pass and group has one block.
        unsafe { self.block(s, pass, group) }
    }
}

impl<B: Pieces + Named, const ROWS: usize> MatvecRows<B, ROWS> {
    /// Products of a step, as they stand in the kernel.
    pub(super) const PRODUCTS: u32 = (RUNS * PRODUCTS * ROWS) as u32;

    /// What the block of a pass and of a group of outputs does.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`], but that the launch may be another one with as many threads and as much
    /// shared memory, in which one block at most does this.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn block<S: Simt>(&self, s: S, pass: u32, group: u32) {
        type G = RowsGeometry;
        let (job, group) = Job::of_group(&self.jobs, group, G::OUTPUTS);
        let (first_output, first_row) = (group * G::OUTPUTS, pass * ROWS as u32);
        s.let_next_begin();
        let sums = self.sums(s, job, first_output, first_row);
        // SAFETY: every sum has one lane, and is read behind the barrier; an element of out has one thread.
        unsafe {
            let shared: Shared<f32> = s.shared();
            let of_lane = s.warp() * PLACES + place(s.lane());
            for (r, sums) in sums.iter().enumerate() {
                for (i, &sum) in sums.iter().enumerate() {
                    let element = r as u32 * G::OUTPUTS + mma::c(s.lane(), 2 * i as u32).0;
                    s.store_shared(shared.row(element, SUMS_STRIDE).at(of_lane), sum);
                }
            }
            s.barrier();
            self.store(s, job, first_output, first_row);
        }
    }

    /// The lane's sums: of each row of input, its two outputs.
    #[inline(always)]
    #[track_caller]
    fn sums<S: Simt>(
        &self,
        s: S,
        job: Job,
        first_output: u32,
        first_row: u32,
    ) -> [[f32; LANE_OUTPUTS]; ROWS] {
        type G = RowsGeometry;
        let lane = s.lane();
        let blocks = self.k / B::FORMAT.block_elements() as u32;
        let row_bytes = Planes::of(B::FORMAT).offsets(blocks).row;
        let pieces = self.k / PIECE_ELEMENTS;
        let last = pieces.wrapping_sub(1);
        // What is past the end is computed from the last one, and not stored.
        let weights: [Global<u8>; LANE_OUTPUTS] = [0, 2].map(|i| {
            let output = first_output + mma::c(lane, i).0;
            job.weights.row(output.min(job.n.wrapping_sub(1)), row_bytes)
        });
        let input: [Global<u8>; ROWS] = core::array::from_fn(|r| {
            let row = (first_row + r as u32).min(self.rows.wrapping_sub(1));
            self.input.row(row, AsQ8::row_bytes(self.k))
        });
        let load = |index: u32| -> [B::Words; LANE_OUTPUTS] {
            // SAFETY: a piece of a row that there is.
            weights.map(|row| unsafe { B::load(s, row, blocks, index.min(last)) })
        };
        let first = s.warp() * PLACES;
        let mut words = load(first + place(lane));
        // Two rows for each warp. Behind the first pieces and before the wait: a branch, past which `ptxas` does not
        // move their loads.
        if lane < G::OUTPUTS / G::WARPS {
            let output = first_output + s.warp() * (G::OUTPUTS / G::WARPS) + lane;
            let row = job.weights.row(output.min(job.n.wrapping_sub(1)), row_bytes);
            // SAFETY: the beginning of a row that there is; rows are a multiple of 16 bytes, not 0.
            unsafe { s.prefetch(row, row_bytes.min(MatvecGeometry::AHEAD_BYTES)) };
        }

        // Columns 2 t and 2 t + 1 of B are the lane's: coarse quants, and fine ones.
        let column = group(lane);
        let fine = Q8Row::new(self.k).fine();
        let plane = (column / 2 == place(lane)).then_some(if column.is_multiple_of(2) { 0 } else { fine });
        let mut x = Input { quants: [[0; WORDS]; RUNS], scale: 0.0, sums: [0.0; RUNS] };
        s.wait_for_previous();
        let mut sums = [[0.0_f32; LANE_OUTPUTS]; ROWS];
        for first in (first..pieces).step_by(G::SUMS as usize) {
            let index = first + place(lane);
            let runs = words.map(|words| B::unpack(s, words, index));
            // A branch, the same for all lanes, behind which the words are free: the next ones take their registers.
            if first + G::SUMS < pieces {
                words = load(index + G::SUMS);
            }
            for (sums, &row) in sums.iter_mut().zip(&input) {
                // SAFETY: a piece of a row that there is, after the wait.
                unsafe { self.load_input(s, row, plane, index.min(last), &mut x) };
                let added = Self::add(s, *sums, &runs, &x);
                *sums = if index <= last { added } else { *sums };
            }
        }
        sums
    }

    /// Loads the lane's part of piece `index` of a row of input: what it has of B from `plane`; that stays zero
    /// if it has nothing.
    ///
    /// # Safety
    /// The row lies in a live buffer that nobody writes, and has the piece.
    #[inline(always)]
    #[track_caller]
    unsafe fn load_input<S: Simt>(
        &self,
        s: S,
        row: Global<u8>,
        plane: Option<u32>,
        index: u32,
        x: &mut Input,
    ) {
        let at = Q8Row::new(self.k);
        // SAFETY: the caller's.
        unsafe {
            if let Some(plane) = plane {
                let runs = row.at(u64::from(plane)).cast().at(RUNS as u64 * u64::from(index));
                x.quants = [s.load_global(runs), s.load_global(runs.at(1))];
            }
            x.scale = s.load_global(row.at(u64::from(at.scales())).cast().at(u64::from(index)));
            if B::HAS_MIN {
                x.sums = s.load_global(row.at(u64::from(at.sums())).cast().at(u64::from(index)));
            }
        }
    }

    /// The sums and what the lane's pieces of two outputs and of a row of input add to them.
    #[inline(always)]
    #[track_caller]
    fn add<S: Simt>(
        s: S,
        mut sums: [f32; LANE_OUTPUTS],
        weights: &[[Run; RUNS]; LANE_OUTPUTS],
        x: &Input,
    ) -> [f32; LANE_OUTPUTS] {
        let mut dots = [[0; 4]; RUNS];
        for run in 0..RUNS {
            for product in 0..PRODUCTS {
                let word = 2 * product;
                let [first, second] = [word, word + 1].map(|word| weights.map(|runs| runs[run].quants[word]));
                let a = [first[0], first[1], second[0], second[1]];
                let b = [x.quants[run][word], x.quants[run][word + 1]];
                let dots = &mut dots[if B::ONE_SCALE { 0 } else { run }];
                *dots = s.mma_m16n8k32_s8(a, b, *dots);
            }
        }
        for (i, (sum, runs)) in sums.iter_mut().zip(weights).enumerate() {
            let scales = if B::ONE_SCALE { 1 } else { RUNS };
            for (group, run) in runs[..scales].iter().enumerate() {
                // At most 32 · 128 · 32,640, which is below 2^31.
                let dot = (dots[group][2 * i] << 8) + dots[group][2 * i + 1];
                let x_sum = if B::ONE_SCALE { x.sums[0] + x.sums[1] } else { x.sums[group] };
                *sum = s.fma(run.scale * x.scale, dot as f32, *sum);
                if B::HAS_MIN {
                    *sum = s.fma(-run.min, x_sum, *sum);
                }
            }
        }
        sums
    }

    /// Adds the sums in shared memory, and the bias, and stores the elements of out.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`]; the sums have been stored, and a barrier lies behind.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, job: Job, first_output: u32, first_row: u32) {
        type G = RowsGeometry;
        let element = s.thread();
        let (output, row) = (first_output + element % G::OUTPUTS, first_row + element / G::OUTPUTS);
        if element >= G::OUTPUTS * ROWS as u32 || output >= job.n || row >= self.rows {
            return;
        }
        let shared = s.shared::<f32>().row(element, SUMS_STRIDE);
        let mut sums = [0.0_f32; G::SUMS as usize];
        for (of_lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's.
            *sum = unsafe { s.load_shared(shared.at(of_lane as u32)) };
        }
        // The butterfly of `warp_sum`.
        for half in [16, 8, 4, 2, 1] {
            for of_lane in 0..half {
                sums[of_lane] += sums[of_lane + half];
            }
        }
        let mut sum = sums[0];
        // SAFETY: a row and an output that there are; each element of out has one thread. A bias has `n` values.
        unsafe {
            if job.bias.address() != 0 {
                sum += s.load_global_constant(job.bias.at(u64::from(output)));
            }
            s.store_global(job.out.row(row, job.n).at(u64::from(output)), sum);
        }
    }
}
