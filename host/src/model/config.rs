//! What a model is, read from a GGUF file's metadata: sizes, rotary embedding, options.

use crate::gguf::Gguf;
use crate::model::ModelError;
use crate::model::rope::{Rope, RopeOrder, RopeScaling};

/// The architectures that the decoder runs, by the file's `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2 and 3, Mistral, SmolLM2.
    Llama,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Qwen 3 (dense).
    Qwen3,
    /// Gemma 3 (text).
    Gemma3,
}

impl Architecture {
    /// Every architecture, in the order in which an error lists them.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Gemma3];

    /// The value of `general.architecture`, which is also the prefix of the model's keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
        }
    }

    /// The roles of those tensors of a layer that not every architecture has, but this one always.
    pub(crate) const fn own_tensors(self) -> &'static [&'static str] {
        match self {
            Self::Llama => &[],
            Self::Qwen2 => &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
            Self::Qwen3 => &["attn_q_norm.weight", "attn_k_norm.weight"],
            Self::Gemma3 => &[
                "attn_q_norm.weight",
                "attn_k_norm.weight",
                "post_attention_norm.weight",
                "post_ffw_norm.weight",
            ],
        }
    }
}

/// The gate's activation in a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// A sliding attention window and the layers that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Positions a token sees, itself included.
    pub size: usize,
    /// Of every `pattern` layers the last attends to everything, the others to the window.
    pub pattern: usize,
}

/// A decoder, described by data. Lengths are in elements.
#[derive(Clone, Debug)]
pub struct Config {
    /// The architecture that the file names.
    pub architecture: Architecture,
    /// The model's own name, for people.
    pub name: String,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in every RMS norm.
    pub norm_epsilon: f32,
    /// Rotary embedding of the layers that attend to everything.
    pub rope: Rope,
    /// Rotary embedding of the layers with a sliding window.
    pub rope_sliding: Rope,
    /// The sliding window, if the model has one.
    pub sliding_window: Option<SlidingWindow>,
    /// Factor on the token embeddings.
    pub embedding_scale: f32,
    /// Factor on query · key.
    pub attention_scale: f32,
    /// `c · tanh(x / c)` on the attention scores.
    pub attention_softcap: Option<f32>,
    /// `c · tanh(x / c)` on the logits.
    pub logit_softcap: Option<f32>,
    /// The gate's activation.
    pub activation: Activation,
}

/// Head sizes above this are refused: the attention kernels keep a head in registers and L1.
const MAX_HEAD_DIM: usize = 512;

impl Config {
    /// Reads a model's description.
    ///
    /// # Errors
    /// An unknown architecture (the message lists the known ones), a key that is missing or of
    /// the wrong type, and every value that the decoder cannot run (zero sizes, a head count
    /// that the KV head count does not divide, an unknown rope scaling).
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let keys = Keys::new(gguf)?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.optional_size("attention.head_count_kv")?.unwrap_or(heads);
        let width = keys.size("embedding_length")?;
        let head_dim = match keys.optional_size("attention.key_length")? {
            Some(length) => length,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                return Err(keys.invalid(
                    "attention.head_count",
                    heads,
                    format!("it must divide the embedding length {width}"),
                ));
            }
        };
        let value_length = keys.optional_size("attention.value_length")?.unwrap_or(head_dim);
        if value_length != head_dim {
            return Err(keys.invalid(
                "attention.value_length",
                value_length,
                format!("it must equal the key length {head_dim}"),
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.invalid(
                "attention.head_count_kv",
                kv_heads,
                format!("it must divide the head count {heads}"),
            ));
        }
        if !head_dim.is_multiple_of(8) || head_dim > MAX_HEAD_DIM {
            return Err(keys.invalid(
                "attention.key_length",
                head_dim,
                format!("a head must be a multiple of 8 and at most {MAX_HEAD_DIM}"),
            ));
        }
        let gemma = keys.architecture == Architecture::Gemma3;
        let rope = keys.rope(head_dim)?;
        Ok(Self {
            architecture: keys.architecture,
            name: gguf.str("general.name")?.unwrap_or(keys.architecture.name()).to_owned(),
            layers: keys.size("block_count")?,
            width,
            heads,
            kv_heads,
            head_dim,
            feed_forward: keys.size("feed_forward_length")?,
            vocab_size: keys.vocab_size()?,
            context_length: keys.size("context_length")?,
            norm_epsilon: keys.positive("attention.layer_norm_rms_epsilon")?,
            rope_sliding: if gemma {
                let base = keys.optional_positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
                Rope { base, scaling: RopeScaling::None, ..rope }
            } else {
                rope
            },
            rope,
            sliding_window: if gemma { keys.sliding_window()? } else { None },
            embedding_scale: if gemma { (width as f32).sqrt() } else { 1.0 },
            attention_scale: keys.attention_scale(width, heads, head_dim)?,
            attention_softcap: keys.optional_positive("attn_logit_softcapping")?,
            logit_softcap: keys.optional_positive("final_logit_softcapping")?,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
        })
    }

    /// Whether `layer` attends through the sliding window.
    #[must_use]
    pub fn is_sliding(&self, layer: usize) -> bool {
        self.sliding_window.is_some_and(|window| !(layer + 1).is_multiple_of(window.pattern))
    }

    /// The sliding window of `layer`, in positions; `None` where it attends to everything.
    #[must_use]
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.sliding_window.filter(|_| self.is_sliding(layer)).map(|window| window.size)
    }

    /// The rotary embedding of `layer`.
    #[must_use]
    pub fn rope(&self, layer: usize) -> &Rope {
        if self.is_sliding(layer) { &self.rope_sliding } else { &self.rope }
    }

    /// Elements of one token's query: `heads · head_dim`.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of one token's key, and of its value: `kv_heads · head_dim`.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Access to the keys of one architecture, with errors that name them.
struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: Architecture,
}

impl<'a> Keys<'a> {
    fn new(gguf: &'a Gguf) -> Result<Self, ModelError> {
        let name = gguf.str("general.architecture")?.ok_or_else(|| ModelError::MissingKey {
            path: gguf.path().to_owned(),
            key: "general.architecture".to_owned(),
        })?;
        let architecture =
            Architecture::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
                ModelError::UnknownArchitecture {
                    path: gguf.path().to_owned(),
                    name: name.escape_debug().to_string(),
                }
            })?;
        Ok(Self { gguf, architecture })
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.name())
    }

    fn invalid(&self, key: &str, value: impl ToString, why: String) -> ModelError {
        ModelError::InvalidValue {
            path: self.gguf.path().to_owned(),
            key: self.full(key),
            value: value.to_string(),
            why,
        }
    }

    /// A length: at least 1, and small enough that products of a few of them cannot overflow.
    fn optional_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        const MAX: u32 = 1 << 24;
        match self.gguf.u32(&self.full(key))? {
            None => Ok(None),
            Some(value @ 1..=MAX) => Ok(Some(value as usize)),
            Some(value) => Err(self.invalid(key, value, format!("it must be between 1 and {MAX}"))),
        }
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey { path: self.gguf.path().to_owned(), key: self.full(key) }
    }

    /// A finite number above zero; zero itself is taken as none, as soft-caps and factors are
    /// written that are not there.
    fn optional_positive(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.gguf.f32(&self.full(key))? {
            None | Some(0.0) => Ok(None),
            Some(value) if value.is_finite() && value > 0.0 => Ok(Some(value)),
            Some(value) => Err(self.not_positive(key, value)),
        }
    }

    fn positive(&self, key: &str) -> Result<f32, ModelError> {
        match (self.optional_positive(key)?, self.gguf.f32(&self.full(key))?) {
            (Some(value), _) => Ok(value),
            (None, Some(zero)) => Err(self.not_positive(key, zero)),
            (None, None) => Err(self.missing(key)),
        }
    }

    fn not_positive(&self, key: &str, value: f32) -> ModelError {
        self.invalid(key, value, "it must be a finite number above zero".to_owned())
    }

    fn vocab_size(&self) -> Result<usize, ModelError> {
        if let Some(tokens) = self.gguf.array("tokenizer.ggml.tokens")? {
            return match tokens.len() {
                0 => Err(ModelError::InvalidValue {
                    path: self.gguf.path().to_owned(),
                    key: "tokenizer.ggml.tokens".to_owned(),
                    value: "[]".to_owned(),
                    why: "a model needs a vocabulary".to_owned(),
                }),
                n => Ok(n),
            };
        }
        self.size("vocab_size")
    }

    /// Gemma 3's window comes without its pattern in most files: 5 of 6 layers slide.
    fn sliding_window(&self) -> Result<Option<SlidingWindow>, ModelError> {
        const GEMMA3_PATTERN: usize = 6;
        let Some(size) = self.optional_size("attention.sliding_window")? else { return Ok(None) };
        let pattern = self.optional_size("attention.sliding_window_pattern")?.unwrap_or(GEMMA3_PATTERN);
        Ok(Some(SlidingWindow { size, pattern }))
    }

    /// `1 / sqrt(head size)`, but for Gemma 3 27B (62 layers), which was trained with
    /// `1 / sqrt(width / heads)`.
    fn attention_scale(&self, width: usize, heads: usize, head_dim: usize) -> Result<f32, ModelError> {
        const GEMMA3_27B_LAYERS: usize = 62;
        if let Some(scale) = self.optional_positive("attention.scale")? {
            return Ok(scale);
        }
        let squared =
            if self.architecture == Architecture::Gemma3 && self.size("block_count")? == GEMMA3_27B_LAYERS {
                width as f32 / heads as f32
            } else {
                head_dim as f32
            };
        Ok(1.0 / squared.sqrt())
    }

    fn rope(&self, head_dim: usize) -> Result<Rope, ModelError> {
        let dims = self.optional_size("rope.dimension_count")?.unwrap_or(head_dim);
        if dims > head_dim || !dims.is_multiple_of(2) {
            return Err(self.invalid(
                "rope.dimension_count",
                dims,
                format!("it must be even and at most the head size {head_dim}"),
            ));
        }
        Ok(Rope {
            dims,
            base: self.optional_positive("rope.freq_base")?.unwrap_or(10_000.0),
            order: match self.architecture {
                Architecture::Llama => RopeOrder::Interleaved,
                Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Gemma3 => RopeOrder::Halves,
            },
            scaling: self.rope_scaling()?,
        })
    }

    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        // `rope.scale_linear` is the older spelling of a linear factor.
        let factor = match self.optional_positive("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.optional_positive("rope.scale_linear")?,
        };
        let kind = match self.gguf.str(&self.full("rope.scaling.type"))? {
            Some(kind) => kind,
            None if factor.is_some() => "linear",
            None => "none",
        };
        let needed = || factor.ok_or_else(|| self.missing("rope.scaling.factor"));
        match kind {
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: needed()? }),
            "yarn" => Ok(RopeScaling::Yarn {
                factor: needed()?,
                original_context: match self.optional_size("rope.scaling.original_context_length")? {
                    Some(length) => length,
                    None => self.size("context_length")?,
                } as f32,
                attention_factor: self.optional_positive("rope.scaling.attn_factor")?.unwrap_or(1.0),
                beta_fast: self.optional_positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.optional_positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            }),
            other => Err(self.invalid(
                "rope.scaling.type",
                other.escape_debug(),
                "the known ones are none, linear and yarn".to_owned(),
            )),
        }
    }
}
