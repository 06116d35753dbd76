//! The formats whose 4-bit quants are places in a code book: IQ4_NL and IQ4_XS.

#![allow(non_camel_case_types, reason = "the names are those of the file format")]

use bytemuck::{Pod, Zeroable};

use super::bits::{iq4_xs_scales, scale_sub_blocks, unpack};
use super::{Block, Format, f16};

/// The code book of IQ4_NL and IQ4_XS: finer near zero, where most weights are. Ascending.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The code book's entry for the low four bits of `q`.
#[inline]
#[must_use]
pub const fn iq4_value(q: u8) -> i8 {
    // The mask also spares the bounds check.
    IQ4_VALUES[(q & 0x0F) as usize]
}

/// 32 places in the code book: value = `d * IQ4_VALUES[q]`.
///
/// ```text
/// byte   0    2                17
///       | d  | qs              |
///         f16  16 x u8: low halves are q 0..16, high halves q 16..32
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4_NL {
    /// Scale.
    pub d: f16,
    /// Two quants a byte.
    pub qs: [u8; 16],
}

impl Block for BlockIQ4_NL {
    const FORMAT: Format = Format::IQ4_NL;
    type Values = [f32; 32];

    #[inline]
    fn dequantize(&self) -> [f32; 32] {
        let d = self.d.to_f32();
        unpack::<4, 16, _, _>(&self.qs).map(|q| d * f32::from(iq4_value(q)))
    }
}

/// Places in the code book in 8 sub-blocks of 32: value = `(d * scale) * IQ4_VALUES[q]`, scales
/// from -32 to 31.
///
/// ```text
/// byte   0   2          4          8              135
///       | d | scales_h | scales_l | qs           |
///         f16 u16        4 x u8     128 x u8
///             |          |          byte 16s + l: q 32s + l (low half), 32s + 16 + l (high half)
///             +----------+ 8 scales of 6 bits, see `bits::iq4_xs_scales`
/// ```
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIQ4_XS {
    /// Scale of the scales.
    pub d: f16,
    /// The scales' high two bits, little-endian, the first sub-block's lowest.
    pub scales_h: u16,
    /// The scales' low four bits, two a byte.
    pub scales_l: [u8; 4],
    /// Two quants a byte.
    pub qs: [u8; 128],
}

impl Block for BlockIQ4_XS {
    const FORMAT: Format = Format::IQ4_XS;
    type Values = [f32; 256];

    #[inline]
    fn dequantize(&self) -> [f32; 256] {
        let d = self.d.to_f32();
        let scales = iq4_xs_scales(&self.scales_l, self.scales_h).map(|s| d * f32::from(s));
        let quants: [u8; 256] = unpack::<4, 16, _, _>(&self.qs);
        scale_sub_blocks::<32, _, _>(&quants.map(iq4_value), scales, [0.0; 8])
    }
}
