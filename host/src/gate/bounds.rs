//! By how much results of kernels may be off, as their numeric contracts say.

use gpu::product::matmul_splitk::{GROUPS, SCALE_UP};
use gpu::product::slabs::{SLAB_COLUMNS, Slabs};
use gpu::quant::planes::PIECE_ELEMENTS;
use rayon::prelude::*;

use crate::cuda::{Owner, Queue};

/// The rounding of f32: half a unit in the last place of 1.
pub const EPSILON: f64 = f32::EPSILON as f64 / 2.0;

/// What bounds are multiplied with that count roundings of the exact sums: those of the computed ones, which
/// are off themselves, are less than a hundredth larger.
pub const FIRST_ORDER: f64 = 1.01;

/// Roundings to nearest of an f32 that a product on the tensor cores of a device adds to a sum at most, for
/// each element of K, see [`tensor_core_error`].
///
/// 4 products or more are added to a sum at once. Each of these 5 is cut off where the largest has its
/// last bit, or later, and so is the result: but for the largest 5 times 2 roundings at most.
pub const DEVICE_ROUNDINGS: f64 = 2.5;

/// The same of the emulator: one after each product.
pub const EMULATOR_ROUNDINGS: f64 = 1.0;

/// [`DEVICE_ROUNDINGS`] or [`EMULATOR_ROUNDINGS`].
#[must_use]
pub fn roundings_of_a_product(queue: &impl Queue) -> f64 {
    match queue.owner() {
        Owner::Emulator(_) => EMULATOR_ROUNDINGS,
        Owner::Device(_) => DEVICE_ROUNDINGS,
    }
}

/// By how much an element of a product on the tensor cores may be off whose factors are these, in order of
/// k: the sum goes in steps of 16, within which products may be added in any order. No number that
/// occurs in a step is larger than the sum before it and the sizes of its products together.
///
/// How tensor cores add: Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores,
/// PeerJ Computer Science 7:e330, 2021.
#[must_use]
pub fn tensor_core_error(factors: &[(f64, f64)], roundings_of_a_product: f64) -> f64 {
    let (mut sum, mut roundings) = (0.0_f64, 0.0);
    for step in factors.chunks(16) {
        let size: f64 = step.iter().map(|(a, b)| (a * b).abs()).sum();
        roundings += step.len() as f64 * roundings_of_a_product * (sum.abs() + size);
        sum += step.iter().map(|(a, b)| a * b).sum::<f64>();
    }
    FIRST_ORDER * EPSILON * roundings
}

/// What an element of a product on the tensor cores is held against.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The sum in f64.
    pub sum: f64,
    /// By how much a kernel's may be off, see [`tensor_core_error`].
    pub bound: f64,
    /// What a plain loop in f32 makes of it.
    pub plain: f32,
}

/// The product of `m` rows with `n` rows of weights, both `k` long and as they are multiplied: `m × n`, by all
/// cores.
///
/// # Panics
/// If there are fewer.
#[must_use]
pub fn tensor_core_product(
    rows: &[f64],
    weights: &[f64],
    [m, n, k]: [usize; 3],
    roundings_of_a_product: f64,
) -> Vec<Reference> {
    let element = |at: usize| {
        let (row, column) = (&rows[at / n * k..][..k], &weights[at % n * k..][..k]);
        let factors: Vec<_> = row.iter().copied().zip(column.iter().copied()).collect();
        Reference {
            sum: factors.iter().map(|(x, w)| x * w).sum(),
            bound: tensor_core_error(&factors, roundings_of_a_product),
            plain: factors.iter().fold(0.0, |sum, &(x, w)| (x as f32).mul_add(w as f32, sum)),
        }
    };
    (0..m * n).into_par_iter().map(element).collect()
}

/// By how much an element of a product of few rows may be off, of an input row, a row of weights and a bias.
///
/// A weight is `s q - m`, and both terms are at most as large as the largest of some random weights
/// of its row times four. A lane rounds four times for each of its pieces and run, or once for each
/// of its elements where those are summed one by one; then there are the butterfly and the bias.
#[must_use]
pub fn matvec_error(input: &[f64], weights: &[f32], bias: f32, is_q8: bool) -> f64 {
    let largest = weights.iter().fold(0.0_f32, |m, w| m.max(w.abs()));
    let inputs: f64 = input.iter().map(|x| x.abs()).sum();
    let steps = (weights.len() as f64 / 1024.0).ceil();
    let roundings = if is_q8 { 8.0 * steps } else { 38.0 * steps } + 8.0;
    EPSILON * roundings * (4.0 * f64::from(largest) * inputs + f64::from(bias.abs()))
}

/// By how much an element of `matmul_splitk` may be off, of an input row, a row of weights with the minimums of its
/// blocks, or none, and a bias.
///
/// A weight is `scale · q - minimum`, rounded three times to f16: scale, minimum, and the result, all [`SCALE_UP`]
/// times as large. The tensor cores' sums are those of each warp group, in the order of its slabs' columns; they are
/// added in pairs, and the bias to that.
#[must_use]
pub fn splitk_error(
    input: &[f64],
    weights: &[f32],
    minimums: &[f32],
    bias: f32,
    roundings_of_a_product: f64,
) -> f64 {
    // Half a unit in the last of 11 digits, or of the smallest number there is.
    let half = |x: f64| (x.abs() * (-11.0_f64).exp2()).max((-25.0_f64).exp2() / f64::from(SCALE_UP));
    let minimum = |at: usize| minimums.get(at).copied().map(f64::from);
    let scaled = |at: usize| f64::from(weights[at]) - minimum(at).unwrap_or(0.0);
    // Where there are minimums, a piece's scale is off times how far q lies from the middle quant: by no more than
    // with the piece's largest q.
    let largest: Vec<f64> = (0..weights.len())
        .step_by(PIECE_ELEMENTS as usize)
        .map(|first| {
            let piece = first..weights.len().min(first + PIECE_ELEMENTS as usize);
            piece.map(scaled).fold(0.0, |largest: f64, x| largest.max(x.abs()))
        })
        .collect();
    let of_weight = |at: usize| {
        let (weight, minimum) = (f64::from(weights[at]), minimum(at));
        // A scale that is rounded is off as its product with q is; one that is subnormal by that times q, up to 128.
        let scaled = if minimum.is_some() { largest[at / PIECE_ELEMENTS as usize] } else { scaled(at) };
        let terms =
            half(scaled).max(128.0 * half(0.0)) + minimum.map_or(0.0, |m| half(m.abs() + half(scaled)));
        terms + half(weight.abs() + terms)
    };
    let of_weights: f64 = input.iter().enumerate().map(|(at, x)| x.abs() * of_weight(at)).sum();

    // In a slab's first row columns stand as they are multiplied.
    let slab = Slabs::new(SLAB_COLUMNS);
    let mut order: Vec<u32> = (0..SLAB_COLUMNS).collect();
    order.sort_unstable_by_key(|&column| slab.element(0, column));
    let (mut sums, mut of_sums) = ([0.0; GROUPS as usize], 0.0);
    for (group, sum) in sums.iter_mut().enumerate() {
        let slabs = (group..input.len().div_ceil(order.len())).step_by(GROUPS as usize);
        let columns =
            slabs.flat_map(|slab| order.iter().map(move |&at| slab * SLAB_COLUMNS as usize + at as usize));
        let factors: Vec<(f64, f64)> =
            columns.map(|at| input.get(at).map_or((0.0, 0.0), |&x| (x, f64::from(weights[at])))).collect();
        *sum = factors.iter().map(|(x, w)| x * w).sum::<f64>();
        of_sums += tensor_core_error(&factors, roundings_of_a_product);
    }
    let [a, b, c, d] = sums;
    let sum = a + b + c + d;
    let added = (a + c).abs() + (b + d).abs() + sum.abs() + (sum + f64::from(bias)).abs();
    FIRST_ORDER * (of_weights + of_sums + EPSILON * added)
}

/// By how much, relatively, a norm over rows of this width may be off: a thread's squares, 5 of a
/// butterfly, 16 of the partial sums, 2 of mean and epsilon count half; the root is off by 2^-22.9; two
/// products round.
#[must_use]
pub fn norm_error(width: usize) -> f64 {
    let steps = (4 * width.div_ceil(2048) + 23) as f64;
    (steps / 2.0 + 2.0) * EPSILON + (-22.9_f64).exp2()
}
