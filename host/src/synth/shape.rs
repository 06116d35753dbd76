//! What the layers are: sizes of known models, their tensors, and their metadata.

use gpu::quant::Format;

use super::mix::Mix;
use super::vocabulary;
use crate::gguf::OwnedValue;
use crate::model::Architecture;

/// The sizes of a model. Lengths are in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of `model::Config`")]
pub struct Shape {
    /// The name in a spec.
    pub name: &'static str,
    pub architecture: Architecture,
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocab_size: usize,
    /// Whether the output projection is the embedding.
    pub tied: bool,
    pub context_length: usize,
    pub rope_base: f32,
    pub norm_epsilon: f32,
    /// Positions that most of Gemma 3's layers see.
    pub sliding_window: Option<usize>,
}

/// The model that others are variations of.
const QWEN2_7B: Shape = Shape {
    name: "qwen2-7b",
    architecture: Architecture::Qwen2,
    layers: 28,
    width: 3584,
    heads: 28,
    kv_heads: 4,
    head_dim: 128,
    feed_forward: 18944,
    vocab_size: 152_064,
    tied: false,
    context_length: 32768,
    rope_base: 1e6,
    norm_epsilon: 1e-6,
    sliding_window: None,
};

/// The smallest that has whole blocks in every format; it runs anywhere in a moment.
const TINY: Shape = Shape {
    name: "tiny",
    architecture: Architecture::Llama,
    layers: 2,
    width: 256,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    feed_forward: 512,
    vocab_size: 320,
    tied: false,
    context_length: 2048,
    rope_base: 1e4,
    norm_epsilon: 1e-5,
    sliding_window: None,
};

/// Every shape.
pub const SHAPES: [Shape; 7] = [
    QWEN2_7B,
    Shape {
        name: "qwen2-14b",
        layers: 48,
        width: 5120,
        heads: 40,
        kv_heads: 8,
        feed_forward: 13824,
        ..QWEN2_7B
    },
    Shape {
        name: "qwen2-1.5b",
        width: 1536,
        heads: 12,
        kv_heads: 2,
        feed_forward: 8960,
        vocab_size: 151_936,
        tied: true,
        ..QWEN2_7B
    },
    Shape {
        name: "llama3-8b",
        architecture: Architecture::Llama,
        layers: 32,
        width: 4096,
        heads: 32,
        kv_heads: 8,
        feed_forward: 14336,
        vocab_size: 128_256,
        context_length: 8192,
        rope_base: 5e5,
        norm_epsilon: 1e-5,
        ..QWEN2_7B
    },
    TINY,
    Shape {
        name: "tiny-qwen2",
        width: 512,
        heads: 4,
        kv_heads: 2,
        feed_forward: 1024,
        vocab_size: 1024,
        layers: 2,
        ..QWEN2_7B
    },
    // Its seventh layer is the one after the first without a window.
    Shape {
        name: "tiny-gemma3",
        architecture: Architecture::Gemma3,
        layers: 7,
        kv_heads: 1,
        head_dim: 128,
        tied: true,
        rope_base: 1e6,
        norm_epsilon: 1e-6,
        sliding_window: Some(32),
        ..TINY
    },
];

/// Rows have whole blocks in every format, and every byte has its token.
const _: () = {
    let mut i = 0;
    while i < SHAPES.len() {
        let shape = &SHAPES[i];
        assert!(shape.width.is_multiple_of(256) && shape.feed_forward.is_multiple_of(256));
        assert!(shape.query_width().is_multiple_of(256));
        assert!(shape.vocab_size > vocabulary::BYTES);
        i += 1;
    }
};

/// A tensor of a model.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    /// The row length first.
    pub(super) dims: Vec<u64>,
    pub(super) format: Format,
    pub(super) values: Values,
}

/// What a tensor holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    Zeros,
    /// In F32.
    Ones,
    Random {
        /// The values' root mean square.
        deviation: f64,
    },
}

/// The root mean square of a matrix's outputs for inputs whose own is 1. Below 1, as in trained models: each
/// layer adds to the residual stream less than is there.
const GAIN: f64 = 0.7;

impl Shape {
    const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The tensors in the order of the file.
    pub(super) fn tensors(&self, mix: &Mix) -> Vec<Tensor> {
        let &Self { width, feed_forward, head_dim, vocab_size, .. } = self;
        let (query, kv) = (self.query_width(), self.kv_width());
        let mut tensors = vec![Tensor::matrix("token_embd.weight", (width, vocab_size), mix.base)];
        for layer in 0..self.layers {
            let (base, more) = (mix.base, mix.in_layer(layer, self.layers));
            let vector = |role, len| (role, Tensor::vector(&format!("blk.{layer}.{role}"), len));
            let matrix = |role, columns, rows, format| {
                (role, Tensor::matrix(&format!("blk.{layer}.{role}"), (columns, rows), format))
            };
            let all = [
                vector("attn_norm.weight", width),
                matrix("attn_q.weight", width, query, base),
                vector("attn_q.bias", query),
                matrix("attn_k.weight", width, kv, base),
                vector("attn_k.bias", kv),
                matrix("attn_v.weight", width, kv, more),
                vector("attn_v.bias", kv),
                vector("attn_q_norm.weight", head_dim),
                vector("attn_k_norm.weight", head_dim),
                matrix("attn_output.weight", query, width, base),
                vector("post_attention_norm.weight", width),
                vector("ffn_norm.weight", width),
                matrix("ffn_gate.weight", width, feed_forward, base),
                matrix("ffn_up.weight", width, feed_forward, base),
                matrix("ffn_down.weight", feed_forward, width, more),
                vector("post_ffw_norm.weight", width),
            ];
            tensors.extend(all.into_iter().filter(|(role, _)| self.has(role)).map(|(_, tensor)| tensor));
        }
        tensors.push(Tensor::vector("output_norm.weight", width));
        if !self.tied {
            tensors.push(Tensor::matrix("output.weight", (width, vocab_size), mix.output));
        }
        tensors
    }

    /// Whether the architecture has a tensor of a layer: it does unless that is another one's own.
    fn has(&self, role: &str) -> bool {
        let is_own = |architecture: Architecture| architecture.own_tensors().contains(&role);
        is_own(self.architecture) || !Architecture::ALL.into_iter().any(is_own)
    }

    /// The metadata in the order of the file.
    pub(super) fn metadata(&self, mix: &Mix) -> Vec<(String, OwnedValue)> {
        let own = |key: &str| format!("{}.{key}", self.architecture.name());
        // What follows from the width is left out, as other tools do.
        let head_dim = (self.query_width() != self.width).then_some(self.head_dim);
        let sizes = [
            ("block_count", Some(self.layers)),
            ("context_length", Some(self.context_length)),
            ("embedding_length", Some(self.width)),
            ("feed_forward_length", Some(self.feed_forward)),
            ("attention.head_count", Some(self.heads)),
            ("attention.head_count_kv", Some(self.kv_heads)),
            ("attention.key_length", head_dim),
            ("attention.value_length", head_dim),
            ("attention.sliding_window", self.sliding_window),
            ("vocab_size", Some(self.vocab_size)),
        ];
        let mut metadata: Vec<(String, OwnedValue)> = vec![
            ("general.architecture".to_owned(), self.architecture.name().into()),
            ("general.name".to_owned(), self.name.into()),
            ("general.file_type".to_owned(), mix.file_type.into()),
            ("general.quantization_version".to_owned(), 2_u32.into()),
            (own("rope.freq_base"), self.rope_base.into()),
            (own("attention.layer_norm_rms_epsilon"), self.norm_epsilon.into()),
        ];
        metadata.extend(sizes.into_iter().filter_map(|(key, size)| Some((own(key), (size? as u32).into()))));
        metadata.extend(vocabulary::metadata(self.vocab_size));
        metadata
    }
}

impl Tensor {
    /// Random values; `dims` are columns and rows.
    fn matrix(name: &str, (columns, rows): (usize, usize), format: Format) -> Self {
        let values = Values::Random { deviation: GAIN / (columns as f64).sqrt() };
        Self { name: name.to_owned(), dims: vec![columns as u64, rows as u64], format, values }
    }

    /// A norm or a bias.
    fn vector(name: &str, len: usize) -> Self {
        let values = if name.ends_with(".bias") { Values::Zeros } else { Values::Ones };
        Self { name: name.to_owned(), dims: vec![len as u64], format: Format::F32, values }
    }
}
