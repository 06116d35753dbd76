//! The work between the products: norms, gates, embeddings, residual sums.

use gpu::quant::{Format, dequantize_row};
use rayon::prelude::*;

use super::real::{Real, exp, sum};
use super::simd::{Kernel, Simd, dispatch};
use crate::model::Activation;

/// Elements below which a loop is cheaper alone than shared among threads.
const SMALL: usize = 1 << 14;

/// Calls `work` on corresponding rows of `out` (of `width`) and their index, on several
/// threads where that pays.
pub(super) fn each_row(out: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if out.len() <= SMALL || rayon::current_num_threads() == 1 {
        out.chunks_mut(width).enumerate().for_each(|(row, out)| work(row, out));
    } else {
        out.par_chunks_mut(width).enumerate().for_each(|(row, out)| work(row, out));
    }
}

/// RMS norm of one row: `out = x / sqrt(mean(x²) + ε) · weight` (Zhang and Sennrich, 2019).
/// The sum of squares is f64.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    dispatch(RmsNorm { x, weight, epsilon, out });
}

/// The norm of [`rms_norm`] over each head of a row, in place.
pub(super) fn rms_norm_heads(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let mut head_in = vec![0.0; weight.len()];
    for head in row.chunks_exact_mut(weight.len()) {
        head_in.copy_from_slice(head);
        rms_norm(&head_in, weight, epsilon, head);
    }
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (chunks, rest) = self.x.as_chunks::<8>();
        let mut lanes = [0.0; 8];
        for chunk in chunks {
            lanes = f64::fma_lanes::<S>(chunk, chunk, lanes);
        }
        let squares = rest.iter().fold(sum::<S, f64>(lanes), |sum, &x| f64::fma::<S>(x, x, sum));
        let mean = squares / self.x.len() as f64;
        let scale = (1.0 / (mean + f64::from(self.epsilon)).sqrt()) as f32;
        for ((out, x), weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = x * scale * weight;
        }
    }
}

/// `gate = activation(gate) · up`, element by element.
pub(super) fn gate(activation: Activation, gate: &mut [f32], up: &[f32]) {
    dispatch(Gate { activation, gate, up });
}

struct Gate<'a> {
    activation: Activation,
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let pairs = self.gate.iter_mut().zip(self.up);
        match self.activation {
            Activation::Silu => pairs.for_each(|(gate, up)| *gate = *gate / (1.0 + exp::<S>(-*gate)) * up),
            Activation::GeluTanh => {
                // 0.5·(1 + tanh(z)) = 1 / (1 + e^(-2z)), z = sqrt(2/π)·(x + 0.044715·x³)
                // (Hendrycks and Gimpel, 2016).
                const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
                pairs.for_each(|(gate, up)| {
                    let x = *gate;
                    let z = TWICE_SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x);
                    *gate = x / (1.0 + exp::<S>(-z)) * up;
                });
            }
        }
    }
}

/// `out += x`, element by element.
pub(super) fn add(out: &mut [f32], x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

/// One row of an embedding matrix, times `scale`.
pub(super) fn embed(format: Format, rows: &[u8], token: usize, scale: f32, out: &mut [f32]) {
    let row_bytes = out.len() / format.block_elements() * format.block_bytes();
    dequantize_row(format, &rows[token * row_bytes..(token + 1) * row_bytes], out)
        .expect("the model's loader checked the shape of the embeddings");
    for x in out {
        *x *= scale;
    }
}
