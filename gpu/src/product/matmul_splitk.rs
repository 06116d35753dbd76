//! `matmul_splitk_<format>`: rows of f16 times quantized weights by the tensor cores, K split among the warps of a
//! block: for steps of 1 to 64 sequences.
//!
//! `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]`; input `rows × k` as
//! [`AsF16Pieces`], weights `n × k` in rows of planes ([`planes`](crate::quant::planes)), out `rows × n`, row major,
//! f32. Up to three matrices of weights with the same `k` and the same format share a launch: Q, K and V, or gate and
//! up.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = pass of 8 · N tiles rows of input, y = group of 16 · M tiles outputs, the jobs' one after another
//! block: 8 warps, which share K
//!
//!                      K in pieces of 32 elements
//!                      0      | 1      | ... | 7      | 8      | ...
//!   outputs × rows     warp 0 | warp 1 | ... | warp 7 | warp 0 | ...
//! ```
//!
//! A warp has its pieces of all outputs and rows of the block, and a sum for each of those.
//!
//! # One piece
//!
//! ```text
//!               A: 16 outputs × 16 k     B: 16 k × 8 rows      D
//!  run 0        quants 0 .. 15           input 0 .. 15      -> integers times input, f32
//!  run 1        quants 16 .. 31          input 16 .. 31        summed over the run, or over the piece
//!
//!  sum += scale · D - minimum · Σ input          on accumulators: a scale of its output, a Σ of its row
//! ```
//!
//! Quants are small integers, which f16 holds exactly, so weights are not rounded at all: scales are f32. What lane
//! (g, t) needs of a run, the quants 4t .. 4t + 3 of outputs g and g + 8 and as many values of row g, stands side by
//! side in the planes and in the input, because a product does not care in which order its k come.
//!
//! # Shared memory
//!
//! ```text
//! stages, each  quants, high, scales, heads   16 · M tiles rows of PIECES pieces of weights, plane by plane
//!               values, sums                  up to 8 · N tiles rows of PIECES pieces of input
//! behind the last stage, over all that        8 warps × rows × outputs f32: the warps' sums
//! ```
//!
//! Rows of planes lie 16 bytes more apart than a multiple of 128 has, rows of values 64: then what eight lanes load
//! at a time lies in different banks.
//!
//! # Who waits for whom
//!
//! The launch begins while the one before it, which makes its input, still runs: weights of the first stages are
//! asked for, then it waits. One barrier a stage: before it a thread waits for its own copies of the stage; after it
//! all of the stage is visible, *and* all warps have finished the stage before, which the next copies overwrite. Two
//! barriers at the end, around the warps' sums.
//!
//! # Numeric contract
//!
//! A piece's products are summed in the tensor core's order, a warp's pieces in order of k, the eight warps' sums in
//! the order of a butterfly; then the bias. All of it depends on k alone: an output has the same bits whatever the
//! other rows, the tiles and the grid are.

use core::marker::PhantomData;

#[cfg(doc)]
use super::activations::AsF16Pieces;
use tmp::F16PieceRow;
use super::matvec::Job;
use crate::fragment::{group, mma, place};
use crate::quant::planes::{PIECE_ELEMENTS, Pieces, Planes, RUNS, plane_value_bytes};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Shared, Simt, Unit, WARP_LANES,
    Work,
};

/// Warps of a block, which share K.
const WARPS: u32 = 8;
const THREADS: u32 = WARPS * WARP_LANES;
/// Outputs of a product, and rows of input.
const TILE_M: u32 = 16;
const TILE_N: u32 = 8;
/// Bytes of a copy.
const CHUNK: u32 = 16;
/// Bytes of a piece of input, and of its sums.
const VALUE_BYTES: u32 = 2 * PIECE_ELEMENTS;
const SUM_BYTES: u32 = 4 * RUNS as u32;
/// What rows in shared memory have more than their bytes.
const PLANE_GAP: u32 = 16;
const VALUE_GAP: u32 = 64;
/// f32 from one row's sums of a warp to the next one's, beyond the outputs.
const SUM_GAP: u32 = 4;

/// The arguments of a `matmul_splitk`: tiles of outputs and of rows, pieces of a stage, stages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatmulSplitK<B, const M: usize, const N: usize, const PIECES: u32, const STAGES: u32> {
    /// What weights there are, and where their products go: at most [`Job::MOST_GROUPS`] groups of
    /// [`OUTPUTS`](Self::OUTPUTS) outputs.
    pub jobs: [Job; Job::MOST],
    /// `rows` rows of [`AsF16Pieces`], aligned to 16 bytes.
    pub input: Global<u8>,
    /// Rows of input, at most 2^31 - 1.
    pub rows: u32,
    /// Columns of input and weights: a multiple of the format's block, not 0; rows have fewer than 2^31 bytes.
    pub k: u32,
    /// The weights' format.
    pub format: PhantomData<B>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<B, const M: usize, const N: usize, const PIECES: u32, const STAGES: u32> bytemuck::Zeroable
    for MatmulSplitK<B, M, N, PIECES, STAGES>
{
}

/// A plane of a stage in shared memory.
#[derive(Clone, Copy)]
struct StagedPlane {
    /// Where it begins in its stage.
    at: u32,
    /// Bytes of a stage of a row.
    bytes: u32,
    /// Chunks of a row that hold these.
    chunks: u32,
    /// Bytes from one row to the next.
    stride: u32,
}

impl StagedPlane {
    /// A plane of `bytes` a row and stage, behind what ends at `at`.
    const fn new(at: u32, bytes: u32) -> Self {
        let chunks = bytes.div_ceil(CHUNK);
        let stride = if bytes == 0 { 0 } else { chunks * CHUNK + PLANE_GAP };
        Self { at, bytes, chunks, stride }
    }

    /// Where it ends with `rows` rows.
    const fn end(self, rows: u32) -> u32 {
        self.at + rows * self.stride
    }

    /// Where the bytes of stage `stage` begin in their first chunk: not at 0 where several stages share one.
    #[inline(always)]
    const fn skipped(self, stage: u32) -> u32 {
        stage.wrapping_mul(self.bytes) % CHUNK
    }
}

/// The sums of a warp.
type Sums<const M: usize, const N: usize> = [[[f32; 4]; N]; M];

impl<B: Pieces, const M: usize, const N: usize, const PIECES: u32, const STAGES: u32>
    MatmulSplitK<B, M, N, PIECES, STAGES>
{
    /// Outputs of a block.
    pub const OUTPUTS: u32 = TILE_M * M as u32;
    /// Rows of input of a block.
    pub const ROWS: u32 = TILE_N * N as u32;
    /// Pieces of a warp in a stage.
    const STEPS: u32 = PIECES / WARPS;
    const PLANES: Planes = Planes::of(B::FORMAT);
    const BLOCK_PIECES: u32 = B::FORMAT.block_elements() as u32 / PIECE_ELEMENTS;

    const QUANTS: StagedPlane = Self::plane(0, Self::PLANES.quants);
    const HIGH: StagedPlane = Self::plane(Self::QUANTS.end(Self::OUTPUTS), Self::PLANES.high);
    const SCALES: StagedPlane = Self::plane(Self::HIGH.end(Self::OUTPUTS), Self::PLANES.scales);
    const HEADS: StagedPlane = Self::plane(Self::SCALES.end(Self::OUTPUTS), Self::PLANES.heads);
    /// Where the input begins in a stage, and bytes from one row to the next.
    const VALUES: u32 = Self::HEADS.end(Self::OUTPUTS);
    const VALUE_STRIDE: u32 = PIECES * VALUE_BYTES + VALUE_GAP;
    const SUM_STRIDE: u32 = PIECES * SUM_BYTES + PLANE_GAP;
    /// Chunks of a row's sums in a stage: threads copy one each.
    const SUM_CHUNKS: u32 = {
        let chunks = PIECES * SUM_BYTES / CHUNK;
        assert!(Self::ROWS * chunks <= THREADS);
        chunks
    };
    /// f32 from one row's sums of a warp to the next one's, and of a warp.
    const WARP_ROW: u32 = Self::OUTPUTS + SUM_GAP;
    const WARP_SUMS: u32 = Self::ROWS * Self::WARP_ROW;

    const fn plane(at: u32, block_bytes: u32) -> StagedPlane {
        StagedPlane::new(at, block_bytes * PIECES / Self::BLOCK_PIECES)
    }

    /// Bytes of a stage with `rows` rows of input.
    #[inline(always)]
    const fn stage_bytes(rows: u32) -> u32 {
        Self::VALUES + Self::staged_rows(rows) * Self::VALUE_STRIDE
    }
}

impl<B: Pieces + super::matvec::Named, const M: usize, const N: usize, const PIECES: u32, const STAGES: u32>
    Contract for MatmulSplitK<B, M, N, PIECES, STAGES>
{
    const NAME: &'static str = B::SPLITK[match (M, N) {
        (1, 1) => 0,
        (2, 1) => 1,
        (_, 2) => 2,
        (_, 4) => 3,
        (_, 8) => 4,
        _ => panic!("tiles without a name"),
    }];
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[Occurrence::new(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            Count::Exactly(RUNS as u32 * Self::STEPS * (M * N) as u32),
        )
        .since(80)],
        registers: 255,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let stages = STAGES * Self::stage_bytes(self.rows.min(Self::ROWS));
        Launch {
            grid: Dim3 { x: self.rows.div_ceil(Self::ROWS), y: Job::groups(&self.jobs, Self::OUTPUTS), z: 1 },
            threads: THREADS,
            shared_bytes: stages.max(WARPS * Self::WARP_SUMS * 4),
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = u64::from(self.rows) * F16PieceRow::new(self.k).read_bytes(B::OWN_MIN);
        let weights = plane_value_bytes(B::FORMAT, self.k);
        Some(Job::work(&self.jobs, [self.rows, self.k], weights, input, Unit::TensorF16))
    }
}

/// What a block is to do.
#[derive(Clone, Copy)]
struct Task {
    job: Job,
    first_output: u32,
    first_row: u32,
    /// Rows of input that there are for the block, at least 1.
    rows: u32,
    /// Blocks of a row of weights, and bytes from one row to the next.
    blocks: u32,
    row_bytes: u32,
}

impl<
    S: Simt,
    B: Pieces + super::matvec::Named,
    const M: usize,
    const N: usize,
    const PIECES: u32,
    const STAGES: u32,
> Kernel<S> for MatmulSplitK<B, M, N, PIECES, STAGES>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: pass, y: outputs, .. } = s.block();
        let (job, outputs) = Job::of_group(&self.jobs, outputs, Self::OUTPUTS);
        let blocks = self.k / B::FORMAT.block_elements() as u32;
        let first_row = pass * Self::ROWS;
        let task = Task {
            job,
            first_output: outputs * Self::OUTPUTS,
            first_row,
            rows: self.rows.wrapping_sub(first_row).min(Self::ROWS),
            blocks,
            row_bytes: Self::PLANES.offsets(blocks).row,
        };
        let stages = (self.k / PIECE_ELEMENTS).div_ceil(PIECES);
        let stage_bytes = Self::stage_bytes(task.rows);
        let first: Shared<u8> = s.shared();
        s.let_next_begin();
        // SAFETY: what is staged lies inside its stage, and comes from inside its matrix or is zero. A stage is read
        // behind its wait and a barrier, and written again behind the next barrier, which every warp reaches when it
        // has multiplied it. Input is copied behind the wait for the launch before. Behind the last barriers each
        // sum has one lane, and an element of out one thread.
        unsafe {
            for stage in 0..STAGES - 1 {
                Self::copy_weights(s, task, first.row(stage, stage_bytes), stage);
            }
            s.wait_for_previous();
            for stage in 0..STAGES - 1 {
                self.copy_input(s, task, first.row(stage, stage_bytes), stage);
                s.copy_async_commit();
            }
            let mut sums: Sums<M, N> = [[[0.0; 4]; N]; M];
            let (mut slot, mut free) = (0, STAGES - 1);
            for stage in 0..stages {
                match STAGES {
                    3 => s.copy_async_wait::<1>(),
                    4 => s.copy_async_wait::<2>(),
                    5 => s.copy_async_wait::<3>(),
                    6 => s.copy_async_wait::<4>(),
                    _ => s.copy_async_wait::<0>(),
                }
                s.barrier();
                let to = first.row(free, stage_bytes);
                Self::copy_weights(s, task, to, stage + STAGES - 1);
                self.copy_input(s, task, to, stage + STAGES - 1);
                s.copy_async_commit();
                Self::multiply(s, task.rows, first.row(slot, stage_bytes), stage, &mut sums);
                free = slot;
                slot = if slot == STAGES - 1 { 0 } else { slot + 1 };
            }
            s.copy_async_wait::<0>();
            s.barrier();
            Self::share(s, &sums);
            s.barrier();
            self.store(s, task);
        }
    }
}

impl<B: Pieces, const M: usize, const N: usize, const PIECES: u32, const STAGES: u32>
    MatmulSplitK<B, M, N, PIECES, STAGES>
{
    /// Begins to copy a stage of the block's weights. What is past the end of K becomes zero.
    ///
    /// # Safety
    /// Nobody uses the stage until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_weights<S: Simt>(s: S, task: Task, stage_at: Shared<u8>, stage: u32) {
        let at = Self::PLANES.offsets(task.blocks);
        let planes = [
            (Self::QUANTS, 0, Self::PLANES.quants),
            (Self::HIGH, at.high, Self::PLANES.high),
            (Self::SCALES, at.scales, Self::PLANES.scales),
            (Self::HEADS, at.heads, Self::PLANES.heads),
        ];
        for (plane, at, block_bytes) in planes {
            let first = stage.wrapping_mul(plane.bytes) & !(CHUNK - 1);
            // Of the last chunk of a plane all bytes exist, and are zero where there is no block.
            let end = task.blocks.wrapping_mul(block_bytes);
            let chunks = plane.chunks * Self::OUTPUTS;
            for turn in 0..chunks.div_ceil(THREADS) {
                let index = turn * THREADS + s.thread();
                if chunks.is_multiple_of(THREADS) || index < chunks {
                    let (row, chunk) = (index / plane.chunks, index % plane.chunks);
                    // An output past the end is the last one, and is not stored.
                    let output = (task.first_output + row).min(task.job.n.wrapping_sub(1));
                    // In this order: what does not depend on the stage is computed once.
                    let row_at = task.job.weights.row(output, task.row_bytes).at(u64::from(at + chunk * CHUNK));
                    let to = stage_at.at(plane.at + row * plane.stride + chunk * CHUNK);
                    let valid = if first < end.saturating_sub(chunk * CHUNK) { CHUNK } else { 0 };
                    // SAFETY: the caller's; nothing is read past the plane.
                    unsafe { s.copy_async::<CHUNK, _>(to, row_at.at(u64::from(first)), valid) };
                }
            }
        }
    }

    /// Rows of input that a stage holds if the block has so many.
    #[inline(always)]
    const fn staged_rows(rows: u32) -> u32 {
        if N == 1 { rows } else { Self::ROWS }
    }

    /// Begins to copy a stage of the block's input. What is past the end of K becomes zero.
    ///
    /// # Safety
    /// As [`copy_weights`](Self::copy_weights); the launch before has been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_input<S: Simt>(&self, s: S, task: Task, stage_at: Shared<u8>, stage: u32) {
        let at = F16PieceRow::new(self.k);
        let pieces = self.k / PIECE_ELEMENTS;
        let staged = Self::staged_rows(task.rows);
        // A row past the end is the last one, and is not stored.
        let source = |row: u32| self.input.row(task.first_row + row.min(task.rows - 1), at.bytes());

        // A warp copies a row's values.
        let first = stage.wrapping_mul(PIECES * VALUE_BYTES);
        let left = pieces.wrapping_mul(VALUE_BYTES).saturating_sub(first);
        for turn in 0..N as u32 {
            let row = turn * WARPS + s.warp();
            if N == 1 && row >= staged {
                continue;
            }
            let from = source(row).at(u64::from(s.lane() * CHUNK)).at(u64::from(first));
            let to = stage_at.at(row * Self::VALUE_STRIDE + s.lane() * CHUNK).at(Self::VALUES);
            for along in (0..PIECES * VALUE_BYTES).step_by((WARP_LANES * CHUNK) as usize) {
                let valid = if along + s.lane() * CHUNK < left { CHUNK } else { 0 };
                // SAFETY: the caller's; nothing is read past the row.
                unsafe { s.copy_async::<CHUNK, _>(to.at(along), from.at(u64::from(along)), valid) };
            }
        }
    }

    /// Adds the products of the warp's pieces of a stage to its sums. A piece past the end adds nothing: its scales
    /// and its input are zero.
    ///
    /// # Safety
    /// The stage is staged, visible, and stays.
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Simt>(s: S, rows: u32, stage_at: Shared<u8>, stage: u32, sums: &mut Sums<M, N>) {
        let (g, t) = (group(s.lane()), place(s.lane()));
        let warp = s.warp();
        // Outputs g and g + 8 of each tile; the lane's part first, which is the same in all stages.
        let row = |plane: StagedPlane, m: usize, half: usize| {
            let down = (TILE_M * m as u32 + 8 * half as u32) * plane.stride;
            stage_at.at(g * plane.stride).at(plane.at + down)
        };
        // Lane t has the scales of the warp's piece of step t; with one step all lanes have the same.
        let own = if Self::STEPS == 1 { warp } else { t * WARPS + warp };
        let mut own_scales = [[[0_u32; RUNS]; 2]; M];
        for m in 0..M {
            for half in 0..2 {
                let heads = row(Self::HEADS, m, half).at(Self::HEADS.skipped(stage));
                // SAFETY: the caller's.
                let scales = unsafe { B::staged_scales(s, row(Self::SCALES, m, half), heads, own) };
                // The minimum is subtracted.
                own_scales[m][half] = scales.map(|(scale, min)| s.f16x2_from_f32(64.0 * scale, -64.0 * min));
            }
        }
        let staged = Self::staged_rows(rows);
        // With one tile rows that there are not are the last one.
        let of_tile = |row: u32| if N == 1 { row.min(staged - 1) } else { row };
        let values = stage_at.at(of_tile(g) * Self::VALUE_STRIDE + CHUNK * t + warp * VALUE_BYTES).at(Self::VALUES);
        for step in 0..Self::STEPS {
            let piece = step * WARPS + warp;
            let mut a = [[[0_u32; 4]; RUNS]; M];
            for m in 0..M {
                for half in 0..2 {
                    // SAFETY: the caller's.
                    let quants =
                        unsafe { B::quarter(s, row(Self::QUANTS, m, half), row(Self::HIGH, m, half), piece, t) };
                    let mut scales = own_scales[m][half];
                    if Self::STEPS > 1 {
                        for run in 0..if B::ONE_SCALE { 1 } else { RUNS } {
                            scales[run] = s.shuffle(scales[run], s.lane() & !3 | step);
                        }
                    }
                    for run in 0..RUNS {
                        let pair = scales[if B::ONE_SCALE { 0 } else { run }];
                        let [scale, min] = [0x1010, 0x3232].map(|selector| s.permute_bytes(pair, 0, selector));
                        let [low, high] = integers::<B, S>(s, quants[run]).map(|q| {
                            if B::OWN_MIN { s.fma_f16x2(q, scale, min) } else { s.mul_f16x2(q, scale) }
                        });
                        a[m][run][half] = low;
                        a[m][run][2 + half] = high;
                    }
                }
            }
            for n in 0..N {
                let (down, along) = (TILE_N * n as u32, step * WARPS);
                let from = values.at(down * Self::VALUE_STRIDE + along * VALUE_BYTES);
                // SAFETY: the caller's.
                let b: [u32; 4] = unsafe { s.load_shared(from.cast()) };
                for m in 0..M {
                    let sum = &mut sums[m][n];
                    *sum = s.mma_m16n8k16_f16(a[m][0], [b[0], b[1]], *sum);
                    *sum = s.mma_m16n8k16_f16(a[m][1], [b[2], b[3]], *sum);
                }
            }
        }
    }

    /// Stores a warp's sums in shared memory.
    ///
    /// # Safety
    /// Nobody uses it until a barrier.
    #[inline(always)]
    #[track_caller]
    unsafe fn share<S: Simt>(s: S, sums: &Sums<M, N>) {
        let own = s.shared::<f32>().row(s.warp(), Self::WARP_SUMS);
        for m in 0..M {
            for n in 0..N {
                for i in 0..4 {
                    let (output, row) = mma::c(s.lane(), i as u32);
                    let (output, row) = (TILE_M * m as u32 + output, TILE_N * n as u32 + row);
                    // SAFETY: the caller's; each element has one lane.
                    unsafe { s.store_shared(own.row(row, Self::WARP_ROW).at(output), sums[m][n][i]) };
                }
            }
        }
    }

    /// Adds the warps' sums, and the bias, and stores the elements of out.
    ///
    /// # Safety
    /// The caller's of [`Kernel::run`]; the sums have been stored, and a barrier lies behind.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(&self, s: S, task: Task) {
        let elements = Self::OUTPUTS * Self::ROWS;
        for turn in 0..elements.div_ceil(THREADS) {
            let element = turn * THREADS + s.thread();
            let (row, of_block) = (element / Self::OUTPUTS, element % Self::OUTPUTS);
            let output = task.first_output + of_block;
            if element >= elements || row >= task.rows || output >= task.job.n {
                continue;
            }
            let shared = s.shared::<f32>().row(row, Self::WARP_ROW).at(of_block);
            let mut sums = [0.0_f32; WARPS as usize];
            for warp in 0..WARPS {
                // SAFETY: the caller's.
                sums[warp as usize] = unsafe { s.load_shared(shared.row(warp, Self::WARP_SUMS)) };
            }
            for half in [4, 2, 1] {
                for warp in 0..half {
                    sums[warp] += sums[warp + half];
                }
            }
            let mut sum = sums[0] * (1.0 / 64.0);
            // SAFETY: a row and an output that there are; each element of out has one thread. A bias has `n` values.
            unsafe {
                if task.job.bias.address() != 0 {
                    sum += s.load_global_constant(task.job.bias.at(u64::from(output)));
                }
                let row = task.job.out.row(task.first_row + row, task.job.n);
                s.store_global(row.at(u64::from(output)), sum);
            }
        }
    }
}

/// Four quants without their offset as two pairs of f16: exact, for 1024 + q has q in its last bits.
#[inline(always)]
fn integers<B: Pieces, S: Simt>(s: S, quants: u32) -> [u32; 2] {
    // -(1024 + offset), of which f16 has all whole numbers.
    let offset = const { 0xe400_e400 | B::OFFSET | B::OFFSET << 16 };
    [0x4140, 0x4342].map(|selector| s.add_f16x2(s.permute_bytes(quants, 0x6464_6464, selector), offset))
}
mod tmp {
    #[derive(Clone, Copy)]
    pub struct F16PieceRow(u32);
    impl F16PieceRow {
        #[inline(always)]
        pub const fn new(c: u32) -> Self { Self(c) }
        #[inline(always)]
        pub const fn sums(self) -> u32 { 2u32.wrapping_mul(self.0) }
        #[inline(always)]
        pub const fn bytes(self) -> u32 { self.sums().wrapping_add((self.0 / 4).wrapping_add(15) & !15) }
        pub const fn read_bytes(self, s: bool) -> u64 { 2 * self.0 as u64 + if s { self.0 as u64 / 4 } else { 0 } }
    }
}
