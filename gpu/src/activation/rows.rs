//! What a kernel writes its rows as: f32, f16, or 8 bits with a scale for each block.
//!
//! A kernel that ends in a row of activations is generic over [`RowsOut`], so that rounding is a
//! part of whatever computes the row, and rows are never read again to be rounded.

use half::f16;

use crate::simt::{Global, Simt};

/// Columns that a lane hands over at a time.
pub const VECTOR: u32 = 4;

/// Which of the forms it is; a kernel's name ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// f32.
    F32,
    /// f16.
    F16,
}

/// `rows × width` activations, row major, that a kernel writes.
pub trait RowsOut: bytemuck::Zeroable + Copy + Send + Sync + 'static {
    /// Which form.
    const KIND: Kind;
    /// What a width is a multiple of.
    const GRANULE: u32;

    /// Writes four elements of a row of `width`: those from `column` on, a multiple of four.
    ///
    /// The lanes of a warp call this together, each with the columns behind those of the lane
    /// before; the first lane's `column` is a multiple of 128. Lanes at and past the width give
    /// any finite values, and write nothing.
    ///
    /// # Safety
    /// The row is one of this memory's, which is `rows × width`, aligned to 16 bytes (f16: 8), and
    /// nobody else touches these elements.
    #[track_caller]
    unsafe fn store<S: Simt>(self, s: S, row: u32, width: u32, column: u32, values: [f32; 4]);
}

/// Aligned to 16 bytes.
impl RowsOut for Global<f32> {
    const KIND: Kind = Kind::F32;
    const GRANULE: u32 = VECTOR;

    #[inline(always)]
    unsafe fn store<S: Simt>(self, s: S, row: u32, width: u32, column: u32, values: [f32; 4]) {
        if column < width {
            // SAFETY: the caller's.
            unsafe { s.store_global(self.row(row, width).at(u64::from(column)).cast(), values) };
        }
    }
}

/// Rounded to nearest even; aligned to 8 bytes.
impl RowsOut for Global<f16> {
    const KIND: Kind = Kind::F16;
    const GRANULE: u32 = VECTOR;

    #[inline(always)]
    unsafe fn store<S: Simt>(self, s: S, row: u32, width: u32, column: u32, [a, b, c, d]: [f32; 4]) {
        if column < width {
            let pairs = [s.f16x2_from_f32(a, b), s.f16x2_from_f32(c, d)];
            // SAFETY: the caller's.
            unsafe { s.store_global(self.row(row, width).at(u64::from(column)).cast(), pairs) };
        }
    }
}
