//! `matmul_f16`: a product of f16 matrices on the tensor cores, the next tile in flight while
//! this one is multiplied.
//!
//! `out[m][n] = Σ_k input[m][k] · weights[n][k]`; input `M × K` and weights `N × K` f16, out
//! `M × N` f32, all row major. Nothing is transposed in memory: a row-major `N × K` array *is*
//! the column-major `K × N` right operand that `wmma` takes.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = tile of 64 columns of out, y = tile of 64 rows
//!
//!             64 columns of out (rows of weights)
//!            +---------------+---------------+
//!  64 rows   |  warp 0       |  warp 1       |      a warp owns 32 × 32 elements of out:
//!  of out    |  2 × 2        |  2 × 2        |      2 × 2 accumulators of 16 × 16,
//!            +---------------+---------------+      8 f32 registers each
//!            |  warp 2       |  warp 3       |
//!            +---------------+---------------+
//!
//! K goes by in steps of 32: a step's 64 × 32 of input and 64 × 32 of weights are staged by all
//! 128 threads, 16 bytes at a time, rows and columns past the edge as zeros.
//! ```
//!
//! # Registers
//!
//! 32 accumulators; one step's operands, 2 A and 2 B of four registers: 16; the rest addresses.
//!
//! # Shared memory
//!
//! ```text
//! byte      0 input, stage 0      64 rows of (32 + 8) f16
//!        5120 weights, stage 0    64 rows of (32 + 8) f16
//!       10240 input, stage 1
//!       15360 weights, stage 1
//!       20480 end
//!           0 out, after the last step: 64 rows of (64 + 4) f32 = 17408 bytes
//! ```
//!
//! Rows are 80 bytes apart, 20 banks: eight rows of a 16-byte chunk lie in 32 different banks,
//! so no operand load conflicts.
//!
//! # Who waits for whom
//!
//! One barrier a step. Before it a thread waits for its own copies of this step; after it all
//! copies of this step are visible *and* all warps have finished the step before, whose stage
//! the next copies may then overwrite. Two more at the end: before out is laid over the stages,
//! and between writing and reading it.
//!
//! # Numeric contract
//!
//! f32 accumulation, k in order of steps of 16; within a step the tensor core's order. Every
//! element of out is summed by one warp in the same order whatever M, N and the grid are.

use half::f16;

use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Global, Kernel, Launch, MatrixA, MatrixB, Occurrence,
    RowMajor, Shared, Simt, Unit, WARP_LANES, Work, product,
};

/// Tiles, stages and launch of `matmul_f16`.
#[derive(Clone, Copy, Debug)]
pub struct MatmulGeometry;

impl MatmulGeometry {
    /// Rows of out that a block computes.
    pub const TILE_M: u32 = 64;
    /// Columns of out that a block computes.
    pub const TILE_N: u32 = 64;
    /// Elements of K in one step.
    pub const TILE_K: u32 = 32;
    /// Steps that are in shared memory at a time.
    pub const STAGES: u32 = 2;
    /// Warps along the rows of out.
    pub const WARPS_M: u32 = 2;
    /// Warps along the columns of out.
    pub const WARPS_N: u32 = 2;
    /// Threads of a block.
    pub const THREADS: u32 = Self::WARPS_M * Self::WARPS_N * WARP_LANES;
    /// Rows and columns of out that a warp computes, in accumulators of 16 × 16.
    pub const WARP_TILES_M: usize = (Self::TILE_M / Self::WARPS_M / 16) as usize;
    /// See [`WARP_TILES_M`](Self::WARP_TILES_M).
    pub const WARP_TILES_N: usize = (Self::TILE_N / Self::WARPS_N / 16) as usize;
    /// f16 from one staged row to the next. The padding keeps operand loads free of conflicts.
    pub const STAGE_STRIDE: u32 = Self::TILE_K + 8;
    /// f16 of one stage: input, then weights.
    pub const STAGE_ELEMENTS: u32 = (Self::TILE_M + Self::TILE_N) * Self::STAGE_STRIDE;
    /// f32 from one row of out to the next, where it is laid over the stages.
    pub const OUT_STRIDE: u32 = Self::TILE_N + 4;
    /// Bytes of shared memory: two users at different times, so the larger of both.
    pub const SHARED_BYTES: u32 = {
        let stages = Self::STAGES * Self::STAGE_ELEMENTS * 2;
        let out = Self::TILE_M * Self::OUT_STRIDE * 4;
        if stages > out { stages } else { out }
    };
    /// f16 that one asynchronous copy moves.
    const CHUNK: u32 = 8;

    /// Blocks for an `m × n` out.
    #[must_use]
    pub const fn grid(m: u32, n: u32) -> Dim3 {
        Dim3 { x: n.div_ceil(Self::TILE_N), y: m.div_ceil(Self::TILE_M), z: 1 }
    }
}

const _: () = {
    type G = MatmulGeometry;
    assert!(G::TILE_M == G::TILE_N, "one staging loop serves both operands");
    let chunks = G::TILE_M * G::TILE_K / G::CHUNK;
    assert!(chunks.is_multiple_of(G::THREADS), "every thread copies as many chunks");
    assert!(G::TILE_K.is_multiple_of(16) && G::TILE_M.is_multiple_of(16 * G::WARPS_M));
    assert!(G::TILE_N.is_multiple_of(16 * G::WARPS_N));
    assert!((G::STAGE_STRIDE * 2).is_multiple_of(16), "a staged chunk is aligned to 16 bytes");
    assert!((16 * G::STAGE_STRIDE * 2).is_multiple_of(32), "a fragment is aligned to 32 bytes");
    assert!((16 * G::OUT_STRIDE * 4).is_multiple_of(32) && G::OUT_STRIDE.is_multiple_of(4));
    assert!(G::SHARED_BYTES == 20_480);
};

/// The arguments of `matmul_f16`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatmulF16 {
    /// `m × n`, not overlapping the inputs.
    pub out: Global<f32>,
    /// `m × k`, aligned to 16 bytes.
    pub input: Global<f16>,
    /// `n × k`, aligned to 16 bytes.
    pub weights: Global<f16>,
    /// Rows of input and out, at most 64 · 65,535: a grid's second axis has no more blocks.
    pub m: u32,
    /// Rows of weights, columns of out; at most 2^32 - 64.
    pub n: u32,
    /// Columns of input and weights: a multiple of 8, so that every row begins at a multiple of
    /// the 16 bytes that a copy moves; at most 2^32 - 64.
    pub k: u32,
}

impl Contract for MatmulF16 {
    const NAME: &'static str = "matmul_f16";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wmma.mma.sync.aligned.row.col.m16n16k16", Count::Exactly(8)),
            Occurrence::new("wmma.load.a", Count::Exactly(4)),
            Occurrence::new("wmma.load.b", Count::Exactly(4)),
            Occurrence::new("bar.sync", Count::Exactly(3)),
            // Two operands, two chunks a thread; once before the loop and once in it.
            Occurrence::new("cp.async.cg.shared.global", Count::Exactly(8)).since(80),
            Occurrence::new("cp.async.wait_group", Count::Exactly(1)).since(80),
        ],
        registers: 128,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch {
            grid: MatmulGeometry::grid(self.m, self.n),
            threads: MatmulGeometry::THREADS,
            shared_bytes: MatmulGeometry::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let Self { m, n, k, .. } = *self;
        let read = 2 * (product([m, k]) + product([n, k]));
        Some(Work::moving(read, 4 * product([m, n])).multiplying(product([m, n, k]), Unit::TensorF16))
    }
}

impl<S: Simt> Kernel<S> for MatmulF16 {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        type G = MatmulGeometry;
        let (first_row, first_column) = (s.block().y * G::TILE_M, s.block().x * G::TILE_N);
        let (warp_m, warp_n) = (s.warp() / G::WARPS_N, s.warp() % G::WARPS_N);
        let (warp_row, warp_column) =
            (warp_m * 16 * G::WARP_TILES_M as u32, warp_n * 16 * G::WARP_TILES_N as u32);
        let steps = self.k.div_ceil(G::TILE_K);
        let mut sums = [[[0.0_f32; 8]; G::WARP_TILES_N]; G::WARP_TILES_M];

        // SAFETY: what is staged lies inside its stage and comes from inside its matrix, or is
        // zero; a stage is read after this step's wait and barrier, and written again after
        // the next step's barrier. Fragments lie inside their stage. Out is laid over the
        // stages after a barrier, read after another, and stored where it has rows and columns.
        unsafe {
            if steps > 0 {
                self.stage_step(s, 0, first_row, first_column);
            }
            for step in 0..steps {
                s.copy_async_wait::<0>();
                s.barrier();
                if step + 1 < steps {
                    self.stage_step(s, step + 1, first_row, first_column);
                }

                let (input, weights) = stage(s, step);
                for k in (0..G::TILE_K).step_by(16) {
                    let b: [MatrixB<ColMajor>; G::WARP_TILES_N] = core::array::from_fn(|j| {
                        let column = warp_column + 16 * j as u32;
                        s.wmma_load_b(weights.row(column, G::STAGE_STRIDE).at(k), G::STAGE_STRIDE)
                    });
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let row = warp_row + 16 * i as u32;
                        let a: MatrixA<RowMajor> =
                            s.wmma_load_a(input.row(row, G::STAGE_STRIDE).at(k), G::STAGE_STRIDE);
                        for (sum, &b) in sums.iter_mut().zip(&b) {
                            *sum = s.wmma_mma(a, b, *sum);
                        }
                    }
                }
            }

            s.barrier();
            let out = s.shared::<f32>();
            for (i, sums) in sums.iter().enumerate() {
                for (j, &sum) in sums.iter().enumerate() {
                    let (row, column) = (warp_row + 16 * i as u32, warp_column + 16 * j as u32);
                    let tile = out.row(row, G::OUT_STRIDE).at(column);
                    s.wmma_store_shared::<RowMajor>(tile, G::OUT_STRIDE, sum);
                }
            }
            s.barrier();

            let mut i = s.thread();
            while i < G::TILE_M * G::TILE_N {
                let (r, c) = (i / G::TILE_N, i % G::TILE_N);
                let (row, column) = (first_row + r, first_column + c);
                if row < self.m && column < self.n {
                    let value = s.load_shared(out.row(r, G::OUT_STRIDE).at(c));
                    s.store_global(self.out.row(row, self.n).at(u64::from(column)), value);
                }
                i += G::THREADS;
            }
        }
    }
}

impl MatmulF16 {
    /// Begins to copy step `step` of both operands into its stage, and closes the group.
    ///
    /// # Safety
    /// Nobody reads or writes the stage until the copies have been waited for; all threads of
    /// the block call this alike.
    #[inline(always)]
    #[track_caller]
    unsafe fn stage_step<S: Simt>(&self, s: S, step: u32, first_row: u32, first_column: u32) {
        let (input, weights) = stage(s, step);
        let first_k = step * MatmulGeometry::TILE_K;
        // SAFETY: the caller's.
        unsafe {
            stage_tile(s, input, Tile { matrix: self.input, rows: self.m, k: self.k, first_row, first_k });
            stage_tile(
                s,
                weights,
                Tile { matrix: self.weights, rows: self.n, k: self.k, first_row: first_column, first_k },
            );
        }
        s.copy_async_commit();
    }
}

/// Where the input and the weights of a step are staged.
#[inline(always)]
fn stage<S: Simt>(s: S, step: u32) -> (Shared<f16>, Shared<f16>) {
    type G = MatmulGeometry;
    let input = s.shared().row(step % G::STAGES, G::STAGE_ELEMENTS);
    (input, input.row(G::TILE_M, G::STAGE_STRIDE))
}

/// 64 rows and one step's columns of a `rows × k` matrix.
#[derive(Clone, Copy)]
struct Tile {
    matrix: Global<f16>,
    rows: u32,
    k: u32,
    first_row: u32,
    first_k: u32,
}

/// Begins to copy a tile; what lies past the matrix's edge becomes zero.
///
/// # Safety
/// As [`MatmulF16::stage_step`], for the rows at `to`.
#[inline(always)]
#[track_caller]
unsafe fn stage_tile<S: Simt>(s: S, to: Shared<f16>, tile: Tile) {
    type G = MatmulGeometry;
    const CHUNKS_OF_A_ROW: u32 = G::TILE_K / G::CHUNK;
    for round in 0..G::TILE_M * CHUNKS_OF_A_ROW / G::THREADS {
        let chunk = round * G::THREADS + s.thread();
        let (r, c) = (chunk / CHUNKS_OF_A_ROW, chunk % CHUNKS_OF_A_ROW * G::CHUNK);
        let (row, k) = (tile.first_row + r, tile.first_k + c);
        // A row is a multiple of the chunk, so a chunk is inside as a whole or not at all.
        let valid = if row < tile.rows && k < tile.k { 16 } else { 0 };
        let from = tile.matrix.row(row, tile.k).at(u64::from(k));
        // SAFETY: the caller's; nothing is read where the chunk is outside.
        unsafe { s.copy_async::<16, _>(to.row(r, G::STAGE_STRIDE).at(c), from, valid) };
    }
}
