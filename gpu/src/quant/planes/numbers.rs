//! Rows of the formats that are not quantized: numbers as they are.

use crate::quant::{Block, bf16, f16};
use crate::simt::{Global, Simt, f32_from_bf16x2};

/// Numbers that [`Numbers::load`] takes at a time.
pub const EIGHT: u32 = 8;

/// A row of numbers, eight by eight.
pub trait Numbers: Block {
    /// Eight numbers as they are loaded. The default is eight zeros.
    type Words: Copy + Default;

    /// Loads numbers `8 index` and the next seven of the row, in words of 16 bytes.
    ///
    /// # Safety
    /// `row` is aligned to 16 bytes; the numbers lie in a live buffer that nobody writes.
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, index: u32) -> Self::Words;

    /// The numbers. Exact.
    fn unpack<S: Simt>(s: S, words: Self::Words) -> [f32; EIGHT as usize];

    /// The numbers in f16, rounded to nearest even: those of 65520 and more become infinite.
    #[inline(always)]
    fn halves<S: Simt>(s: S, words: Self::Words) -> [u32; 4] {
        let [a, b, c, d, e, f, g, h] = Self::unpack(s, words);
        [[a, b], [c, d], [e, f], [g, h]].map(|[low, high]| s.f16x2_from_f32(low, high))
    }
}

impl Numbers for f32 {
    type Words = [[f32; 4]; 2];

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, index: u32) -> Self::Words {
        let from = row.cast::<[f32; 4]>().at(2 * u64::from(index));
        // SAFETY: the caller's.
        unsafe { [s.load_global_constant(from), s.load_global_constant(from.at(1))] }
    }

    #[inline(always)]
    fn unpack<S: Simt>(_: S, [[a, b, c, d], [e, f, g, h]]: Self::Words) -> [f32; 8] {
        [a, b, c, d, e, f, g, h]
    }
}

impl Numbers for f16 {
    type Words = [u32; 4];

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, index: u32) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { s.load_global_constant(row.cast::<[u32; 4]>().at(u64::from(index))) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, words: Self::Words) -> [f32; 8] {
        flat(words.map(|pair| s.f32_from_f16x2(pair)))
    }

    #[inline(always)]
    fn halves<S: Simt>(_: S, words: Self::Words) -> [u32; 4] {
        words
    }
}

impl Numbers for bf16 {
    type Words = [u32; 4];

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, index: u32) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { s.load_global_constant(row.cast::<[u32; 4]>().at(u64::from(index))) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(_: S, words: Self::Words) -> [f32; 8] {
        flat(words.map(f32_from_bf16x2))
    }
}

/// Four pairs as eight numbers.
#[inline(always)]
const fn flat([[a, b], [c, d], [e, f], [g, h]]: [[f32; 2]; 4]) -> [f32; 8] {
    [a, b, c, d, e, f, g, h]
}
