//! Rows of f16 as `matmul_splitk` reads them: slabs of 64 rows × 128 columns.
//!
//! ```text
//!            columns 0..128   128..256   ...          one slab, 16 KiB: two halves of 64 columns, each a row after the
//! rows 0     slab 0           1          ..  P - 1    other, 128 bytes a row, in eight chunks of eight columns; chunk c
//! ..64                                                of row r stands at place c XOR r % 8, the 128-byte swizzle of
//! rows 64    slab P           P + 1      ..           `wgmma` operands
//! ```
//!
//! Columns of a slab do not stand in order, but so that what a lane unpacks from a piece of weights, 32 elements in
//! fours, is its part of left operands: element `e = 32 t + 16 h + 4 i + j` of the slab stands in column
//!
//! ```text
//! 16 (2 i + h) + 2 t + j % 2 + 8 (j / 2)          t, i, j in 0..4, h in 0..2
//! ```
//!
//! Columns beyond those that rows have are zero; rows are rounded up to 64, and those that there are not are never
//! written, and may hold anything: as rows of an operand they only come into columns of a product that nobody stores.

use bytemuck::{Pod, Zeroable};

use super::panels::{CHUNK, PANEL_COLUMNS, ROW_BYTES, chunk_in_panel};
use crate::quant::f16;

/// Rows of a slab.
pub const SLAB_ROWS: u32 = 64;
/// Columns of a slab.
pub const SLAB_COLUMNS: u32 = 128;
/// Bytes of half a slab.
pub const HALF_BYTES: u32 = SLAB_ROWS * ROW_BYTES;
/// Bytes of a slab.
pub const SLAB_BYTES: u32 = 2 * HALF_BYTES;

/// An element of rows in slabs.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct SlabF16(pub f16);

/// Where the elements of rows in slabs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    columns: u32,
}

impl Slabs {
    /// Slabs of rows with so many columns, at most 2^30.
    #[inline(always)]
    #[must_use]
    pub const fn new(columns: u32) -> Self {
        Self { columns }
    }

    /// Slabs side by side.
    #[inline(always)]
    #[must_use]
    pub const fn across(self) -> u32 {
        self.columns.div_ceil(SLAB_COLUMNS)
    }

    /// Columns, those of zeros with them.
    #[inline(always)]
    #[must_use]
    pub const fn padded_columns(self) -> u32 {
        self.across().wrapping_mul(SLAB_COLUMNS)
    }

    /// Bytes of `rows` rows, those that only round up with them.
    #[must_use]
    pub const fn bytes(self, rows: u32) -> u64 {
        rows.div_ceil(SLAB_ROWS) as u64 * self.across() as u64 * SLAB_BYTES as u64
    }

    /// Bytes to row `row` of its slab that is the `slab`-th from the left, in the slab's first half.
    #[inline(always)]
    #[must_use]
    pub const fn slab(self, row: u32, slab: u32) -> u64 {
        let above = (row / SLAB_ROWS) as u64 * self.across() as u64;
        let within = row % SLAB_ROWS * ROW_BYTES;
        above.wrapping_add(slab as u64).wrapping_mul(SLAB_BYTES as u64).wrapping_add(within as u64)
    }

    /// Bytes to an element. Its right neighbour, if its own column is even, is the next one.
    #[inline(always)]
    #[must_use]
    pub const fn element(self, row: u32, column: u32) -> u64 {
        let place = place(column % SLAB_COLUMNS);
        let half = place / PANEL_COLUMNS * HALF_BYTES;
        let chunk = half + chunk_in_panel(row % SLAB_ROWS, place % PANEL_COLUMNS / CHUNK * CHUNK);
        self.slab(row / SLAB_ROWS * SLAB_ROWS, column / SLAB_COLUMNS)
            .wrapping_add((chunk + 2 * (place % CHUNK)) as u64)
    }
}

/// The column of a slab where its element `element` of a row stands.
#[inline(always)]
const fn place(element: u32) -> u32 {
    let [t, h, i, j] = [element / 32, element / 16 % 2, element / 4 % 4, element % 4];
    16 * (2 * i + h) + 2 * t + j % 2 + 8 * (j / 2)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn elements_have_one_place_each() {
        for (rows, columns) in [(1, 32), (64, 128), (65, 160), (130, 416)] {
            let slabs = Slabs::new(columns);
            let bytes = slabs.bytes(rows);
            assert!(bytes.is_multiple_of(u64::from(SLAB_BYTES)));
            let mut seen = vec![false; bytes as usize / 2];
            for row in 0..rows.next_multiple_of(SLAB_ROWS) {
                for column in 0..slabs.padded_columns() {
                    let at = slabs.element(row, column);
                    assert!(!core::mem::replace(&mut seen[at as usize / 2], true), "({row}, {column})");
                }
            }
            assert!(seen.iter().all(|&seen| seen));
        }
        assert_eq!((Slabs::new(128).bytes(0), Slabs::new(0).bytes(5)), (0, 0));
    }

    #[test]
    fn a_piece_is_a_lanes_part_of_eight_operands() {
        // Columns of a slab that the left operands of its eight products have in lane t, in order of i, pair by pair.
        for t in 0..4 {
            let of_lane = |product: u32| [0, 1, 8, 9].map(|k| 16 * product + 2 * t + k);
            let expected: Vec<u32> = [0, 2, 4, 6, 1, 3, 5, 7].into_iter().flat_map(of_lane).collect();
            let found: Vec<u32> = (32 * t..32 * (t + 1)).map(place).collect();
            assert_eq!(found, expected, "lane {t}");
        }
    }

    #[test]
    fn halves_follow_halves_and_rows_are_swizzled() {
        let slabs = Slabs::new(200);
        assert_eq!(slabs.across(), 2);
        assert_eq!([0, 1, 2, 3].map(|column| slabs.element(0, column)), [0, 2, 16, 18]);
        // Column 16 · 3 + 2 · 2 + 9: chunk 7, its place 5 in row 2.
        assert_eq!(slabs.element(2, 64 + 16 + 4 + 3), 2 * 128 + 5 * 16 + 2 * 5);
        // Column 64 is the second half's first one.
        assert_eq!(slabs.element(1, 8), 8192 + 128 + 16);
        assert_eq!(slabs.element(0, 128), 16_384);
        assert_eq!(slabs.element(65, 128), 3 * 16_384 + 128 + 16);
        // Whole rows of a slab's first half.
        assert_eq!(slabs.slab(67, 1), 3 * 16_384 + 3 * 128);
        // Beyond 2^32.
        assert_eq!(Slabs::new(1 << 20).element(1 << 20, 0), (1 << 14) * (1 << 13) * 16_384);
    }
}
