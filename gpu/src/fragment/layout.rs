//! Which way a matrix lies in memory, as a type.

/// How a matrix lies in memory: [`RowMajor`] or [`ColMajor`].
///
/// The layout belongs to one use of a matrix, not to the memory: K of attention, stored position
/// by position, is a column-major B in Q·Kᵀ, and V, stored the same way, a row-major B in P·V.
pub trait Layout: sealed::Sealed + Copy + Default + 'static {
    /// The name that PTX has for it in `wmma` and `mma`.
    const NAME: &'static str;
    /// Whether a row of the matrix is contiguous.
    const ROW_MAJOR: bool;
    /// The other one.
    type Transposed: Layout<Transposed = Self>;
}

/// A row is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowMajor;

/// A column is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColMajor;

impl Layout for RowMajor {
    const NAME: &'static str = "row";
    const ROW_MAJOR: bool = true;
    type Transposed = ColMajor;
}

impl Layout for ColMajor {
    const NAME: &'static str = "col";
    const ROW_MAJOR: bool = false;
    type Transposed = RowMajor;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::RowMajor {}
    impl Sealed for super::ColMajor {}
}
