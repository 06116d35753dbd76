//! `convert_f16`, `convert_f16_panels`, `convert_f16_slabs` and `convert_q8` against the rounding that they promise,
//! to the bit.

use gpu::product::{PanelF16, SlabF16};
use half::f16;

use super::Parity;
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops;
use crate::gate::form::{Form, Q8};
use crate::gate::random::normals;

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub enum Convert {
    /// To f16.
    F16,
    /// To f16 in panels.
    Panels,
    /// To f16 in slabs.
    Slabs,
    /// To 8-bit quants.
    Q8,
}

impl Parity for Convert {
    const FAMILY: &'static str = "convert";

    fn all() -> Vec<Self> {
        vec![Self::F16, Self::Panels, Self::Slabs, Self::Q8]
    }

    fn kernel(&self) -> String {
        match self {
            Self::F16 => "convert_f16".to_owned(),
            Self::Panels => "convert_f16_panels".to_owned(),
            Self::Slabs => "convert_f16_slabs".to_owned(),
            Self::Q8 => "convert_q8".to_owned(),
        }
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let quick = [[1, 128], [3, 1024], [3, 32], [2, 96]];
        for shape @ [rows, width] in trial.cases(&quick, &[[2, 1152], [5, 3584], [64, 256]], &[[1000, 3584]])
        {
            let case = format!("{rows} × {width}");
            let mut x = normals(&mut trial.random, rows * width);
            // Ties, overflow, subnormals, zeros.
            x[..8].copy_from_slice(&[1.000_488_3, 1.001_464_8, 65_519.9, 65_520.0, 3e-8, 2e-8, -0.0, -1e30]);
            let input = trial.input("input", &x, 16)?;
            let halves = || x.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
            let (found, expected): (_, Vec<f32>) = match self {
                Self::F16 => {
                    let out: Vec<f16> = trial.output(&case, rows * width, 16, |queue, out| {
                        Ok(ops::convert_f16(queue, out, input.view(), shape)?)
                    })?;
                    (<f16 as Form>::values(&out, shape), halves())
                }
                Self::Panels => {
                    let out = trial.output(&case, PanelF16::elements(rows, width), 16, |queue, out| {
                        Ok(ops::convert_f16_panels(queue, out, input.view(), shape)?)
                    })?;
                    (PanelF16::values(&out, shape), halves())
                }
                Self::Slabs => {
                    let out = trial.output(&case, SlabF16::elements(rows, width), 16, |queue, out| {
                        Ok(ops::convert_f16_slabs(queue, out, input.view(), shape)?)
                    })?;
                    (SlabF16::values(&out, shape), halves())
                }
                Self::Q8 => {
                    let out = trial.output(&case, Q8::elements(rows, width), 16, |queue, out| {
                        Ok(ops::convert_q8(queue, out, input.view(), shape)?)
                    })?;
                    (Q8::values(&out, shape), x.chunks_exact(32).flat_map(rounded_to_q8).collect())
                }
            };
            let found = found.map_err(|what| Red::wrong(&case, what))?;
            let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
            trial.compare(&case, &found, &expected, |_| 0.0)?;
        }
        Ok(())
    }
}

/// What a block of 32 becomes.
fn rounded_to_q8(block: &[f32]) -> Vec<f32> {
    let largest = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if largest < (-100.0_f32).exp2() {
        return vec![0.0; block.len()];
    }
    let (scale, inverse) = (largest / 32_512.0, 32_512.0 / largest);
    block.iter().map(|x| scale * (x * inverse).round_ties_even()).collect()
}
