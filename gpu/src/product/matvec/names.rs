//! The kernels' names, written once.

use crate::quant::{
    Block, BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0,
    BlockQ5_1, BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, bf16, f16,
};

/// A format that there are kernels for.
pub trait Named: Block {
    /// Those with q8 activations, for 1, 2, 4 and 8 rows in a pass.
    const Q8: [&'static str; 4];
    /// The one with q8 activations for 1 row whose warps share K.
    const Q8_SPLIT_K: &'static str;
    /// Those with f16 activations.
    const F16: [&'static str; 4];
}

macro_rules! named {
    ($($Block:ident $name:literal,)*) => {$(
        impl Named for $Block {
            const Q8: [&'static str; 4] = named!(@rows "matvec_q8_", $name);
            const Q8_SPLIT_K: &'static str = concat!("matvec_q8_", $name, "_split_k");
            const F16: [&'static str; 4] = named!(@rows "matvec_f16_", $name);
        }
    )*};
    (@rows $kind:literal, $name:literal) => {
        [
            concat!($kind, $name),
            concat!($kind, $name, "_x2"),
            concat!($kind, $name, "_x4"),
            concat!($kind, $name, "_x8"),
        ]
    };
}

named! {
    f32 "f32",
    f16 "f16",
    bf16 "bf16",
    BlockQ4_0 "q4_0",
    BlockQ4_1 "q4_1",
    BlockQ5_0 "q5_0",
    BlockQ5_1 "q5_1",
    BlockQ8_0 "q8_0",
    BlockQ2_K "q2_k",
    BlockQ3_K "q3_k",
    BlockQ4_K "q4_k",
    BlockQ5_K "q5_k",
    BlockQ6_K "q6_k",
    BlockQ8_K "q8_k",
    BlockIQ4_NL "iq4_nl",
    BlockIQ4_XS "iq4_xs",
}
