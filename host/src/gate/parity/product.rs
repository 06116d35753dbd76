//! `matmul_f16_<format>` against the operands' product, summed in f64.

use gpu::product::MatmulF16Quant;
use gpu::quant::{Format, with_block};
use half::f16;

use super::trial::{Red, Trial};
use super::{Parity, suffix};
use crate::cuda::ops::{self, PlaneMatrix};
use crate::cuda::{Error, Noted, Queue, View, ViewMut};
use crate::gate::bounds::{EPSILON, FIRST_ORDER, roundings_of_a_product, tensor_core_error};
use crate::gate::guarded::Guarded;
use crate::gate::matrix::{Matrix, Rows};

/// The kernel for f16 rows and weights of a format.
#[derive(Clone, Copy, Debug)]
pub struct MatmulF16 {
    format: Format,
    /// With the tiles for few rows.
    few: bool,
}

/// `[m, n, k]`: of numbers a chunk. Then parts of a piece and odd numbers of pieces, where the format has
/// such rows, and more than two slabs; edges of tiles of `m × n`.
fn shapes<Q: Queue>(trial: &Trial<'_, Q>, format: Format, [m, n]: [usize; 2]) -> Vec<[usize; 3]> {
    let (block, short, long) = match format.block_elements() {
        1 => (8, 40, 200),
        32 => (32, 32, 160),
        block => (block, block, 2 * block),
    };
    let quick = [[1, 1, block], [3, 18, long], [0, 5, block]];
    let more = [[3, n + 3, short], [m + 1, 18, long]];
    trial.cases(&quick, &more, &[[257, 384, 8 * block], [64, 1000, 2048]])
}

impl Parity for MatmulF16 {
    const FAMILY: &'static str = "matmul_f16";

    fn all() -> Vec<Self> {
        [false, true].into_iter().flat_map(|few| Format::ALL.map(|format| Self { format, few })).collect()
    }

    fn kernel(&self) -> String {
        format!("matmul_f16_{}{}", suffix(self.format), if self.few { "_m32" } else { "" })
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let roundings = roundings_of_a_product(trial.queue());
        let tile_m = if self.few { 32 } else { 128 };
        for shape @ [m, _, k] in shapes(trial, self.format, [tile_m, 128]) {
            let rows = Rows::<f16>::random(m, k, &mut trial.random);
            let launch = |queue: &Noted<'_, Q>,
                          out: ViewMut<'_, f32>,
                          input: View<'_, f16>,
                          weights: PlaneMatrix<'_>,
                          bias: Option<View<'_, f32>>| {
                // By name, whatever the number of rows.
                with_block!(self.format, B => if self.few {
                    let kernel = MatmulF16Quant::<B, 32>::new;
                    ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
                } else {
                    let kernel = MatmulF16Quant::<B>::new;
                    ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
                })
            };
            let rounded = |weight: f32| f16::from_f32(weight).to_f32();
            let error = |factors: &[(f64, f64)], _: &[f64]| tensor_core_error(factors, roundings);
            play(trial, self.format, shape, &rows, rounded, error, launch)?;
        }
        Ok(())
    }
}

/// A shape, with a bias and without one.
fn play<Q: Queue, E: bytemuck::Pod>(
    trial: &mut Trial<'_, Q>,
    format: Format,
    [m, n, k]: [usize; 3],
    rows: &Rows<E>,
    multiplied: impl Fn(f32) -> f32,
    error: impl Fn(&[(f64, f64)], &[f64]) -> f64,
    launch: impl Fn(
        &Noted<'_, Q>,
        ViewMut<'_, f32>,
        View<'_, E>,
        PlaneMatrix<'_>,
        Option<View<'_, f32>>,
    ) -> Result<(), Error>,
) -> Result<(), Red> {
    let plain = Matrix::random(format, [n, k], &mut trial.random);
    let weights: Vec<f64> = plain.values.iter().map(|&weight| multiplied(weight).into()).collect();
    let mins = plain.mins();
    let biased = plain.clone().with_bias(&mut trial.random);
    let input = trial.input("input", &rows.elements, 16)?;
    let bytes = trial.input("weights", &plain.planes, 16)?;
    for matrix in [plain, biased] {
        let bias = matrix.bias.as_ref().map(|bias| trial.input("bias", bias, 4)).transpose()?;
        let case = format!("{m} × {n} × {k}{}", if bias.is_some() { ", with a bias" } else { "" });
        let found = trial.output(&case, m * n, 8, |queue, out| {
            let planes = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
            Ok(launch(queue, out, input.view(), planes, bias.as_ref().map(Guarded::view))?)
        })?;
        let (mut expected, mut bounds) = (Vec::with_capacity(m * n), Vec::with_capacity(m * n));
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (row, column) = (&rows.values[i * k..][..k], j * k..(j + 1) * k);
            let factors: Vec<_> = row.iter().copied().zip(weights[column.clone()].iter().copied()).collect();
            let bias = matrix.bias.as_ref().map(|bias| f64::from(bias[j]));
            let exact = factors.iter().map(|(x, w)| x * w).sum::<f64>() + bias.unwrap_or(0.0);
            let of_bias = if bias.is_some() { FIRST_ORDER * EPSILON * exact.abs() } else { 0.0 };
            bounds.push(error(&factors, &mins[column]) + of_bias);
            expected.push(exact);
        }
        trial.compare(&case, &found, &expected, |i| bounds[i])?;
    }
    Ok(())
}
