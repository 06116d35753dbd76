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

use super::simd::Simd;

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

    /// Hands over each of the block's groups, in order.
    fn groups<S: Simd>(&self, out: &mut impl Groups);
}

/// Where groups go. Not a closure: a method can be told to be inlined always.
pub(super) trait Groups {
    fn push(&mut self, group: Group);
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
    out: &mut impl Groups,
) {
    const { assert!(SCALES == 8 || SCALES == 16) };
    let (chunks, _) = q.as_chunks::<32>();
    for (i, q) in chunks.iter().enumerate() {
        let pair = |of: &[f32; SCALES]| if SCALES == 8 { [of[i]; 2] } else { [of[2 * i], of[2 * i + 1]] };
        out.push(Group { q: *q, scale: pair(&scale), offset: pair(&offset) });
    }
}

/// An array of `value(i)`. Unlike `core::array::from_fn` and `map` always inlined, so that it
/// is compiled for the caller's instruction set.
#[inline(always)]
fn each<T: Copy + Default, const N: usize>(value: impl Fn(usize) -> T) -> [T; N] {
    let mut out = [T::default(); N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = value(i);
    }
    out
}

/// The 5-bit quants of Q5_0 and Q5_1.
#[inline(always)]
fn five_bits(low: &[u8; 16], high: &[u8; 4]) -> [u8; 32] {
    let (low, high): ([u8; 32], [u8; 32]) = (unpack::<4, 16, _, _>(low), unpack::<1, 1, _, _>(high));
    each(|i| low[i] | high[i] << 4)
}

/// Signed bytes with their zero point, 128, added.
#[inline(always)]
fn biased<const N: usize>(q: impl Fn(usize) -> i8) -> [u8; N] {
    each(|i| (q(i) as u8) ^ 0x80)
}

impl Quants for BlockQ4_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(unpack::<4, 16, _, _>(&self.qs), d, 8.0 * d));
    }
}

impl Quants for BlockQ4_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, m] = S::widen_pair([self.d, self.m]);
        out.push(single(unpack::<4, 16, _, _>(&self.qs), d, -m));
    }
}

impl Quants for BlockQ5_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(five_bits(&self.qs, &self.qh), d, 16.0 * d));
    }
}

impl Quants for BlockQ5_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, m] = S::widen_pair([self.d, self.m]);
        out.push(single(five_bits(&self.qs, &self.qh), d, -m));
    }
}

impl Quants for BlockQ8_0 {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(biased(|i| self.qs[i]), d, 128.0 * d));
    }
}

impl Quants for BlockQ2_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let scale = each(|i| d * f32::from(self.scales[i] & 15));
        let offset = each(|i| dmin * f32::from(self.scales[i] >> 4));
        super_block::<16>(&unpack::<2, 32, _, _>(&self.qs), scale, offset, out);
    }
}

impl Quants for BlockQ3_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let low: [u8; 256] = unpack::<2, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.hmask);
        let q = each(|i| low[i] | high[i] << 2);
        let scales = q3_k_scales(&self.scales);
        let scale: [f32; 16] = each(|i| d * f32::from(scales[i]));
        super_block(&q, scale, each(|i| 4.0 * scale[i]), out);
    }
}

impl Quants for BlockQ4_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let (scales, mins) = scales_and_mins(&self.scales);
        let q = unpack::<4, 32, _, _>(&self.qs);
        super_block::<8>(&q, each(|i| d * f32::from(scales[i])), each(|i| dmin * f32::from(mins[i])), out);
    }
}

impl Quants for BlockQ5_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let (scales, mins) = scales_and_mins(&self.scales);
        let low: [u8; 256] = unpack::<4, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.qh);
        let q = each(|i| low[i] | high[i] << 4);
        super_block::<8>(&q, each(|i| d * f32::from(scales[i])), each(|i| dmin * f32::from(mins[i])), out);
    }
}

impl Quants for BlockQ6_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let low: [u8; 256] = unpack::<4, 64, _, _>(&self.ql);
        let high: [u8; 256] = unpack::<2, 32, _, _>(&self.qh);
        let q = each(|i| low[i] | high[i] << 4);
        let scale: [f32; 16] = each(|i| d * f32::from(self.scales[i]));
        super_block(&q, scale, each(|i| 32.0 * scale[i]), out);
    }
}

impl Quants for BlockQ8_K {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        super_block(&biased(|i| self.qs[i]), [self.d; 8], [128.0 * self.d; 8], out);
    }
}

impl Quants for BlockIQ4_NL {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let q: [u8; 32] = unpack::<4, 16, _, _>(&self.qs);
        out.push(single(biased(|i| iq4_value(q[i])), d, 128.0 * d));
    }
}

impl Quants for BlockIQ4_XS {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let q: [u8; 256] = unpack::<4, 16, _, _>(&self.qs);
        let scales = iq4_xs_scales(&self.scales_l, self.scales_h);
        let scale: [f32; 8] = each(|i| d * f32::from(scales[i]));
        super_block(&biased(|i| iq4_value(q[i])), scale, each(|i| 128.0 * scale[i]), out);
    }
}
