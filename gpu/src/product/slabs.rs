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

/// Rows of a slab.
pub const SLAB_ROWS: u32 = 64;
/// Columns of a slab.
pub const SLAB_COLUMNS: u32 = 128;
/// Bytes of half a slab, and of a slab.
pub const HALF_BYTES: u32 = SLAB_ROWS * super::panels::ROW_BYTES;
pub const SLAB_BYTES: u32 = 2 * HALF_BYTES;

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

    /// Bytes to row `row` of its slab that is the `slab`-th from the left, in the slab's first half.
    #[inline(always)]
    #[must_use]
    pub const fn slab(self, row: u32, slab: u32) -> u64 {
        let above = (row / SLAB_ROWS) as u64 * self.across() as u64;
        let within = row % SLAB_ROWS * super::panels::ROW_BYTES;
        above.wrapping_add(slab as u64).wrapping_mul(SLAB_BYTES as u64).wrapping_add(within as u64)
    }
}
