//! Quantized blocks as unsigned bytes, the form in which every format is multiplied.
//!
//! A weight is `scale · q − offset` with `q` in 0..=255. Signed quants get their zero point
//! added and `offset = scale · zero point`. So one product serves every format, and a format
//! brings only its [`Quants::groups`]. The decoding to f32 (`gpu::quant::Block::dequantize`)
//! shares the bit packings with this, not the arithmetic; tests hold one against the other.

use gpu::quant::bits::{iq4_xs_scales, q3_k_scales, scales_and_mins, unpack};
use gpu::quant::{
    Block, BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0,
    BlockQ5_1, BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, iq4_value,
};

use super::simd::widen;

/// 32 weights: `w[i] = scale[i / 16] · q[i] − offset[i / 16]`.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) q: [u8; 32],
    pub(super) scale: [f32; 2],
    pub(super) offset: [f32; 2],
}

/// A block that can be read as groups of 32 unsigned quants.
pub(super) trait Quants: Block {
    /// Whether every `q` is at most 127 (see [`super::simd::Simd::dot`]).
    const NARROW: bool;

    /// Calls `group` with each of the block's groups, in order.
    fn groups(&self, group: impl FnMut(Group));
}

/// The group of a block of 32 with one scale and one offset.
#[inline(always)]
fn single(q: [u8; 32], scale: f32, offset: f32) -> Group {
    Group { q, scale: [scale; 2], offset: [offset; 2] }
}

/// The groups of a super-block whose scales and offsets are one per 16 (`SCALES` = 16) or one
/// per 32 weights (`SCALES` = 8).
#[inline(always)]
fn super_block<const SCALES: usize>(
    q: &[u8; 256],
    scale: [f32; SCALES],
    offset: [f32; SCALES],
    mut group: impl FnMut(Group),
) {
    const { assert!(SCALES == 8 || SCALES == 16) };
    let (chunks, _) = q.as_chunks::<32>();
    for (i, q) in chunks.iter().enumerate() {
        let pair = |of: &[f32; SCALES]| if SCALES == 8 { [of[i]; 2] } else { [of[2 * i], of[2 * i + 1]] };
        group(Group { q: *q, scale: pair(&scale), offset: pair(&offset) });
    }
}

/// The 5-bit quants of Q5_0 and Q5_1.
#[inline(always)]
fn five_bits(low: &[u8; 16], high: &[u8; 4]) -> [u8; 32] {
    let (low, high): ([u8; 32], [u8; 32]) = (unpack::<4, 16, _, _>(low), unpack::<1, 1, _, _>(high));
    core::array::from_fn(|i| low[i] | high[i] << 4)
}

/// Signed bytes with their zero point, 128, added.
#[inline(always)]
fn biased<const N: usize>(q: &[i8; N]) -> [u8; N] {
    q.map(|q| (q as u8) ^ 0x80)
}

impl Quants for BlockQ4_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        let d = widen(self.d);
        group(single(unpack::<4, 16, _, _>(&self.qs), d, 8.0 * d));
    }
}

impl Quants for BlockQ4_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        group(single(unpack::<4, 16, _, _>(&self.qs), widen(self.d), -widen(self.m)));
    }
}

impl Quants for BlockQ5_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        let d = widen(self.d);
        group(single(five_bits(&self.qs, &self.qh), d, 16.0 * d));
    }
}

impl Quants for BlockQ5_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        group(single(five_bits(&self.qs, &self.qh), widen(self.d), -widen(self.m)));
    }
}

impl Quants for BlockQ8_0 {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        let d = widen(self.d);
        group(single(biased(&self.qs), d, 128.0 * d));
    }
}

impl Quants for BlockQ2_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let (d, dmin) = (widen(self.d), widen(self.dmin));
        let scale = self.scales.map(|s| d * f32::from(s & 15));
        let offset = self.scales.map(|s| dmin * f32::from(s >> 4));
        super_block(&unpack::<2, 32, _, _>(&self.qs), scale, offset, group);
    }
}

impl Quants for BlockQ3_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let d = widen(self.d);
        let low: [u8; 256] = unpack::<2, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.hmask);
        let q = core::array::from_fn(|i| low[i] | high[i] << 2);
        let scale = q3_k_scales(&self.scales).map(|s| d * f32::from(s));
        super_block(&q, scale, scale.map(|s| 4.0 * s), group);
    }
}

impl Quants for BlockQ4_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let (d, dmin) = (widen(self.d), widen(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        let q = unpack::<4, 32, _, _>(&self.qs);
        super_block(&q, scales.map(|s| d * f32::from(s)), mins.map(|m| dmin * f32::from(m)), group);
    }
}

impl Quants for BlockQ5_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let (d, dmin) = (widen(self.d), widen(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        let low: [u8; 256] = unpack::<4, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.qh);
        let q = core::array::from_fn(|i| low[i] | high[i] << 4);
        super_block(&q, scales.map(|s| d * f32::from(s)), mins.map(|m| dmin * f32::from(m)), group);
    }
}

impl Quants for BlockQ6_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let d = widen(self.d);
        let low: [u8; 256] = unpack::<4, 64, _, _>(&self.ql);
        let high: [u8; 256] = unpack::<2, 32, _, _>(&self.qh);
        let q = core::array::from_fn(|i| low[i] | high[i] << 4);
        let scale = self.scales.map(|s| d * f32::from(s));
        super_block(&q, scale, scale.map(|s| 32.0 * s), group);
    }
}

impl Quants for BlockQ8_K {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        super_block(&biased(&self.qs), [self.d; 8], [128.0 * self.d; 8], group);
    }
}

impl Quants for BlockIQ4_NL {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups(&self, mut group: impl FnMut(Group)) {
        let d = widen(self.d);
        let q: [u8; 32] = unpack::<4, 16, _, _>(&self.qs);
        group(single(biased(&q.map(iq4_value)), d, 128.0 * d));
    }
}

impl Quants for BlockIQ4_XS {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups(&self, group: impl FnMut(Group)) {
        let d = widen(self.d);
        let q: [u8; 256] = unpack::<4, 16, _, _>(&self.qs);
        let scale = iq4_xs_scales(&self.scales_l, self.scales_h).map(|s| d * f32::from(s));
        super_block(&biased(&q.map(iq4_value)), scale, scale.map(|s| 128.0 * s), group);
    }
}
