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
/// Bytes of a piece of a row of input, and of a chunk of it, which a lane copies.
const VALUE_BYTES: u32 = 2 * PIECE_ELEMENTS;
const CHUNK: u32 = 16;
/// f32 from one row's sums of a warp to the next one's, beyond the outputs.
const SUM_GAP: u32 = 4;
/// What weights are multiplied by, so that small scales are normal numbers of f16.
const SCALE_UP: f32 = 64.0;

/// The arguments of a `matmul_splitk`: tiles of outputs and of rows, stages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatmulSplitK<B, const M: usize, const N: usize, const STAGES: u32> {
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
unsafe impl<B, const M: usize, const N: usize, const STAGES: u32> bytemuck::Zeroable for MatmulSplitK<B, M, N, STAGES> {}

/// A plane of a stage in shared memory: of each row what belongs to a piece.
#[derive(Clone, Copy)]
struct StagedPlane {
    /// Where it begins in its stage.
    at: u32,
    /// Bytes of a row, a multiple of 4, or none.
    bytes: u32,
}

/// The sums of a warp.
type Sums<const M: usize, const N: usize> = [[[f32; 4]; N]; M];

impl<B: Pieces, const M: usize, const N: usize, const STAGES: u32> MatmulSplitK<B, M, N, STAGES> {
    /// Outputs of a block.
    pub const OUTPUTS: u32 = TILE_M * M as u32;
    /// Rows of input of a block.
    pub const ROWS: u32 = TILE_N * N as u32;
    const PLANES: Planes = Planes::of(B::FORMAT);
    const BLOCK_PIECES: u32 = B::FORMAT.block_elements() as u32 / PIECE_ELEMENTS;

    const QUANTS: StagedPlane = StagedPlane { at: 0, bytes: Self::PLANES.quants / Self::BLOCK_PIECES };
    const HIGH: StagedPlane = Self::behind(Self::QUANTS, Self::PLANES.high / Self::BLOCK_PIECES);
    /// Scales and head of a piece are those of its block.
    const SCALES: StagedPlane = Self::behind(Self::HIGH, Self::PLANES.scales);
    /// Of heads of 2 bytes two are copied.
    const HEADS: StagedPlane =
        Self::behind(Self::SCALES, if Self::PLANES.heads == 2 { 4 } else { Self::PLANES.heads });
    const VALUES: StagedPlane = Self::behind(Self::HEADS, VALUE_BYTES);
    /// Bytes of a warp's stage.
    const STAGE_BYTES: u32 = Self::VALUES.at + Self::ROWS * VALUE_BYTES;
    /// f32 from one row's sums of a warp to the next one's, and of a warp.
    const WARP_ROW: u32 = Self::OUTPUTS + SUM_GAP;
    const WARP_SUMS: u32 = Self::ROWS * Self::WARP_ROW;

    const fn behind(before: StagedPlane, bytes: u32) -> StagedPlane {
        StagedPlane { at: before.at + before.bytes * Self::OUTPUTS, bytes }
    }
}

impl<B: Pieces + super::matvec::Named, const M: usize, const N: usize, const STAGES: u32> Contract
    for MatmulSplitK<B, M, N, STAGES>
{
    const NAME: &'static str = B::SPLITK[match (M, N) {
        (_, 1) => 1,
        (_, 2) => 2,
        (_, 4) => 3,
        (_, 8) => 4,
        _ => panic!("tiles without a name"),
    }];
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[Occurrence::new(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            Count::Exactly((RUNS * M * N) as u32),
        )
        .since(80)],
        registers: 255,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        Launch {
            grid: Dim3 { x: self.rows.div_ceil(Self::ROWS), y: Job::groups(&self.jobs, Self::OUTPUTS), z: 1 },
            threads: THREADS,
            shared_bytes: (WARPS * STAGES * Self::STAGE_BYTES).max(WARPS * Self::WARP_SUMS * 4),
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = u64::from(self.rows) * F16PieceRow::new(self.k).read_bytes(false);
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
    /// Pieces of a row.
    pieces: u32,
}

impl<S: Simt, B: Pieces + super::matvec::Named, const M: usize, const N: usize, const STAGES: u32> Kernel<S>
    for MatmulSplitK<B, M, N, STAGES>
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
            pieces: self.k / PIECE_ELEMENTS,
        };
        let ring = s.shared::<u8>().row(s.warp(), STAGES * Self::STAGE_BYTES);
        s.let_next_begin();
        // SAFETY: what is staged lies inside its stage, and comes from inside its matrix. A stage is read behind its
        // wait and a meeting of the warp, and written again behind the next one, which every lane reaches when it has
        // multiplied it. Input is copied behind the wait for the launch before. Behind the barriers each sum has one
        // lane, and an element of out one thread.
        unsafe {
            for stage in 0..STAGES - 1 {
                Self::copy_weights(s, task, ring.row(stage, Self::STAGE_BYTES), stage * WARPS + s.warp());
            }
            s.wait_for_previous();
            for stage in 0..STAGES - 1 {
                self.copy_input(s, task, ring.row(stage, Self::STAGE_BYTES), stage * WARPS + s.warp());
                s.copy_async_commit();
            }
            let mut sums: Sums<M, N> = [[[0.0; 4]; N]; M];
            let (mut slot, mut free) = (0, STAGES - 1);
            let mut piece = s.warp();
            while piece < task.pieces {
                match STAGES {
                    3 => s.copy_async_wait::<1>(),
                    4 => s.copy_async_wait::<2>(),
                    6 => s.copy_async_wait::<4>(),
                    8 => s.copy_async_wait::<6>(),
                    _ => s.copy_async_wait::<0>(),
                }
                s.warp_sync();
                let to = ring.row(free, Self::STAGE_BYTES);
                let ahead = piece + (STAGES - 1) * WARPS;
                Self::copy_weights(s, task, to, ahead);
                self.copy_input(s, task, to, ahead);
                s.copy_async_commit();
                Self::multiply(s, ring.row(slot, Self::STAGE_BYTES), piece, &mut sums);
                free = slot;
                slot = if slot == STAGES - 1 { 0 } else { slot + 1 };
                piece += WARPS;
            }
            s.copy_async_wait::<0>();
            s.barrier();
            Self::share(s, &sums);
            s.barrier();
            self.store(s, task);
        }
    }
}

impl<B: Pieces, const M: usize, const N: usize, const STAGES: u32> MatmulSplitK<B, M, N, STAGES> {
    /// Begins to copy what the block's weights have of a piece, if there is such a piece.
    ///
    /// # Safety
    /// Nobody uses the stage until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_weights<S: Simt>(s: S, task: Task, stage_at: Shared<u8>, piece: u32) {
        if piece >= task.pieces {
            return;
        }
        let at = Self::PLANES.offsets(task.blocks);
        let block = piece / Self::BLOCK_PIECES;
        let heads = block.wrapping_mul(Self::PLANES.heads) & !3;
        for down in (0..Self::OUTPUTS).step_by(WARP_LANES as usize) {
            let row = down + s.lane();
            if Self::OUTPUTS < WARP_LANES && row >= Self::OUTPUTS {
                continue;
            }
            // An output past the end is the last one, and is not stored.
            let output = (task.first_output + row).min(task.job.n.wrapping_sub(1));
            let weights = task.job.weights.row(output, task.row_bytes);
            let to = |plane: StagedPlane| stage_at.at(row * plane.bytes).at(plane.at);
            let from = |at: u32| weights.at(u64::from(at));
            // SAFETY: the caller's; the piece and its block are the row's.
            unsafe {
                copy(s, Self::QUANTS.bytes, to(Self::QUANTS), from(piece.wrapping_mul(Self::QUANTS.bytes)));
                copy(s, Self::HIGH.bytes, to(Self::HIGH), from(at.high + piece.wrapping_mul(Self::HIGH.bytes)));
                copy(s, Self::SCALES.bytes, to(Self::SCALES), from(at.scales + block.wrapping_mul(Self::SCALES.bytes)));
                copy(s, Self::HEADS.bytes, to(Self::HEADS), from(at.heads + heads));
            }
        }
    }

    /// Begins to copy what the block's input has of a piece, if there is such a piece.
    ///
    /// # Safety
    /// As [`copy_weights`](Self::copy_weights); the launch before has been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_input<S: Simt>(&self, s: S, task: Task, stage_at: Shared<u8>, piece: u32) {
        if piece >= task.pieces {
            return;
        }
        let row_bytes = F16PieceRow::new(self.k).bytes();
        let (row, chunk) = (s.lane() / CHUNKS, s.lane() % CHUNKS);
        for n in 0..N as u32 {
            // A row past the end is the last one, and is not stored.
            let of_block = (n * TILE_N + row).min(task.rows - 1);
            let from = self.input.row(task.first_row + of_block, row_bytes).at(u64::from(chunk * CHUNK));
            let to = stage_at.at(s.lane() * CHUNK).at(Self::VALUES.at + n * TILE_N * VALUE_BYTES);
            // SAFETY: the caller's; the piece is the row's.
            unsafe { copy(s, CHUNK, to, from.at(u64::from(piece * VALUE_BYTES))) };
        }
    }

    /// Adds the products of a piece to the warp's sums.
    ///
    /// # Safety
    /// The piece is staged, visible, and stays.
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Simt>(s: S, stage_at: Shared<u8>, piece: u32, sums: &mut Sums<M, N>) {
        let (g, t) = (group(s.lane()), place(s.lane()));
        // Outputs g and g + 8 of each tile.
        let row = |plane: StagedPlane, m: usize, half: usize| {
            let down = (TILE_M * m as u32 + 8 * half as u32) * plane.bytes;
            stage_at.at(g * plane.bytes).at(plane.at + down)
        };
        let of_block = piece % Self::BLOCK_PIECES;
        let skipped = (piece / Self::BLOCK_PIECES).wrapping_mul(Self::PLANES.heads) % 4;
        let mut a = [[[0_u32; 4]; RUNS]; M];
        for m in 0..M {
            for half in 0..2 {
                let heads = row(Self::HEADS, m, half).at(skipped);
                // SAFETY: the caller's.
                let (scales, quants) = unsafe {
                    (
                        B::staged_scales(s, row(Self::SCALES, m, half), heads, of_block),
                        B::quarter(s, row(Self::QUANTS, m, half), row(Self::HIGH, m, half), 0, t),
                    )
                };
                for run in 0..RUNS {
                    let (scale, min) = scales[run];
                    let scale = s.f16x2_from_f32(SCALE_UP * scale, SCALE_UP * scale);
                    // The minimum is subtracted.
                    let min = s.f16x2_from_f32(-SCALE_UP * min, -SCALE_UP * min);
                    let [low, high] = integers::<B, S>(s, quants[run])
                        .map(|q| if B::OWN_MIN { s.fma_f16x2(q, scale, min) } else { s.mul_f16x2(q, scale) });
                    a[m][run][half] = low;
                    a[m][run][2 + half] = high;
                }
            }
        }
        let values = stage_at.at(s.lane() * CHUNK).at(Self::VALUES.at);
        for n in 0..N {
            let from = values.at(TILE_N * n as u32 * VALUE_BYTES);
            // SAFETY: the caller's.
            let b: [u32; 4] = unsafe { s.load_shared(from.cast()) };
            for m in 0..M {
                let sum = &mut sums[m][n];
                *sum = s.mma_m16n8k16_f16(a[m][0], [b[0], b[1]], *sum);
                *sum = s.mma_m16n8k16_f16(a[m][1], [b[2], b[3]], *sum);
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
            let mut sum = sums[0] * (1.0 / SCALE_UP);
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

/// Chunks of a piece of a row of input: one a lane of four.
const CHUNKS: u32 = VALUE_BYTES / CHUNK;

/// Begins to copy `bytes` bytes, which are constant.
///
/// # Safety
/// As [`Simt::copy_async`].
#[inline(always)]
#[track_caller]
unsafe fn copy<S: Simt>(s: S, bytes: u32, to: Shared<u8>, from: Global<u8>) {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            0 => {}
            4 => s.copy_async::<4, _>(to, from, 4),
            8 => s.copy_async::<8, _>(to, from, 8),
            _ => {
                for at in (0..bytes).step_by(CHUNK as usize) {
                    s.copy_async::<CHUNK, _>(to.at(at), from.at(u64::from(at)), CHUNK);
                }
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
