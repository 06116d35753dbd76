//! Matrices of weights, as launchers are given them.

use gpu::quant::Format;
use gpu::quant::planes::{PLANE_ALIGN, plane_row_bytes};
use gpu::simt::Contract;

use super::Check;
use crate::cuda::{Error, View};

/// A matrix in device memory, in the layout of [`planes`](gpu::quant::planes). As weights of a product:
/// a row for each column of out, K columns.
#[derive(Clone, Copy, Debug)]
pub struct PlaneMatrix<'a> {
    /// Rows as [`pack_row`](gpu::quant::planes::pack_row) makes them, one behind the other.
    pub bytes: View<'a, u8>,
    /// The format.
    pub format: Format,
    /// How many rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
}

impl<K: Contract> Check<K> {
    /// That a matrix has the bytes of its shape, aligned, and columns that are whole blocks and a multiple
    /// of `lot`. Its rows and columns, each at most so many.
    pub(super) fn matrix(
        &self,
        matrix: &PlaneMatrix<'_>,
        name: &str,
        [most_rows, most_columns]: [u32; 2],
        lot: u32,
    ) -> Result<[u32; 2], Error> {
        let &PlaneMatrix { bytes, format, rows, columns } = matrix;
        let count = |len: usize, what: &str, most: u32| {
            let count = u32::try_from(len).ok().filter(|&count| count <= most);
            count.ok_or_else(|| Error::Contract {
                kernel: K::NAME,
                what: format!("{name} has {len} {what}, the most is {most}"),
            })
        };
        let counts = [count(rows, "rows", most_rows)?, count(columns, "columns", most_columns)?];
        let multiple = format.block_elements().max(lot as usize);
        self.that(columns.is_multiple_of(multiple), || {
            format!("{name} has {columns} columns of {format}, not a multiple of {multiple}")
        })?;
        let row_bytes = plane_row_bytes(format, columns);
        self.that(row_bytes.is_some(), || {
            format!("{name} has {columns} columns of {format}, a row has 2^31 bytes or more")
        })?;
        let row_bytes = u64::from(row_bytes.unwrap_or(0));
        self.view(&bytes, name, u64::from(counts[0]) * row_bytes, PLANE_ALIGN.into())?;
        Ok(counts)
    }
}
