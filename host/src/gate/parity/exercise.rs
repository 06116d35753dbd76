//! The kernels that exercise the machine, which no model uses, against f64.

use half::f16;

use super::Parity;
use super::trial::{Red, Trial};
use crate::cuda::Queue;
use crate::cuda::ops;
use crate::gate::bounds::{EPSILON, FIRST_ORDER, roundings_of_a_product, tensor_core_product};
use crate::gate::random::normals;

/// Added to the mean of squares.
const ROOT_EPSILON: f32 = 1e-5;

/// Which kernel.
#[derive(Clone, Copy, Debug)]
pub enum Exercise {
    /// `vector_add`
    VectorAdd,
    /// `block_sum`
    BlockSum,
    /// `transpose_conflicted`
    TransposeConflicted,
    /// `transpose_padded`
    TransposePadded,
    /// `rms_norm`
    RmsNorm,
    /// `matmul_f16`
    MatmulF16,
}

impl Parity for Exercise {
    const FAMILY: &'static str = "exercise";

    fn all() -> Vec<Self> {
        vec![
            Self::VectorAdd,
            Self::BlockSum,
            Self::TransposeConflicted,
            Self::TransposePadded,
            Self::RmsNorm,
            Self::MatmulF16,
        ]
    }

    fn kernel(&self) -> String {
        let name = match self {
            Self::VectorAdd => "vector_add",
            Self::BlockSum => "block_sum",
            Self::TransposeConflicted => "transpose_conflicted",
            Self::TransposePadded => "transpose_padded",
            Self::RmsNorm => "rms_norm",
            Self::MatmulF16 => "matmul_f16",
        };
        name.to_owned()
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        match self {
            Self::VectorAdd => vector_add(trial),
            Self::BlockSum => block_sum(trial),
            Self::TransposeConflicted => transpose::<0, _>(trial),
            Self::TransposePadded => transpose::<1, _>(trial),
            Self::RmsNorm => rms_norm(trial),
            Self::MatmulF16 => matmul_f16(trial),
        }
    }
}

fn vector_add<Q: Queue>(trial: &mut Trial<'_, Q>) -> Result<(), Red> {
    for n in trial.cases(&[1, 255, 257], &[4097], &[1 << 24]) {
        let case = format!("{n}");
        let (a, b) = (normals(&mut trial.random, n), normals(&mut trial.random, n));
        let (left, right) = (trial.input("a", &a, 4)?, trial.input("b", &b, 4)?);
        let found = trial
            .output(&case, n, 4, |queue, out| Ok(ops::vector_add(queue, out, left.view(), right.view())?))?;
        let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) + f64::from(b)).collect();
        trial.compare(&case, &found, &expected, |i| EPSILON * expected[i].abs())?;
    }
    Ok(())
}

fn block_sum<Q: Queue>(trial: &mut Trial<'_, Q>) -> Result<(), Red> {
    /// Elements of a block.
    const BLOCK: usize = 1024;
    for n in trial.cases(&[1, 1023, 1025], &[10_000], &[1 << 24]) {
        let case = format!("{n}");
        let x = normals(&mut trial.random, n);
        let input = trial.input("input", &x, 4)?;
        let found = trial.output(&case, n.div_ceil(BLOCK), 4, |queue, out| {
            Ok(ops::block_sum(queue, out, input.view())?)
        })?;
        let sums = |of: fn(f64) -> f64| -> Vec<f64> {
            x.chunks(BLOCK).map(|block| block.iter().map(|&x| of(f64::from(x))).sum()).collect()
        };
        let (expected, sizes) = (sums(|x| x), sums(f64::abs));
        // 4 of a thread, 5 of a butterfly, 8 of the partial sums.
        trial.compare(&case, &found, &expected, |i| FIRST_ORDER * 17.0 * EPSILON * sizes[i])?;
    }
    Ok(())
}

fn transpose<const PAD: u32, Q: Queue>(trial: &mut Trial<'_, Q>) -> Result<(), Red> {
    let shapes = trial.cases(&[(1, 1), (3, 33), (32, 31)], &[(65, 100)], &[(4097, 4000)]);
    for (rows, columns) in shapes {
        let case = format!("{rows} × {columns}");
        let x = normals(&mut trial.random, rows * columns);
        let input = trial.input("input", &x, 4)?;
        let found = trial.output(&case, rows * columns, 4, |queue, out| {
            Ok(ops::transpose::<PAD>(queue, out, input.view(), rows, columns)?)
        })?;
        let place = |i: usize| f64::from(x[i % rows * columns + i / rows]);
        let expected: Vec<f64> = (0..rows * columns).map(place).collect();
        trial.compare(&case, &found, &expected, |_| 0.0)?;
    }
    Ok(())
}

fn rms_norm<Q: Queue>(trial: &mut Trial<'_, Q>) -> Result<(), Red> {
    for (rows, width) in trial.cases(&[(1, 1), (3, 31), (2, 257)], &[(5, 4097)], &[(1031, 2048)]) {
        let case = format!("{rows} × {width}");
        let (x, weight) = (normals(&mut trial.random, rows * width), normals(&mut trial.random, width));
        let (input, factors) = (trial.input("input", &x, 4)?, trial.input("weight", &weight, 4)?);
        let found = trial.output(&case, rows * width, 4, |queue, out| {
            Ok(ops::rms_norm(queue, out, input.view(), factors.view(), rows, ROOT_EPSILON)?)
        })?;
        let normed = x.chunks(width).flat_map(|row| {
            let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
            let root = (squares / width as f64 + f64::from(ROOT_EPSILON)).sqrt();
            row.iter().zip(&weight).map(move |(&x, &w)| f64::from(x) / root * f64::from(w))
        });
        let expected: Vec<f64> = normed.collect();
        // Under the root half of: width / 256 of a thread, 5 of a butterfly, 8 of the partial sums, 2 of mean and
        // epsilon. The root is off by 2^-22.9, two products round.
        let roundings = ((width.div_ceil(256) + 15) as f64 / 2.0 + 2.0) * EPSILON + (-22.9_f64).exp2();
        let bound = |i: usize| FIRST_ORDER * roundings * expected[i].abs() + f64::from(f32::MIN_POSITIVE);
        trial.compare(&case, &found, &expected, bound)?;
    }
    Ok(())
}

fn matmul_f16<Q: Queue>(trial: &mut Trial<'_, Q>) -> Result<(), Red> {
    let shapes = trial.cases(&[[1, 1, 8], [65, 33, 72]], &[[70, 130, 264]], &[[512, 1000, 2048]]);
    for [m, n, k] in shapes {
        let case = format!("{m} × {n} × {k}");
        let mut halves =
            |len| -> Vec<f16> { normals(&mut trial.random, len).into_iter().map(f16::from_f32).collect() };
        let (x, w) = (halves(m * k), halves(n * k));
        let (input, weights) = (trial.input("input", &x, 16)?, trial.input("weights", &w, 16)?);
        let found = trial.output(&case, m * n, 4, |queue, out| {
            Ok(ops::matmul_f16(queue, out, input.view(), weights.view(), [m, n, k])?)
        })?;
        let wide = |halves: &[f16]| halves.iter().copied().map(f64::from).collect::<Vec<_>>();
        let roundings = roundings_of_a_product(trial.queue());
        let references = tensor_core_product(&wide(&x), &wide(&w), [m, n, k], roundings);
        let expected: Vec<f64> = references.iter().map(|reference| reference.sum).collect();
        trial.compare(&case, &found, &expected, |i| references[i].bound)?;
    }
    Ok(())
}
