//! `matvec_q8_*`, `matvec_f16_*`: a few rows of activations times the weights, for decoding.
//!
//! `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]`; input `rows × k` as
//! [`Activations`](super::Activations) of the kernel's kind, weights `n × k` in rows of planes
//! ([`planes`](crate::quant::planes)), out `rows × n`, row major, f32. Up to three matrices of
//! weights with the same `k` and the same format share a launch: Q, K and V, or gate and up.
//!
//! A kernel takes so many rows of input in one pass over the weights: 1, and with `_x2`, `_x4` or `_x8` in its name
//! 2, 4 or 8 (f16: 1 and 4). More rows are more passes, which lie side by side in the grid, so that the
//! second finds the weights in the L2 cache. [`Matvec`] is generic over what stands for an input and a weight
//! ([`Pair`]); more than one row of q8 are [`MatvecRows`]'s, and one row where its launcher finds that faster: that
//! kernel has `_split_k` in its name. [`MatvecTwo`] is that one for matrices of two formats.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = pass, y = the first of a block's groups of 8 outputs, the jobs' one after another
//! block: 4 warps, on their own: no barrier, no shared memory
//!
//!                 K in pieces of 32 elements (numbers: 8)
//!                 lane 0 | lane 1 | ... | lane 31 | lane 0 | lane 1 | ...
//!   output 2 w    ######   ######         ######    ######   ######
//!   output 2 w + 1 #####   ######         ######    ######   ######
//! ```
//!
//! A warp owns two outputs, and of each a lane every 32nd piece. It loads a piece of the weights
//! with one load of 16 bytes and a few small ones, next to its neighbours' loads, and multiplies
//! it with every row of the pass. The pieces of the next step, if there is one, are under way while
//! those of this one are multiplied; past the end the last piece is loaded again, from the cache, and dropped.
//!
//! With q8 rows a launch has no more blocks than run at a time ([`Pair::PERSISTENT`]), and a block goes on with the
//! group that lies the grid's height further. While it multiplies the last pieces of a group, the first of the next are
//! under way, and the first 4096 bytes of its rows on theirs to the L2 cache: weights come without a pause between
//! groups.
//!
//! The launch begins while the one before it, which makes its input, still runs: a warp asks for the
//! beginning of its rows of weights and loads its first pieces, and waits for the input then. No launch
//! writes weights and biases.
//!
//! # Registers
//!
//! The words of 2 outputs × [`STEPS`](MatvecGeometry::steps) pieces twice: in use and under way;
//! one sum for each output and row; one piece of input. `ptxas` is given a limit
//! ([`Contract::REGISTER_LIMIT`]) also where it takes no more by itself: then its order of loads and products is another,
//! and launches of long rows take up to 44 % less time (docs/results.md).
//!
//! # Numeric contract
//!
//! A lane adds its pieces in order of k; then the butterfly of `warp_sum` adds the lanes, and the
//! bias is added last. What is added within a piece, [`Pair::add`] says. All of it depends on k
//! alone: an output has the same bits whatever the other rows, the passes and the grid are.

mod names;
mod pairs;
mod rows;
mod two;

use core::marker::PhantomData;

use bytemuck::Zeroable;

pub use names::{Beside, Named, TWO_FORMATS};
pub use pairs::{HalfNumbers, HalfPieces, Pair, Quantized};
pub use rows::{MatvecRows, RowsGeometry};
pub use two::MatvecTwo;

use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Unit, WARP_LANES, Work,
    product,
};

/// Launch of the `matvec` kernels.
#[derive(Clone, Copy, Debug)]
pub struct MatvecGeometry;

impl MatvecGeometry {
    /// Warps of a block.
    pub const WARPS: u32 = 4;
    /// Outputs of a warp.
    pub const OUTPUTS: usize = 2;
    /// Outputs of a block.
    pub const BLOCK_OUTPUTS: u32 = Self::WARPS * Self::OUTPUTS as u32;
    /// Threads of a block.
    const THREADS: u32 = Self::WARPS * WARP_LANES;
    /// Bytes of a row of weights that are on their way to the L2 cache before they are loaded: of a block's first group
    /// before the launch waits for its input, of the next while this one's last pieces are multiplied. Those of two
    /// groups of all blocks that run at a time are to fit there beside each other.
    pub const AHEAD_BYTES: u32 = 4096;

    /// Pieces that a lane loads before it multiplies: two where memory is the limit, and registers are not.
    #[must_use]
    pub const fn steps(rows: usize) -> usize {
        if rows == 1 { 2 } else { 1 }
    }
}

/// The most registers of a lane with which a multiprocessor, which has 65,536 and gives them out by eights, has
/// `resident` blocks of `threads` threads at a time.
const fn registers(resident: u32, threads: u32) -> u32 {
    65_536 / (resident * threads) / 8 * 8
}

/// One matrix of weights and what becomes of it.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub struct Job {
    /// `rows × n`, not overlapping anything.
    pub out: Global<f32>,
    /// `n` rows of planes, aligned to 16 bytes.
    pub weights: Global<u8>,
    /// `n` values; none if the address is 0.
    pub bias: Global<f32>,
    /// Rows of weights; 0 for a job that is not there.
    pub n: u32,
}

impl Job {
    /// Matrices of weights in one launch.
    pub const MOST: usize = 3;
    /// Groups of outputs in one launch, each job's rounded up: at most as many blocks along the grid's second axis.
    pub const MOST_GROUPS: u32 = 65_535;

    /// Groups of `outputs` outputs that jobs have.
    pub(super) fn groups(jobs: &[Self; Self::MOST], outputs: u32) -> u32 {
        jobs.iter().map(|job| job.n.div_ceil(outputs)).sum()
    }

    /// The job that a group belongs to, and the group's place in it.
    #[inline(always)]
    pub(super) const fn of_group(&[a, b, c]: &[Self; Self::MOST], group: u32, outputs: u32) -> (Self, u32) {
        let (of_a, of_b) = (a.n.div_ceil(outputs), b.n.div_ceil(outputs));
        if group < of_a {
            (a, group)
        } else if group - of_a < of_b {
            (b, group - of_a)
        } else {
            (c, group - of_a - of_b)
        }
    }

    /// What a launch does on `unit` whose weights have `weights` bytes a row, and whose rows of input `input` bytes
    /// together.
    pub(super) fn work(
        jobs: &[Self; Self::MOST],
        [rows, k]: [u32; 2],
        weights: u64,
        input: u64,
        unit: Unit,
    ) -> Work {
        let (mut outputs, mut biases) = (0, 0);
        for job in jobs {
            outputs += u64::from(job.n);
            biases += if job.bias.address() == 0 { 0 } else { u64::from(job.n) };
        }
        let read = outputs * weights + input + 4 * biases;
        let multiplications = outputs.saturating_mul(product([rows, k]));
        Work::moving(read, 4 * u64::from(rows) * outputs).multiplying(multiplications, unit)
    }
}

/// The arguments of a `matvec` kernel, which takes `ROWS` rows of input in a pass.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Matvec<P, const ROWS: usize> {
    /// What weights there are, and where their products go: at most [`Job::MOST_GROUPS`] groups of
    /// [`MatvecGeometry::BLOCK_OUTPUTS`] outputs.
    pub jobs: [Job; Job::MOST],
    /// `rows` rows of activations, aligned to 16 bytes.
    pub input: Global<u8>,
    /// Rows of input, at most 2^31 - 1.
    pub rows: u32,
    /// Columns of input and weights: a multiple of the format's block, of 32 for q8 and of 8 for
    /// f16, not 0, so that rows begin at multiples of 16 bytes; and rows have fewer than 2^31 bytes.
    pub k: u32,
    /// Blocks of a pass at most, not 0; with more groups each takes several. The bits do not depend on it.
    pub blocks: u32,
    /// What input and weights are.
    pub pair: PhantomData<P>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<P, const ROWS: usize> Zeroable for Matvec<P, ROWS> {}

impl<P: Pair, const ROWS: usize> Contract for Matvec<P, ROWS> {
    const NAME: &'static str = {
        assert!(P::DOTS == 0 || ROWS == 1, "several rows of q8 are those of `MatvecRows`");
        P::NAMES[ROWS.ilog2() as usize]
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Never),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(5 * (MatvecGeometry::OUTPUTS * ROWS) as u32)),
            Occurrence::new(
                "dp4a",
                Count::Exactly(
                    P::DOTS * (MatvecGeometry::OUTPUTS * MatvecGeometry::steps(ROWS) * ROWS) as u32,
                ),
            ),
        ],
        registers: registers(P::RESIDENT, MatvecGeometry::THREADS),
        local_memory: false,
    };
    // Also where `ptxas` would take no more: see "Registers".
    const REGISTER_LIMIT: Option<u32> = Some(registers(P::RESIDENT, MatvecGeometry::THREADS));
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        Launch {
            grid: Dim3 { x: self.rows.div_ceil(ROWS as u32), y: self.all_groups().min(self.blocks), z: 1 },
            threads: MatvecGeometry::THREADS,
            shared_bytes: 0,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = u64::from(self.rows) * P::input_value_bytes(self.k);
        let weights = P::weight_value_bytes(self.k);
        Some(Job::work(&self.jobs, [self.rows, self.k], weights, input, Unit::Plain))
    }
}

impl<S: Simt, P: Pair, const ROWS: usize> Kernel<S> for Matvec<P, ROWS> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        s.let_next_begin();
        // SAFETY: the caller's.
        unsafe {
            if const { MatvecGeometry::steps(ROWS) == 2 } {
                self.groups::<S, 2>(s);
            } else {
                self.groups::<S, 1>(s);
            }
        }
    }
}

impl<P: Pair, const ROWS: usize> Matvec<P, ROWS> {
    /// Groups of outputs of all jobs.
    #[inline(always)]
    fn all_groups(&self) -> u32 {
        Job::groups(&self.jobs, MatvecGeometry::BLOCK_OUTPUTS)
    }

    /// The warp's part of a group: its job, and the first of its outputs, which may lie past the end.
    #[inline(always)]
    #[track_caller]
    fn outputs<S: Simt>(&self, s: S, group: u32) -> (Job, u32) {
        type G = MatvecGeometry;
        let (job, group) = Job::of_group(&self.jobs, group, G::BLOCK_OUTPUTS);
        (job, group * G::BLOCK_OUTPUTS + s.warp() * G::OUTPUTS as u32)
    }

    /// The row of weights of an output of a job; past the end it is the last one's.
    #[inline(always)]
    fn weights(&self, job: Job, output: u32) -> Global<u8> {
        job.weights.row(output.min(job.n.wrapping_sub(1)), P::weight_row_bytes(self.k))
    }

    /// The block's groups, one after another. The first pieces of the next are under way while the last ones of this are
    /// multiplied.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`].
    #[inline(always)]
    #[track_caller]
    unsafe fn groups<S: Simt, const STEPS: usize>(&self, s: S) {
        type G = MatvecGeometry;
        let (lane, pass) = (s.lane(), s.block().x);
        let (groups, stride) = (self.all_groups(), s.grid().y);
        let pieces = self.k / P::ELEMENTS;
        let last = pieces.wrapping_sub(1);
        let rows_of = |group: u32| -> [Global<u8>; G::OUTPUTS] {
            let (job, first) = self.outputs(s, group);
            core::array::from_fn(|i| self.weights(job, first + i as u32))
        };
        let load = |weights: [Global<u8>; G::OUTPUTS], first: u32| -> [[P::Words; G::OUTPUTS]; STEPS] {
            core::array::from_fn(|step| {
                let index = (first + lane + step as u32 * WARP_LANES).min(last);
                // SAFETY: a piece of a row that there is.
                weights.map(|row| unsafe { P::load(s, row, self.k, index) })
            })
        };
        let ask_for = |group: u32| {
            if lane < G::OUTPUTS as u32 {
                let (job, first) = self.outputs(s, group);
                let bytes = P::weight_row_bytes(self.k).min(G::AHEAD_BYTES);
                // SAFETY: the beginning of a row that there is; rows are a multiple of 16 bytes, not 0.
                unsafe { s.prefetch(self.weights(job, first + lane), bytes) };
            }
        };
        // Rows past the end are computed from the last one, and not stored.
        let input: [Global<u8>; ROWS] = core::array::from_fn(|i| {
            let row = pass * ROWS as u32 + i as u32;
            self.input.row(row.min(self.rows.wrapping_sub(1)), P::input_row_bytes(self.k))
        });

        let (mut group, mut first) = (s.block().y, 0);
        let mut weights = rows_of(group);
        let mut words = load(weights, first);
        // Behind the first pieces and before the wait: a branch, past which `ptxas` does not move their loads.
        ask_for(group);
        s.wait_for_previous();
        let mut sums = [[0.0_f32; ROWS]; G::OUTPUTS];
        loop {
            let behind = first + STEPS as u32 * WARP_LANES;
            let is_last = behind >= pieces;
            let (next_group, next_first) = if is_last { (group + stride, 0) } else { (group, behind) };
            // A branch, the same for all lanes: without one `ptxas` moves the loads behind the products, where
            // they find registers free, and nothing is under way meanwhile.
            let next = if next_group < groups {
                if is_last {
                    weights = rows_of(next_group);
                }
                let next = load(weights, next_first);
                if is_last {
                    ask_for(next_group);
                }
                next
            } else {
                words
            };
            for (step, words) in words.iter().enumerate() {
                let index = first + lane + step as u32 * WARP_LANES;
                let weights = words.map(|words| P::unpack(s, words, index));
                for (r, &row) in input.iter().enumerate() {
                    // SAFETY: a piece of a row that there is, after the wait.
                    let x = unsafe { P::load_input(s, row, self.k, index.min(last)) };
                    for (sums, weights) in sums.iter_mut().zip(&weights) {
                        let sum = P::add(s, sums[r], weights, &x);
                        sums[r] = if index <= last { sum } else { sums[r] };
                    }
                }
            }
            if is_last {
                // SAFETY: the caller's; each pass and group has one block.
                unsafe { self.store(s, group, &sums) };
                sums = [[0.0; ROWS]; G::OUTPUTS];
                if next_group >= groups {
                    return;
                }
            }
            (group, first, words) = (next_group, next_first, next);
        }
    }

    /// Adds up what the lanes have of the warp's outputs of a group, and stores those that there are.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`]; nobody else stores these.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, group: u32, sums: &[[f32; ROWS]; MatvecGeometry::OUTPUTS]) {
        let lane = s.lane();
        let mut mine = 0.0;
        for (i, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                let sum = s.warp_sum(sum);
                if lane == (i * ROWS + r) as u32 {
                    mine = sum;
                }
            }
        }
        let (job, first) = self.outputs(s, group);
        let (output, row) = (first + lane / ROWS as u32, s.block().x * ROWS as u32 + lane % ROWS as u32);
        if lane < (MatvecGeometry::OUTPUTS * ROWS) as u32 && output < job.n && row < self.rows {
            // SAFETY: a row and an output that there are; each element of out has one lane. A bias
            // has `n` values.
            unsafe {
                if job.bias.address() != 0 {
                    mine += s.load_global_constant(job.bias.at(u64::from(output)));
                }
                s.store_global(job.out.row(row, job.n).at(u64::from(output)), mine);
            }
        }
    }
}
