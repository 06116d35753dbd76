//! `unpack_f16_<format>` against dequantizing, rounded once to f16: to the bit, but for the sign of a zero.

use gpu::product::{PanelF16, WeightPanelF16};
use gpu::quant::Format;
use half::f16;

use super::trial::{Red, Trial};
use super::{Parity, suffix};
use crate::cuda::Queue;
use crate::cuda::ops::{self, PlaneMatrix};
use crate::gate::form::{Form, values_of_tiles};
use crate::gate::matrix::Matrix;

/// The kernel for weights of a format.
#[derive(Clone, Copy, Debug)]
pub struct UnpackF16(Format);

/// `[n, k]` for weights of a format: a row alone, rows that are no whole panels, and more columns than a block
/// has.
#[must_use]
pub fn shapes(format: Format) -> [[usize; 2]; 3] {
    let block = format.block_elements().max(8);
    [[1, block], [33, 3 * block], [130, 256]]
}

/// A shape for which only a device has the time.
pub const LARGE: [usize; 2] = [517, 2048];

impl Parity for UnpackF16 {
    const FAMILY: &'static str = "unpack_f16";

    fn all() -> Vec<Self> {
        Format::ALL.map(Self).into()
    }

    fn kernel(&self) -> String {
        format!("unpack_f16_{}", suffix(self.0))
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let [alone, ragged, panels] = shapes(self.0);
        for shape @ [rows, columns] in trial.cases(&[alone, ragged], &[panels], &[LARGE]) {
            let case = format!("{rows} × {columns}");
            let matrix = Matrix::random(self.0, shape, &mut trial.random);
            let bytes = trial.input("weights", &matrix.planes, 16)?;
            let out = trial.output(&case, PanelF16::elements(rows, columns), 16, |queue, out| {
                let weights = PlaneMatrix { bytes: bytes.view(), format: self.0, rows, columns };
                Ok(ops::unpack_f16(queue, out, weights)?)
            })?;
            let found =
                values_of_tiles::<WeightPanelF16>(&out, shape).map_err(|what| Red::wrong(&case, what))?;
            let expected: Vec<f64> = matrix.values.iter().map(|&x| f16::from_f32(x).to_f64()).collect();
            trial.compare(&case, &found, &expected, |_| 0.0)?;
        }
        Ok(())
    }
}
