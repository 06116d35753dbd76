//! What the formats have in common: the trait, and the way from a [`Format`] to its type.

use super::Format;

/// One block as it stands in the file.
///
/// Every bit pattern is a block: a file cannot hold one that [`dequantize`](Self::dequantize)
/// could not decode.
pub trait Block: bytemuck::Pod + Send + Sync {
    /// The format whose blocks these are.
    const FORMAT: Format;

    /// The block's values: `[f32; N]` with N = `FORMAT.block_elements()`.
    type Values: AsRef<[f32]> + AsMut<[f32]> + bytemuck::Pod + Send + Sync;

    /// The values, in the order of the row.
    ///
    /// Exact: each is the format's formula evaluated in f32, so every machine gives the same bits,
    /// the sign of zero included. The scales of a file have at most 11 significant bits, so their
    /// products with a sub-block's scale and a quant are exact (24 bits at most), and only the
    /// addition of a minimum rounds: fusing it with the product changes nothing. Q8_K alone, whose
    /// scale is an f32, rounds its product.
    fn dequantize(&self) -> Self::Values;
}

/// Evaluates an expression with a type alias bound to the [`Block`] of a [`Format`].
///
/// The one place where formats are matched to types.
///
/// ```
/// use gpu::quant::{Format, with_block};
///
/// let format = Format::Q4_K; // known only at run time
/// assert_eq!(with_block!(format, B => size_of::<B>()), 144);
/// ```
#[macro_export]
macro_rules! with_block {
    ($format:expr, $B:ident => $body:expr) => {
        $crate::with_block!(@match $format, $B => $body;
            F32 => f32,
            F16 => $crate::quant::f16,
            BF16 => $crate::quant::bf16;
        )
    };
    // As above for the quantized formats, and another expression for the rest.
    ($format:expr, quantized $B:ident => $body:expr, else $other:expr) => {
        $crate::with_block!(@match $format, $B => $body;; _ => $other)
    };
    (@match $format:expr, $B:ident => $body:expr; $($float:ident => $float_block:ty),*; $(_ => $other:expr)?) => {
        $crate::with_block!(@arms $format, $B => $body;
            $($float => $float_block,)*
            Q4_0 => $crate::quant::BlockQ4_0,
            Q4_1 => $crate::quant::BlockQ4_1,
            Q5_0 => $crate::quant::BlockQ5_0,
            Q5_1 => $crate::quant::BlockQ5_1,
            Q8_0 => $crate::quant::BlockQ8_0,
            Q2_K => $crate::quant::BlockQ2_K,
            Q3_K => $crate::quant::BlockQ3_K,
            Q4_K => $crate::quant::BlockQ4_K,
            Q5_K => $crate::quant::BlockQ5_K,
            Q6_K => $crate::quant::BlockQ6_K,
            Q8_K => $crate::quant::BlockQ8_K,
            IQ4_NL => $crate::quant::BlockIQ4_NL,
            IQ4_XS => $crate::quant::BlockIQ4_XS;
            $(_ => $other)?
        )
    };
    (@arms $format:expr, $B:ident => $body:expr; $($name:ident => $block:ty),*; $(_ => $other:expr)?) => {
        match $format {
            $($crate::quant::Format::$name => {
                type $B = $block;
                $body
            })*
            $(_ => $other,)?
        }
    };
}
pub use crate::with_block;

/// Fails to compile unless `B` is the block of `format`, with the file's size, an alignment that
/// every tensor has (4 at most), and the right number of values.
const fn check_layout<B: Block>(format: Format) {
    assert!(B::FORMAT.id() == format.id());
    assert!(size_of::<B>() == format.block_bytes());
    assert!(align_of::<B>() <= 4);
    assert!(size_of::<B::Values>() == format.block_elements() * size_of::<f32>());
}

const _: () = {
    let mut i = 0;
    while i < Format::ALL.len() {
        let format = Format::ALL[i];
        with_block!(format, B => check_layout::<B>(format));
        i += 1;
    }
};
