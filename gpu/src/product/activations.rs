//! The left operands of products with weights: rows of activations as f16 or as 8-bit quants,
//! and how whoever makes such a row stores it.
//!
//! A q8 row of `columns` values (a multiple of 32) has two quants for each, a coarse one and what that leaves
//! of the value in 256ths of it, in four planes:
//!
//! ```text
//! byte  0          coarse  i8,  one a value, -127 to 127
//!       fine()     fine    i8,  one a value
//!       scales()   scales  f32, one for each 32 values: max |x| / 32512
//!       sums()     sums    f32, one for each 16 values: scale · Σ (256 · coarse + fine), rounded once
//!       bytes()    the next row
//! ```
//!
//! Each plane begins at a multiple of 16 bytes. The value is `scale · (256 · coarse + fine)`. A product with
//! weights `w = s · q - m` over 16 values is `(s · scale) · (256 · Σ q · coarse + Σ q · fine) - m · sum`: the
//! first two sums are of integers, and exact.
//!
//! Coarse quants alone, which is what other engines have, move whole models' logits by more than 1
//! (docs/results.md). Both together cost a second `dp4a`, and are nearer than f16 to what they stand for: half of
//! 1 / 32512 of a block's largest value, where f16 is off by up to 1 / 2048 of each.

use super::panels::Panels;
use super::slabs::Slabs;
use crate::quant::planes::PIECE_ELEMENTS;
use crate::simt::{Global, Simt};

/// Values with one scale.
pub const Q8_BLOCK: u32 = 32;
/// Values with one sum.
pub const Q8_RUN: u32 = 16;
/// Columns of a row of any kind at most: its bytes are fewer than 2^32.
pub const MOST_COLUMNS: u32 = u32::MAX / 4;
/// Steps of a fine quant in one of a coarse one.
pub const Q8_STEPS: u32 = 256;
/// Values that a lane hands to [`Activations::store`].
pub const LANE_VALUES: u32 = 4;

/// Where the planes of a q8 row are. At most [`MOST_COLUMNS`] columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q8Row {
    columns: u32,
}

impl Q8Row {
    /// A row of `columns` values, a multiple of 32.
    #[inline(always)]
    #[must_use]
    pub const fn new(columns: u32) -> Self {
        Self { columns }
    }

    /// Bytes from the row's start to its fine quants.
    #[inline(always)]
    #[must_use]
    pub const fn fine(self) -> u32 {
        self.columns
    }

    /// Bytes from the row's start to its scales.
    #[inline(always)]
    #[must_use]
    pub const fn scales(self) -> u32 {
        self.columns.wrapping_mul(2)
    }

    /// Bytes from the row's start to its sums.
    #[inline(always)]
    #[must_use]
    pub const fn sums(self) -> u32 {
        self.scales().wrapping_add(align(self.columns / Q8_BLOCK * 4))
    }

    /// Bytes from one row to the next, a multiple of 16.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.sums().wrapping_add(align(self.columns / Q8_RUN * 4))
    }

    /// Bytes of the values that a product reads, with or without the sums; without what only aligns.
    pub(super) const fn read_bytes(self, with_sums: bool) -> u64 {
        let sums = if with_sums { self.columns / Q8_RUN } else { 0 };
        2 * self.columns as u64 + 4 * (self.columns / Q8_BLOCK) as u64 + 4 * sums as u64
    }
}

/// The next multiple of 16.
#[inline(always)]
const fn align(bytes: u32) -> u32 {
    bytes.wrapping_add(15) & !15
}

/// A kind of rows that kernels write and products read.
pub trait Activations: Copy + Send + Sync + 'static {
    /// `f32`, `f16`, `f16_panels`, `f16_slabs` or `q8`: the end of the names of kernels that write such rows.
    const NAME: &'static str;
    /// What the number of columns is a multiple of.
    const COLUMNS: u32;

    /// Bytes of `rows` rows of `columns` values.
    fn bytes(rows: u32, columns: u32) -> u64;

    /// Bytes of the values of a row, without what only aligns.
    fn value_bytes(columns: u32) -> u64;

    /// Stores four neighbouring values of row `row`, from `column` on, a multiple of 4. Neighbouring
    /// lanes hold neighbouring fours, the warp's first lane those at a multiple of 128; the values of
    /// lanes whose `column` is not below `columns` are not stored.
    ///
    /// Lanes: warp.
    ///
    /// # Safety
    /// The rows at `rows`, aligned to 16 bytes, lie in a live buffer; nobody else touches these
    /// values' bytes, or for q8 those of their scale and sums.
    unsafe fn store<S: Simt>(s: S, rows: Global<u8>, row: u32, columns: u32, column: u32, values: [f32; 4]);
}

/// Rows as they are computed.
#[derive(Clone, Copy, Debug)]
pub struct AsF32;

/// Rows of f16, rounded to nearest even.
#[derive(Clone, Copy, Debug)]
pub struct AsF16;

/// Rows of 8-bit quants, see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct AsQ8;

impl AsF32 {
    /// Bytes from one row of `columns` values to the next.
    #[inline(always)]
    #[must_use]
    pub const fn row_bytes(columns: u32) -> u32 {
        columns.wrapping_mul(4)
    }
}

impl Activations for AsF32 {
    const NAME: &'static str = "f32";
    const COLUMNS: u32 = 4;

    fn bytes(rows: u32, columns: u32) -> u64 {
        u64::from(rows) * u64::from(Self::row_bytes(columns))
    }

    fn value_bytes(columns: u32) -> u64 {
        4 * u64::from(columns)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(s: S, rows: Global<u8>, row: u32, columns: u32, column: u32, values: [f32; 4]) {
        if column < columns {
            let row = rows.row(row, Self::row_bytes(columns));
            // SAFETY: the caller's; the four values are the row's.
            unsafe { s.store_global(row.cast::<f32>().at(u64::from(column)).cast(), values) }
        }
    }
}

impl AsF16 {
    /// Bytes from one row of `columns` values to the next.
    #[inline(always)]
    #[must_use]
    pub const fn row_bytes(columns: u32) -> u32 {
        columns.wrapping_mul(2)
    }
}

impl Activations for AsF16 {
    const NAME: &'static str = "f16";
    const COLUMNS: u32 = 8;

    fn bytes(rows: u32, columns: u32) -> u64 {
        u64::from(rows) * u64::from(Self::row_bytes(columns))
    }

    fn value_bytes(columns: u32) -> u64 {
        2 * u64::from(columns)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(
        s: S,
        rows: Global<u8>,
        row: u32,
        columns: u32,
        column: u32,
        [a, b, c, d]: [f32; 4],
    ) {
        if column < columns {
            let row = rows.row(row, Self::row_bytes(columns));
            let pairs = [s.f16x2_from_f32(a, b), s.f16x2_from_f32(c, d)];
            // SAFETY: the caller's; the four values are the row's.
            unsafe { s.store_global(row.at(2 * u64::from(column)).cast(), pairs) }
        }
    }
}

/// Rows of f16 in [panels](super::panels), rounded to nearest even. What panels have beyond the columns
/// becomes zero.
#[derive(Clone, Copy, Debug)]
pub struct AsF16Panels;

impl AsF16Panels {
    /// Stores four neighbouring values of row `row`, from `column` on, a multiple of 4; those of columns that the rows do
    /// not have as zero, as far as panels reach.
    ///
    /// Lanes: own.
    ///
    /// # Safety
    /// `rows` is as [`bytes`](Activations::bytes) says, the row is one of them, and no other lane has these values.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn store_four<S: Simt>(
        s: S,
        rows: Global<u8>,
        row: u32,
        columns: u32,
        column: u32,
        [a, b, c, d]: [f32; 4],
    ) {
        let panels = Panels::new(columns);
        if column < panels.padded_columns() {
            let exists = column < columns;
            let pairs = [s.f16x2_from_f32(a, b), s.f16x2_from_f32(c, d)].map(|x| if exists { x } else { 0 });
            let to = rows.at(panels.element(row, column));
            // SAFETY: the caller's.
            unsafe { s.store_global(to.cast(), pairs) }
        }
    }
}

impl Activations for AsF16Panels {
    const NAME: &'static str = "f16_panels";
    const COLUMNS: u32 = 8;

    fn bytes(rows: u32, columns: u32) -> u64 {
        Panels::new(columns).bytes(rows)
    }

    fn value_bytes(columns: u32) -> u64 {
        2 * u64::from(columns)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(s: S, rows: Global<u8>, row: u32, columns: u32, column: u32, values: [f32; 4]) {
        // Columns end below a multiple of 128, so there is a lane for each of a panel.
        // SAFETY: the caller's; each lane has its own four.
        unsafe { Self::store_four(s, rows, row, columns, column, values) }
    }
}

/// Rows of f16 in [slabs](super::slabs), rounded to nearest even. What slabs have beyond the columns becomes zero.
#[derive(Clone, Copy, Debug)]
pub struct AsF16Slabs;

impl Activations for AsF16Slabs {
    const NAME: &'static str = "f16_slabs";
    const COLUMNS: u32 = PIECE_ELEMENTS;

    fn bytes(rows: u32, columns: u32) -> u64 {
        Slabs::new(columns).bytes(rows)
    }

    /// Those of zeros beyond the columns, too: products read them.
    fn value_bytes(columns: u32) -> u64 {
        2 * u64::from(Slabs::new(columns).padded_columns())
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(
        s: S,
        rows: Global<u8>,
        row: u32,
        columns: u32,
        column: u32,
        [a, b, c, d]: [f32; 4],
    ) {
        let slabs = Slabs::new(columns);
        // Below a multiple of 128, so there is a lane for every column.
        if column < slabs.padded_columns() {
            let exists = column < columns;
            let pairs = [s.f16x2_from_f32(a, b), s.f16x2_from_f32(c, d)].map(|x| if exists { x } else { 0 });
            let at = |column: u32| rows.at(slabs.element(row, column)).cast();
            // SAFETY: the caller's; the four values are the row's, and the two of a pair neighbours.
            unsafe {
                s.store_global(at(column), pairs[0]);
                s.store_global(at(column + 2), pairs[1]);
            }
        }
    }
}

impl AsQ8 {
    /// Bytes from one row of `columns` values to the next.
    #[inline(always)]
    #[must_use]
    pub const fn row_bytes(columns: u32) -> u32 {
        Q8Row::new(columns).bytes()
    }
}

impl Activations for AsQ8 {
    const NAME: &'static str = "q8";
    const COLUMNS: u32 = Q8_BLOCK;

    fn bytes(rows: u32, columns: u32) -> u64 {
        u64::from(rows) * u64::from(Self::row_bytes(columns))
    }

    fn value_bytes(columns: u32) -> u64 {
        Q8Row::new(columns).read_bytes(true)
    }

    /// `256 · coarse + fine` is `x · (32512 / max |x|)`, to nearest even, of the block's 32 values; coarse is the
    /// nearest to that in 256ths. A block whose values are all below 2^-100 is zero; one with a value that is not
    /// finite has a scale that is not.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Simt>(s: S, rows: Global<u8>, row: u32, columns: u32, column: u32, values: [f32; 4]) {
        // As integers, so that NaN is the largest of all.
        let [a, b, c, d] = values.map(|x| x.to_bits() & 0x7fff_ffff);
        let mut largest = a.max(b).max(c.max(d));
        for lanes in [1, 2, 4] {
            largest = largest.max(s.shuffle_xor(largest, lanes));
        }
        let largest = f32::from_bits(largest);
        let inverse = if largest < TINY { 0.0 } else { MOST / largest };
        let scale = if largest < TINY { 0.0 } else { largest / MOST };
        let quants = values.map(|x| s.round_i32(x * inverse));
        let [a, b, c, d] = quants;
        let mut sum = a.wrapping_add(b).wrapping_add(c).wrapping_add(d);
        for lanes in [1, 2] {
            sum = sum.wrapping_add(s.shuffle_xor(sum, lanes));
        }
        // The low byte, read with its sign, is what the rounded high one leaves.
        let coarse = word(quants.map(|q| q.wrapping_add(Q8_STEPS as i32 / 2) >> 8));
        let fine = word(quants);
        if column < columns {
            let (at, row) = (Q8Row::new(columns), rows.row(row, Self::row_bytes(columns)));
            let plane = |at: u32| row.at(u64::from(at));
            // SAFETY: the caller's; the first lane of each eight stores their scale, and of each
            // four their sum.
            unsafe {
                s.store_global(plane(column).cast(), coarse);
                s.store_global(plane(at.fine() + column).cast(), fine);
                if column.is_multiple_of(Q8_BLOCK) {
                    s.store_global(plane(at.scales()).cast().at(u64::from(column / Q8_BLOCK)), scale);
                }
                if column.is_multiple_of(Q8_RUN) {
                    let sum = scale * sum as f32;
                    s.store_global(plane(at.sums()).cast().at(u64::from(column / Q8_RUN)), sum);
                }
            }
        }
    }
}

/// The low bytes of four numbers, the first one's lowest.
#[inline(always)]
const fn word([a, b, c, d]: [i32; 4]) -> u32 {
    u32::from_le_bytes([a as u8, b as u8, c as u8, d as u8])
}

/// The largest coarse quant, in fine steps.
const MOST: f32 = (127 * Q8_STEPS) as f32;
/// Below this a block counts as zero: `32512 / x` would overflow.
const TINY: f32 = f32::from_bits((127 - 100) << 23);
