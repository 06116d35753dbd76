//! `matmul_splitk` against f64.

use gpu::product::SlabF16;
use gpu::quant::Format;
use half::f16;
use rayon::prelude::*;

use super::trial::{Red, Trial};
use super::{Parity, quantized, suffix};
use crate::cuda::Queue;
use crate::cuda::ops::{self, Output, PlaneMatrix};
use crate::gate::bounds::{roundings_of_a_product, splitk_error};
use crate::gate::form::in_tiles;
use crate::gate::matrix::{Matrix, Rows};

/// The kernel for weights of a format and twice `REGISTERS` rows in a pass.
#[derive(Clone, Copy, Debug)]
pub struct SplitK<const REGISTERS: usize> {
    format: Format,
}

impl<const REGISTERS: usize> Parity for SplitK<REGISTERS> {
    const FAMILY: &'static str = "matmul_splitk";

    fn all() -> Vec<Self> {
        quantized().map(|format| Self { format }).collect()
    }

    fn kernel(&self) -> String {
        format!("matmul_splitk_{}_n{}", suffix(self.format), 2 * REGISTERS)
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let (format, pass) = (self.format, 2 * REGISTERS);
        let block = format.block_elements();
        // Groups without a slab, and slabs that are not whole; then more slabs than stages, and edges of passes and
        // of 64 outputs.
        let quick = [[1, 3, block], [3, 65, 5 * block], [pass + 1, 17, 1280]];
        let more = [[pass - 1, 1, 4352], [2 * pass + 1, 129, 9 * block]];
        for shape @ [m, n, k] in trial.cases(&quick, &more, &[[130, 200, 2304], [pass, 1000, 18_944]]) {
            let case = format!("{m} × {n} × {k}");
            let rows = Rows::<f16>::random(m, k, &mut trial.random);
            let input = trial.input("input", &in_tiles::<SlabF16>(&rows.elements, [m, k]), 16)?;
            let matrix = Matrix::random(format, [n, k], &mut trial.random).with_bias(&mut trial.random);
            let biases = matrix.bias.as_deref().unwrap_or_default();
            let (bytes, bias) =
                (trial.input("weights", &matrix.planes, 16)?, trial.input("bias", biases, 4)?);
            let found = trial.output(&case, m * n, 4, |queue, out| {
                let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
                let outputs = [Output { out, weights, bias: Some(bias.view()) }];
                Ok(ops::matmul_splitk_by::<REGISTERS>(queue, &outputs, input.view(), m)?)
            })?;
            let roundings = roundings_of_a_product(trial.queue());
            let (expected, bounds) = references(&matrix, &rows.values, shape, roundings);
            trial.compare(&case, &found, &expected, |i| bounds[i])?;
        }
        Ok(())
    }
}

/// The product with a bias, `m × n` in f64, and by how much each element may be off.
fn references(
    matrix: &Matrix,
    rows: &[f64],
    [m, n, k]: [usize; 3],
    roundings_of_a_product: f64,
) -> (Vec<f64>, Vec<f64>) {
    let exact = |at: usize| {
        let (row, output) = (&rows[at / n * k..][..k], at % n);
        let [weights, minimums] = [&matrix.values, &matrix.minimums]
            .map(|values| values.get(output * k..(output + 1) * k).unwrap_or_default());
        let bias = matrix.bias.as_deref().map_or(0.0, |biases| biases[output]);
        let products = row.iter().zip(weights).map(|(x, &w)| x * f64::from(w));
        let sum = products.sum::<f64>() + f64::from(bias);
        (sum, splitk_error(row, weights, minimums, bias, roundings_of_a_product))
    };
    (0..m * n).into_par_iter().map(exact).unzip()
}

/// The kernels that take 8 rows in a pass.
pub type SplitK8 = SplitK<4>;
/// The kernels that take 32 rows in a pass.
pub type SplitK32 = SplitK<16>;
/// The kernels that take 64 rows in a pass.
pub type SplitK64 = SplitK<32>;
