//! What a launch has to do at least: what its time is measured against.

/// Which units of a multiprocessor do a launch's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Tensor cores, in products of f16.
    TensorF16,
    /// Tensor cores, in products of 8-bit integers.
    TensorS8,
    /// All others.
    Plain,
}

/// What a launch has to do at least, however its kernel does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Bytes of global memory that are read, each counted once; without what only aligns.
    pub bytes_read: u64,
    /// Bytes of global memory that are written, likewise.
    pub bytes_written: u64,
    /// Operations of the products: a multiplication and an addition are two. Zero for a kernel that is
    /// no product: what it computes is little beside what it moves.
    pub operations: u64,
    /// What does them.
    pub unit: Unit,
}

impl Work {
    /// Moving bytes, and next to nothing beside that.
    #[must_use]
    pub const fn moving(bytes_read: u64, bytes_written: u64) -> Self {
        Self { bytes_read, bytes_written, operations: 0, unit: Unit::Plain }
    }

    /// The same with `multiplications`, each followed by an addition, in these units.
    #[must_use]
    pub const fn multiplying(self, multiplications: u64, unit: Unit) -> Self {
        Self { operations: multiplications.saturating_mul(2), unit, ..self }
    }

    /// Bytes that are read and written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
}

/// The product of extents: of bytes and operations that there is memory and time for.
#[must_use]
pub(crate) fn product<const N: usize>(extents: [u32; N]) -> u64 {
    extents.into_iter().fold(1, |product: u64, extent| product.saturating_mul(u64::from(extent)))
}
