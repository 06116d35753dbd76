//! Tiny synthetic models: every option of the decoder can be turned on, the weights are seeded, and
//! what a quantized tensor holds is known exactly.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::PathBuf;

use gpu::quant::{Format, dequantize_row, f16};
use lanemap::gguf::{GgufWriter, OwnedValue};

use super::gguf::Folder;
use super::random::{Random, random_blocks, uniform};

/// How the rotary frequencies are stretched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stretch {
    None,
    Linear { factor: f32 },
    Yarn { factor: f32, original: u32 },
}

/// A model, described independently of the library's own description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) arch: &'static str,
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) feed_forward: usize,
    pub(crate) vocab: usize,
    pub(crate) epsilon: f32,
    pub(crate) rope_dims: Option<usize>,
    pub(crate) rope_base: f32,
    pub(crate) stretch: Stretch,
    /// Divisors of the frequencies in `rope_freqs.weight`, as Llama 3 has them.
    pub(crate) rope_factors: bool,
    /// On queries, keys and values, and in llama on the attention's output.
    pub(crate) bias: bool,
    pub(crate) qk_norm: bool,
    pub(crate) post_norm: bool,
    pub(crate) tied: bool,
    /// Positions in the sliding window, and of how many layers the last one has none.
    pub(crate) window: Option<usize>,
    pub(crate) pattern: Option<usize>,
    pub(crate) attention_scale: Option<f32>,
    pub(crate) attention_softcap: Option<f32>,
    pub(crate) logit_softcap: Option<f32>,
    /// The matrices take these in turn; one whose blocks do not fit a row is replaced by F32.
    pub(crate) formats: &'static [Format],
    pub(crate) seed: u64,
}

impl Spec {
    pub(crate) const LLAMA: Self = Self {
        arch: "llama",
        layers: 2,
        width: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        feed_forward: 96,
        vocab: 61,
        epsilon: 1e-5,
        rope_dims: None,
        rope_base: 10_000.0,
        stretch: Stretch::None,
        rope_factors: false,
        bias: false,
        qk_norm: false,
        post_norm: false,
        tied: false,
        window: None,
        pattern: None,
        attention_scale: None,
        attention_softcap: None,
        logit_softcap: None,
        formats: &[Format::Q8_0],
        seed: 1,
    };
    pub(crate) const QWEN2: Self = Self { arch: "qwen2", bias: true, rope_base: 1e6, ..Self::LLAMA };
    pub(crate) const QWEN3: Self =
        Self { arch: "qwen3", qk_norm: true, tied: true, epsilon: 1e-6, rope_base: 1e6, ..Self::LLAMA };
    pub(crate) const GEMMA3: Self = Self {
        arch: "gemma3",
        layers: 7,
        qk_norm: true,
        post_norm: true,
        tied: true,
        epsilon: 1e-6,
        rope_base: 1e6,
        window: Some(5),
        ..Self::LLAMA
    };

    /// The file's metadata.
    fn metadata(&self) -> Vec<(String, OwnedValue)> {
        let own = |key: &str| format!("{}.{key}", self.arch);
        let sizes = [
            ("block_count", Some(self.layers)),
            ("context_length", Some(4096)),
            ("embedding_length", Some(self.width)),
            ("feed_forward_length", Some(self.feed_forward)),
            ("attention.head_count", Some(self.heads)),
            ("attention.head_count_kv", Some(self.kv_heads)),
            ("attention.key_length", Some(self.head_dim)),
            ("attention.value_length", Some(self.head_dim)),
            ("rope.dimension_count", self.rope_dims),
            ("attention.sliding_window", self.window),
            ("attention.sliding_window_pattern", self.pattern),
            ("vocab_size", Some(self.vocab)),
        ];
        let numbers = [
            ("attention.layer_norm_rms_epsilon", Some(self.epsilon)),
            ("rope.freq_base", Some(self.rope_base)),
            ("attention.scale", self.attention_scale),
            ("attn_logit_softcapping", self.attention_softcap),
            ("final_logit_softcapping", self.logit_softcap),
        ];
        let mut metadata: Vec<(String, OwnedValue)> = vec![
            ("general.architecture".to_owned(), self.arch.into()),
            ("general.name".to_owned(), "tiny".into()),
        ];
        metadata.extend(sizes.iter().filter_map(|&(key, size)| Some((own(key), (size? as u32).into()))));
        metadata.extend(numbers.iter().filter_map(|&(key, number)| Some((own(key), number?.into()))));
        match self.stretch {
            Stretch::None => {}
            Stretch::Linear { factor } => metadata.extend([
                (own("rope.scaling.type"), "linear".into()),
                (own("rope.scaling.factor"), factor.into()),
            ]),
            Stretch::Yarn { factor, original } => metadata.extend([
                (own("rope.scaling.type"), "yarn".into()),
                (own("rope.scaling.factor"), factor.into()),
                (own("rope.scaling.original_context_length"), original.into()),
            ]),
        }
        metadata
    }
}

/// A tensor of a tiny model, as its file holds it.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<usize>,
    format: Format,
    bytes: Vec<u8>,
}

/// A tiny model with its weights.
#[derive(Clone, Debug)]
pub(crate) struct Tiny {
    pub(crate) spec: Spec,
    metadata: Vec<(String, OwnedValue)>,
    tensors: Vec<Tensor>,
}

impl Tiny {
    pub(crate) fn new(spec: Spec) -> Self {
        let mut maker = Maker { spec, random: Random(spec.seed), tensors: Vec::new(), matrices: 0 };
        maker.make();
        Self { spec, metadata: spec.metadata(), tensors: maker.tensors }
    }

    /// The same tensors as a model of another architecture.
    pub(crate) fn renamed(self, arch: &'static str) -> Self {
        let spec = Spec { arch, ..self.spec };
        Self { spec, metadata: spec.metadata(), ..self }
    }

    /// What a tensor decodes to, if the model has it.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<f32>> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        let mut values = vec![f32::NAN; tensor.dims.iter().product()];
        dequantize_row(tensor.format, &tensor.bytes, &mut values).unwrap();
        Some(values)
    }

    /// What a tensor decodes to, which the model must have.
    pub(crate) fn values(&self, name: &str) -> Vec<f32> {
        self.get(name).unwrap_or_else(|| panic!("the tiny model has no {name}"))
    }

    /// How a tensor is stored.
    pub(crate) fn format(&self, name: &str) -> Format {
        self.tensors.iter().find(|tensor| tensor.name == name).unwrap().format
    }

    /// Changes a tensor's values; it is F32 from then on.
    pub(crate) fn edit(&mut self, name: &str, change: impl FnOnce(&mut [f32])) {
        let mut values = self.values(name);
        change(&mut values);
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        tensor.format = Format::F32;
        tensor.bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    }

    /// Puts the rows of a matrix into another order: row `i` becomes what row `source(i)` was.
    pub(crate) fn permute_rows(&mut self, name: &str, source: impl Fn(usize) -> usize) {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        let row_bytes = tensor.format.row_bytes(tensor.dims[0]).unwrap();
        let rows: Vec<_> = tensor.bytes.chunks_exact(row_bytes).collect();
        tensor.bytes = (0..rows.len()).flat_map(|row| rows[source(row)]).copied().collect();
    }

    /// The names of all tensors.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tensors.iter().map(|tensor| tensor.name.clone()).collect()
    }

    /// Makes the last value of a tensor NaN: in Q8_0 through the scale of its block.
    pub(crate) fn poison(&mut self, name: &str) {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        let at = tensor.bytes.len() - tensor.format.block_bytes();
        let nan: &[u8] = match tensor.format {
            Format::F32 => &f32::NAN.to_le_bytes(),
            Format::Q8_0 => &f16::NAN.to_le_bytes(),
            other => panic!("{other} is not among the formats that can be poisoned"),
        };
        tensor.bytes[at..at + nan.len()].copy_from_slice(nan);
        assert!(self.values(name).last().unwrap().is_nan());
    }

    /// Adds or replaces a metadata entry.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.unset(key);
        self.metadata.push((key.to_owned(), value.into()));
    }

    /// Removes a metadata entry, if it is there.
    pub(crate) fn unset(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| known != key);
    }

    /// Adds a tensor of F32 zeros.
    pub(crate) fn add(&mut self, name: &str, dims: &[usize]) {
        let bytes = vec![0; 4 * dims.iter().product::<usize>()];
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), format: Format::F32, bytes });
    }

    /// Removes a tensor.
    pub(crate) fn remove(&mut self, name: &str) {
        let before = self.tensors.len();
        self.tensors.retain(|tensor| tensor.name != name);
        assert_eq!(self.tensors.len() + 1, before, "the tiny model has no {name}");
    }

    /// Puts another tensor in the place of one: F32 zeros of some shape.
    pub(crate) fn reshape(&mut self, name: &str, dims: &[usize]) {
        self.remove(name);
        self.add(name, dims);
    }

    /// Stores a tensor in another format, with other values.
    pub(crate) fn restore(&mut self, name: &str, format: Format) {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        tensor.format = format;
        tensor.bytes = random_blocks(format, tensor.dims.iter().product(), 1.0, &mut Random(0));
    }

    /// A tensor's dimensions, row length first.
    pub(crate) fn dims(&self, name: &str) -> Vec<usize> {
        self.tensors.iter().find(|tensor| tensor.name == name).unwrap().dims.clone()
    }

    /// The whole file.
    pub(crate) fn file(&self) -> GgufWriter {
        let writer = self
            .metadata
            .iter()
            .fold(GgufWriter::new(), |writer, (key, value)| writer.meta(key, value.clone()));
        self.tensors.iter().fold(writer, |writer, Tensor { name, dims, format, bytes }| {
            let dims: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
            writer.tensor(name, &dims, *format, bytes.as_slice())
        })
    }

    /// Writes the file and returns its path.
    pub(crate) fn write(&self, folder: &Folder) -> PathBuf {
        folder.write("tiny.gguf", &self.file().to_bytes().unwrap())
    }
}

/// Makes the tensors of a model, in the order of its file.
struct Maker {
    spec: Spec,
    random: Random,
    tensors: Vec<Tensor>,
    matrices: usize,
}

impl Maker {
    fn make(&mut self) {
        let spec = self.spec;
        let (query, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        self.matrix("token_embd.weight", spec.width, spec.vocab, 1.0);
        if spec.rope_factors {
            let pairs = spec.rope_dims.unwrap_or(spec.head_dim) / 2;
            self.vector("rope_freqs.weight", pairs, 1.0, 8.0);
        }
        for layer in 0..spec.layers {
            let name = |role: &str| format!("blk.{layer}.{role}");
            self.vector(&name("attn_norm.weight"), spec.width, 0.5, 1.5);
            // Queries and keys of length above 1 give scores that differ, so that attention matters.
            self.projection(&name("attn_q.weight"), spec.width, query, 1.5);
            self.projection(&name("attn_k.weight"), spec.width, kv, 1.5);
            self.projection(&name("attn_v.weight"), spec.width, kv, 1.5);
            if spec.bias {
                self.vector(&name("attn_q.bias"), query, -1.0, 1.0);
                self.vector(&name("attn_k.bias"), kv, -1.0, 1.0);
                self.vector(&name("attn_v.bias"), kv, -1.0, 1.0);
            }
            if spec.qk_norm {
                self.vector(&name("attn_q_norm.weight"), spec.head_dim, 0.5, 2.0);
                self.vector(&name("attn_k_norm.weight"), spec.head_dim, 0.5, 2.0);
            }
            self.projection(&name("attn_output.weight"), query, spec.width, 1.5);
            if spec.bias && spec.arch == "llama" {
                self.vector(&name("attn_output.bias"), spec.width, -1.0, 1.0);
            }
            self.vector(&name("ffn_norm.weight"), spec.width, 0.5, 1.5);
            if spec.post_norm {
                self.vector(&name("post_attention_norm.weight"), spec.width, 0.5, 1.5);
                self.vector(&name("post_ffw_norm.weight"), spec.width, 0.5, 1.5);
            }
            self.projection(&name("ffn_gate.weight"), spec.width, spec.feed_forward, 1.5);
            self.projection(&name("ffn_up.weight"), spec.width, spec.feed_forward, 1.5);
            self.projection(&name("ffn_down.weight"), spec.feed_forward, spec.width, 1.0);
        }
        self.vector("output_norm.weight", spec.width, 0.5, 1.5);
        if !spec.tied {
            self.projection("output.weight", spec.width, spec.vocab, 2.0);
        }
    }

    /// A matrix that keeps the size of its input, times `gain`.
    fn projection(&mut self, name: &str, columns: usize, rows: usize, gain: f64) {
        self.matrix(name, columns, rows, gain / (columns as f64).sqrt());
    }

    /// A matrix of random values of standard deviation `deviation`.
    fn matrix(&mut self, name: &str, columns: usize, rows: usize, deviation: f64) {
        let wanted = self.spec.formats[self.matrices % self.spec.formats.len()];
        self.matrices += 1;
        let format = if columns.is_multiple_of(wanted.block_elements()) { wanted } else { Format::F32 };
        let bytes = random_blocks(format, columns * rows, deviation, &mut self.random);
        self.tensors.push(Tensor { name: name.to_owned(), dims: vec![columns, rows], format, bytes });
    }

    /// A vector of values evenly between two limits.
    fn vector(&mut self, name: &str, len: usize, low: f64, high: f64) {
        let bytes = (0..len)
            .flat_map(|_| ((low + (high - low) * uniform(&mut self.random)) as f32).to_le_bytes())
            .collect();
        self.tensors.push(Tensor { name: name.to_owned(), dims: vec![len], format: Format::F32, bytes });
    }
}

/// Token ids of a model.
pub(crate) fn random_tokens(vocab: usize, len: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(vocab) as u32).collect()
}
