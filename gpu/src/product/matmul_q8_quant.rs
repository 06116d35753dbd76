//! `matmul_q8_<format>`: rows of 8-bit quants times quantized weights, in integers.
//!
//! `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`; input `M × K` as q8 rows
//! ([`activations`](super::activations)); weights `N × K` as rows of planes
//! ([`planes`](crate::quant::planes)); out `M × N` f32, row major.
//!
//! With one scale `d` for 32 elements of the input, and a scale `s` and a minimum `m` for a *group*
//! of 32 or 16 elements of a weight row, a group's part of the sum is
//!
//! ```text
//! Σ (d q) (s w - m) = d · s · Σ q w  -  m · (d Σ q)
//! ```
//!
//! where `Σ q w` is an exact sum of integers on the tensor cores, and `d Σ q` comes with the input.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = tiles of 128 × 64 of out, in the order of `Tiling::place`
//!
//!                    64 columns of out (rows of weights)
//!                   +----------+----------+
//!  128 rows of out  |  warp 0  |  warp 1  |      a warp owns 64 × 32 elements of out, which lie in
//!                   |  64 × 32 |          |      its lanes as the accumulators of 4 × 4 products of
//!                   +----------+----------+      16 × 8
//!                   |  warp 2  |  warp 3  |
//!                   +----------+----------+
//!
//! K goes by in slabs of 64: 128 rows of input come by asynchronous copies; 64 rows of weights are
//! 128 pieces of 32 elements, which a thread each loads, unpacks and stores as bytes.
//! ```
//!
//! A group of 32 is one product of 16 × 8 × 32, a group of 16 one of 16 × 8 × 16, whose operands are
//! the halves of the same registers.
//!
//! # From integers to floats
//!
//! A product begins at `0x4b400000`, which is 12,582,912 as a float whose last bit counts 1: so the sum
//! of integers, which is below 2^22, *is* a float, 12,582,912 too large. That is taken away by the
//! multiplication that follows, `s · x - s · 12,582,912`, fused, whose second part is exact. So of each
//! product's 128 sums a lane scales four with two or three instructions each: that, not the tensor
//! core, is what time goes into.
//!
//! # Registers
//!
//! 64 accumulators; of a group 8 B, 4 A, 4 sums of integers, 8 scales, minimums and offsets each; scale
//! and sum of two rows; the piece on its way, 6 to 10; the rest addresses, and what `ptxas` does ahead.
//! Two blocks share a multiprocessor.
//!
//! # Shared memory
//!
//! ```text
//! byte     0  input, two slabs        128 rows of 64 quants each, placed as `Staged` says
//!      16384  weights, two slabs      64 rows of 64 quants each
//!      24576  scales of the input     two slabs of 128 rows of two f32
//!      26624  sums of the input       two slabs of 128 rows of four f32
//!      30720  scales of the weights   two slabs: for each group 64 pairs of a scale and a minimum,
//!                                     negated, and after each piece 64 bytes more, so that what eight
//!                                     rows of both pieces store at a time lies in different banks
//! ```
//!
//! # Who waits for whom
//!
//! One barrier a slab, as in [`matmul_f16_quant`](super::MatmulF16Quant).
//!
//! # Shape contract
//!
//! Any M and N; K any multiple of the format's block. What a tile has too much is zero in the input,
//! scales included, and is not stored.
//!
//! # Numeric contract
//!
//! Integers are exact. To a sum of out, group by group in order of k, first `d · (s Σ q w)` is added
//! (the inner product rounded to f32, the outer fused with the addition), then `-m · (d Σ q)`, fused;
//! for groups of 32 the two sums of the input are added first. So each element of out is summed in
//! one order whatever M, N, the grid and the tiles are; then the bias is added. All of that is rounded to
//! nearest: the bits are those of every machine.
//!
//! So where for a group `X` is `Σ (d q) (s w)`, `P` and `P'` the exact sums of out with that added and with
//! the minimum's part taken away, and `Q` the sizes of its sums of 16 `d q`, an element of out is off by
//! at most
//!
//! ```text
//! Σ over groups  2^-24 · (|X| + |P|)  +  2^-24 · (2 m Q + |P'|) where m is not 0
//! ```
//!
//! to first order, with the sums of the input themselves rounded once; then one rounding for the bias.

use core::marker::PhantomData;

use super::activations::Q8Row;
use super::problem::{PIECES, Pending, Product, SLAB, place_of_piece};
use super::slabs::Slabs;
use super::staged::{Rows, Staged};
use super::tiling::{FRAGMENT, MOST, Sums, Tiling};
use crate::fragment::mma;
use crate::quant::Format;
use crate::quant::planes::{PIECE_ELEMENTS, Pieces, RUNS};
use crate::simt::{
    Contract, Count, Expectations, Global, Kernel, Launch, Occurrence, Shared, Simt, Unit, Work,
};

/// Bytes of a slab of a staged row.
const ROW_BYTES: u32 = SLAB;
/// What a sum of integers begins at: [`BIAS`] as bits.
const BIAS_BITS: u32 = 0x4b40_0000;
/// 1.5 · 2^23.
const BIAS: f32 = f32::from_bits(BIAS_BITS);

/// The kernel: a [`Product`] whose input is q8 rows, the weights' format, and its tiles.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatmulQ8Quant<
    B,
    const TILE_M: u32 = 128,
    const TILE_N: u32 = 64,
    const WARPS_M: u32 = 2,
    const WARPS_N: u32 = 2,
> {
    /// The product.
    pub product: Product,
    format: PhantomData<B>,
}

impl<B: Pieces, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    MatmulQ8Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    /// The product with these arguments.
    #[must_use]
    pub const fn new(product: Product) -> Self {
        Self { product, format: PhantomData }
    }

    /// The tiles.
    pub const TILING: Tiling = {
        let tiling = Tiling { tile_m: TILE_M, tile_n: TILE_N, warps_m: WARPS_M, warps_n: WARPS_N };
        assert!(tiling.is_valid() && tiling.threads() >= TILE_M);
        tiling
    };
    /// Groups of a piece: one, or one for each run.
    pub const GROUPS: u32 = if B::ONE_SCALE { 1 } else { RUNS as u32 };

    const WEIGHTS: u32 = 2 * TILE_M * ROW_BYTES;
    const INPUT_SCALES: u32 = Self::WEIGHTS + 2 * TILE_N * ROW_BYTES;
    const INPUT_SUMS: u32 = Self::INPUT_SCALES + 2 * TILE_M * 8;
    const SCALES: u32 = Self::INPUT_SUMS + 2 * TILE_M * 16;
    /// Bytes of the pairs of a group.
    const GROUP_BYTES: u32 = TILE_N * 8;
    /// Bytes of a piece's groups.
    const PIECE_BYTES: u32 = Self::GROUPS * Self::GROUP_BYTES + 64;
    /// Bytes of shared memory.
    pub const SHARED_BYTES: u32 = Self::SCALES + 2 * PIECES * Self::PIECE_BYTES;

    /// What multiplies a group.
    const INSTRUCTION: &'static str = if B::ONE_SCALE {
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    } else {
        "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"
    };
    /// Groups of a slab.
    const SLAB_GROUPS: u32 = PIECES * Self::GROUPS;
    /// `ldmatrix` of a warp in a slab.
    const OPERANDS: u32 =
        Self::SLAB_GROUPS * (Self::TILING.fragments_m() + Self::TILING.fragments_n()) as u32;
    /// Products of a warp in a slab.
    const PRODUCTS: u32 =
        Self::SLAB_GROUPS * (Self::TILING.fragments_m() * Self::TILING.fragments_n() * 2) as u32;
}

impl<B: Pieces, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32> Contract
    for MatmulQ8Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    const NAME: &'static str = match (B::FORMAT, TILE_M, TILE_N, WARPS_M, WARPS_N) {
        (Format::Q4_0, 128, 64, 2, 2) => "matmul_q8_q4_0",
        (Format::Q4_1, 128, 64, 2, 2) => "matmul_q8_q4_1",
        (Format::Q5_0, 128, 64, 2, 2) => "matmul_q8_q5_0",
        (Format::Q5_1, 128, 64, 2, 2) => "matmul_q8_q5_1",
        (Format::Q8_0, 128, 64, 2, 2) => "matmul_q8_q8_0",
        (Format::Q2_K, 128, 64, 2, 2) => "matmul_q8_q2_k",
        (Format::Q3_K, 128, 64, 2, 2) => "matmul_q8_q3_k",
        (Format::Q4_K, 128, 64, 2, 2) => "matmul_q8_q4_k",
        (Format::Q5_K, 128, 64, 2, 2) => "matmul_q8_q5_k",
        (Format::Q6_K, 128, 64, 2, 2) => "matmul_q8_q6_k",
        (Format::Q8_K, 128, 64, 2, 2) => "matmul_q8_q8_k",
        (Format::IQ4_NL, 128, 64, 2, 2) => "matmul_q8_iq4_nl",
        (Format::IQ4_XS, 128, 64, 2, 2) => "matmul_q8_iq4_xs",
        (Format::Q4_K, 64, 64, 2, 2) => "matmul_q8_q4_k_m64",
        _ => panic!("a format or tiles without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new(Self::INSTRUCTION, Count::Exactly(Self::PRODUCTS)).since(80),
            Occurrence::new("ldmatrix.sync.aligned.m8n8.x4.shared.b16", Count::Exactly(Self::OPERANDS)),
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("bar.warp.sync", Count::Exactly(Self::SLAB_GROUPS - 1)),
            Occurrence::new("cp.async.wait_group", Count::Exactly(2)).since(80),
        ],
        registers: 255,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch {
            grid: Self::TILING.grid(self.product.m, self.product.n),
            threads: Self::TILING.threads(),
            shared_bytes: Self::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let input = Q8Row::new(self.product.k).read_bytes(B::HAS_MIN);
        Some(self.product.work(B::FORMAT, input, Unit::TensorS8))
    }
}

impl<S: Simt, B: Pieces, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    Kernel<S> for MatmulQ8Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    #[inline(always)]
    unsafe fn run(self, s: S) {
        // SAFETY: the caller's.
        unsafe { self.go_through(s) }
    }
}

impl<B: Pieces, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32> Slabs
    for MatmulQ8Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    type Block = B;
    const TILES: Tiling = Self::TILING;

    #[inline(always)]
    fn product(&self) -> Product {
        self.product
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn copy_input<S: Simt>(&self, s: S, first_row: u32, slab: u32) {
        let Product { input: matrix, m: rows, k: columns, .. } = self.product;
        let planes = Q8Row::new(columns);
        let stride = planes.bytes();
        let from = Rows { matrix, stride, rows, columns, row: first_row, column: slab * ROW_BYTES };
        // SAFETY: the caller's; K is a multiple of a chunk's 16 elements.
        unsafe { Self::input(s, slab).copy(s, Self::TILING.threads(), TILE_M, from) };

        let row = s.thread();
        if row < TILE_M {
            // 32 elements have a scale of four bytes and two sums of four.
            let blocks = columns.saturating_sub(slab * SLAB).min(SLAB) / PIECE_ELEMENTS;
            let blocks = if first_row + row < rows { blocks } else { 0 };
            let of_row = matrix.row(first_row + row, stride);
            let scales: Global<f32> = of_row.at(u64::from(planes.scales() + slab * (PIECES * 4))).cast();
            let sums: Global<f32> = of_row.at(u64::from(planes.sums() + slab * (PIECES * 8))).cast();
            // SAFETY: the caller's; only the blocks that exist are read.
            unsafe {
                s.copy_async::<8, _>(Self::input_scales(s, slab, row), scales, 4 * blocks);
                if B::HAS_MIN {
                    s.copy_async::<16, _>(Self::input_sums(s, slab, row), sums, 8 * blocks);
                }
            }
        }
        s.copy_async_commit();
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store_weights<S: Simt>(s: S, pending: Pending<B>, slab: u32) {
        let stage = Self::weights(s, slab);
        pending.each(Self::TILING, |words, i| {
            let (row, piece) = place_of_piece(s, Self::TILING, i);
            let runs = B::unpack(s, words, slab * PIECES + piece);
            for (run, group) in runs.iter().zip(0..) {
                // SAFETY: the caller's; every piece is of one thread.
                unsafe {
                    s.store_shared(stage.chunk(row, RUNS as u32 * piece + group), run.quants);
                    if group < Self::GROUPS {
                        let pair = [run.scale, -run.min];
                        s.store_shared(Self::scale(s, slab, piece, group, row), pair);
                    }
                }
            }
        });
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Simt>(s: S, slab: u32, sums: &mut Sums) {
        let (down, right) = Self::TILING.place_of_warp(s.warp());
        // A lane's first row and column of a product; its second row is 8 further down, its second
        // column the next.
        let (row, column) = mma::c(s.lane(), 0);
        let slab = Slab {
            input: Self::input(s, slab).left(s.lane(), down),
            weights: Self::weights(s, slab).right(s.lane(), right),
            scales: Self::scale(s, slab, 0, 0, right + column).cast(),
            input_scales: Self::input_scales(s, slab, down + row),
            input_sums: Self::input_sums(s, slab, down + row),
        };
        for piece in 0..PIECES {
            for group in 0..Self::GROUPS {
                if piece + group > 0 {
                    // Nobody has to wait. Without it `ptxas` mixes the groups' instructions until
                    // registers run out.
                    s.warp_sync();
                }
                // SAFETY: the caller's.
                unsafe { Self::multiply_group(s, slab, piece, group, sums) };
            }
        }
    }
}

impl<B: Pieces, const TILE_M: u32, const TILE_N: u32, const WARPS_M: u32, const WARPS_N: u32>
    MatmulQ8Quant<B, TILE_M, TILE_N, WARPS_M, WARPS_N>
{
    /// Where a slab of the input's quants is staged.
    #[inline(always)]
    fn input<S: Simt>(s: S, slab: u32) -> Staged<ROW_BYTES> {
        Staged::at(s.shared().row(slab % 2, TILE_M * ROW_BYTES))
    }

    /// Where a slab of the weights' quants is staged.
    #[inline(always)]
    fn weights<S: Simt>(s: S, slab: u32) -> Staged<ROW_BYTES> {
        Staged::at(s.shared::<u8>().at(Self::WEIGHTS).row(slab % 2, TILE_N * ROW_BYTES))
    }

    /// The two scales of a row of the input in a slab.
    #[inline(always)]
    fn input_scales<S: Simt>(s: S, slab: u32, row: u32) -> Shared<f32> {
        s.shared::<u8>().at(Self::INPUT_SCALES).row(slab % 2 * TILE_M + row, 8).cast()
    }

    /// The four sums of a row of the input in a slab.
    #[inline(always)]
    fn input_sums<S: Simt>(s: S, slab: u32, row: u32) -> Shared<f32> {
        s.shared::<u8>().at(Self::INPUT_SUMS).row(slab % 2 * TILE_M + row, 16).cast()
    }

    /// Scale and minimum of a row of the weights, for a group of a piece in a slab.
    #[inline(always)]
    fn scale<S: Simt>(s: S, slab: u32, piece: u32, group: u32, row: u32) -> Shared<[f32; 2]> {
        let pieces = s.shared::<u8>().at(Self::SCALES).row(slab % 2 * PIECES + piece, Self::PIECE_BYTES);
        pieces.row(group, Self::GROUP_BYTES).cast().at(row)
    }

    /// Adds the products of a group, 32 or 16 elements.
    ///
    /// # Safety
    /// As [`Slabs::multiply`].
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply_group<S: Simt>(s: S, slab: Slab, piece: u32, group: u32, sums: &mut Sums) {
        let tiling = Self::TILING;
        let mut b = [[0; 2]; 2 * MOST];
        for j in 0..tiling.fragments_n() {
            let from = Staged::<ROW_BYTES>::operand(slab.weights, j as u32 * FRAGMENT, piece);
            // SAFETY: the caller's; operands lie inside their slab.
            let [b0, b1, b2, b3] = unsafe { s.ldmatrix::<4, _>(from) };
            [b[2 * j], b[2 * j + 1]] = [[b0, b1], [b2, b3]];
        }
        let mut scales = [Scales::default(); 2 * MOST];
        let pairs = slab.scales.row(piece, Self::PIECE_BYTES).row(group, Self::GROUP_BYTES);
        for (scales, columns) in scales[..2 * tiling.fragments_n()].iter_mut().zip((0..).step_by(8)) {
            // SAFETY: the caller's.
            let [s0, m0, s1, m1]: [f32; 4] = unsafe { s.load_shared(pairs.row(columns, 8).cast()) };
            *scales = Scales { scale: [s0, s1], below: [m0, m1], offset: [-BIAS * s0, -BIAS * s1] };
        }
        for i in 0..tiling.fragments_m() {
            let mut rows = [Row::default(); 2];
            for (values, row) in rows.iter_mut().zip((i as u32 * FRAGMENT..).step_by(8)) {
                // SAFETY: the caller's.
                unsafe {
                    values.scale = s.load_shared(slab.input_scales.row(row, PIECES).at(piece));
                    if B::HAS_MIN {
                        let sums = slab.input_sums.row(row, PIECES * RUNS as u32).at(RUNS as u32 * piece);
                        values.sum = if B::ONE_SCALE {
                            let [first, second]: [f32; 2] = s.load_shared(sums.cast());
                            first + second
                        } else {
                            s.load_shared(sums.at(group))
                        };
                    }
                }
            }
            let from = Staged::<ROW_BYTES>::operand(slab.input, i as u32 * FRAGMENT, piece);
            // SAFETY: as above.
            let a = unsafe { s.ldmatrix::<4, _>(from) };
            for j in 0..2 * tiling.fragments_n() {
                let none = [BIAS_BITS.cast_signed(); 4];
                let products = if B::ONE_SCALE {
                    s.mma_m16n8k32_s8(a, b[j], none)
                } else {
                    let half = group as usize;
                    s.mma_m16n8k16_s8([a[2 * half], a[2 * half + 1]], b[j][half], none)
                };
                for e in 0..4 {
                    let sum = &mut sums[i][j / 2][4 * (j % 2) + e];
                    *sum = scales[j].add::<B, S>(s, products[e], e % 2, rows[e / 2], *sum);
                }
            }
        }
    }
}

/// Where a lane finds its part of a slab.
#[derive(Clone, Copy)]
struct Slab {
    /// Its chunk of the first left operand.
    input: Shared<u8>,
    /// Its chunk of the first right operand.
    weights: Shared<u8>,
    /// Scale and minimum of its first column.
    scales: Shared<u8>,
    /// Scales of its first row.
    input_scales: Shared<f32>,
    /// Sums of its first row.
    input_sums: Shared<f32>,
}

/// Of a row of the input: the scale of a block and the sum of a group.
#[derive(Clone, Copy, Default)]
struct Row {
    scale: f32,
    sum: f32,
}

/// Of two columns, and a group.
#[derive(Clone, Copy, Default)]
struct Scales {
    scale: [f32; 2],
    /// The minimum, negated.
    below: [f32; 2],
    /// `-BIAS · scale`: exact, but for Q8_K.
    offset: [f32; 2],
}

impl Scales {
    /// Adds to `sum` what a group contributes, in column `e` of the two: `product` is its sum of
    /// integers, and [`BIAS`].
    #[inline(always)]
    #[track_caller]
    fn add<B: Pieces, S: Simt>(&self, s: S, product: i32, e: usize, row: Row, sum: f32) -> f32 {
        let biased = f32::from_bits(product.cast_unsigned());
        let scaled = if const { matches!(B::FORMAT, Format::Q8_K) } {
            // A scale of 24 bits: three times it has more.
            self.scale[e] * (biased - BIAS)
        } else {
            s.fma(self.scale[e], biased, self.offset[e])
        };
        let sum = s.fma(row.scale, scaled, sum);
        if B::HAS_MIN { s.fma(self.below[e], row.sum, sum) } else { sum }
    }
}
