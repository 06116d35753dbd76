//! Rows of activations in each form that kernels write, read back as numbers; and matrices in panels or
//! slabs for kernels to read.

use bytemuck::Pod;
use gpu::product::{Activations, PanelF16, Panels, Q8Row, SlabF16, Slabs, WeightPanelF16, panels, slabs};
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

/// Rows of f16 in tiles that are whole: there is room for more rows and columns than there are.
pub trait Tiled: Pod {
    /// An element, which is its number and nothing besides.
    #[must_use]
    fn new(value: f16) -> Self {
        bytemuck::cast(value)
    }

    /// Its number.
    #[must_use]
    fn value(self) -> f16 {
        bytemuck::cast(self)
    }

    /// So many rows and columns, rounded up.
    fn padded(shape: [usize; 2]) -> [usize; 2];

    /// The place of an element of rows of so many columns.
    fn place(columns: usize, row: usize, column: usize) -> usize;
}

impl Tiled for PanelF16 {
    fn padded([rows, columns]: [usize; 2]) -> [usize; 2] {
        [rows.next_multiple_of(panels::ROWS as usize), Panels::new(columns as u32).padded_columns() as usize]
    }

    fn place(columns: usize, row: usize, column: usize) -> usize {
        Panels::new(columns as u32).element(row as u32, column as u32) as usize / size_of::<Self>()
    }
}

impl Tiled for WeightPanelF16 {
    fn padded(shape: [usize; 2]) -> [usize; 2] {
        PanelF16::padded(shape)
    }

    fn place(columns: usize, row: usize, column: usize) -> usize {
        PanelF16::place(columns, panels::interleaved(row as u32) as usize, column)
    }
}

impl Tiled for SlabF16 {
    fn padded([rows, columns]: [usize; 2]) -> [usize; 2] {
        let columns = Slabs::new(columns as u32).padded_columns() as usize;
        [rows.next_multiple_of(slabs::SLAB_ROWS as usize), columns]
    }

    fn place(columns: usize, row: usize, column: usize) -> usize {
        Slabs::new(columns as u32).element(row as u32, column as u32) as usize / size_of::<Self>()
    }
}

macro_rules! tiled {
    ($($Element:ty),*) => {$(
        impl Form for $Element {
            type Element = Self;
            type Out<'a> = ViewMut<'a, Self>;

            fn target(view: ViewMut<'_, Self>) -> ViewMut<'_, Self> {
                view
            }

            fn values(elements: &[Self], shape: [usize; 2]) -> Result<Vec<f32>, String> {
                values_of_tiles(elements, shape)
            }

            fn rounding(row: &[f64], column: usize) -> f64 {
                <f16 as Form>::rounding(row, column)
            }
        }
    )*};
}

tiled!(PanelF16, SlabF16);

/// The values of rows in tiles: what fills tiles up is zero beside rows, and below them was not written.
///
/// # Errors
/// Where something else is there.
pub fn values_of_tiles<T: Tiled>(
    elements: &[T],
    shape @ [rows, width]: [usize; 2],
) -> Result<Vec<f32>, String> {
    let [all_rows, all_columns] = T::padded(shape);
    let at = |row: usize, column: usize| elements[T::place(width, row, column)].value();
    let mut values = Vec::new();
    for row in 0..rows {
        if let Some(column) = (width..all_columns).find(|&c| at(row, c).to_bits() != 0) {
            return Err(format!("column {column} of {width} in row {row} is {}, not zero", at(row, column)));
        }
        values.extend((0..width).map(|column| at(row, column).to_f32()));
    }
    // As they were before: outputs are filled with ones.
    let written = |&row: &usize| (0..width).any(|column| at(row, column).to_bits() != u16::MAX);
    match (rows..all_rows).find(written) {
        Some(row) => Err(format!("row {row} of {rows} was written")),
        None => Ok(values),
    }
}

/// Rows, `rows × width`, in tiles: their columns beyond the width are zero, rows beyond `rows`, which may
/// hold anything, NaN.
///
/// # Panics
/// If `values` are not those of the shape.
#[must_use]
pub fn in_tiles<T: Tiled>(values: &[f16], shape @ [rows, width]: [usize; 2]) -> Vec<T> {
    assert_eq!(values.len(), rows * width, "{rows} × {width}");
    let [all_rows, all_columns] = T::padded(shape);
    let mut elements = vec![T::new(f16::from_bits(u16::MAX)); all_rows * all_columns];
    for row in 0..rows {
        for column in 0..all_columns {
            let value = if column < width { values[row * width + column] } else { f16::ZERO };
            elements[T::place(width, row, column)] = T::new(value);
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
        let f32_at =
            |row: &[u8], at: usize| f32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
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
