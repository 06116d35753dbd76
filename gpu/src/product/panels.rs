//! Matrices of f16 as `wgmma` reads them: panels of 128 rows × 64 columns, which a bulk copy brings
//! to shared memory as they stand.
//!
//! ```text
//!            columns 0..64   64..128   ...            one panel, 16 KiB:  a row after the other, 128
//! rows 0     panel 0         1         ..  P - 1      bytes each, eight chunks of eight columns; chunk
//! ..128                                               c of row r stands at place c XOR r % 8, which is
//! rows 128   panel P         P + 1     ..             the 128-byte swizzle of `wgmma` operands
//! :
//! ```
//!
//! `P` is the columns in panels, rounded up; rows are rounded up to [`ROWS`]. Columns that the matrix
//! does not have are zero; rows that it does not have are never written, and may hold anything: as rows of
//! an operand they only come into rows or columns of a product that nobody stores.
//!
//! Rows of weights have another order within 16 of them, see [`interleaved`].
//!
//! The swizzle makes the same chunk of eight neighbouring rows lie in different banks, and leaves a
//! row's 64 columns in one run of 128 bytes, so that whoever writes a row writes whole sectors. (Without
//! it a row's chunks would lie 128 bytes apart.)
//!
//! ISA: Asynchronous Warpgroup Level Matrix Instructions, Shared Memory Matrix Layout.

use bytemuck::{Pod, Zeroable};

use crate::quant::f16;
use crate::simt::{MatrixDescriptor, Shared, Swizzle};

/// Rows of a panel.
pub const PANEL_ROWS: u32 = 128;
/// Columns of a panel.
pub const PANEL_COLUMNS: u32 = 64;
/// Bytes of a row in a panel.
pub const ROW_BYTES: u32 = 2 * PANEL_COLUMNS;
/// Bytes of a panel.
pub const PANEL_BYTES: u32 = PANEL_ROWS * ROW_BYTES;
/// What rows are rounded up to: those of the largest tile of a product.
pub const ROWS: u32 = 256;
/// Columns of a chunk.
pub const CHUNK: u32 = 8;
/// Rows after which the swizzle repeats, and bytes of these.
pub const ATOM_ROWS: u32 = 8;
const ATOM_BYTES: u32 = ATOM_ROWS * ROW_BYTES;
const _: () = assert!(ATOM_BYTES <= crate::simt::SHARED_ALIGN && PANEL_BYTES.is_multiple_of(ATOM_BYTES));

/// An element of a matrix in panels: of the rows that a product takes.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct PanelF16(pub f16);

/// An element of a matrix of weights in panels, whose rows are [`interleaved`].
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct WeightPanelF16(pub f16);

/// Which row of panels row `row` of a matrix is whose first row is row `first`, and whose panels begin `apart` rows
/// apart; both are multiples of 128.
#[inline(always)]
#[must_use]
pub const fn spread(row: u32, [first, apart]: [u32; 2]) -> u32 {
    first + row / PANEL_ROWS * apart + row % PANEL_ROWS
}

/// Where two matrices lie whose panels take turns, for [`spread`]: 128 rows of the first, 128 of the second, the next
/// 128 of the first.
pub const TURNS: [[u32; 2]; 2] = [[0, 2 * PANEL_ROWS], [PANEL_ROWS, 2 * PANEL_ROWS]];

/// Rows of panels of two matrices, each with so many rows, whose panels take [`TURNS`].
#[inline(always)]
#[must_use]
pub const fn paired(rows: u32) -> u32 {
    2 * rows.next_multiple_of(PANEL_ROWS)
}

/// Which row of its panels row `row` of a matrix of weights is: each 16 rows have another order.
///
/// Rows of weights are columns of a product, of which a lane's accumulators are pairs of neighbours, eight columns
/// apart ([`wgmma::d`](crate::fragment::wgmma::d)). In this order two pairs of a lane are four neighbours of
/// the output, which are stored at once:
///
/// ```text
/// row of the matrix    0  1  2  3    4  5  6  7    8  9 10 11   12 13 14 15
/// row of the panel     0  1  8  9    2  3 10 11    4  5 12 13    6  7 14 15
/// lane, modulo 4            0            1             2             3
/// ```
#[inline(always)]
#[must_use]
pub const fn interleaved(row: u32) -> u32 {
    row & !15 | (row & 2) << 2 | (row & 12) >> 1 | row & 1
}

/// Where the elements of a matrix in panels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panels {
    columns: u32,
}

impl Panels {
    /// The most rows and columns.
    pub const MOST: u32 = 1 << 30;

    /// Panels of a matrix with so many columns, at most [`MOST`](Self::MOST).
    #[inline(always)]
    #[must_use]
    pub const fn new(columns: u32) -> Self {
        Self { columns }
    }

    /// Panels side by side.
    #[inline(always)]
    #[must_use]
    pub const fn across(self) -> u32 {
        self.columns.div_ceil(PANEL_COLUMNS)
    }

    /// Columns, those of zeros with them.
    #[inline(always)]
    #[must_use]
    pub const fn padded_columns(self) -> u32 {
        self.across().wrapping_mul(PANEL_COLUMNS)
    }

    /// Bytes of `rows` rows, at most [`MOST`](Self::MOST), those that only round up with them.
    #[must_use]
    pub const fn bytes(self, rows: u32) -> u64 {
        rows.div_ceil(ROWS) as u64 * (ROWS / PANEL_ROWS) as u64 * self.across() as u64 * PANEL_BYTES as u64
    }

    /// Bytes to the panel that holds row `row`, a multiple of 128, and is the `panel`-th from the left.
    #[inline(always)]
    #[must_use]
    pub const fn panel(self, row: u32, panel: u32) -> u64 {
        let above = (row / PANEL_ROWS) as u64 * self.across() as u64;
        above.wrapping_add(panel as u64).wrapping_mul(PANEL_BYTES as u64)
    }

    /// Bytes to the chunk of row `row` that begins at `column`, a multiple of 8.
    #[inline(always)]
    #[must_use]
    pub const fn chunk(self, row: u32, column: u32) -> u64 {
        let within = chunk_in_panel(row % PANEL_ROWS, column % PANEL_COLUMNS);
        self.panel(row, column / PANEL_COLUMNS).wrapping_add(within as u64)
    }

    /// Bytes to an element.
    #[inline(always)]
    #[must_use]
    pub const fn element(self, row: u32, column: u32) -> u64 {
        self.chunk(row, column).wrapping_add((2 * (column % CHUNK)) as u64)
    }
}

/// Bytes from a panel's beginning to the chunk of row `row` that begins at `column`, a multiple of 8 below
/// [`PANEL_COLUMNS`].
#[inline(always)]
#[must_use]
pub const fn chunk_in_panel(row: u32, column: u32) -> u32 {
    let place = (column / CHUNK) ^ (row % ATOM_ROWS);
    row.wrapping_mul(ROW_BYTES).wrapping_add(place.wrapping_mul(2 * CHUNK))
}

/// The operand of `wgmma` whose first row is `row`, a multiple of 8, of panels that lie one below the other
/// from `panels` on, a multiple of 1024 bytes; for its first 16 columns. The next 16 are
/// [`STEP_BYTES`] [further](MatrixDescriptor::advance).
#[inline(always)]
#[must_use]
pub const fn operand(panels: Shared<u8>, row: u32) -> MatrixDescriptor {
    // The leading step is not used here; 16 is what CUTLASS sets.
    MatrixDescriptor::new(panels.at(row * ROW_BYTES), 16, ATOM_BYTES, Swizzle::Bytes128)
}

/// Bytes from one step of 16 columns to the next.
pub const STEP_BYTES: u32 = 32;

/// The right operand of `wgmma` whose k are the rows and whose n the columns of panels: for the first 16 rows
/// of panels that begin at `panels`, a multiple of 1024 bytes, and `panel_bytes` apart. The next 16 are
/// [`ROWS_STEP_BYTES`] [further](MatrixDescriptor::advance).
#[inline(always)]
#[must_use]
pub const fn operand_of_rows(panels: Shared<u8>, panel_bytes: u32) -> MatrixDescriptor {
    MatrixDescriptor::new(panels, panel_bytes, ATOM_BYTES, Swizzle::Bytes128)
}

/// Bytes from one step of 16 rows to the next.
pub const ROWS_STEP_BYTES: u32 = 16 * ROW_BYTES;

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    #[test]
    fn weights_have_their_rows_in_another_order_within_16() {
        let order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
        for row in 0..300 {
            assert_eq!(interleaved(row), row / 16 * 16 + order[row as usize % 16], "row {row}");
        }
    }

    #[test]
    fn elements_have_one_place_each() {
        for (rows, columns) in [(1, 8), (128, 64), (129, 72), (300, 200)] {
            let panels = Panels::new(columns);
            let bytes = panels.bytes(rows);
            assert!(bytes.is_multiple_of(u64::from(PANEL_BYTES)));
            let mut seen = vec![false; bytes as usize / 2];
            for row in 0..rows.next_multiple_of(ROWS) {
                for column in 0..panels.padded_columns() {
                    let at = panels.element(row, column);
                    assert!(!core::mem::replace(&mut seen[at as usize / 2], true), "({row}, {column})");
                }
            }
            assert!(seen.iter().all(|&seen| seen));
        }
        assert_eq!((Panels::new(64).bytes(0), Panels::new(0).bytes(5)), (0, 0));
    }

    #[test]
    fn rows_follow_rows_and_are_swizzled() {
        let panels = Panels::new(200);
        assert_eq!(panels.across(), 4);
        assert_eq!(panels.element(0, 9), 18);
        assert_eq!(panels.element(1, 0), 128 + 16);
        assert_eq!(panels.element(1, 9), 128 + 2);
        assert_eq!(panels.element(15, 63), 15 * 128 + 14);
        assert_eq!(panels.element(0, 64), 16_384);
        assert_eq!(panels.element(128, 64), 5 * 16_384);
        // Beyond 2^32.
        assert_eq!(Panels::new(1 << 20).panel(1 << 20, 0), (1 << 13) * (1 << 14) * 16_384);
    }

    #[test]
    fn operands_are_swizzled_and_eight_rows_are_1024_bytes() {
        let bits = operand(Shared::from_address(0x8000), 64).bits();
        assert_eq!(bits & 0x3fff, (0x8000 + 64 * 128) >> 4);
        assert_eq!(bits >> 32 & 0x3fff, 1024 >> 4);
        assert_eq!(bits >> 62, 1);
    }
}
