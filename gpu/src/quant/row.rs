//! Rows of blocks whose format is known at run time.

use core::fmt;

use super::{Block, Format, with_block};

/// Decodes a row: `bytes` are its blocks as the file holds them (at any alignment), `out` its
/// values, all of which are written.
///
/// # Errors
/// [`RowError`] if `out` is no whole number of blocks or `bytes` has not exactly their size; then
/// nothing is written.
#[inline]
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), RowError> {
    let elements = out.len();
    let expected = format.row_bytes(elements).ok_or(RowError::Elements { format, elements })?;
    if bytes.len() != expected {
        return Err(RowError::Bytes { format, elements, expected, got: bytes.len() });
    }
    with_block!(format, B => dequantize_blocks::<B>(bytes, out));
    Ok(())
}

/// Decodes as many blocks as both sides have room for.
fn dequantize_blocks<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let blocks = bytes.chunks_exact(size_of::<B>());
    let values = out.chunks_exact_mut(const { B::FORMAT.block_elements() });
    for (block, values) in blocks.zip(values) {
        let block: B = bytemuck::pod_read_unaligned(block);
        // Not `copy_from_slice`, which would bring a panic along.
        for (value, decoded) in values.iter_mut().zip(block.dequantize().as_ref()) {
            *value = *decoded;
        }
    }
}

/// Why a row cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowError {
    /// The values are no whole number of blocks.
    Elements {
        /// The row's format.
        format: Format,
        /// Values asked for.
        elements: usize,
    },
    /// The bytes are more or fewer than the values' blocks.
    Bytes {
        /// The row's format.
        format: Format,
        /// Values asked for.
        elements: usize,
        /// Bytes of their blocks.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Elements { format, elements } => {
                let block = format.block_elements();
                write!(f, "a row of {elements} values is no whole number of {format} blocks of {block}")
            }
            Self::Bytes { format, elements, expected, got } => {
                write!(f, "a {format} row of {elements} values takes {expected} bytes, got {got}")
            }
        }
    }
}

impl core::error::Error for RowError {}
