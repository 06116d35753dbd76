//! `matmul_f16_<format>`: rows of f16 times weights of any format, which become f16 on their way.
//!
//! `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`; input `M × K` f16, row major; weights
//! `N × K` as rows of planes ([`planes`](crate::quant::planes)); out `M × N` f32, row major.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = tiles of 128 × 128 of out (`_m32`: 32 × 128), in the order of `Tiling::place`
//!
//!                    128 columns of out (rows of weights)
//!                   +----------+----------+----------+----------+
//!  128 rows of out  |  warp 0  |  warp 1  |  warp 2  |  warp 3  |   a warp owns 64 × 32 elements
//!                   |  64 × 32 |          |          |          |   of out: 4 × 2 accumulators of
//!                   +----------+----------+----------+----------+   16 × 16, 8 f32 registers each
//!                   |  warp 4  |  warp 5  |  warp 6  |  warp 7  |
//!                   +----------+----------+----------+----------+
//!
//! K goes by in slabs of 64: 128 × 64 of input come by asynchronous copies; 128 × 64 of weights are
//! 256 pieces of 32 elements, which a thread each loads, unpacks and stores as f16.
//! ```
//!
//! # One slab
//!
//! ```text
//!  copies of the next slab's input begin
//!  loads of the next slab's weights begin       packed, a few registers
//!  this slab is multiplied                      4 steps of k, 8 products of 16 × 16 × 16 each
//!  the next slab's weights are unpacked         once a block, not once a warp
//!  and stored where the slab before was
//! ```
//!
//! # Registers
//!
//! 64 accumulators; of a step's operands 2 B and 1 A of four registers: 12; the piece on its way, 6
//! to 10, of numbers 16 (f32: 32); the rest addresses. At most 128, so that two blocks share a
//! multiprocessor; `ptxas` is not held to it for f32, which has it without, and spills with it on sm_120.
//!
//! # Shared memory
//!
//! ```text
//! byte      0 input, slab 0      128 rows of 64 f16, placed as `Staged` says
//!       16384 input, slab 1
//!       32768 weights, slab 0    128 rows of 64 f16
//!       49152 weights, slab 1
//!       65536 end: all that sm_75 has
//! ```
//!
//! # Who waits for whom
//!
//! One barrier a slab. Before it a thread waits for its own copies of the slab; after it all of the
//! slab's input and weights are visible, *and* all warps have finished the slab before, over which
//! the next is then written.
//!
//! # Shape contract
//!
//! Any M and N; K any multiple of the format's block and of 8. What a tile has too much is zero in the
//! input, and is not stored.
//!
//! # Numeric contract
//!
//! A weight is the f32 that [`dequantize`](crate::quant::Block::dequantize) gives, rounded once to
//! f16, to nearest even: to the bit, but for the sign of zero, and for a scale that is not finite. What is
//! 65520 or more, which f32 and bf16 can be, becomes infinite, and what it is summed into infinite or NaN.
//! Sums are f32, k in order of steps of 16; within a step the tensor core's order. Every element of out is
//! summed by one warp in the same order whatever M, N, the grid and the tiles are; then the bias is added.
//!
//! Tensor cores do not round their sums, they cut them off. They add 4 products or more to a sum at once;
//! each of these 5 is cut off where the largest has its last bit, or later, and so is what comes of it.
//! For 4 products that is 5 units of 2^-23 of the largest, at most. So where `P` is the exact sum before a
//! step of 16 and `A` what the sizes of the step's products add up to, an element of out is off by at most
//!
//! ```text
//! Σ over steps  16 · 5/4 · 2^-23 · (|P| + A)      to first order; then one rounding for the bias
//! ```
//!
//! In a model of such adders, random numbers come to a twentieth of that, which at K = 2048 is 2 to 4.5
//! times what a loop in f32 is off by: all is cut in one direction. A fresh sum for every 256 of K, added
//! to the whole with rounding, would be off by an eighth as much; but it takes 64 registers more than the
//! 128 that two blocks on a multiprocessor leave. (Fasi, Higham, Mikaitis and Pranesh: Numerical behavior
//! of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021.)
//!
//! Residuals and activations stay with the kernels that make the next product's input, which see
//! whole rows.

use core::marker::PhantomData;

use super::activations::{Activations, AsF16};
use super::problem::{PIECES, Pending, Product, SLAB, pieces_of_a_thread, place_of_piece};
use super::staged::{ROW_BYTES, Rows, Staged};
use super::tiling::{FRAGMENT, MOST, Output, Sums, Tiling};
use super::weights::{CHUNKS, Weights};
use crate::quant::Format;
use crate::simt::{
    ColMajor, Contract, Count, Expectations, Kernel, Launch, MatrixA, MatrixB, Occurrence, RowMajor, Shared,
    Simt, Work,
};

const _: () = assert!(ROW_BYTES == 2 * SLAB, "a staged row is a slab");

/// Steps of k in a slab.
const STEPS: u32 = SLAB / FRAGMENT;

/// The name for a format, with the tiles' at its end.
macro_rules! named {
    ($format:expr, $tiles:literal) => {
        named!($format, $tiles: F32 f32, F16 f16, BF16 bf16, Q4_0 q4_0, Q4_1 q4_1, Q5_0 q5_0, Q5_1 q5_1,
            Q8_0 q8_0, Q2_K q2_k, Q3_K q3_k, Q4_K q4_k, Q5_K q5_k, Q6_K q6_k, Q8_K q8_k, IQ4_NL iq4_nl,
            IQ4_XS iq4_xs)
    };
    ($format:expr, $tiles:literal: $($Format:ident $name:ident),*) => {
        match $format {
            $(Format::$Format => concat!("matmul_f16_", stringify!($name), $tiles),)*
        }
    };
}

/// The kernel: a [`Product`] whose input is f16, the weights' format, and its tiles.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatmulF16Quant<
    B,
    const TILE_M: u32 = 128,
    const TILE_N: u32 = 128,
    const WARPS_M: u32 = 2,
    const WARPS_N: u32 = 4,
> {
    /// The product.
    pub product: Product,
    format: PhantomData<B>,
}

impl<B: Weights, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    MatmulF16Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    /// The product with these arguments.
    #[must_use]
    pub const fn new(product: Product) -> Self {
        Self { product, format: PhantomData }
    }

    /// The tiles.
    pub const TILING: Tiling = {
        let tiling = Tiling { tile_m: TILE_M, tile_n: TILE_N, warps_m: WARPS_M, warps_n: WARPS_N };
        assert!(tiling.is_valid());
        tiling
    };
    /// Bytes of shared memory.
    pub const SHARED_BYTES: u32 = 2 * (TILE_M + TILE_N) * ROW_BYTES;
    /// Copies of a thread in a slab.
    const COPIES: u32 = TILE_M * (ROW_BYTES / 16) / Self::TILING.threads();
    /// `ldmatrix` of a warp in a slab.
    const OPERANDS: u32 = STEPS * (Self::TILING.fragments_m() + Self::TILING.fragments_n()) as u32;
    /// Products of a warp in a slab.
    const PRODUCTS: u32 = STEPS * (Self::TILING.fragments_m() * Self::TILING.fragments_n()) as u32;
}

impl<B: Weights, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32> Contract
    for MatmulF16Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    const NAME: &'static str = match (TILE_M, TILE_N, WARPS_M, WARPS_N) {
        (128, 128, 2, 4) => named!(B::FORMAT, ""),
        (32, 128, 2, 4) => named!(B::FORMAT, "_m32"),
        _ => panic!("tiles without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wmma.mma.sync.aligned.row.col.m16n16k16", Count::Exactly(Self::PRODUCTS)),
            Occurrence::new("ldmatrix.sync.aligned.m8n8.x4.shared.b16", Count::Exactly(Self::OPERANDS)),
            Occurrence::new("bar.sync", Count::Exactly(1)),
            // Four chunks of a piece; before the loop and in it.
            Occurrence::new("st.shared.v4.b32", Count::Exactly(8 * pieces_of_a_thread(Self::TILING)))
                .since(80),
            Occurrence::new("cp.async.cg.shared.global", Count::Exactly(2 * Self::COPIES)).since(80),
            Occurrence::new("cp.async.wait_group", Count::Exactly(2)).since(80),
        ],
        registers: 255,
        local_memory: false,
    };
    // Two blocks on a multiprocessor.
    const REGISTER_LIMIT: Option<u32> = match (TILE_M, Self::TILING.threads()) {
        (256, _) | (_, 128) => None,
        _ if matches!(B::FORMAT, Format::F32) => None,
        _ => Some(128),
    };

    fn launch(&self) -> Launch {
        Launch {
            grid: Self::TILING.grid(self.product.m, self.product.n),
            threads: Self::TILING.threads(),
            shared_bytes: Self::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.product.work(B::FORMAT, AsF16::value_bytes(self.product.k)))
    }
}

impl<S: Simt, B: Weights, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    Kernel<S> for MatmulF16Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let (tiling, product) = (Self::TILING, self.product);
        let (row, column) = tiling.place(s.block().x, product.m, product.n);
        let mut sums: Sums = [[[0.0; 8]; MOST]; MOST];
        let slabs = product.slabs();
        // SAFETY: what is staged lies inside its slab, and comes from inside its matrix or is zero.
        // A slab is read after its wait and a barrier, and written again after the next barrier,
        // which every warp reaches when it has multiplied it. A warp stores its own part of out.
        unsafe {
            if slabs > 0 {
                self.copy_input(s, row, 0);
                let pending = Pending::<B>::load(s, &product, tiling, column, 0);
                Self::store_weights(s, pending, 0);
            }
            for slab in 0..slabs {
                s.copy_async_wait::<0>();
                s.barrier();
                // After the last slab comes one that nobody reads: cheaper than to ask.
                self.copy_input(s, row, slab + 1);
                let pending = Pending::<B>::load(s, &product, tiling, column, slab + 1);
                Self::multiply(s, slab, &mut sums);
                Self::store_weights(s, pending, slab + 1);
            }
            s.copy_async_wait::<0>();
            let (down, right) = tiling.place_of_warp(s.warp());
            Output { out: product.out, bias: product.bias, m: product.m, n: product.n }.store(
                s,
                tiling,
                &sums,
                row + down,
                column + right,
            );
        }
    }
}

impl<B: Weights, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    MatmulF16Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    /// Begins to copy a slab of the tile's input, whose first row is `row`, and closes the group.
    ///
    /// # Safety
    /// Nobody uses the slab until the copies have been waited for.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_input<S: Simt>(&self, s: S, row: u32, slab: u32) {
        let columns = 2 * self.product.k;
        let from = Rows {
            matrix: self.product.input,
            stride: columns,
            rows: self.product.m,
            columns,
            row,
            column: slab * ROW_BYTES,
        };
        // SAFETY: the caller's; K is a multiple of a chunk's eight elements.
        unsafe { Self::input(s, slab).copy(s, Self::TILING.threads(), TILE_M, from) };
        s.copy_async_commit();
    }

    /// Unpacks a thread's pieces into a slab.
    ///
    /// # Safety
    /// Nobody else uses the slab until a barrier.
    #[inline(always)]
    #[track_caller]
    unsafe fn store_weights<S: Simt>(s: S, pending: Pending<B>, slab: u32) {
        let stage = Self::weights(s, slab);
        pending.each(Self::TILING, |words, i| {
            let (row, piece) = place_of_piece(s, Self::TILING, i);
            let halves = B::halves(s, words, slab * PIECES + piece);
            for (halves, chunk) in halves.into_iter().zip(CHUNKS * piece..) {
                // SAFETY: the caller's; every piece is of one thread.
                unsafe { s.store_shared(stage.chunk(row, chunk), halves) };
            }
        });
    }

    /// Adds a slab's products to a warp's sums.
    ///
    /// # Safety
    /// The slab is staged, visible, and stays.
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Simt>(s: S, slab: u32, sums: &mut Sums) {
        let tiling = Self::TILING;
        let (down, right) = tiling.place_of_warp(s.warp());
        let input = Self::input(s, slab).left(s.lane(), down);
        let weights = Self::weights(s, slab).right(s.lane(), right);
        for k in 0..STEPS {
            let mut b = [MatrixB::<ColMajor>::from_registers([0; 4]); MOST];
            let b = &mut b[..tiling.fragments_n()];
            for (b, down) in b.iter_mut().zip((0..).step_by(FRAGMENT as usize)) {
                let from = Staged::operand(weights, down, k);
                // SAFETY: the caller's; operands lie inside their slab.
                *b = MatrixB::from_registers(unsafe { s.ldmatrix::<4, _>(from) });
            }
            let sums = &mut sums[..tiling.fragments_m()];
            for (sums, down) in sums.iter_mut().zip((0..).step_by(FRAGMENT as usize)) {
                let from = Staged::operand(input, down, k);
                // SAFETY: as above.
                let a = MatrixA::<RowMajor>::from_registers(unsafe { s.ldmatrix::<4, _>(from) });
                for (sum, &b) in sums.iter_mut().zip(b.iter()) {
                    *sum = s.wmma_mma(a, b, *sum);
                }
            }
        }
    }

    /// Where a slab of the input is staged.
    #[inline(always)]
    fn input<S: Simt>(s: S, slab: u32) -> Staged {
        Staged::at(s.shared().row(slab % 2, TILE_M * ROW_BYTES))
    }

    /// Where a slab of the weights is staged.
    #[inline(always)]
    fn weights<S: Simt>(s: S, slab: u32) -> Staged {
        let first: Shared<u8> = s.shared();
        Staged::at(first.at(2 * TILE_M * ROW_BYTES).row(slab % 2, TILE_N * ROW_BYTES))
    }
}
