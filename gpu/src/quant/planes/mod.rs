//! Weight rows as device memory holds them: planes instead of blocks.
//!
//! A file's block is 18 or 210 bytes and begins anywhere; a GPU reads 16 bytes at multiples of
//! 16. So a row's blocks are taken apart: each kind of field stands in a plane of its own, as
//! long as the row, and what belongs to 32 neighbouring elements, a *piece*, stands together in
//! each plane. Bits are moved, no value is changed, and the row grows only by what aligns its
//! planes.
//!
//! ```text
//! one row of nb blocks, every plane at a multiple of 16 bytes:
//!   quants   the quants' low bits: 4, 2 or 8 a quant
//!   high     the quants' high bits: 1 or 2 a quant
//!   scales   the scales that are a byte for every run
//!   heads    what else a block has, in one word: its scale or scales, and smaller scales
//! ```
//!
//! How many bytes of each a block has, [`Planes::of`] says. How bits stand within a piece is the
//! same for all formats, so that four quants are one mask away from the four bytes of a register
//! (`q` is counted within the piece):
//!
//! ```text
//! 8-bit quants   byte q                          32 bytes a piece
//! 4-bit quants   byte q % 16, half q / 16        16 bytes
//! 2-bit quants   byte 4 (q / 16) + q % 4, bits 2 (q % 16 / 4) and the next     8 bytes
//! 1-bit quants   byte q % 4, bit q / 4            4 bytes
//! ```
//!
//! The head of a K format with six-bit scales is 16 bytes. A piece has two of them (a scale and a
//! minimum, or in Q3_K the scales of its runs):
//!
//! ```text
//! byte  0    2       4                       12            15
//!      | d  | dmin  | low 6 bits: first     | 4 bits a     |
//!      |    | or 0  | high 2: low bits of   | piece: high  |
//!      |    |       | the second            | bits of the  |
//!      |    |       | (8 x u8, one a piece) | second       |
//! ```
//!
//! The two runs of 16 that are a piece have a scale and a minimum each ([`Run`]); formats whose
//! quants are centred have `offset · scale` as their minimum, which spares the subtraction of
//! every single quant. The sums of Q8_K, which no value depends on, are left out.
//!
//! Kernels read rows through [`Pieces`] and [`Numbers`]; [`pack_row`] makes them.

#![allow(unsafe_code, reason = "reading a row is a load: it trusts the address")]

mod iq4;
mod k;
mod numbers;
#[cfg(not(target_arch = "nvptx64"))]
mod pack;
mod q32;
#[cfg(test)]
mod tests;

pub use numbers::{EIGHT, Numbers};
#[cfg(not(target_arch = "nvptx64"))]
pub use pack::{BlockPlanes, PackError, pack_row};

use super::{Block, Format};
use crate::simt::{Global, Simt};

/// Elements of a piece.
pub const PIECE_ELEMENTS: u32 = 32;
/// Runs of a piece.
pub const RUNS: usize = 2;
/// Elements of a run: no format has scales for fewer.
pub const RUN_ELEMENTS: u32 = PIECE_ELEMENTS / RUNS as u32;
/// What planes and rows are aligned to, in bytes.
pub const PLANE_ALIGN: u32 = 16;

/// The bytes that one block has in each plane of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Low bits of the quants, or the numbers of a format that is not quantized.
    pub quants: u32,
    /// High bits of the quants.
    pub high: u32,
    /// Scales of the runs, where they are bytes.
    pub scales: u32,
    /// What else the block has.
    pub heads: u32,
}

/// Where the planes of a row begin, in bytes from its start; `quants` begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// See [`Planes::high`].
    pub high: u32,
    /// See [`Planes::scales`].
    pub scales: u32,
    /// See [`Planes::heads`].
    pub heads: u32,
    /// Bytes from one row to the next, a multiple of [`PLANE_ALIGN`].
    pub row: u32,
}

impl Planes {
    /// The planes of a format.
    #[must_use]
    pub const fn of(format: Format) -> Self {
        const fn planes(quants: u32, high: u32, scales: u32, heads: u32) -> Planes {
            Planes { quants, high, scales, heads }
        }
        match format {
            Format::F32 => planes(4, 0, 0, 0),
            Format::F16 | Format::BF16 => planes(2, 0, 0, 0),
            Format::Q4_0 | Format::IQ4_NL => planes(16, 0, 0, 2),
            Format::Q4_1 => planes(16, 0, 0, 4),
            Format::Q5_0 => planes(16, 4, 0, 2),
            Format::Q5_1 => planes(16, 4, 0, 4),
            Format::Q8_0 => planes(32, 0, 0, 2),
            Format::Q2_K => planes(64, 0, 16, 4),
            Format::Q3_K => planes(64, 32, 0, 16),
            Format::Q4_K => planes(128, 0, 0, 16),
            Format::Q5_K => planes(128, 32, 0, 16),
            Format::Q6_K => planes(128, 64, 16, 2),
            Format::Q8_K => planes(256, 0, 0, 4),
            Format::IQ4_XS => planes(128, 0, 0, 8),
        }
    }

    /// Where the planes of a row of `blocks` blocks begin. The row has fewer than 2^32 bytes.
    #[inline(always)]
    #[must_use]
    pub const fn offsets(self, blocks: u32) -> Offsets {
        let high = align(self.quants.wrapping_mul(blocks));
        let scales = align(high.wrapping_add(self.high.wrapping_mul(blocks)));
        let heads = align(scales.wrapping_add(self.scales.wrapping_mul(blocks)));
        let row = align(heads.wrapping_add(self.heads.wrapping_mul(blocks)));
        Offsets { high, scales, heads, row }
    }

    /// Bytes of a block in all planes.
    #[must_use]
    pub const fn block_bytes(self) -> u32 {
        self.quants + self.high + self.scales + self.heads
    }
}

/// The next multiple of [`PLANE_ALIGN`].
#[inline(always)]
const fn align(bytes: u32) -> u32 {
    bytes.wrapping_add(PLANE_ALIGN - 1) & !(PLANE_ALIGN - 1)
}

/// Bytes from one row of `elements` values to the next in device memory; `None` if they are no
/// whole number of blocks or the row has 2^31 bytes or more.
#[must_use]
pub const fn plane_row_bytes(format: Format, elements: usize) -> Option<u32> {
    let (planes, block) = (Planes::of(format), format.block_elements());
    if elements.is_multiple_of(block) && elements / block < (1 << 31) / planes.block_bytes() as usize - 8 {
        Some(planes.offsets((elements / block) as u32).row)
    } else {
        None
    }
}

/// Bytes of a row of `elements` values, which are whole blocks, without what only aligns.
pub(crate) const fn plane_value_bytes(format: Format, elements: u32) -> u64 {
    Planes::of(format).block_bytes() as u64 * (elements as usize / format.block_elements()) as u64
}

// The planes hold the file's bytes: all but the sums of Q8_K, and two more for Q3_K.
const _: () = {
    let mut i = 0;
    while i < Format::ALL.len() {
        let format = Format::ALL[i];
        let (left_out, added) = match format {
            Format::Q8_K => (32, 0),
            Format::Q3_K => (0, 2),
            _ => (0, 0),
        };
        assert!(Planes::of(format).block_bytes() as usize + left_out == format.block_bytes() + added);
        i += 1;
    }
};

/// 16 neighbouring elements of a row: value = `scale * q - min`.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first element's place in the row.
    pub first: u32,
    /// 16 signed bytes, the lowest first.
    pub quants: [u32; 4],
    /// The scale.
    pub scale: f32,
    /// The minimum; `offset · scale` where the format's quants are centred.
    pub min: f32,
}

/// A row of a quantized format, piece by piece.
///
/// The row's planes begin at `row`, which is aligned to 16 bytes, and have `blocks` blocks. Piece
/// `index` holds elements `32 index` and the next 31.
///
/// `scale * q` is exact for every format but Q8_K (24 significant bits at most) and so is `min`.
/// So `scale * q - min`, fused or not, is [`Block::dequantize`]'s value, but for the sign of zero
/// and for a block whose scale is not finite, which may give NaN for infinity.
pub trait Pieces: Block {
    /// What a lane loads for a piece. The default is a piece whose scales and minimums are zero.
    type Words: Copy + Default;

    /// Whether the runs of a piece have the same scale and the same minimum.
    const ONE_SCALE: bool;
    /// What is subtracted from an unsigned quant: [`SIGNED`] where quants are signed bytes, with their sign bit
    /// flipped; less where they are centred and [`Run::min`] is `OFFSET · scale`; 0 where blocks have a minimum of
    /// their own.
    const OFFSET: u32;
    /// Whether blocks have a minimum of their own.
    const OWN_MIN: bool = Self::OFFSET == 0;
    /// Whether [`Run::min`] can be other than zero.
    const HAS_MIN: bool = Self::OFFSET != SIGNED;

    /// Loads a piece: a word from each plane, two for 8-bit quants. Each byte of `quants`, `high`
    /// and `scales` is loaded for one piece only; a head for every piece of its block, whose lanes
    /// stand side by side and get it at once.
    ///
    /// # Safety
    /// The row lies in a live buffer that nobody writes, and has the piece.
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words;

    /// The piece of these words, which are those of `index`.
    fn unpack<S: Simt>(s: S, words: Self::Words, index: u32) -> [Run; RUNS];

    /// A piece, loaded and unpacked.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    #[inline(always)]
    #[track_caller]
    unsafe fn piece<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> [Run; RUNS] {
        // SAFETY: the caller's.
        Self::unpack(s, unsafe { Self::load(s, row, blocks, index) }, index)
    }

    /// Takes the block apart. Every byte of its planes is written.
    #[cfg(not(target_arch = "nvptx64"))]
    fn pack(&self, to: BlockPlanes<'_>);
}

/// [`Pieces::OFFSET`] of a format whose quants are signed bytes.
pub const SIGNED: u32 = 128;

/// Pieces of a block.
#[inline(always)]
const fn pieces_of<B: Block>() -> u32 {
    B::FORMAT.block_elements() as u32 / PIECE_ELEMENTS
}

/// Both runs of piece `index`.
#[inline(always)]
const fn runs(index: u32, quants: [[u32; 4]; RUNS], scales: [f32; RUNS], mins: [f32; RUNS]) -> [Run; RUNS] {
    let first = index.wrapping_mul(PIECE_ELEMENTS);
    [
        Run { first, quants: quants[0], scale: scales[0], min: mins[0] },
        Run { first: first.wrapping_add(RUN_ELEMENTS), quants: quants[1], scale: scales[1], min: mins[1] },
    ]
}

/// Four bits for each of 32 quants, a byte each.
#[inline(always)]
fn four_bits(words: [u32; 4]) -> [[u32; 4]; RUNS] {
    [words.map(|word| word & 0x0f0f_0f0f), words.map(|word| word >> 4 & 0x0f0f_0f0f)]
}

/// Two bits for each of 32 quants, a byte each.
#[inline(always)]
fn two_bits(words: [u32; 2]) -> [[u32; 4]; RUNS] {
    words.map(|word| [0, 1, 2, 3].map(|i| word >> (2 * i) & 0x0303_0303))
}

/// Adds two bits for each of 32 quants, from bit 4 on.
#[inline(always)]
fn with_two_high_bits(low: [[u32; 4]; RUNS], high: [u32; 2]) -> [[u32; 4]; RUNS] {
    core::array::from_fn(|run| {
        core::array::from_fn(|i| low[run][i] | shifted(high[run], 4 - 2 * i as i32) & 0x3030_3030)
    })
}

/// Adds one bit for each of 32 quants, as bit `BIT`.
#[inline(always)]
fn with_high_bit<const BIT: u32>(low: [[u32; 4]; RUNS], high: u32) -> [[u32; 4]; RUNS] {
    core::array::from_fn(|run| {
        core::array::from_fn(|i| {
            low[run][i] | shifted(high, BIT as i32 - (4 * run + i) as i32) & (0x0101_0101 << BIT)
        })
    })
}

/// Shifted to the left, or to the right by the amount negated.
#[inline(always)]
const fn shifted(word: u32, left: i32) -> u32 {
    if left < 0 { word.wrapping_shr(left.unsigned_abs()) } else { word.wrapping_shl(left.unsigned_abs()) }
}

/// A head with six-bit numbers: both scales, and the two numbers of piece `index`.
#[inline(always)]
fn six_bits<S: Simt>(s: S, [scales, low, high, fours]: [u32; 4], index: u32) -> ([f32; 2], [u32; 2]) {
    let piece = index & 7;
    let byte = s.permute_bytes(low, high, piece);
    let four = fours.rotate_right((4 * piece).wrapping_sub(2) & 31) & 0x3c;
    (s.f32_from_f16x2(scales), [byte & 0x3f, byte >> 6 & 3 | four])
}
