//! The GGUF block formats: layout, exact dequantization.
//!
//! A tensor's row is a sequence of blocks; a block holds [`Format::block_elements`] values in
//! [`Format::block_bytes`] bytes. Layouts are those of the GGUF files that llama.cpp writes;
//! multi-byte fields are little-endian.
//!
//! [`Format`] names a format at run time, [`Block`] is its type, and [`with_block!`] leads from
//! one to the other.

pub mod bits;
mod block;
mod float;
mod iq4;
mod k;
pub mod planes;
mod q32;
mod row;
#[cfg(test)]
mod tests;

pub use block::{Block, with_block};
pub use half::{bf16, f16};
pub use iq4::{BlockIQ4_NL, BlockIQ4_XS, IQ4_VALUES, iq4_value};
pub use k::{BlockQ2_K, BlockQ3_K, BlockQ4_K, BlockQ5_K, BlockQ6_K, BlockQ8_K};
pub use q32::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};
pub use row::{RowError, dequantize_row};

/// A tensor format of a GGUF file. The discriminant is the type id in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[allow(non_camel_case_types, missing_docs, reason = "the names are those of the file format")]
pub enum Format {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ4_NL = 20,
    IQ4_XS = 23,
    BF16 = 30,
}

impl Format {
    /// Every format, in the order of the file's type ids.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::Q8_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::BF16,
    ];

    /// The format with this type id, if it is one of ours.
    #[must_use]
    pub const fn from_id(id: u32) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            if Self::ALL[i] as u32 == id {
                return Some(Self::ALL[i]);
            }
            i += 1;
        }
        None
    }

    /// The type id in the file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name that llama.cpp's tools print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2_K => "Q2_K",
            Self::Q3_K => "Q3_K",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::Q8_K => "Q8_K",
            Self::IQ4_NL => "IQ4_NL",
            Self::IQ4_XS => "IQ4_XS",
            Self::BF16 => "BF16",
        }
    }

    /// Values in one block.
    #[inline]
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::IQ4_NL => 32,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K | Self::Q8_K | Self::IQ4_XS => 256,
        }
    }

    /// Bytes of so many values, which are whole blocks and fit into memory.
    #[inline]
    #[must_use]
    pub const fn bytes_of(self, elements: usize) -> usize {
        elements / self.block_elements() * self.block_bytes()
    }

    /// Bytes of one block.
    #[inline]
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 | Self::IQ4_NL => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
            Self::Q8_K => 292,
            Self::IQ4_XS => 136,
        }
    }

    /// Bytes of a row of `elements` values; `None` if they are no whole number of blocks or the
    /// size is beyond `usize`.
    #[must_use]
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if elements.is_multiple_of(self.block_elements()) {
            (elements / self.block_elements()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

impl core::fmt::Display for Format {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}
