//! The kernels' names, written once.

use crate::quant::{
    Block, BlockIQ4_NL, BlockIQ4_XS, BlockQ2_K, BlockQ3_K, BlockQ4_0, BlockQ4_1, BlockQ4_K, BlockQ5_0,
    BlockQ5_1, BlockQ5_K, BlockQ6_K, BlockQ8_0, BlockQ8_K, Format, bf16, f16,
};

/// A format that there are kernels for.
pub trait Named: Block {
    /// Those with q8 activations, for 1, 2, 4 and 8 rows in a pass.
    const Q8: [&'static str; 4];
    /// The one with q8 activations for 1 row whose warps share K.
    const Q8_SPLIT_K: &'static str;
    /// Those with f16 activations.
    const F16: [&'static str; 4];
    /// Those that split K, for 8, 32 and 64 rows in a pass.
    const SPLITK: [&'static str; 3];
}

macro_rules! named {
    ($($Block:ident $name:literal,)*) => {$(
        impl Named for $Block {
            const Q8: [&'static str; 4] = named!(@rows "matvec_q8_", $name);
            const Q8_SPLIT_K: &'static str = concat!("matvec_q8_", $name, "_split_k");
            const F16: [&'static str; 4] = named!(@rows "matvec_f16_", $name);
            const SPLITK: [&'static str; 3] = [
                concat!("matmul_splitk_", $name, "_n8"),
                concat!("matmul_splitk_", $name, "_n32"),
                concat!("matmul_splitk_", $name, "_n64"),
            ];
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

/// A format that shares launches with another one.
pub trait Beside<B>: Named {
    /// The kernel with q8 activations for 1 row whose warps share K.
    const TWO: &'static str;
}

macro_rules! beside {
    ($($A:ident $B:ident $name:literal,)*) => {
        $(impl Beside<$B> for $A {
            const TWO: &'static str = concat!("matvec_q8_", $name, "_split_k");
        })*

        /// Formats that share launches: those of query, key and value in one layer, where llama.cpp gives value
        /// more bits. `Q4_K_M` and `Q5_K_M`, and `Q4_K_M` where rows are no multiple of 256.
        pub const TWO_FORMATS: [[Format; 2]; 3] = [$([<$A as Block>::FORMAT, <$B as Block>::FORMAT]),*];
    };
}

beside! {
    BlockQ4_K BlockQ6_K "q4_k_q6_k",
    BlockQ5_K BlockQ6_K "q5_k_q6_k",
    BlockQ5_0 BlockQ8_0 "q5_0_q8_0",
}
