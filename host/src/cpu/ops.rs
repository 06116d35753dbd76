//! The work between the products: norms, gates, embeddings, residual sums.

use std::f64::consts::PI;

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

/// `gate = activation(gate) · up`, element by element; the activation in f64 where `exact`.
pub(super) fn gate(activation: Activation, exact: bool, gate: &mut [f32], up: &[f32]) {
    if exact {
        for (gate, up) in gate.iter_mut().zip(up) {
            let x = f64::from(*gate);
            *gate = (x / (1.0 + (-exponent(activation, x)).exp())) as f32 * up;
        }
    } else {
        dispatch(Gate { activation, gate, up });
    }
}

/// Both activations are `x / (1 + e^-z)`: SiLU with z = x, and GELU with twice the argument of
/// its tanh, because 0.5·(1 + tanh(y)) = 1 / (1 + e^-2y); y = sqrt(2/π)·(x + 0.044715·x³)
/// (Hendrycks and Gimpel, 2016).
fn exponent(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x,
        Activation::GeluTanh => 2.0 * (2.0 / PI).sqrt() * x * (1.0 + 0.044_715 * x * x),
    }
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
        /// 2·sqrt(2/π), see [`exponent`].
        const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
        let pairs = self.gate.iter_mut().zip(self.up);
        match self.activation {
            Activation::Silu => pairs.for_each(|(gate, up)| *gate = *gate / (1.0 + exp::<S>(-*gate)) * up),
            Activation::GeluTanh => pairs.for_each(|(gate, up)| {
                let x = *gate;
                let z = TWICE_SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x);
                *gate = x / (1.0 + exp::<S>(-z)) * up;
            }),
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
    let row_bytes = format.bytes_of(out.len());
    dequantize_row(format, &rows[token * row_bytes..(token + 1) * row_bytes], out)
        .expect("the model's loader checked the shape of the embeddings");
    for x in out {
        *x *= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::InstructionSet;
    use super::super::simd::tests::run_on;
    use super::*;
    use crate::gate::random::{Random, normal};

    fn numbers(len: usize, size: f64) -> Vec<f32> {
        let mut random = Random(len as u64);
        (0..len).map(|_| (size * normal(&mut random)) as f32).collect()
    }

    fn hold(what: &str, got: f32, expected: f64, allowed: f64) {
        let error = (f64::from(got) - expected).abs();
        // Written so that a NaN fails.
        assert!(
            error <= allowed,
            "{what}: {got}, expected {expected}, error {error:.1e}, allowed {allowed:.1e}"
        );
    }

    /// The scale and two products are rounded to f32: three times 2⁻²⁴ of an element.
    #[test]
    fn norms_on_every_set() {
        for set in InstructionSet::available() {
            // At 1e-30 the squares leave the range of f32, at 1e-3 epsilon takes part.
            for (len, size) in [1, 7, 8, 9, 64, 75, 640]
                .into_iter()
                .flat_map(|len| [1.0, 1e-3, 1e-30, 9e4, 1e30].map(|s| (len, s)))
            {
                let (x, weight) = (numbers(len, size), numbers(len + 1, 2.0));
                let epsilon = 1e-6_f32;
                let mut out = vec![f32::NAN; len];
                run_on(set, 1, || rms_norm(&x, &weight[..len], epsilon, &mut out));
                let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / len as f64;
                for (i, &got) in out.iter().enumerate() {
                    let expected =
                        f64::from(x[i]) * f64::from(weight[i]) / (mean + f64::from(epsilon)).sqrt();
                    let what = format!("{len} of {size:e}, element {i}, {}", set.name());
                    hold(&what, got, expected, 3.1 * 2.0_f64.powi(-24) * expected.abs() + 1e-44);
                }
            }
        }
    }

    #[test]
    fn a_norm_of_heads_norms_each_by_itself() {
        let (mut row, weight) = (numbers(3 * 80, 5.0), numbers(80, 1.0));
        let mut expected = vec![f32::NAN; 240];
        for (x, out) in row.chunks(80).zip(expected.chunks_mut(80)) {
            rms_norm(x, &weight, 1e-5, out);
        }
        rms_norm_heads(&mut row, &weight, 1e-5);
        assert_eq!(row, expected);
    }

    #[test]
    fn a_nan_passes_through_a_norm_and_a_gate() {
        let mut x = numbers(40, 1.0);
        x[39] = f32::NAN;
        let mut out = vec![0.0; 40];
        rms_norm(&x, &x, 1e-6, &mut out);
        assert!(out.iter().all(|x| x.is_nan()));
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let mut out = x.clone();
            gate(activation, false, &mut out, &numbers(40, 1.0));
            assert!(out[39].is_nan() && out[..39].iter().all(|x| x.is_finite()), "{activation:?}");
        }
    }

    /// `exp` is off by 2e-7, and times `x` in the exponent by the rounding of that.
    #[test]
    fn gates_on_every_set() {
        let x: Vec<f32> = (-4000..4000)
            .map(|i| i as f32 / 100.0 + 0.003)
            .chain([0.0, -0.0, -200.0, 200.0, -1e30, 1e30])
            .collect();
        let up = numbers(x.len(), 3.0);
        for (set, activation) in InstructionSet::available()
            .into_iter()
            .flat_map(|set| [Activation::Silu, Activation::GeluTanh].map(|a| (set, a)))
        {
            let mut out = x.clone();
            run_on(set, 1, || gate(activation, false, &mut out, &up));
            for ((&got, &x), &up) in out.iter().zip(&x).zip(&up) {
                let x = f64::from(x);
                let (activated, exponent) = match activation {
                    Activation::Silu => (x / (1.0 + (-x).exp()), x.abs()),
                    Activation::GeluTanh => {
                        let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                        (0.5 * x * (1.0 + z.tanh()), 2.0 * z.abs())
                    }
                };
                // Where the exact value is below 1e-30, e^-x has left the range of f32.
                let relative = 2e-7 + (4.0 + 4.0 * exponent.min(80.0)) * 2.0_f64.powi(-24);
                let expected = activated * f64::from(up);
                hold(
                    &format!("{activation:?} of {x}, {}", set.name()),
                    got,
                    expected,
                    relative * expected.abs() + 1e-14,
                );
            }
        }
    }

    /// The exact gates round once to f32 and once in the product.
    #[test]
    fn exact_gates() {
        let x: Vec<f32> =
            (-4000..4000).map(|i| i as f32 / 100.0 + 0.003).chain([0.0, -200.0, 200.0]).collect();
        let up = numbers(x.len(), 3.0);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let mut out = x.clone();
            gate(activation, true, &mut out, &up);
            for ((&got, &x), &up) in out.iter().zip(&x).zip(&up) {
                let x = f64::from(x);
                let activated = match activation {
                    Activation::Silu => x / (1.0 + (-x).exp()),
                    Activation::GeluTanh => {
                        0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
                    }
                };
                let expected = activated * f64::from(up);
                // 1 + tanh cancels where the gate is closed.
                let bound =
                    2.0_f64.powi(-23) * expected.abs() + 1e-14 * x.abs() * f64::from(up).abs() + 1e-40;
                hold(&format!("{activation:?} of {x}"), got, expected, bound);
            }
        }
    }

    #[test]
    fn embeddings_are_rows_times_a_scale() {
        let rows: Vec<u8> = numbers(5 * 6, 1.0).iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut out = [f32::NAN; 6];
        embed(Format::F32, &rows, 4, 2.5, &mut out);
        assert_eq!(out.as_slice(), numbers(30, 1.0)[24..].iter().map(|x| x * 2.5).collect::<Vec<_>>());
    }

    #[test]
    fn each_row_is_visited_once_on_any_number_of_threads() {
        for (width, rows, threads) in [(7, 3, 2), (640, 97, 1), (640, 97, 3), (33, 1000, 2)] {
            let mut out = vec![0.0; width * rows];
            run_on(InstructionSet::selected(), threads, || {
                each_row(&mut out, width, |row, out| {
                    assert_eq!(out.len(), width);
                    out.iter_mut().for_each(|x| *x += row as f32 + 1.0);
                });
            });
            for (index, &x) in out.iter().enumerate() {
                assert_eq!(x, (index / width) as f32 + 1.0);
            }
        }
    }
}
