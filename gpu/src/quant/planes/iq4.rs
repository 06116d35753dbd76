//! Pieces of the formats with a code book.

use super::k::head_of;
#[cfg(not(target_arch = "nvptx64"))]
use super::pack::BlockPlanes;
use super::q32::load_four_bits;
use super::{Pieces, Planes, RUNS, Run, SIGNED, runs};
use crate::quant::{BlockIQ4_NL, BlockIQ4_XS, Format, IQ4_VALUES, f16};
use crate::simt::{Global, Simt};

/// The code book in four registers.
const BOOK: [u32; 4] = {
    let mut book = [0; 4];
    let mut i = 0;
    while i < 16 {
        book[i / 4] |= (IQ4_VALUES[i].cast_unsigned() as u32) << (8 * (i % 4));
        i += 1;
    }
    book
};

/// The entries of the code book for 32 places of four bits.
///
/// A selector of `prmt` is four places of three bits, so the lower and the upper half of the book
/// are looked up alike, and a third `prmt` chooses by each place's highest bit.
#[inline(always)]
fn entries<S: Simt>(s: S, words: [u32; 4]) -> [[u32; 4]; RUNS] {
    let both = words.map(|word| {
        let (places, upper) = (word & 0x7777_7777, 0x3210_3210 | (word & 0x8888_8888) >> 1);
        [0, 16].map(|shift| {
            let low = s.permute_bytes(BOOK[0], BOOK[1], places >> shift);
            let high = s.permute_bytes(BOOK[2], BOOK[3], places >> shift);
            s.permute_bytes(low, high, upper >> shift)
        })
    });
    // Places alternate between the runs: the lower half of a byte is of the first.
    [both.map(|[a, b]| s.permute_bytes(a, b, 0x6420)), both.map(|[a, b]| s.permute_bytes(a, b, 0x7531))]
}

impl Pieces for BlockIQ4_NL {
    type Words = ([u32; 4], f16);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = SIGNED;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { load_four_bits(s, row, const { Planes::of(Format::IQ4_NL) }.offsets(blocks).heads, index) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, scale): Self::Words, index: u32) -> [Run; RUNS] {
        runs(index, entries(s, quants), [s.f32_from_f16(scale); RUNS], [0.0; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

impl Pieces for BlockIQ4_XS {
    /// Quants, head: the scale of the scales, their high and their low bits.
    type Words = ([u32; 4], [u32; 2]);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = SIGNED;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::IQ4_XS) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe {
            (
                s.load_global_constant(row.cast().at(u64::from(index))),
                head_of::<Self, _, _>(s, row, at.heads, index),
            )
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, [head, fours]): Self::Words, index: u32) -> [Run; RUNS] {
        let low = fours >> (4 * (index & 7)) & 0x0f;
        let high = head >> (16 + 2 * (index & 7)) & 3;
        let d = s.f32_from_f16(f16::from_bits(head as u16));
        let scale = d * ((low | high << 4) as f32 - 32.0);
        runs(index, entries(s, quants), [scale; RUNS], [0.0; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        let ([a, b], [c, d]) = (self.d.to_le_bytes(), self.scales_h.to_le_bytes());
        let [e, f, g, h] = self.scales_l;
        to.heads.copy_from_slice(&[a, b, c, d, e, f, g, h]);
    }
}
