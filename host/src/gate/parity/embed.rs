//! `embed` against `dequantize_row`.

use gpu::quant::Format;

use super::trial::{Red, Trial};
use super::{Parity, suffix};
use crate::cuda::Queue;
use crate::cuda::ops::{self, PlaneMatrix};
use crate::gate::matrix::Matrix;

/// The kernel for a format.
#[derive(Clone, Copy, Debug)]
pub struct Embed(Format);

impl Parity for Embed {
    const FAMILY: &'static str = "embed";

    fn all() -> Vec<Self> {
        Format::ALL.map(Self).into()
    }

    fn kernel(&self) -> String {
        format!("embed_{}", suffix(self.0))
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let format = self.0;
        let block = format.block_elements().max(8);
        for (rows, columns) in trial.cases(&[(5, block)], &[(3, 256 / block * block * 3)], &[(1000, 4096)]) {
            let table = Matrix::random(format, [rows, columns], &mut trial.random);
            let tokens = [rows - 1, 0, 1, rows - 1, 2].map(|token| token as u32);
            let bytes = trial.input("table", &table.planes, 16)?;
            let ids = trial.input("tokens", &tokens, 4)?;
            for scale in [1.0, 25.3_f32] {
                let case = format!("{rows} × {columns}, scale {scale}");
                let found = trial.output(&case, tokens.len() * columns, 16, |queue, out| {
                    let table = PlaneMatrix { bytes: bytes.view(), format, rows, columns };
                    Ok(ops::embed(queue, out, table, ids.view(), scale)?)
                })?;
                // The product of an exact value is rounded once.
                let row = |&token: &u32| &table.values[token as usize * columns..][..columns];
                let expected: Vec<f64> =
                    tokens.iter().flat_map(row).map(|value| f64::from(scale * value)).collect();
                trial.compare(&case, &found, &expected, |_| 0.0)?;
            }
        }
        Ok(())
    }
}
