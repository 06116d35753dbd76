//! The formats of 32 values with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

#![allow(non_camel_case_types, reason = "the names are those of the file format")]

use bytemuck::{Pod, Zeroable};

use super::bits::unpack;
use super::{Block, Format, f16};

/// 4-bit quants around 8: value = `d * (q - 8)`.
///
/// ```text
/// byte   0    2                17
///       | d  | qs              |
///         f16  16 x u8: low halves are q 0..16, high halves q 16..32
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: f16,
    /// Two quants a byte.
    pub qs: [u8; 16],
}

impl Block for BlockQ4_0 {
    const FORMAT: Format = Format::Q4_0;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let d = self.d.to_f32();
        unpack::<4, 16, _, _>(&self.qs).map(|q| d * (f32::from(q) - 8.0))
    }
}

/// 4-bit quants above a minimum: value = `d * q + m`.
///
/// ```text
/// byte   0    2    4                19
///       | d  | m  | qs              |
///         f16  f16  16 x u8: low halves are q 0..16, high halves q 16..32
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: f16,
    /// Minimum.
    pub m: f16,
    /// Two quants a byte.
    pub qs: [u8; 16],
}

impl Block for BlockQ4_1 {
    const FORMAT: Format = Format::Q4_1;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        unpack::<4, 16, _, _>(&self.qs).map(|q| d * f32::from(q) + m)
    }
}

/// 5-bit quants around 16: value = `d * (q - 16)`.
///
/// ```text
/// byte   0    2    6                21
///       | d  | qh | qs              |
///         f16  |    16 x u8: low halves are the low 4 bits of q 0..16, high halves of q 16..32
///              32 bits, little-endian: bit i is bit 4 of q i
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: f16,
    /// The quants' highest bits, eight a byte.
    pub qh: [u8; 4],
    /// The quants' low four bits, two a byte.
    pub qs: [u8; 16],
}

impl Block for BlockQ5_0 {
    const FORMAT: Format = Format::Q5_0;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let d = self.d.to_f32();
        five_bits(&self.qs, &self.qh).map(|q| d * (f32::from(q) - 16.0))
    }
}

/// 5-bit quants above a minimum: value = `d * q + m`.
///
/// ```text
/// byte   0    2    4    8                23
///       | d  | m  | qh | qs              |
///         f16  f16  |    16 x u8: low halves are the low 4 bits of q 0..16, high halves of q 16..32
///                   32 bits, little-endian: bit i is bit 4 of q i
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: f16,
    /// Minimum.
    pub m: f16,
    /// The quants' highest bits, eight a byte.
    pub qh: [u8; 4],
    /// The quants' low four bits, two a byte.
    pub qs: [u8; 16],
}

impl Block for BlockQ5_1 {
    const FORMAT: Format = Format::Q5_1;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        five_bits(&self.qs, &self.qh).map(|q| d * f32::from(q) + m)
    }
}

/// 8-bit signed quants: value = `d * q`.
///
/// ```text
/// byte   0    2                33
///       | d  | qs              |
///         f16  32 x i8
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: f16,
    /// Quants.
    pub qs: [i8; 32],
}

impl Block for BlockQ8_0 {
    const FORMAT: Format = Format::Q8_0;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let d = self.d.to_f32();
        self.qs.map(|q| d * f32::from(q))
    }
}

/// The 5-bit quants whose low bits are `qs` and whose highest are `qh`.
#[inline]
fn five_bits(qs: &[u8; 16], qh: &[u8; 4]) -> [u8; 32] {
    let low: [u8; 32] = unpack::<4, 16, _, _>(qs);
    let high: [u8; 32] = unpack::<1, 1, _, _>(qh);
    core::array::from_fn(|i| low[i] | (high[i] << 4))
}
