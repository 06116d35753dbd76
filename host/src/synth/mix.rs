//! Which tensor has which format.

use gpu::quant::Format;

/// A way to quantize a model, by the name that llama.cpp's tools give it. Norms and biases are F32 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The name in a spec.
    pub name: &'static str,
    /// Of the matrices that are not named below.
    pub base: Format,
    /// Of values and feed-forward outputs in the layers that llama.cpp gives more bits.
    pub more: Format,
    /// Of the output projection, where it is not the embedding.
    pub output: Format,
    /// `general.file_type`: llama.cpp's `llama_ftype`.
    pub file_type: u32,
}

/// Every mix. All but the first two have one format for all matrices, after which they are named. Q8_K is
/// not among them: llama.cpp has no product with such weights.
pub const MIXES: [Mix; 17] = [
    Mix { output: Format::Q6_K, more: Format::Q6_K, ..one("q4_k_m", Format::Q4_K, 15) },
    Mix { output: Format::Q6_K, more: Format::Q6_K, ..one("q5_k_m", Format::Q5_K, 17) },
    one("f32", Format::F32, 0),
    one("f16", Format::F16, 1),
    one("bf16", Format::BF16, 32),
    one("q4_0", Format::Q4_0, 2),
    one("q4_1", Format::Q4_1, 3),
    one("q5_0", Format::Q5_0, 8),
    one("q5_1", Format::Q5_1, 9),
    one("q8_0", Format::Q8_0, 7),
    one("q2_k", Format::Q2_K, 10),
    one("q3_k", Format::Q3_K, 11),
    one("q4_k", Format::Q4_K, 14),
    one("q5_k", Format::Q5_K, 16),
    one("q6_k", Format::Q6_K, 18),
    one("iq4_nl", Format::IQ4_NL, 25),
    one("iq4_xs", Format::IQ4_XS, 30),
];

const fn one(name: &'static str, format: Format, file_type: u32) -> Mix {
    Mix { name, base: format, more: format, output: format, file_type }
}

impl Mix {
    /// Whether a layer has the finer format: the first and the last eighth, and every third between them.
    /// llama.cpp's `use_more_bits`.
    pub(super) fn more_bits(layer: usize, layers: usize) -> bool {
        let eighth = layers / 8;
        layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
    }

    /// The format of values and feed-forward outputs in a layer.
    pub(super) fn in_layer(&self, layer: usize, layers: usize) -> Format {
        if Self::more_bits(layer, layers) { self.more } else { self.base }
    }
}
