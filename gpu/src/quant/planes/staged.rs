//! Planes that a kernel has copied to shared memory: a quarter of a piece, and scales.

use super::{HighBits, Pieces, RUNS, four_bits, pieces_of, two_bits};
use crate::simt::{Shared, Simt, Word};

/// The word with number `index` of a plane.
///
/// # Safety
/// As [`Pieces::quarter`]; the plane has the word.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn word<S: Simt, T: Word>(s: S, plane: Shared<u8>, index: u32) -> T {
    // SAFETY: the caller's.
    unsafe { s.load_shared(plane.cast().at(index)) }
}

/// The head of the block that piece `piece` is in.
///
/// # Safety
/// As [`Pieces::staged_scales`]; `T` is the head of `B`.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn head<B: Pieces, S: Simt, T: Word>(s: S, heads: Shared<u8>, piece: u32) -> T {
    // SAFETY: the caller's.
    unsafe { word(s, heads, piece / pieces_of::<B>()) }
}

/// The word of a piece of 4-bit quants with a quarter's.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn fours<S: Simt>(s: S, quants: Shared<u8>, piece: u32, t: u32) -> u32 {
    // SAFETY: the caller's; a piece has four words.
    unsafe { word(s, quants, 4 * piece + t) }
}

/// A quarter of 4-bit quants.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn four_bit<S: Simt>(s: S, quants: Shared<u8>, piece: u32, t: u32) -> [u32; RUNS] {
    // SAFETY: the caller's.
    let word = unsafe { fours(s, quants, piece, t) };
    [four_bits(word, 0), four_bits(word, 1)]
}

/// A quarter of 2-bit quants.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn two_bit<S: Simt>(s: S, quants: Shared<u8>, piece: u32, t: u32) -> [u32; RUNS] {
    // SAFETY: the caller's; a piece has a pair of words, one a run.
    let words: [u32; RUNS] = unsafe { word(s, quants, piece) };
    words.map(|word| two_bits(word, t))
}

/// A quarter of signed 8-bit quants, their sign bits flipped.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn eight_bit<S: Simt>(s: S, quants: Shared<u8>, piece: u32, t: u32) -> [u32; RUNS] {
    let first = quants.cast::<u32>().at(8 * piece + t);
    // SAFETY: the caller's; a piece has eight words, four a run.
    let words: [u32; RUNS] = unsafe { [s.load_shared(first), s.load_shared(first.at(4))] };
    words.map(|word| word ^ 0x8080_8080)
}

/// Adds the piece's high bits, one a quant, to a quarter as bit `BIT`.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn with_one_bit<const BIT: u32, S: Simt>(
    s: S,
    [first, second]: [u32; RUNS],
    high: Shared<u8>,
    piece: u32,
    t: u32,
) -> [u32; RUNS] {
    // SAFETY: the caller's; a piece has a word.
    let high = unsafe { word(s, high, piece) };
    [first | HighBits::one::<BIT>(0, t).rotated(high), second | HighBits::one::<BIT>(1, t).rotated(high)]
}

/// Adds the piece's high bits, two a quant, to a quarter from bit 4 on.
///
/// # Safety
/// As [`Pieces::quarter`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn with_two_bits<S: Simt>(
    s: S,
    [first, second]: [u32; RUNS],
    high: Shared<u8>,
    piece: u32,
    t: u32,
) -> [u32; RUNS] {
    // SAFETY: the caller's; a piece has a pair of words, one a run.
    let [a, b]: [u32; RUNS] = unsafe { word(s, high, piece) };
    [first | HighBits::two(t).rotated(a), second | HighBits::two(t).rotated(b)]
}

/// The scales of a piece of these words, whose quants are not looked at: the compiler drops what is made of them.
#[inline(always)]
pub(super) fn scales<B: Pieces, S: Simt>(s: S, words: B::Words, piece: u32) -> [(f32, f32); RUNS] {
    B::unpack(s, words, piece).map(|run| (run.scale, if B::OWN_MIN { run.min } else { 0.0 }))
}
