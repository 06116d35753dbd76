//! The `matvec` kernels against f64.

use gpu::product::MatvecGeometry;
use gpu::product::matvec::{Pair, Quantized, TWO_FORMATS};
use gpu::quant::{BlockQ4_K, Format};
use half::f16;
use rayon::prelude::*;

use super::trial::{Red, Trial};
use super::{Parity, quantized, suffix};
use crate::cuda::ops::{self, Output, PlaneMatrix};
use crate::cuda::{Buffer, Queue};
use crate::gate::bounds::matvec_error;
use crate::gate::matrix::{Matrix, Rows};

/// The kernel for weights of a format and so many rows in a pass.
#[derive(Clone, Copy, Debug)]
pub struct Matvec {
    format: Format,
    is_q8: bool,
    at_once: usize,
    splits_k: bool,
}

impl Parity for Matvec {
    const FAMILY: &'static str = "matvec";

    fn all() -> Vec<Self> {
        let q8 = |format, at_once, splits_k| Self { format, is_q8: true, at_once, splits_k };
        let f16 = |format, at_once| Self { format, is_q8: false, at_once, splits_k: false };
        let each = [(1, false), (1, true), (2, false), (4, false), (8, false)];
        quantized()
            .flat_map(|format| each.map(|(at_once, splits_k)| q8(format, at_once, splits_k)))
            .chain(Format::ALL.into_iter().flat_map(|format| [1, 4].map(|at_once| f16(format, at_once))))
            .collect()
    }

    fn kernel(&self) -> String {
        let &Self { format, is_q8, at_once, splits_k } = self;
        let kind = if is_q8 { "q8" } else { "f16" };
        let rows = match at_once {
            1 if splits_k => "_split_k".to_owned(),
            1 => String::new(),
            _ => format!("_x{at_once}"),
        };
        format!("matvec_{kind}_{}{rows}", suffix(format))
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        let &Self { is_q8, at_once, splits_k, .. } = self;
        // Rows that this kernel is launched for, full passes and others.
        let (few, many) = match (at_once, is_q8) {
            (1, _) => (1, 1),
            (2, _) => (2, 2),
            (4, true) => (3, 4),
            (4, false) => (2, 9),
            _ => (5, 17),
        };
        // Blocks of 256; lanes with one piece more than others, and steps with none.
        let quick = [[few, 3, 256], [many, 2, 2304]];
        let mut large = vec![[many, 129, 18_944]];
        if is_q8 && at_once == 1 && !splits_k {
            // More than two groups for each block that runs at a time.
            let blocks = trial.multiprocessors() * Quantized::<BlockQ4_K>::RESIDENT as usize;
            large.push([1, 2 * blocks * MatvecGeometry::BLOCK_OUTPUTS as usize + 21, 256]);
        }
        for shape in trial.cases(&quick, &[[few, 5, 4352]], &large) {
            if is_q8 {
                let rows = Rows::<u8>::random(shape[0], shape[2], &mut trial.random);
                let input = trial.input("input", &rows.elements, 16)?;
                play(trial, self, shape, &rows.values, |queue, outputs, rows| {
                    Ok(if splits_k {
                        ops::matvec_q8_split_k(queue, outputs, input.view())
                    } else {
                        ops::matvec_q8(queue, outputs, input.view(), rows)
                    }?)
                })?;
            } else {
                let rows = Rows::<f16>::random(shape[0], shape[2], &mut trial.random);
                let input = trial.input("input", &rows.elements, 16)?;
                play(trial, self, shape, &rows.values, |queue, outputs, rows| {
                    Ok(ops::matvec_f16(queue, outputs, input.view(), rows)?)
                })?;
            }
        }
        Ok(())
    }
}

/// The kernel for one row and weights of two formats.
#[derive(Clone, Copy, Debug)]
pub struct MatvecTwo {
    formats: [Format; 2],
}

impl Parity for MatvecTwo {
    const FAMILY: &'static str = Matvec::FAMILY;

    fn all() -> Vec<Self> {
        TWO_FORMATS.map(|formats| Self { formats }).into()
    }

    fn kernel(&self) -> String {
        let [first, second] = self.formats.map(suffix);
        format!("matvec_q8_{first}_{second}_split_k")
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        // Outputs of each format; as above.
        let quick = [([3, 1], 256), ([18, 17], 2304)];
        for (n, k) in trial.cases(&quick, &[([5, 33], 4352)], &[([129, 57], 18_944)]) {
            let row = Rows::<u8>::random(1, k, &mut trial.random);
            let input = trial.input("input", &row.elements, 16)?;
            for which in [0, 1] {
                let (format, rows) = (self.formats[1 - which], n[1 - which]);
                let beside = Matrix::random(format, [rows, k], &mut trial.random);
                let bytes = trial.input("weights beside", &beside.planes, 16)?;
                let compared =
                    Matvec { format: self.formats[which], is_q8: true, at_once: 1, splits_k: true };
                play(trial, &compared, [1, n[which], k], &row.values, |queue, outputs, _| {
                    let mut out: Buffer<f32> = queue.output("out beside", rows)?;
                    let weights = PlaneMatrix { bytes: bytes.view(), format, rows, columns: k };
                    let beside = [Output { out: out.view_mut(), weights, bias: None }];
                    let both = if which == 0 { [outputs, &beside] } else { [&beside, outputs] };
                    Ok(ops::matvec_q8_two(queue, both, input.view())?)
                })?;
            }
        }
        Ok(())
    }
}

fn play<'a, Q: Queue>(
    trial: &mut Trial<'a, Q>,
    &Matvec { format, is_q8, .. }: &Matvec,
    [rows, n, k]: [usize; 3],
    values: &[f64],
    launch: impl Fn(&crate::cuda::Noted<'a, Q>, &[Output<'_>], usize) -> Result<(), Red>,
) -> Result<(), Red> {
    let case = format!("{rows} × {n} × {k}");
    let matrix = Matrix::random(format, [n, k], &mut trial.random).with_bias(&mut trial.random);
    let biases = matrix.bias.as_deref().unwrap_or_default();
    let bytes = trial.input("weights", &matrix.planes, 16)?;
    let bias = trial.input("bias", biases, 4)?;
    let found = trial.output(&case, rows * n, 4, |queue, out| {
        let weights = PlaneMatrix { bytes: bytes.view(), format, rows: n, columns: k };
        launch(queue, &[Output { out, weights, bias: Some(bias.view()) }], rows)
    })?;
    let parts = |i: usize| (&values[i / n * k..][..k], &matrix.values[i % n * k..][..k], biases[i % n]);
    let exact = |i: usize| {
        let (input, weights, bias) = parts(i);
        let products = input.iter().zip(weights).map(|(x, &w)| x * f64::from(w));
        (products.sum::<f64>() + f64::from(bias), matvec_error(input, weights, bias, is_q8))
    };
    let (expected, bounds): (Vec<f64>, Vec<f64>) = (0..rows * n).into_par_iter().map(exact).unzip();
    trial.compare(&case, &found, &expected, |i| bounds[i])
}
