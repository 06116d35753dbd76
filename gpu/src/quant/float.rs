//! The unquantized formats: a block is one number.

use super::{Block, Format, bf16, f16};

/// IEEE 754 single precision.
impl Block for f32 {
    const FORMAT: Format = Format::F32;
    type Values = [f32; 1];

    #[inline]
    fn dequantize(&self) -> [f32; 1] {
        [*self]
    }
}

/// IEEE 754 half precision: 1 sign bit, 5 exponent bits, 10 fraction bits.
impl Block for f16 {
    const FORMAT: Format = Format::F16;
    type Values = [f32; 1];

    #[inline]
    fn dequantize(&self) -> [f32; 1] {
        [self.to_f32()]
    }
}

/// The upper half of a single: 1 sign bit, 8 exponent bits, 7 fraction bits.
impl Block for bf16 {
    const FORMAT: Format = Format::BF16;
    type Values = [f32; 1];

    #[inline]
    fn dequantize(&self) -> [f32; 1] {
        [self.to_f32()]
    }
}
