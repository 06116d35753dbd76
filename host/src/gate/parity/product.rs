//! `matmul_f16_<format>` and `matmul_f16_wgmma` against the operands' product, summed in f64.

use bytemuck::Pod;
use gpu::product::{MatmulF16Quant, MatmulF16Wgmma, PanelF16, WeightPanelF16};
use gpu::quant::{Format, with_block};
use gpu::simt::Contract;
use half::f16;

use super::trial::{Red, Trial};
use super::{Parity, suffix};
use crate::cuda::ops::{self, PlaneMatrix};
use crate::cuda::{Error, Noted, Queue, View, ViewMut};
use crate::gate::bounds::{EPSILON, FIRST_ORDER, roundings_of_a_product, tensor_core_product};
use crate::gate::form::in_tiles;
use crate::gate::guarded::Guarded;
use crate::gate::matrix::{Matrix, Rows};
use crate::gate::random::normals;

/// The kernel for f16 rows and weights of a format.
#[derive(Clone, Copy, Debug)]
pub struct MatmulF16 {
    format: Format,
    /// With the tiles for few rows.
    few: bool,
}

/// A kernel for rows and weights of f16 in panels, by half the columns of its tiles.
#[derive(Clone, Copy, Debug)]
pub struct MatmulWgmma<const REGISTERS: usize>;

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
        let tile_m = if self.few { 32 } else { 128 };
        for [m, n, k] in shapes(trial, self.format, [tile_m, 128]) {
            let rows = Rows::<f16>::random(m, k, &mut trial.random);
            let launch = |queue: &Noted<'_, Q>,
                          out: ViewMut<'_, f32>,
                          input: View<'_, f16>,
                          weights: View<'_, u8>,
                          bias: Option<View<'_, f32>>| {
                let weights = PlaneMatrix { bytes: weights, format: self.format, rows: n, columns: k };
                // By name, whatever the number of rows.
                with_block!(self.format, B => if self.few {
                    let kernel = MatmulF16Quant::<B, 32>::new;
                    ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
                } else {
                    let kernel = MatmulF16Quant::<B>::new;
                    ops::matmul_f16_quant_by(queue, out, input, weights, bias, m, kernel)
                })
            };
            let matrix = Matrix::random(self.format, [n, k], &mut trial.random);
            let operands = Operands {
                input: &rows.elements,
                rows: &rows.values,
                weights: &matrix.planes,
                matrix: &matrix,
                out_align: 8,
            };
            operands.play(trial, m, launch)?;
        }
        Ok(())
    }
}

impl<const REGISTERS: usize> Parity for MatmulWgmma<REGISTERS> {
    const FAMILY: &'static str = "wgmma";

    fn all() -> Vec<Self> {
        vec![Self]
    }

    fn kernel(&self) -> String {
        MatmulF16Wgmma::<REGISTERS>::NAME.to_owned()
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let tile = [128, 2 * REGISTERS];
        // The kernel sees f16, the numbers are those of a format.
        let quick = [Format::F16, Format::Q4_K];
        let others: Vec<_> = Format::ALL.into_iter().filter(|format| !quick.contains(format)).collect();
        let of = |format| shapes(trial, format, tile).into_iter().map(move |shape| (format, shape));
        let mut cases: Vec<_> = trial.cases(&quick, &others, &[]).into_iter().flat_map(of).collect();
        // Edges of tiles, of which some blocks have two.
        cases.push((Format::BF16, [tile[0] + 1, tile[1] + 3, 72]));
        // On a device whole tiles and then halves, on both sides of the rows' last panel.
        let large = [[8 * tile[0] + 70, 16 * tile[1] + 4, 512]];
        cases.extend(trial.cases(&[], &[], &large).into_iter().map(|shape| (Format::BF16, shape)));
        for (format, [m, n, k]) in cases {
            let rows = Rows::<f16>::random(m, k, &mut trial.random);
            let matrix = Matrix::random(format, [n, k], &mut trial.random);
            let halves: Vec<f16> = matrix.values.iter().map(|&weight| f16::from_f32(weight)).collect();
            let launch = |queue: &Noted<'_, Q>,
                          out: ViewMut<'_, f32>,
                          input: View<'_, PanelF16>,
                          weights: View<'_, WeightPanelF16>,
                          bias: Option<View<'_, f32>>| {
                ops::matmul_f16_wgmma_by::<REGISTERS>(queue, out, input, weights, bias, [m, n, k])
            };
            let operands = Operands {
                input: &in_tiles(&rows.elements, [m, k]),
                rows: &rows.values,
                weights: &in_tiles(&halves, [n, k]),
                matrix: &matrix,
                out_align: 16,
            };
            operands.play(trial, m, launch)?;
        }
        Ok(())
    }
}

/// What is multiplied.
struct Operands<'a, E, W> {
    /// The input as the kernel reads it.
    input: &'a [E],
    /// Its values, `m × k`.
    rows: &'a [f64],
    /// The weights as the kernel reads them.
    weights: &'a [W],
    /// What they were made of, and are but for the rounding to f16.
    matrix: &'a Matrix,
    /// What out is aligned to, and not more.
    out_align: usize,
}

impl<E: Pod, W: Pod> Operands<'_, E, W> {
    /// Their product, of `m` rows, without a bias and with one.
    fn play<Q: Queue>(
        &self,
        trial: &mut Trial<'_, Q>,
        m: usize,
        launch: impl Fn(
            &Noted<'_, Q>,
            ViewMut<'_, f32>,
            View<'_, E>,
            View<'_, W>,
            Option<View<'_, f32>>,
        ) -> Result<(), Error>,
    ) -> Result<(), Red> {
        let (format, [n, k]) = (self.matrix.format, self.matrix.shape);
        let roundings = roundings_of_a_product(trial.queue());
        let multiplied: Vec<f64> =
            self.matrix.values.iter().map(|&weight| f16::from_f32(weight).to_f64()).collect();
        let biases = normals(&mut trial.random, n);
        let input = trial.input("input", self.input, 16)?;
        let weights = trial.input("weights", self.weights, 16)?;
        let references = tensor_core_product(self.rows, &multiplied, [m, n, k], roundings);
        let sums: Vec<f64> = references.iter().map(|reference| reference.sum).collect();
        let bound = |i: usize| references[i].bound;
        for biases in [None, Some(&biases)] {
            let bias = biases.map(|biases| trial.input("bias", biases, 4)).transpose()?;
            let with = if bias.is_some() { ", with a bias" } else { "" };
            let case = format!("{m} × {n} × {k} of {format}{with}");
            let found = trial.output(&case, m * n, self.out_align, |queue, out| {
                Ok(launch(queue, out, input.view(), weights.view(), bias.as_ref().map(Guarded::view))?)
            })?;
            let Some(biases) = biases else {
                trial.compare(&case, &found, &sums, bound)?;
                continue;
            };
            let biased = |(i, sum): (usize, &f64)| sum + f64::from(biases[i % n]);
            let expected: Vec<f64> = sums.iter().enumerate().map(biased).collect();
            let rounding = |i: usize| FIRST_ORDER * EPSILON * expected[i].abs();
            trial.compare(&case, &found, &expected, |i| bound(i) + rounding(i))?;
        }
        Ok(())
    }
}
