//! Quantized blocks as unsigned bytes, the form in which every format is multiplied.
//!
//! A weight is `scale · q − offset` with `q` in 0..=255. Signed quants get their zero point
//! added and `offset = scale · zero point`. So one product serves every format, and a format
//! brings only its [`Quants::groups`]. The decoding to f32 (`gpu::quant::Block::dequantize`)
//! shares only the packing of the small scales with this; tests hold one against the other.

use gpu::quant::bits::{iq4_xs_scales, q3_k_scales, scales_and_mins};
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

/// The 4-bit quants of a block of 32: the low halves of 16 bytes, then the high ones.
#[inline(always)]
fn four_bits(bytes: &[u8; 16]) -> [u8; 32] {
    each(|i| (bytes[i % 16] >> (i / 16 * 4)) & 15)
}

/// The 5-bit quants of Q5_0 and Q5_1: bit `i` of `high` is the fifth of quant `i`.
#[inline(always)]
fn five_bits(low: &[u8; 16], high: [u8; 4]) -> [u8; 32] {
    let (low, high) = (four_bits(low), u32::from_le_bytes(high));
    each(|i| low[i] | ((high >> i & 1) as u8) << 4)
}

/// The 2-bit fields of group `j` of a super-block: fields of 32 bytes in turn, four to a byte.
#[inline(always)]
fn two_bits(bytes: &[u8; 64], j: usize) -> [u8; 32] {
    let (run, shift) = (&bytes.as_chunks::<32>().0[j / 4], 2 * (j % 4));
    each(|i| run[i] >> shift & 3)
}

/// A signed byte with its zero point, 128, added.
#[inline(always)]
fn biased(q: i8) -> u8 {
    (q as u8) ^ 0x80
}

impl Quants for BlockQ4_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(four_bits(&self.qs), d, 8.0 * d));
    }
}

impl Quants for BlockQ4_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, m] = S::widen_pair([self.d, self.m]);
        out.push(single(four_bits(&self.qs), d, -m));
    }
}

impl Quants for BlockQ5_0 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(five_bits(&self.qs, self.qh), d, 16.0 * d));
    }
}

impl Quants for BlockQ5_1 {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, m] = S::widen_pair([self.d, self.m]);
        out.push(single(five_bits(&self.qs, self.qh), d, -m));
    }
}

impl Quants for BlockQ8_0 {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        out.push(single(each(|i| biased(self.qs[i])), d, 128.0 * d));
    }
}

impl Quants for BlockQ2_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let (pairs, _) = self.scales.as_chunks::<2>();
        for (j, pair) in pairs.iter().enumerate() {
            let scale = each(|i| d * f32::from(pair[i] & 15));
            let offset = each(|i| dmin * f32::from(pair[i] >> 4));
            out.push(Group { q: two_bits(&self.qs, j), scale, offset });
        }
    }
}

impl Quants for BlockQ3_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let scales = q3_k_scales(&self.scales);
        let (pairs, _) = scales.as_chunks::<2>();
        for (j, pair) in pairs.iter().enumerate() {
            let low = two_bits(&self.qs, j);
            let q = each(|i| low[i] | (self.hmask[i] >> j & 1) << 2);
            let scale: [f32; 2] = each(|i| d * f32::from(pair[i]));
            out.push(Group { q, scale, offset: each(|i| 4.0 * scale[i]) });
        }
    }
}

impl Quants for BlockQ4_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let (scales, mins) = scales_and_mins(&self.scales);
        let (runs, _) = self.qs.as_chunks::<32>();
        for (j, (&scale, &min)) in scales.iter().zip(&mins).enumerate() {
            let (run, shift) = (&runs[j / 2], 4 * (j % 2));
            out.push(single(each(|i| run[i] >> shift & 15), d * f32::from(scale), dmin * f32::from(min)));
        }
    }
}

impl Quants for BlockQ5_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, dmin] = S::widen_pair([self.d, self.dmin]);
        let (scales, mins) = scales_and_mins(&self.scales);
        let (runs, _) = self.qs.as_chunks::<32>();
        for (j, (&scale, &min)) in scales.iter().zip(&mins).enumerate() {
            let (run, shift) = (&runs[j / 2], 4 * (j % 2));
            let q = each(|i| run[i] >> shift & 15 | (self.qh[i] >> j & 1) << 4);
            out.push(single(q, d * f32::from(scale), dmin * f32::from(min)));
        }
    }
}

impl Quants for BlockQ6_K {
    const NARROW: bool = true;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let (runs, _) = self.ql.as_chunks::<32>();
        let (pairs, _) = self.scales.as_chunks::<2>();
        for (j, pair) in pairs.iter().enumerate() {
            // Of four groups the first two are the low halves of two runs, the others the high.
            let (run, shift) = (&runs[j / 4 * 2 + j % 2], j / 2 % 2 * 4);
            let high = two_bits(&self.qh, j);
            let q = each(|i| run[i] >> shift & 15 | high[i] << 4);
            let scale: [f32; 2] = each(|i| d * f32::from(pair[i]));
            out.push(Group { q, scale, offset: each(|i| 32.0 * scale[i]) });
        }
    }
}

impl Quants for BlockQ8_K {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        for run in self.qs.as_chunks::<32>().0 {
            out.push(single(each(|i| biased(run[i])), self.d, 128.0 * self.d));
        }
    }
}

impl Quants for BlockIQ4_NL {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let q = four_bits(&self.qs);
        out.push(single(each(|i| biased(iq4_value(q[i]))), d, 128.0 * d));
    }
}

impl Quants for BlockIQ4_XS {
    const NARROW: bool = false;
    #[inline(always)]
    fn groups<S: Simd>(&self, out: &mut impl Groups) {
        let [d, _] = S::widen_pair([self.d; 2]);
        let scales = iq4_xs_scales(&self.scales_l, self.scales_h);
        for (run, &scale) in self.qs.as_chunks::<16>().0.iter().zip(&scales) {
            let (q, scale) = (four_bits(run), d * f32::from(scale));
            out.push(single(each(|i| biased(iq4_value(q[i]))), scale, 128.0 * scale));
        }
    }
}
