//! Quantization from f32, for the formats that this project makes itself.
//!
//! The rounding rules are the plain ones of GGUF files, the same bits as llama.cpp's reference
//! without importance weights: the step comes from the block's extremes in f32, the quants are
//! rounded against that step, and only then is the step itself rounded to the file's f16. IQ4_NL
//! alone takes a simpler rule: the nearest entry of the code book.

use gpu::quant::{
    Block, BlockIQ4_NL, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_K, Format, IQ4_VALUES,
    RowError, bf16, f16,
};

#[cfg(test)]
mod tests;

/// The blocks of a row of values, as a file holds them: `format.row_bytes(values.len())` bytes.
///
/// # Errors
/// [`QuantizeError`] if the format is not one of those made here, the values are no whole number
/// of its blocks, or one of them is not finite or too large for it. So what comes back always
/// decodes to finite values.
pub fn quantize_row(format: Format, values: &[f32]) -> Result<Vec<u8>, QuantizeError> {
    let (_, quantize) =
        MAKERS.iter().find(|(made, _)| *made == format).ok_or(QuantizeError::Unsupported { format })?;
    if format.row_bytes(values.len()).is_none() {
        return Err(RowError::Elements { format, elements: values.len() }.into());
    }
    if let Some(index) = values.iter().position(|x| !x.is_finite()) {
        return Err(QuantizeError::NotFinite { index, value: values[index] });
    }
    quantize(values)
}

/// Why a row cannot be quantized.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum QuantizeError {
    /// The format is only ever read.
    #[error("{format} can be read but not made from f32; choose one of {}", made())]
    Unsupported {
        /// The format asked for.
        format: Format,
    },
    /// The values are no whole number of blocks.
    #[error(transparent)]
    Row(#[from] RowError),
    /// A value is infinite or not a number.
    #[error("value {index} is {value}: only finite values can be quantized")]
    NotFinite {
        /// Its place in the row.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A block's step, minimum or value is beyond the format's range.
    #[error("value {index} is {value:e}: too large for {format}; F32 holds it")]
    TooLarge {
        /// The format asked for.
        format: Format,
        /// The place in the row of the block's largest magnitude.
        index: usize,
        /// The value there.
        value: f32,
    },
}

/// Quantizes a row of finite values that is a whole number of blocks.
type Maker = fn(&[f32]) -> Result<Vec<u8>, QuantizeError>;

/// The formats made here, in the order of the file's type ids.
const MAKERS: [(Format, Maker); 10] = [
    maker::<f32>(),
    maker::<f16>(),
    maker::<BlockQ4_0>(),
    maker::<BlockQ4_1>(),
    maker::<BlockQ5_0>(),
    maker::<BlockQ5_1>(),
    maker::<BlockQ8_0>(),
    maker::<BlockQ8_K>(),
    maker::<BlockIQ4_NL>(),
    maker::<bf16>(),
];

const fn maker<B: Quantize>() -> (Format, Maker) {
    (B::FORMAT, quantize_blocks::<B>)
}

/// The names of the formats made here, for a message.
fn made() -> String {
    MAKERS.map(|(format, _)| format.name()).join(", ")
}

fn quantize_blocks<B: Quantize>(values: &[f32]) -> Result<Vec<u8>, QuantizeError> {
    let elements = B::FORMAT.block_elements();
    let mut bytes = Vec::with_capacity(values.len() / elements * B::FORMAT.block_bytes());
    for (number, values) in bytemuck::cast_slice::<f32, B::Values>(values).iter().enumerate() {
        let block = B::quantize(values);
        // One check for every way out of a format's range: an infinite step, minimum or value.
        if !block.dequantize().as_ref().iter().all(|x| x.is_finite()) {
            let (place, value) = largest(values.as_ref());
            return Err(QuantizeError::TooLarge {
                format: B::FORMAT,
                index: number * elements + place,
                value,
            });
        }
        bytes.extend_from_slice(bytemuck::bytes_of(&block));
    }
    Ok(bytes)
}

/// A block that can be made from finite values. Values out of the format's range give a block
/// that does not decode to finite values.
trait Quantize: Block {
    fn quantize(values: &Self::Values) -> Self;
}

impl Quantize for f32 {
    fn quantize([value]: &[f32; 1]) -> Self {
        *value
    }
}

/// To nearest, ties to even.
impl Quantize for f16 {
    fn quantize([value]: &[f32; 1]) -> Self {
        Self::from_f32(*value)
    }
}

/// To nearest, ties to even.
impl Quantize for bf16 {
    fn quantize([value]: &[f32; 1]) -> Self {
        Self::from_f32(*value)
    }
}

impl Quantize for BlockQ4_0 {
    fn quantize(values: &[f32; 32]) -> Self {
        let (d, quants) = around_zero(values, 8.0);
        Self { d, qs: low_bits(&quants) }
    }
}

impl Quantize for BlockQ4_1 {
    fn quantize(values: &[f32; 32]) -> Self {
        let (d, m, quants) = above_minimum(values, 15.0);
        Self { d, m, qs: low_bits(&quants) }
    }
}

impl Quantize for BlockQ5_0 {
    fn quantize(values: &[f32; 32]) -> Self {
        let (d, quants) = around_zero(values, 16.0);
        Self { d, qh: fifth_bits(&quants), qs: low_bits(&quants) }
    }
}

impl Quantize for BlockQ5_1 {
    fn quantize(values: &[f32; 32]) -> Self {
        let (d, m, quants) = above_minimum(values, 31.0);
        Self { d, m, qh: fifth_bits(&quants), qs: low_bits(&quants) }
    }
}

/// Step = largest magnitude / 127; halves are rounded away from zero.
impl Quantize for BlockQ8_0 {
    fn quantize(values: &[f32; 32]) -> Self {
        let (_, largest) = largest(values);
        let d = largest.abs() / 127.0;
        let inverse = finite_or_zero(1.0 / d);
        Self { d: f16::from_f32(d), qs: values.map(|x| (x * inverse).round() as i8) }
    }
}

/// The value of largest magnitude becomes -127; halves are rounded to even.
impl Quantize for BlockQ8_K {
    fn quantize(values: &[f32; 256]) -> Self {
        let (_, largest) = largest(values);
        let inverse = finite_or_zero(-127.0 / largest);
        let qs = values.map(|x| (x * inverse).round_ties_even().min(127.0) as i8);
        let (sixteens, _) = qs.as_chunks::<16>();
        let mut bsums = [0; 16];
        for (sum, quants) in bsums.iter_mut().zip(sixteens) {
            *sum = quants.iter().map(|&q| i16::from(q)).sum();
        }
        Self { d: finite_or_zero(1.0 / inverse), qs, bsums }
    }
}

/// The value of largest magnitude becomes -127, the code book's far end; every other takes the
/// nearest entry.
impl Quantize for BlockIQ4_NL {
    fn quantize(values: &[f32; 32]) -> Self {
        let (_, largest) = largest(values);
        let d = largest / f32::from(IQ4_VALUES[0]);
        let inverse = finite_or_zero(1.0 / d);
        Self { d: f16::from_f32(d), qs: low_bits(&values.map(|x| nearest_code(x * inverse))) }
    }
}

/// The scale and the quants of Q4_0 and Q5_0: the value of largest magnitude becomes `-half`, so
/// that an equal one of the other sign is cut to `half - 1`. Quants are stored with `half` added.
fn around_zero(values: &[f32; 32], half: f32) -> (f16, [u8; 32]) {
    let (_, largest) = largest(values);
    let d = largest / -half;
    let inverse = finite_or_zero(1.0 / d);
    // The cast cuts the fraction off, so the added 0.5 makes it round.
    let quants = values.map(|x| (x * inverse + (half + 0.5)).min(2.0 * half - 1.0) as u8);
    (f16::from_f32(d), quants)
}

/// The scale, the minimum and the quants of Q4_1 and Q5_1: the minimum becomes 0, the maximum
/// `top`.
fn above_minimum(values: &[f32; 32], top: f32) -> (f16, f16, [u8; 32]) {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / top;
    let inverse = finite_or_zero(1.0 / d);
    // The cast cuts the fraction off, so the added 0.5 makes it round.
    let quants = values.map(|x| ((x - min) * inverse + 0.5).min(top) as u8);
    (f16::from_f32(d), f16::from_f32(min), quants)
}

/// The first value of largest magnitude, and its place.
fn largest(values: &[f32]) -> (usize, f32) {
    values.iter().copied().enumerate().fold(
        (0, 0.0),
        |best: (usize, f32), next| {
            if next.1.abs() > best.1.abs() { next } else { best }
        },
    )
}

/// The inverse of a step. Where the step is zero, or so small that its inverse is not finite,
/// zero: every quant is then the one for zero, instead of 0 * infinity.
fn finite_or_zero(inverse: f32) -> f32 {
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// The place in the code book of the entry nearest to `x`: the number of midpoints below it.
fn nearest_code(x: f32) -> u8 {
    IQ4_VALUES.windows(2).filter(|pair| x > f32::midpoint(pair[0].into(), pair[1].into())).count() as u8
}

/// The low four bits of 32 quants: the first sixteen in the low halves, the others in the high.
fn low_bits(quants: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| (quants[i] & 0x0F) | (quants[i + 16] << 4))
}

/// Bit 4 of 32 quants, the first lowest.
fn fifth_bits(quants: &[u8; 32]) -> [u8; 4] {
    std::array::from_fn(|byte| (0..8).fold(0, |bits, i| bits | ((quants[8 * byte + i] >> 4) & 1) << i))
}
