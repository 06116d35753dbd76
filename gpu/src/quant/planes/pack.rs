//! Making rows of planes from a file's rows of blocks.

use core::fmt;

use super::{Offsets, Pieces, Planes};
use crate::quant::{Format, with_block};

/// The parts of its row's planes that one block fills; those that its format lacks are empty.
pub struct BlockPlanes<'a> {
    /// See [`Planes::quants`].
    pub quants: &'a mut [u8],
    /// See [`Planes::high`].
    pub high: &'a mut [u8],
    /// See [`Planes::scales`].
    pub scales: &'a mut [u8],
    /// See [`Planes::fours`].
    pub fours: &'a mut [u8],
    /// See [`Planes::heads`].
    pub heads: &'a mut [u8],
}

/// Takes a row apart: `blocks` are a file's blocks, at any alignment, `out` is the row in device
/// memory's layout. All of it is written, what only aligns as zero.
///
/// # Errors
/// [`PackError`] if `blocks` is no whole number of blocks, or `out` has not exactly the bytes of
/// [`plane_row_bytes`](super::plane_row_bytes); then nothing is written.
pub fn pack_row(format: Format, blocks: &[u8], out: &mut [u8]) -> Result<(), PackError> {
    let bytes = blocks.len();
    if !bytes.is_multiple_of(format.block_bytes()) {
        return Err(PackError::Blocks { format, bytes });
    }
    let elements = bytes / format.block_bytes() * format.block_elements();
    let expected = super::plane_row_bytes(format, elements);
    if expected.map(|row| row as usize) != Some(out.len()) {
        return Err(PackError::Row { format, elements, expected, got: out.len() });
    }
    with_block!(format, quantized B => pack_blocks::<B>(blocks, out), else {
        let (numbers, padding) = out.split_at_mut(bytes);
        numbers.copy_from_slice(blocks);
        padding.fill(0);
    });
    Ok(())
}

/// As [`pack_row`], whose checks have been made.
fn pack_blocks<B: Pieces>(blocks: &[u8], out: &mut [u8]) {
    let planes = Planes::of(B::FORMAT);
    let count = (blocks.len() / size_of::<B>()) as u32;
    let Offsets { high, scales, fours, heads, row: _ } = planes.offsets(count);
    // Only what lies behind a plane's end stays zero.
    for (end, next) in [
        (planes.quants * count, high),
        (high + planes.high * count, scales),
        (scales + planes.scales * count, fours),
        (fours + planes.fours * count, heads),
        (heads + planes.heads * count, out.len() as u32),
    ] {
        out[end as usize..next as usize].fill(0);
    }
    let (quants, rest) = out.split_at_mut(high as usize);
    let (high, rest) = rest.split_at_mut((scales - high) as usize);
    let (scales, rest) = rest.split_at_mut((fours - scales) as usize);
    let (fours, heads) = rest.split_at_mut((heads - fours) as usize);
    for (i, block) in blocks.chunks_exact(size_of::<B>()).enumerate() {
        bytemuck::pod_read_unaligned::<B>(block).pack(BlockPlanes {
            quants: &mut quants[i * planes.quants as usize..][..planes.quants as usize],
            high: &mut high[i * planes.high as usize..][..planes.high as usize],
            scales: &mut scales[i * planes.scales as usize..][..planes.scales as usize],
            fours: &mut fours[i * planes.fours as usize..][..planes.fours as usize],
            heads: &mut heads[i * planes.heads as usize..][..planes.heads as usize],
        });
    }
}

/// Two runs of 4-bit numbers as a piece's bytes.
pub(super) fn fours(low: &[u8; 16], high: &[u8; 16]) -> [u8; 16] {
    core::array::from_fn(|i| low[i] | high[i] << 4)
}

/// 16 two-bit numbers as a run's bytes.
pub(super) fn twos(run: &[u8; 16]) -> [u8; 4] {
    core::array::from_fn(|i| run[i] | run[4 + i] << 2 | run[8 + i] << 4 | run[12 + i] << 6)
}

/// 32 one-bit numbers as a piece's bytes.
pub(super) fn ones(piece: &[u8; 32]) -> [u8; 4] {
    core::array::from_fn(|i| (0..8).fold(0, |byte, bit| byte | piece[4 * bit + i] << bit))
}

/// Two six-bit numbers for each of eight pieces as a block's bytes in `scales` and `fours`.
pub(super) fn sixes(first: [u8; 8], second: [u8; 8]) -> ([u8; 8], [u8; 4]) {
    (
        core::array::from_fn(|i| first[i] | second[i] << 6),
        core::array::from_fn(|i| second[2 * i] >> 2 | (second[2 * i + 1] >> 2) << 4),
    )
}

/// Why a row cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The bytes are no whole number of blocks.
    Blocks {
        /// The row's format.
        format: Format,
        /// Bytes given.
        bytes: usize,
    },
    /// The space for the row has another size.
    Row {
        /// The row's format.
        format: Format,
        /// Values of the row.
        elements: usize,
        /// Bytes of the row; `None` if there can be no such row.
        expected: Option<u32>,
        /// Bytes given.
        got: usize,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Blocks { format, bytes } => {
                let block = format.block_bytes();
                write!(f, "{bytes} bytes are no whole number of {format} blocks of {block} bytes")
            }
            Self::Row { format, elements, expected: Some(expected), got } => {
                write!(f, "a {format} row of {elements} values takes {expected} bytes on a device, got {got}")
            }
            Self::Row { format, elements, expected: None, .. } => {
                write!(f, "a {format} row of {elements} values is too long for a device")
            }
        }
    }
}

impl core::error::Error for PackError {}
