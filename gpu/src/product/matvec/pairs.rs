//! What is multiplied: weights of a format with activations of a kind.

use core::marker::PhantomData;

use super::super::activations::{Activations, AsF16, AsQ8, Q8_BLOCK, Q8Row};
use super::names::Named;
use crate::quant::Block;
use crate::quant::planes::{EIGHT, Numbers, PIECE_ELEMENTS, Pieces, Planes, RUNS, Run, plane_value_bytes};
use crate::simt::{Global, Simt};

/// Weights of a format and activations of a kind, a few neighbouring elements at a time.
pub trait Pair: Copy + Send + Sync + 'static {
    /// The names of the kernels that take 1, 2, 4 and 8 rows in a pass.
    const NAMES: [&'static str; 4];
    /// Elements of K that a lane multiplies at a time: a piece.
    const ELEMENTS: u32;
    /// Instructions `dp4a` that a piece takes.
    const DOTS: u32;
    /// Blocks of [`Matvec`](super::Matvec) for which a multiprocessor has registers.
    const RESIDENT: u32;
    /// Whether a launch has only as many blocks as run at a time, each with several groups of outputs, or one for each
    /// group. As measured (docs/results.md).
    const PERSISTENT: bool;
    /// A piece of weights as it is loaded.
    type Words: Copy;
    /// A piece of weights.
    type Weights: Copy;
    /// A piece of input.
    type Input: Copy;

    /// Bytes from one row of `k` weights to the next.
    fn weight_row_bytes(k: u32) -> u32;

    /// Bytes from one row of `k` activations to the next.
    fn input_row_bytes(k: u32) -> u32;

    /// Bytes of a row of `k` weights, without what only aligns.
    fn weight_value_bytes(k: u32) -> u64;

    /// Bytes of a row of `k` activations that are read.
    fn input_value_bytes(k: u32) -> u64;

    /// Loads piece `index` of a row of `k` weights.
    ///
    /// # Safety
    /// The row, aligned to 16 bytes, lies in a live buffer that nobody writes, and has the piece.
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, k: u32, index: u32) -> Self::Words;

    /// The weights in these words.
    fn unpack<S: Simt>(s: S, words: Self::Words, index: u32) -> Self::Weights;

    /// Loads piece `index` of a row of `k` activations.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    unsafe fn load_input<S: Simt>(s: S, row: Global<u8>, k: u32, index: u32) -> Self::Input;

    /// `sum` plus the products of a piece.
    fn add<S: Simt>(s: S, sum: f32, weights: &Self::Weights, input: &Self::Input) -> f32;
}

/// Blocks of a row of `k` weights.
#[inline(always)]
const fn blocks<B: Block>(k: u32) -> u32 {
    k / B::FORMAT.block_elements() as u32
}

/// Pieces of a quantized format and q8 activations.
#[derive(Clone, Copy, Debug)]
pub struct Quantized<B>(PhantomData<fn() -> B>);

/// 32 activations: coarse and fine quants, their scale, and the sums of both halves.
#[derive(Clone, Copy, Debug)]
pub struct Q8Piece {
    coarse: [[u32; 4]; RUNS],
    fine: [[u32; 4]; RUNS],
    scale: f32,
    sums: [f32; RUNS],
}

const _: () = assert!(Q8_BLOCK == PIECE_ELEMENTS, "a piece of input is a block");

impl<B: Pieces + Named> Pair for Quantized<B> {
    const NAMES: [&'static str; 4] = B::Q8;
    const ELEMENTS: u32 = PIECE_ELEMENTS;
    const DOTS: u32 = 2 * PIECE_ELEMENTS / 4;
    const RESIDENT: u32 = 4;
    const PERSISTENT: bool = true;
    type Words = B::Words;
    type Weights = [Run; RUNS];
    type Input = Q8Piece;

    #[inline(always)]
    fn weight_row_bytes(k: u32) -> u32 {
        Planes::of(B::FORMAT).offsets(blocks::<B>(k)).row
    }

    #[inline(always)]
    fn input_row_bytes(k: u32) -> u32 {
        AsQ8::row_bytes(k)
    }

    fn weight_value_bytes(k: u32) -> u64 {
        plane_value_bytes(B::FORMAT, k)
    }

    fn input_value_bytes(k: u32) -> u64 {
        Q8Row::new(k).read_bytes(B::HAS_MIN)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, k: u32, index: u32) -> B::Words {
        // SAFETY: the caller's.
        unsafe { B::load(s, row, blocks::<B>(k), index) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, words: B::Words, index: u32) -> [Run; RUNS] {
        B::unpack(s, words, index)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load_input<S: Simt>(s: S, row: Global<u8>, k: u32, index: u32) -> Q8Piece {
        let at = Q8Row::new(k);
        let runs = |plane: u32| row.at(u64::from(plane)).cast().at(RUNS as u64 * u64::from(index));
        let (coarse, fine) = (runs(0), runs(at.fine()));
        // SAFETY: the caller's.
        unsafe {
            Q8Piece {
                coarse: [s.load_global(coarse), s.load_global(coarse.at(1))],
                fine: [s.load_global(fine), s.load_global(fine.at(1))],
                scale: s.load_global(row.at(u64::from(at.scales())).cast().at(u64::from(index))),
                sums: if B::HAS_MIN {
                    s.load_global(row.at(u64::from(at.sums())).cast().at(u64::from(index)))
                } else {
                    [0.0; RUNS]
                },
            }
        }
    }

    /// The products of quants are added as integers, which then become an f32, rounded. Then
    /// `sum + (scale · scale) · products`, fused, with the product of the scales rounded; and if the format has
    /// minimums, `- min · sums`, fused. Once for the piece where it has one scale (its two sums are added
    /// first), else for one run after the other.
    #[inline(always)]
    fn add<S: Simt>(s: S, sum: f32, [low, high]: &[Run; RUNS], x: &Q8Piece) -> f32 {
        let dot = |dot: i32, run: &Run, x: &[u32; 4]| {
            run.quants.iter().zip(x).fold(dot, |dot, (&w, &x)| s.dot4_s8(w, x, dot))
        };
        // At most 32 · 128 · 32,640, which is below 2^31.
        let in_steps = |coarse: i32| coarse << 8;
        let scaled = |sum: f32, run: &Run, dot: i32, x_sum: f32| {
            let sum = s.fma(run.scale * x.scale, dot as f32, sum);
            if B::HAS_MIN { s.fma(-run.min, x_sum, sum) } else { sum }
        };
        let [coarse_low, coarse_high] = &x.coarse;
        let [fine_low, fine_high] = &x.fine;
        if B::ONE_SCALE {
            let coarse = dot(dot(0, low, coarse_low), high, coarse_high);
            let all = dot(dot(in_steps(coarse), low, fine_low), high, fine_high);
            scaled(sum, low, all, x.sums[0] + x.sums[1])
        } else {
            let of_run = |run, coarse, fine| dot(in_steps(dot(0, run, coarse)), run, fine);
            let sum = scaled(sum, low, of_run(low, coarse_low, fine_low), x.sums[0]);
            scaled(sum, high, of_run(high, coarse_high, fine_high), x.sums[1])
        }
    }
}

/// Eights of a piece.
const EIGHTS: usize = (PIECE_ELEMENTS / EIGHT) as usize;

/// Pieces of a quantized format and f16 activations.
#[derive(Clone, Copy, Debug)]
pub struct HalfPieces<B>(PhantomData<fn() -> B>);

impl<B: Pieces + Named> Pair for HalfPieces<B> {
    const NAMES: [&'static str; 4] = B::F16;
    const ELEMENTS: u32 = PIECE_ELEMENTS;
    const DOTS: u32 = 0;
    // Weights as f32 are 64 registers, and reading them once for four rows is worth a warp less.
    const RESIDENT: u32 = 3;
    const PERSISTENT: bool = false;
    type Words = B::Words;
    type Weights = [[f32; EIGHT as usize]; EIGHTS];
    type Input = [[u32; 4]; EIGHTS];

    #[inline(always)]
    fn weight_row_bytes(k: u32) -> u32 {
        Quantized::<B>::weight_row_bytes(k)
    }

    #[inline(always)]
    fn input_row_bytes(k: u32) -> u32 {
        AsF16::row_bytes(k)
    }

    fn weight_value_bytes(k: u32) -> u64 {
        plane_value_bytes(B::FORMAT, k)
    }

    fn input_value_bytes(k: u32) -> u64 {
        AsF16::value_bytes(k)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, k: u32, index: u32) -> B::Words {
        // SAFETY: the caller's.
        unsafe { B::load(s, row, blocks::<B>(k), index) }
    }

    /// The weights are what [`Block::dequantize`] gives.
    #[inline(always)]
    fn unpack<S: Simt>(s: S, words: B::Words, index: u32) -> Self::Weights {
        let runs = B::unpack(s, words, index);
        let mut weights = [[0.0; EIGHT as usize]; EIGHTS];
        for (i, weights) in weights.iter_mut().enumerate() {
            let run = runs[i / 2];
            for (j, weight) in weights.iter_mut().enumerate() {
                let quant = f32_from_s8(s, run.quants[2 * (i % 2) + j / 4], j as u32 % 4);
                *weight = s.fma(run.scale, quant, -run.min);
            }
        }
        weights
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load_input<S: Simt>(s: S, row: Global<u8>, _: u32, index: u32) -> Self::Input {
        let eights = row.cast().at(EIGHTS as u64 * u64::from(index));
        // SAFETY: the caller's.
        core::array::from_fn(|i| unsafe { s.load_global(eights.at(i as u64)) })
    }

    /// The products are added one after the other, fused.
    #[inline(always)]
    fn add<S: Simt>(s: S, sum: f32, weights: &Self::Weights, input: &Self::Input) -> f32 {
        add_products(s, sum, weights, input)
    }
}

/// Adds the products of weights and pairs of f16 one after the other, fused.
#[inline(always)]
fn add_products<S: Simt, const EIGHTS: usize>(
    s: S,
    mut sum: f32,
    weights: &[[f32; EIGHT as usize]; EIGHTS],
    input: &[[u32; 4]; EIGHTS],
) -> f32 {
    for (weights, eight) in weights.iter().zip(input) {
        for (i, &pair) in eight.iter().enumerate() {
            let [first, second] = s.f32_from_f16x2(pair);
            sum = s.fma(weights[2 * i], first, sum);
            sum = s.fma(weights[2 * i + 1], second, sum);
        }
    }
    sum
}

/// Signed byte `byte` of a word as f32. Exact: with its sign bit turned it is the last byte of
/// 2^23 + 128 + itself.
#[inline(always)]
fn f32_from_s8<S: Simt>(s: S, word: u32, byte: u32) -> f32 {
    f32::from_bits(s.permute_bytes(word ^ 0x8080_8080, 0x4b00_0000, 0x7440 | byte)) - 8_388_736.0
}

/// Numbers and f16 activations.
#[derive(Clone, Copy, Debug)]
pub struct HalfNumbers<B>(PhantomData<fn() -> B>);

impl<B: Numbers + Named> Pair for HalfNumbers<B> {
    const NAMES: [&'static str; 4] = B::F16;
    const ELEMENTS: u32 = EIGHT;
    const DOTS: u32 = 0;
    // Weights as f32 are 64 registers, and reading them once for four rows is worth a warp less.
    const RESIDENT: u32 = 3;
    const PERSISTENT: bool = false;
    type Words = B::Words;
    type Weights = [[f32; EIGHT as usize]; 1];
    type Input = [[u32; 4]; 1];

    #[inline(always)]
    fn weight_row_bytes(k: u32) -> u32 {
        Planes::of(B::FORMAT).offsets(k).row
    }

    #[inline(always)]
    fn input_row_bytes(k: u32) -> u32 {
        AsF16::row_bytes(k)
    }

    fn weight_value_bytes(k: u32) -> u64 {
        plane_value_bytes(B::FORMAT, k)
    }

    fn input_value_bytes(k: u32) -> u64 {
        AsF16::value_bytes(k)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, _: u32, index: u32) -> B::Words {
        // SAFETY: the caller's.
        unsafe { B::load(s, row, index) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, words: B::Words, _: u32) -> Self::Weights {
        [B::unpack(s, words)]
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load_input<S: Simt>(s: S, row: Global<u8>, _: u32, index: u32) -> Self::Input {
        // SAFETY: the caller's.
        [unsafe { s.load_global(row.cast().at(u64::from(index))) }]
    }

    /// The products are added one after the other, fused.
    #[inline(always)]
    fn add<S: Simt>(s: S, sum: f32, weights: &Self::Weights, input: &Self::Input) -> f32 {
        add_products(s, sum, weights, input)
    }
}
