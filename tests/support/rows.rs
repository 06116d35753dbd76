//! Rows of activations in each form that kernels write, for the tests of those kernels.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Debug;

use gpu::product::{PanelF16, Q8Row, SlabF16};
use gpu::quant::f16;
use lanemap::cuda::{Error, ViewMut};
pub(crate) use lanemap::gate::form::Q8;
use lanemap::gate::form::{self, Tiled};

use crate::machine::{Guarded, Machine, counted};

/// The gates' [`form::Form`], held to what tests ask for besides.
pub(crate) trait Form: form::Form {
    /// What `launch` leaves in `rows × width` of it, the same bits in each of several runs.
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let launch = |machine: &M, out: ViewMut<'_, Self::Element>| launch(machine, Self::target(out));
        let found = counted(machine, Self::elements(rows, width), 16, launch).0;
        Self::values(&found, [rows, width]).unwrap_or_else(|what| panic!("{what}"))
    }

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

impl Form for f32 {}
impl Form for f16 {}

impl Form for PanelF16 {
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, ViewMut<'_, Self>) -> Result<(), Error>,
    ) -> Vec<f32> {
        values_of_tiles(machine, [rows, width], launch)
    }
}

impl Form for SlabF16 {
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, ViewMut<'_, Self>) -> Result<(), Error>,
    ) -> Vec<f32> {
        values_of_tiles(machine, [rows, width], launch)
    }
}

/// What `launch` leaves in tiles: every element of a row is written once, zeros beside it with it, and none of a row
/// that there is not.
fn values_of_tiles<T: Tiled + Debug, M: Machine>(
    machine: &M,
    shape @ [rows, width]: [usize; 2],
    launch: impl Fn(&M, ViewMut<'_, T>) -> Result<(), Error>,
) -> Vec<f32> {
    let [all_rows, all_columns] = T::padded(shape);
    let mut first: Option<Vec<u16>> = None;
    let mut values = Vec::new();
    machine.each_run(|machine, run| {
        let mut out = Guarded::<T>::output(machine, "out", all_rows * all_columns, 16);
        launch(machine, out.view_mut()).unwrap_or_else(|error| panic!("{run}: {error}"));
        machine.synchronize().unwrap_or_else(|error| panic!("{run}: {error}"));
        let elements = out.read();
        values.clear();
        let mut left = elements.len();
        for row in 0..rows {
            // A row of a panel or of half a slab: 64 neighbours, in some order.
            for first in (0..all_columns).map(|column| T::place(width, row, column)).filter(|at| at % 64 == 0)
            {
                machine.check_written_once(out.slice(first..first + 64));
            }
            for column in 0..all_columns {
                let value = elements[T::place(width, row, column)].value();
                left -= 1;
                if column < width {
                    values.push(value.to_f32());
                } else {
                    assert_eq!(value.to_bits(), 0, "{run}: column {column} of {width} in row {row}");
                }
            }
        }
        let bits: Vec<u16> = elements.iter().map(|element| element.value().to_bits()).collect();
        let unwritten = bits.iter().filter(|&&bits| bits == u16::MAX).count();
        assert_eq!(unwritten, left, "{run}: elements of rows that there are not");
        assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{run}: other bits");
    });
    values
}

impl Form for Q8 {
    // What aligns the planes is never written.
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let row = Q8Row::new(width as u32);
        let (scales, sums) = (row.scales() as usize, row.sums() as usize);
        let parts = [0..2 * width, scales..scales + width / 8, sums..sums + width / 4];
        let stride = row.bytes() as usize;
        let mut first: Option<Vec<u8>> = None;
        machine.each_run(|machine, run| {
            let mut out = Guarded::<u8>::output(machine, "out", rows * stride, 16);
            launch(machine, out.view_mut()).unwrap_or_else(|error| panic!("{run}: {error}"));
            machine.synchronize().unwrap_or_else(|error| panic!("{run}: {error}"));
            let bytes = out.read();
            for (i, part) in (0..rows).flat_map(|i| parts.iter().map(move |part| (i, part.clone()))) {
                machine.check_written_once(out.slice(i * stride + part.start..i * stride + part.end));
            }
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{run}: other bits");
        });
        <Self as form::Form>::values(&first.unwrap(), [rows, width]).unwrap_or_else(|what| panic!("{what}"))
    }
}
