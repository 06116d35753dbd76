//! The K formats: super-blocks of 256 values, whose sub-blocks have small scales of their own.

#![allow(non_camel_case_types, reason = "the names are those of the file format")]

use bytemuck::{Pod, Zeroable};

use super::bits::{centred, q3_k_scales, scale_sub_blocks, scales_and_mins, unpack};
use super::{Block, Format, f16};

/// 2-bit quants in 16 sub-blocks of 16: value = `(d * scale) * q - (dmin * min)`.
///
/// ```text
/// byte   0        16              80   82 83
///       | scales | qs            | d  | dmin |
///         |        64 x u8         f16  f16
///         |        byte 32h + l: q 128h + l (bits 1..0), 128h + 32 + l, 128h + 64 + l, 128h + 96 + l
///         16 x u8, one a sub-block: low half its scale, high half its min
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_K {
    /// A 4-bit scale and a 4-bit min for each sub-block.
    pub scales: [u8; 16],
    /// Four quants a byte.
    pub qs: [u8; 64],
    /// Scale of the scales.
    pub d: f16,
    /// Scale of the mins.
    pub dmin: f16,
}

impl Block for BlockQ2_K {
    const FORMAT: Format = Format::Q2_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        scale_sub_blocks::<16, _, _>(
            &unpack::<2, 32, _, _>(&self.qs),
            self.scales.map(|s| d * f32::from(s & 0x0F)),
            self.scales.map(|s| dmin * f32::from(s >> 4)),
        )
    }
}

/// 3-bit quants in 16 sub-blocks of 16: value = `(d * scale) * (q - 4)`, scales from -32 to 31.
///
/// ```text
/// byte   0       32              96       108 109
///       | hmask | qs            | scales | d |
///         |       64 x u8         |        f16
///         |       low 2 bits;     12 x u8: 16 scales of 6 bits, see `bits::q3_k_scales`
///         |       byte 32h + l: q 128h + l (bits 1..0), 128h + 32 + l, 128h + 64 + l, 128h + 96 + l
///         32 x u8: bit s of byte l is bit 2 of q 32s + l
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3_K {
    /// The quants' highest bits, eight a byte.
    pub hmask: [u8; 32],
    /// The quants' low two bits, four a byte.
    pub qs: [u8; 64],
    /// A 6-bit scale for each sub-block.
    pub scales: [u8; 12],
    /// Scale of the scales.
    pub d: f16,
}

impl Block for BlockQ3_K {
    const FORMAT: Format = Format::Q3_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let d = self.d.to_f32();
        let low: [u8; 256] = unpack::<2, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.hmask);
        let quants: [i8; 256] = core::array::from_fn(|i| centred(low[i] | (high[i] << 2), 4));
        scale_sub_blocks::<16, _, _>(&quants, q3_k_scales(&self.scales).map(|s| d * f32::from(s)), [0.0; 16])
    }
}

/// 4-bit quants in 8 sub-blocks of 32: value = `(d * scale) * q - (dmin * min)`.
///
/// ```text
/// byte   0   2      4        16              143
///       | d | dmin | scales | qs            |
///         f16 f16    |        128 x u8
///                    |        byte 32h + l: q 64h + l (low half), 64h + 32 + l (high half)
///                    12 x u8: 8 scales and 8 mins of 6 bits, see `bits::scales_and_mins`
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_K {
    /// Scale of the scales.
    pub d: f16,
    /// Scale of the mins.
    pub dmin: f16,
    /// A 6-bit scale and a 6-bit min for each sub-block.
    pub scales: [u8; 12],
    /// Two quants a byte.
    pub qs: [u8; 128],
}

impl Block for BlockQ4_K {
    const FORMAT: Format = Format::Q4_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        let (scales, mins) = scales_and_mins(&self.scales);
        scale_sub_blocks::<32, _, _>(
            &unpack::<4, 32, _, _>(&self.qs),
            scales.map(|s| d * f32::from(s)),
            mins.map(|m| dmin * f32::from(m)),
        )
    }
}

/// 5-bit quants in 8 sub-blocks of 32: value = `(d * scale) * q - (dmin * min)`.
///
/// ```text
/// byte   0   2      4        16   48              175
///       | d | dmin | scales | qh | qs            |
///         f16 f16    |        |    128 x u8, low 4 bits
///                    |        |    byte 32h + l: q 64h + l (low half), 64h + 32 + l (high half)
///                    |        32 x u8: bit s of byte l is bit 4 of q 32s + l
///                    12 x u8: 8 scales and 8 mins of 6 bits, see `bits::scales_and_mins`
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_K {
    /// Scale of the scales.
    pub d: f16,
    /// Scale of the mins.
    pub dmin: f16,
    /// A 6-bit scale and a 6-bit min for each sub-block.
    pub scales: [u8; 12],
    /// The quants' highest bits, eight a byte.
    pub qh: [u8; 32],
    /// The quants' low four bits, two a byte.
    pub qs: [u8; 128],
}

impl Block for BlockQ5_K {
    const FORMAT: Format = Format::Q5_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        let (scales, mins) = scales_and_mins(&self.scales);
        let low: [u8; 256] = unpack::<4, 32, _, _>(&self.qs);
        let high: [u8; 256] = unpack::<1, 32, _, _>(&self.qh);
        let quants: [u8; 256] = core::array::from_fn(|i| low[i] | (high[i] << 4));
        scale_sub_blocks::<32, _, _>(
            &quants,
            scales.map(|s| d * f32::from(s)),
            mins.map(|m| dmin * f32::from(m)),
        )
    }
}

/// 6-bit quants in 16 sub-blocks of 16: value = `(d * scale) * (q - 32)`.
///
/// ```text
/// byte   0              128            192      208 209
///       | ql           | qh           | scales | d |
///         |              64 x u8        16 x i8  f16
///         |              high 2 bits;
///         |              byte 32h + l: q 128h + l (bits 1..0), 128h + 32 + l, 128h + 64 + l, 128h + 96 + l
///         128 x u8, low 4 bits
///         byte 64h + l: q 128h + l (low half), 128h + 64 + l (high half)
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6_K {
    /// The quants' low four bits, two a byte.
    pub ql: [u8; 128],
    /// The quants' high two bits, four a byte.
    pub qh: [u8; 64],
    /// A scale for each sub-block.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: f16,
}

impl Block for BlockQ6_K {
    const FORMAT: Format = Format::Q6_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let d = self.d.to_f32();
        let low: [u8; 256] = unpack::<4, 64, _, _>(&self.ql);
        let high: [u8; 256] = unpack::<2, 32, _, _>(&self.qh);
        let quants: [i8; 256] = core::array::from_fn(|i| centred(low[i] | (high[i] << 4), 32));
        scale_sub_blocks::<16, _, _>(&quants, self.scales.map(|s| d * f32::from(s)), [0.0; 16])
    }
}

/// 8-bit signed quants and their sums: value = `d * q`. The activations' format in products with
/// the other K formats; files seldom hold it.
///
/// ```text
/// byte   0   4               260             291
///       | d | qs            | bsums         |
///         f32 256 x i8        16 x i16: sum of q 16j..16j + 16
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_K {
    /// Scale.
    pub d: f32,
    /// Quants.
    pub qs: [i8; 256],
    /// The sum of each sixteen quants.
    pub bsums: [i16; 16],
}

impl Block for BlockQ8_K {
    const FORMAT: Format = Format::Q8_K;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        self.qs.map(|q| self.d * f32::from(q))
    }
}
