//! Rows of activations in each form that kernels write, for the tests of those kernels.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use gpu::quant::f16;
use lanemap::cuda::ops::RowsMut;
use lanemap::cuda::{Error, ViewMut};

use crate::machine::{Machine, counted};

/// A form of rows, named by its element.
pub(crate) trait Form {
    /// What it is called in messages.
    const NAME: &'static str;
    /// What launchers take.
    type Out<'a>: RowsMut;

    /// What `launch` leaves in `rows × width` of it, the same bits in each of several runs.
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32>;

    /// By how much an element may be off from one that is computed exactly and rounded once to the
    /// form. `row` is all of the row.
    fn rounding(row: &[f64], column: usize) -> f64;

    /// Every element is within its bound of the reference, and the form's rounding besides. NaN is
    /// within none. Returns the largest difference, as a part of what is allowed.
    fn assert_close(
        what: &str,
        found: &[f32],
        expected: &[f64],
        width: usize,
        bound: impl Fn(usize) -> f64,
    ) -> f64 {
        assert_eq!(found.len(), expected.len(), "{what}");
        let mut worst = 0.0_f64;
        for (i, (&found, &value)) in found.iter().zip(expected).enumerate() {
            let row = &expected[i / width * width..][..width];
            let (error, bound) =
                ((f64::from(found) - value).abs(), bound(i) + Self::rounding(row, i % width));
            assert!(
                error <= bound,
                "{what}: [{}][{}] is {found}, expected {value}, off by {error}, at most {bound}",
                i / width,
                i % width
            );
            worst = worst.max(error / bound);
        }
        worst
    }
}

impl Form for f32 {
    const NAME: &'static str = "f32";
    type Out<'a> = ViewMut<'a, f32>;

    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        counted(machine, rows * width, 16, launch).0
    }

    fn rounding(_: &[f64], _: usize) -> f64 {
        0.0
    }
}

impl Form for f16 {
    const NAME: &'static str = "f16";
    type Out<'a> = ViewMut<'a, f16>;

    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let out: Vec<f16> = counted(machine, rows * width, 8, launch).0;
        out.iter().map(|x| x.to_f32()).collect()
    }

    /// Half a unit in the last of 11 digits, or of the smallest number there is.
    fn rounding(row: &[f64], column: usize) -> f64 {
        (row[column].abs() * (-11.0_f64).exp2() * 1.001).max((-25.0_f64).exp2())
    }
}
