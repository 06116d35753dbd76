//! `matmul_f16_wgmma_gated` against f64.

use gpu::activation::Gate;
use gpu::product::panels::{TURNS, paired, spread};
use gpu::product::{PanelF16, WeightPanelF16};
use half::f16;

use super::Parity;
use super::gated::{activation, gated_error};
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops;
use crate::gate::bounds::{Reference, roundings_of_a_product, tensor_core_product};
use crate::gate::form::{Form, in_tiles};
use crate::gate::matrix::Rows;
use crate::gate::random::normals;

/// The steepest slope of an activation, above those of SiLU (1.100) and GELU (1.129).
const SLOPE: f64 = 1.13;

/// The kernel.
#[derive(Clone, Copy, Debug)]
pub struct GatedWgmma;

/// Rows of gate and of up, in the order in which their panels take turns; what is in between is NaN.
fn in_turns([gate, up]: [&[f16]; 2], k: usize) -> Vec<f16> {
    let mut both = vec![f16::NAN; paired((gate.len() / k) as u32) as usize * k];
    for (matrix, turn) in [gate, up].into_iter().zip(TURNS) {
        for (row, elements) in (0..).zip(matrix.chunks_exact(k)) {
            both[spread(row, turn) as usize * k..][..k].copy_from_slice(elements);
        }
    }
    both
}

impl Parity for GatedWgmma {
    const FAMILY: &'static str = "wgmma";

    fn all() -> Vec<Self> {
        vec![Self]
    }

    fn kernel(&self) -> String {
        "matmul_f16_wgmma_gated".to_owned()
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let roundings = roundings_of_a_product(trial.queue());
        let (quick, more) = ([[130, 8, 40], [3, 136, 72]], [[129, 144, 200], [100, 304, 72]]);
        for shape @ [m, width, k] in trial.cases(&quick, &more, &[[517, 1496, 1024], [1094, 2048, 512]]) {
            let rows = Rows::<f16>::random(m, k, &mut trial.random);
            // Products of a deviation of 2: gates of every size, both signs.
            let deviation = 2.0 / (k as f32).sqrt();
            let matrices = [(); 2].map(|()| -> Vec<f16> {
                let values = normals(&mut trial.random, width * k);
                values.into_iter().map(|x| f16::from_f32(x * deviation)).collect()
            });
            let [gates, ups] = matrices.each_ref().map(|matrix| {
                let values: Vec<f64> = matrix.iter().map(|x| x.to_f64()).collect();
                tensor_core_product(&rows.values, &values, [m, width, k], roundings)
            });
            let both = in_turns(matrices.each_ref().map(Vec::as_slice), k);
            let weights: Vec<WeightPanelF16> = in_tiles(&both, [paired(width as u32) as usize, k]);
            let weights = trial.input("gate and up", &weights, 16)?;
            let input = trial.input("input", &in_tiles::<PanelF16>(&rows.elements, [m, k]), 16)?;
            for gate in [Gate::Silu, Gate::GeluTanh] {
                let case = format!("{m} × {width} × {k}, {gate:?}");
                let out = trial.output(&case, PanelF16::elements(m, width), 16, |queue, out| {
                    let (rows, weights) = (input.view(), weights.view());
                    Ok(ops::matmul_f16_wgmma_gated(queue, out, rows, weights, gate, shape)?)
                })?;
                let found = PanelF16::values(&out, [m, width]).map_err(|what| Red::wrong(&case, what))?;
                let exact = |(gates, ups): (&Reference, &Reference)| activation(gate, gates.sum).1 * ups.sum;
                let expected: Vec<f64> = gates.iter().zip(&ups).map(exact).collect();
                trial.compare(&case, &found, &expected, |i| {
                    let (x, up) = (&gates[i], &ups[i]);
                    let of_gate = SLOPE * x.bound * (up.sum.abs() + up.bound);
                    let of_up = activation(gate, x.sum).1.abs() * up.bound;
                    let row = &expected[i / width * width..][..width];
                    // Rounding of what is off already.
                    let rounding = 1.01 * <PanelF16 as Form>::rounding(row, i % width);
                    of_gate + of_up + 1.01 * gated_error(gate, x.sum, up.sum) + rounding
                })?;
            }
        }
        Ok(())
    }
}
