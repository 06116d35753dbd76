//! Rows of activations in each form that kernels write, for the tests of those kernels.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Debug;
use std::ops::Range;

use bytemuck::Pod;
use gpu::product::{F16PieceByte, F16PieceRow, PanelF16, Panels, Q8Row};
use gpu::quant::f16;
use lanemap::cuda::{Error, ViewMut};
use lanemap::gate::form;
pub(crate) use lanemap::gate::form::Q8;

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
    // Rows that there are not are never written.
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let panels = Panels::new(width as u32);
        let mut first: Option<Vec<u16>> = None;
        let mut values = Vec::new();
        machine.each_run(|machine, run| {
            let len = panels.bytes(rows as u32) as usize / 2;
            let mut out = Guarded::<PanelF16>::output(machine, "out", len, 16);
            launch(machine, out.view_mut()).unwrap_or_else(|error| panic!("{run}: {error}"));
            machine.synchronize().unwrap_or_else(|error| panic!("{run}: {error}"));
            let elements = out.read();
            let at = |row: usize, column: usize| panels.element(row as u32, column as u32) as usize / 2;
            values.clear();
            let mut left = len;
            for row in 0..rows {
                for panel in 0..panels.across() as usize {
                    // A row's columns in a panel are neighbours, in some order.
                    let first = at(row, 64 * panel) / 64 * 64;
                    machine.check_written_once(out.slice(first..first + 64));
                }
                for column in 0..panels.padded_columns() as usize {
                    let value = elements[at(row, column)].0;
                    left -= 1;
                    if column < width {
                        values.push(value.to_f32());
                    } else {
                        assert_eq!(value.to_bits(), 0, "{run}: column {column} of {width} in row {row}");
                    }
                }
            }
            let unwritten = elements.iter().filter(|element| element.0.to_bits() == u16::MAX).count();
            assert_eq!(unwritten, left, "{run}: elements of rows that there are not");
            let bits: Vec<u16> = elements.iter().map(|element| element.0.to_bits()).collect();
            assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{run}: other bits");
        });
        values
    }
}

impl Form for F16PieceByte {
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let row = F16PieceRow::new(width as u32);
        let sums = row.sums() as usize;
        let parts = [0..2 * width, sums..sums + width / 4];
        let found = bytes_of_rows(machine, rows, row.bytes() as usize, &parts, launch);
        <Self as form::Form>::values(&found, [rows, width]).unwrap_or_else(|what| panic!("{what}"))
    }
}

impl Form for Q8 {
    fn output<M: Machine>(
        machine: &M,
        rows: usize,
        width: usize,
        launch: impl Fn(&M, Self::Out<'_>) -> Result<(), Error>,
    ) -> Vec<f32> {
        let row = Q8Row::new(width as u32);
        let (scales, sums) = (row.scales() as usize, row.sums() as usize);
        let parts = [0..2 * width, scales..scales + width / 8, sums..sums + width / 4];
        let found = bytes_of_rows(machine, rows, row.bytes() as usize, &parts, launch);
        <Self as form::Form>::values(&found, [rows, width]).unwrap_or_else(|what| panic!("{what}"))
    }
}

/// What `launch` leaves in rows of `stride` bytes, the same in each of several runs: these parts of each row are
/// written once, what aligns them is not.
fn bytes_of_rows<T: Pod + Debug + PartialEq, M: Machine>(
    machine: &M,
    rows: usize,
    stride: usize,
    parts: &[Range<usize>],
    launch: impl Fn(&M, ViewMut<'_, T>) -> Result<(), Error>,
) -> Vec<T> {
    const { assert!(size_of::<T>() == 1) };
    let mut first: Option<Vec<T>> = None;
    machine.each_run(|machine, run| {
        let mut out = Guarded::<T>::output(machine, "out", rows * stride, 16);
        launch(machine, out.view_mut()).unwrap_or_else(|error| panic!("{run}: {error}"));
        machine.synchronize().unwrap_or_else(|error| panic!("{run}: {error}"));
        let bytes = out.read();
        for (i, part) in (0..rows).flat_map(|i| parts.iter().map(move |part| (i, part))) {
            machine.check_written_once(out.slice(i * stride + part.start..i * stride + part.end));
        }
        assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{run}: other bits");
    });
    first.unwrap()
}
