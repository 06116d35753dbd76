//! Making rows of planes from a file's rows of blocks.

use core::fmt;

use super::{Offsets, Pieces, Planes};
use crate::quant::{Format, f16, with_block};

/// The parts of its row's planes that one block fills; those that its format lacks are empty.
pub struct BlockPlanes<'a> {
    /// See [`Planes::quants`].
    pub quants: &'a mut [u8],
    /// See [`Planes::high`].
    pub high: &'a mut [u8],
    /// See [`Planes::scales`].
    pub scales: &'a mut [u8],
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
    let planes = const { Planes::of(B::FORMAT) };
    let count = (blocks.len() / size_of::<B>()) as u32;
    let Offsets { high, scales, heads, row: _ } = planes.offsets(count);
    // Only what lies behind a plane's end stays zero.
    for (end, next) in [
        (planes.quants * count, high),
        (high + planes.high * count, scales),
        (scales + planes.scales * count, heads),
        (heads + planes.heads * count, out.len() as u32),
    ] {
        out[end as usize..next as usize].fill(0);
    }
    let (quants, rest) = out.split_at_mut(high as usize);
    let (high, rest) = rest.split_at_mut((scales - high) as usize);
    let (scales, heads) = rest.split_at_mut((heads - scales) as usize);
    for (i, block) in blocks.chunks_exact(size_of::<B>()).enumerate() {
        bytemuck::pod_read_unaligned::<B>(block).pack(BlockPlanes {
            quants: &mut quants[i * planes.quants as usize..][..planes.quants as usize],
            high: &mut high[i * planes.high as usize..][..planes.high as usize],
            scales: &mut scales[i * planes.scales as usize..][..planes.scales as usize],
            heads: &mut heads[i * planes.heads as usize..][..planes.heads as usize],
        });
    }
}

/// Quants of `8 / WORDS` bits as their pieces' bytes, in runs of `4 * WORDS * LANES` bytes.
///
/// A run of the file has first the lowest field of each byte, then the next ones. Pieces have in one
/// byte the fields that the file has at the same place of `WORDS` neighbours, of `TOGETHER` words each.
/// So words are exchanged with fields, in `LANES` lanes at once:
///
/// ```text
/// 4 bits, TOGETHER = 4                file               pieces
///      bits 7..4   |  fields 32..47   fields 48..63  |   16..31   48..63
///      bits 3..0   |  fields  0..15   fields 16..31  |    0..15   32..47
///                     word 0..3       word 4..7
/// ```
#[inline(always)]
pub(super) fn pack_fields<const WORDS: usize, const TOGETHER: usize, const LANES: usize>(
    file: &[u8],
    to: &mut [u8],
) {
    let run = 4 * WORDS * LANES;
    for (file, to) in file.chunks_exact(run).zip(to.chunks_exact_mut(run)) {
        let words: [[u32; LANES]; WORDS] = core::array::from_fn(|word| {
            core::array::from_fn(|lane| {
                let at = (lane / TOGETHER * WORDS + word) * TOGETHER + lane % TOGETHER;
                bytemuck::pod_read_unaligned(&file[4 * at..][..4])
            })
        });
        for (to, word) in to.chunks_exact_mut(4).zip(exchange(words).as_flattened()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Exchanges words with fields, in each lane: what was field `i` in the bytes of word `j` is field `j`
/// in those of word `i`. A byte has as many fields as there are words.
#[inline(always)]
fn exchange<const WORDS: usize, const LANES: usize>(
    mut words: [[u32; LANES]; WORDS],
) -> [[u32; LANES]; WORDS] {
    // As a matrix is transposed by exchanging its off-diagonal quarters, then those of each quarter.
    let mut apart = WORDS / 2;
    while apart > 0 {
        let bits = 8 * apart / WORDS;
        let lower = u32::MAX / ((1 << bits) + 1);
        for i in (0..WORDS).filter(|i| i & apart == 0) {
            let (first, second) = words.split_at_mut(i + apart);
            for (a, b) in first[i].iter_mut().zip(&mut second[0]) {
                let different = (*a >> bits ^ *b) & lower;
                *a ^= different << bits;
                *b ^= different;
            }
        }
        apart /= 2;
    }
    words
}

/// 32 one-bit numbers, the first in the lowest bit, as a piece's bytes.
#[inline(always)]
pub(super) fn ones(bits: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(bits);
    [0, 1, 2, 3].map(|first| {
        // Every fourth bit, brought together two by two.
        let pairs = bits >> first & 0x1111_1111;
        let fours = (pairs | pairs >> 3) & 0x0303_0303;
        let eights = (fours | fours >> 6) & 0x000f_000f;
        (eights | eights >> 12) as u8
    })
}

/// A head: both scales, and two six-bit numbers for each of eight pieces.
#[inline(always)]
pub(super) fn six_bits(scales: [f16; 2], first: [u8; 8], second: [u8; 8]) -> [u8; 16] {
    let (first, second) = (u64::from_le_bytes(first), u64::from_le_bytes(second));
    let low = first | (second & 0x0303_0303_0303_0303) << 6;
    let fours = second >> 2 & 0x0f0f_0f0f_0f0f_0f0f;
    let high = evens(fours | fours >> 4);
    let mut head = [0; 16];
    head[..4].copy_from_slice(&two_scales(scales));
    head[4..12].copy_from_slice(&low.to_le_bytes());
    head[12..].copy_from_slice(&high.to_le_bytes());
    head
}

/// Bytes 0, 2, 4 and 6.
#[inline(always)]
const fn evens(bytes: u64) -> u32 {
    let bytes = bytes & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    (pairs | pairs >> 16) as u32
}

/// Two scales, or a scale and a minimum, as they stand in a head.
#[inline(always)]
pub(super) fn two_scales([first, second]: [f16; 2]) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
    [a, b, c, d]
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
