//! Pieces of the formats of 32 values with one scale: a piece is a block.

#[cfg(not(target_arch = "nvptx64"))]
use super::pack::{BlockPlanes, ones, two_scales};
use super::{Pieces, Planes, RUNS, Run, SIGNED, four_bits, runs, with_high_bit};
use crate::quant::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, Format, f16};
use crate::simt::{Global, Simt};

/// The 4-bit quants and the head of a block.
///
/// # Safety
/// As [`Pieces::load`]; `H` is the format's head.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load_four_bits<S: Simt, H: crate::simt::Word>(
    s: S,
    row: Global<u8>,
    heads: u32,
    index: u32,
) -> ([u32; 4], H) {
    let quants = row.cast().at(u64::from(index));
    let head = row.at(u64::from(heads)).cast().at(u64::from(index));
    // SAFETY: the caller's.
    unsafe { (s.load_global_constant(quants), s.load_global_constant(head)) }
}

/// The high bits of a block.
///
/// # Safety
/// As [`Pieces::load`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load_high_bit<S: Simt>(s: S, row: Global<u8>, high: u32, index: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { s.load_global_constant(row.at(u64::from(high)).cast().at(u64::from(index))) }
}

/// The runs of quants that stand for `scale * (q - OFFSET)`.
#[inline(always)]
fn centred<B: Pieces, S: Simt>(s: S, index: u32, quants: [[u32; 4]; RUNS], scale: f16) -> [Run; RUNS] {
    let scale = s.f32_from_f16(scale);
    runs(index, quants, [scale; RUNS], [B::OFFSET as f32 * scale; RUNS])
}

/// The runs of quants that stand for `scale * q + minimum`, both in `head`.
#[inline(always)]
fn above_minimum<S: Simt>(s: S, index: u32, quants: [[u32; 4]; RUNS], head: u32) -> [Run; RUNS] {
    let [scale, minimum] = s.f32_from_f16x2(head);
    runs(index, quants, [scale; RUNS], [-minimum; RUNS])
}

impl Pieces for BlockQ4_0 {
    type Words = ([u32; 4], f16);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 8;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { load_four_bits(s, row, const { Planes::of(Format::Q4_0) }.offsets(blocks).heads, index) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, scale): Self::Words, index: u32) -> [Run; RUNS] {
        centred::<Self, _>(s, index, four_bits(quants), scale)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

impl Pieces for BlockQ4_1 {
    type Words = ([u32; 4], u32);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 0;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        // SAFETY: the caller's.
        unsafe { load_four_bits(s, row, const { Planes::of(Format::Q4_1) }.offsets(blocks).heads, index) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, head): Self::Words, index: u32) -> [Run; RUNS] {
        above_minimum(s, index, four_bits(quants), head)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        to.heads.copy_from_slice(&two_scales([self.d, self.m]));
    }
}

impl Pieces for BlockQ5_0 {
    type Words = (([u32; 4], f16), u32);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 16;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q5_0) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe { (load_four_bits(s, row, at.heads, index), load_high_bit(s, row, at.high, index)) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, ((quants, scale), high): Self::Words, index: u32) -> [Run; RUNS] {
        centred::<Self, _>(s, index, with_high_bit::<4>(four_bits(quants), high), scale)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        to.high.copy_from_slice(&ones(self.qh));
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

impl Pieces for BlockQ5_1 {
    type Words = (([u32; 4], u32), u32);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = 0;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let at = const { Planes::of(Format::Q5_1) }.offsets(blocks);
        // SAFETY: the caller's.
        unsafe { (load_four_bits(s, row, at.heads, index), load_high_bit(s, row, at.high, index)) }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, ((quants, head), high): Self::Words, index: u32) -> [Run; RUNS] {
        above_minimum(s, index, with_high_bit::<4>(four_bits(quants), high), head)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(&self.qs);
        to.high.copy_from_slice(&ones(self.qh));
        to.heads.copy_from_slice(&two_scales([self.d, self.m]));
    }
}

impl Pieces for BlockQ8_0 {
    type Words = ([[u32; 4]; RUNS], f16);
    const ONE_SCALE: bool = true;
    const OFFSET: u32 = SIGNED;

    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(s: S, row: Global<u8>, blocks: u32, index: u32) -> Self::Words {
        let heads = const { Planes::of(Format::Q8_0) }.offsets(blocks).heads;
        // SAFETY: the caller's.
        unsafe {
            let quants = load_eight_bits(s, row, index);
            (quants, s.load_global_constant(row.at(u64::from(heads)).cast().at(u64::from(index))))
        }
    }

    #[inline(always)]
    fn unpack<S: Simt>(s: S, (quants, scale): Self::Words, index: u32) -> [Run; RUNS] {
        runs(index, quants, [s.f32_from_f16(scale); RUNS], [0.0; RUNS])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn pack(&self, to: BlockPlanes<'_>) {
        to.quants.copy_from_slice(bytemuck::bytes_of(&self.qs));
        to.heads.copy_from_slice(&self.d.to_le_bytes());
    }
}

/// The 8-bit quants of a piece.
///
/// # Safety
/// As [`Pieces::load`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load_eight_bits<S: Simt>(s: S, row: Global<u8>, index: u32) -> [[u32; 4]; RUNS] {
    let quants = row.cast().at(RUNS as u64 * u64::from(index));
    // SAFETY: the caller's.
    unsafe { [s.load_global_constant(quants), s.load_global_constant(quants.at(1))] }
}
