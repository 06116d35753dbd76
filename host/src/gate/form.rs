//! Rows of activations in each form that kernels write, read back as numbers; and matrices in panels for
//! kernels to read.

use bytemuck::Pod;
use gpu::product::{Activations, F16PieceByte, F16PieceRow, PanelF16, Panels, Q8Row, panels};
use half::f16;

use crate::cuda::ViewMut;
use crate::cuda::ops::RowsMut;

/// What kernels store a form as.
type Kind<F> = <<F as Form>::Out<'static> as RowsMut>::Kind;

/// A form of rows, named by its element.
pub trait Form {
    /// The end of the names of kernels that write it.
    const NAME: &'static str = <Kind<Self>>::NAME;
    /// What it is stored as.
    type Element: Pod + std::fmt::Debug;
    /// What launchers take.
    type Out<'a>: RowsMut;

    /// A view, as launchers take it.
    fn target(view: ViewMut<'_, Self::Element>) -> Self::Out<'_>;

    /// Elements of rows of `width` values.
    fn elements(rows: usize, width: usize) -> usize {
        Kind::<Self>::bytes(rows as u32, width as u32) as usize / size_of::<Self::Element>()
    }

    /// The values of that many rows of `width`.
    ///
    /// # Errors
    /// What contradicts itself in them.
    fn values(elements: &[Self::Element], shape: [usize; 2]) -> Result<Vec<f32>, String>;

    /// By how much an element may be off from one that is computed exactly and rounded once to the
    /// form. `row` is all of the row.
    fn rounding(row: &[f64], column: usize) -> f64;
}

impl Form for f32 {
    type Element = Self;
    type Out<'a> = ViewMut<'a, Self>;

    fn target(view: ViewMut<'_, Self>) -> ViewMut<'_, Self> {
        view
    }

    fn values(elements: &[Self], _: [usize; 2]) -> Result<Vec<Self>, String> {
        Ok(elements.to_vec())
    }

    fn rounding(_: &[f64], _: usize) -> f64 {
        0.0
    }
}

impl Form for f16 {
    type Element = Self;
    type Out<'a> = ViewMut<'a, Self>;

    fn target(view: ViewMut<'_, Self>) -> ViewMut<'_, Self> {
        view
    }

    fn values(elements: &[Self], _: [usize; 2]) -> Result<Vec<f32>, String> {
        Ok(elements.iter().map(|x| x.to_f32()).collect())
    }

    /// Half a unit in the last of 11 digits, or of the smallest number there is.
    fn rounding(row: &[f64], column: usize) -> f64 {
        (row[column].abs() * (-11.0_f64).exp2() * 1.001).max((-25.0_f64).exp2())
    }
}

impl Form for PanelF16 {
    type Element = Self;
    type Out<'a> = ViewMut<'a, Self>;

    fn target(view: ViewMut<'_, Self>) -> ViewMut<'_, Self> {
        view
    }

    fn values(elements: &[Self], [rows, width]: [usize; 2]) -> Result<Vec<f32>, String> {
        let panels = Panels::new(width as u32);
        let at = |row: usize, column: usize| {
            elements[panels.element(row as u32, column as u32) as usize / size_of::<Self>()].0
        };
        let mut values = Vec::new();
        for row in 0..rows {
            if let Some(column) =
                (width..panels.padded_columns() as usize).find(|&c| at(row, c).to_bits() != 0)
            {
                return Err(format!(
                    "column {column} of {width} in row {row} is {}, not zero",
                    at(row, column)
                ));
            }
            values.extend((0..width).map(|column| at(row, column).to_f32()));
        }
        // As they were before: outputs are filled with ones.
        let written = |&row: &usize| (0..width).any(|column| at(row, column).to_bits() != u16::MAX);
        match (rows..rows.next_multiple_of(panels::ROWS as usize)).find(written) {
            Some(row) => Err(format!("row {row} of {rows} was written")),
            None => Ok(values),
        }
    }

    fn rounding(row: &[f64], column: usize) -> f64 {
        <f16 as Form>::rounding(row, column)
    }
}

impl Form for F16PieceByte {
    type Element = Self;
    type Out<'a> = ViewMut<'a, Self>;

    fn target(view: ViewMut<'_, Self>) -> ViewMut<'_, Self> {
        view
    }

    fn values(elements: &[Self], [_, width]: [usize; 2]) -> Result<Vec<f32>, String> {
        let layout = F16PieceRow::new(width as u32);
        let mut values = Vec::new();
        for row in elements.chunks_exact((layout.bytes() as usize).max(1)) {
            let bytes: &[u8] = bytemuck::cast_slice(row);
            for run in 0..width / 16 {
                // Four of each lane are neighbours; their order in a piece is the layout's.
                let of_run: Vec<f32> = (16 * run..16 * (run + 1))
                    .map(|column| {
                        let (piece, run, q) = (column / 32, column / 16 % 2, column % 16);
                        let at = 64 * piece + 16 * (q / 4) + 8 * run + 2 * (q % 4);
                        f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
                    })
                    .collect();
                let (sum, expected) = (f32_at(bytes, layout.sums() as usize + 4 * run), sum_of_run(&of_run));
                // One that is NaN shows in the values, or they are infinities of both signs.
                if sum != expected && !(sum.is_nan() && expected.is_nan()) {
                    return Err(format!("the sum of run {run} is {sum}, its values have {expected}"));
                }
                values.extend(of_run);
            }
        }
        Ok(values)
    }

    fn rounding(row: &[f64], column: usize) -> f64 {
        <f16 as Form>::rounding(row, column)
    }
}

/// The sum of a run of 16 as rows of f16 in pieces have it ([`gpu::product::activations`]).
#[must_use]
pub fn sum_of_run(values: &[f32]) -> f32 {
    let four = |t: usize| {
        let four = &values[4 * t..][..4];
        (four[0] + four[1]) + (four[2] + four[3])
    };
    (four(0) + four(1)) + (four(2) + four(3))
}

/// The f32 that begins at a byte.
fn f32_at(row: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
}

/// A matrix, `rows × width`, in [panels]: its columns beyond the width are zero, its rows
/// beyond `rows`, which may hold anything, NaN.
///
/// # Panics
/// If `values` are not those of the shape.
#[must_use]
pub fn in_panels(values: &[f16], [rows, width]: [usize; 2]) -> Vec<PanelF16> {
    assert_eq!(values.len(), rows * width, "{rows} × {width}");
    let panels = Panels::new(width as u32);
    let mut elements = vec![PanelF16(f16::from_bits(u16::MAX)); PanelF16::elements(rows, width)];
    for row in 0..rows {
        for column in 0..panels.padded_columns() as usize {
            let at = panels.element(row as u32, column as u32) as usize / size_of::<PanelF16>();
            let value = if column < width { values[row * width + column] } else { f16::ZERO };
            elements[at] = PanelF16(value);
        }
    }
    elements
}

/// The element of q8 rows: bytes, of which a value has more than one.
#[derive(Clone, Copy, Debug)]
pub struct Q8;

impl Form for Q8 {
    type Element = u8;
    type Out<'a> = ViewMut<'a, u8>;

    fn target(view: ViewMut<'_, u8>) -> ViewMut<'_, u8> {
        view
    }

    fn values(elements: &[u8], [_, width]: [usize; 2]) -> Result<Vec<f32>, String> {
        let layout = Q8Row::new(width as u32);
        let [fine, scales, sums] = [layout.fine(), layout.scales(), layout.sums()].map(|at| at as usize);
        let mut values = Vec::new();
        for row in elements.chunks_exact((layout.bytes() as usize).max(1)) {
            for (run, coarse) in row[..width].chunks(16).enumerate() {
                let of = |byte: u8| f32::from(byte.cast_signed());
                let quants = coarse.iter().zip(&row[fine + 16 * run..]).map(|(&c, &f)| 256.0 * of(c) + of(f));
                let scale = f32_at(row, scales + run / 2 * 4);
                let (sum, expected) = (f32_at(row, sums + run * 4), scale * quants.clone().sum::<f32>());
                // A scale that is NaN shows in the values.
                if sum != expected && !scale.is_nan() {
                    return Err(format!("the sum of run {run} is {sum}, its quants have {expected}"));
                }
                values.extend(quants.map(|q| scale * q));
            }
        }
        Ok(values)
    }

    /// Half a fine step, and what the roundings of the scale, of its inverse and of the product with that move
    /// the quant by: at most 32,512 of some 2^-23.
    fn rounding(row: &[f64], column: usize) -> f64 {
        let block = &row[column / 32 * 32..][..32];
        let largest = block.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        largest / 32_512.0 * 0.51
    }
}
