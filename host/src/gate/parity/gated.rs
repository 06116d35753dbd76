//! `gated` against f64.

use std::marker::PhantomData;

use gpu::activation::Gate;
use gpu::product::{PanelF16, SlabF16};
use half::f16;

use super::Parity;
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops;
use crate::gate::form::{Form, Q8};
use crate::gate::random::normals;

/// The exponent and the activation, in f64.
#[must_use]
pub fn activation(gate: Gate, x: f64) -> (f64, f64) {
    let z = match gate {
        Gate::Silu => x,
        Gate::GeluTanh => (8.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3)),
    };
    (z, x / (1.0 + (-z).exp()))
}

/// By how much the product of an activation with `up` may be off in f32.
#[must_use]
pub fn gated_error(gate: Gate, x: f64, up: f64) -> f64 {
    let (z, activation) = activation(gate, x);
    Gate::error(z) * (activation * up).abs() + (-118.0_f64).exp2() * up.abs()
}

/// The kernel for a form of rows.
#[derive(Clone, Copy, Debug)]
pub struct Gated<F>(PhantomData<F>);

impl<F: Form> Parity for Gated<F> {
    const FAMILY: &'static str = "gated";

    fn all() -> Vec<Self> {
        vec![Self(PhantomData)]
    }

    fn kernel(&self) -> String {
        format!("gated_{}", F::NAME)
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let (quick, more) = ([(1, 32, 0), (3, 96, 4)], [(2, 1024, 0), (2, 1056, 32)]);
        for (rows, width, gap) in trial.cases(&quick, &more, &[(511, 6912, 0)]) {
            for gate in [Gate::Silu, Gate::GeluTanh] {
                let case = format!("{rows} × {width}, {gap} between rows, {gate:?}");
                let stride = 2 * width + gap;
                let mut both = normals(&mut trial.random, rows * stride - gap);
                // Gates of every size, both signs.
                both.iter_mut().step_by(3).for_each(|x| *x *= 8.0);
                let input = trial.input("gate and up", &both, 16)?;
                let len = (rows - 1) * stride + width;
                let out = trial.output(&case, F::elements(rows, width), 16, |queue, out| {
                    let (x, up) = (input.slice(0..len), input.slice(width..width + len));
                    Ok(ops::gated(queue, F::target(out), x, up, gate, [rows, width, stride])?)
                })?;
                let found = F::values(&out, [rows, width]).map_err(|what| Red::wrong(&case, what))?;
                let at = |i: usize| {
                    let at = i / width * stride + i % width;
                    (f64::from(both[at]), f64::from(both[at + width]))
                };
                let exact = |i| {
                    let (x, up) = at(i);
                    activation(gate, x).1 * up
                };
                let expected: Vec<f64> = (0..rows * width).map(exact).collect();
                trial.compare(&case, &found, &expected, |i| {
                    let (x, up) = at(i);
                    let row = &expected[i / width * width..][..width];
                    gated_error(gate, x, up) + F::rounding(row, i % width)
                })?;
            }
        }
        Ok(())
    }
}

/// The kernel that writes f32.
pub type GatedF32 = Gated<f32>;
/// The kernel that writes f16.
pub type GatedF16 = Gated<f16>;
/// The kernel that writes f16 in panels.
pub type GatedPanels = Gated<PanelF16>;
/// The kernel that writes f16 in slabs.
pub type GatedSlabs = Gated<SlabF16>;
/// The kernel that writes 8-bit quants.
pub type GatedQ8 = Gated<Q8>;
