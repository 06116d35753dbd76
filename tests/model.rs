//! What the model layer reads from a file's metadata and tensors, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::Arc;

use gpu::quant::Format;
use lanemap::gguf::{Gguf, OwnedValue, ValueType};
use lanemap::model::{
    Activation, Architecture, Config, Model, ModelError, RopeOrder, RopeScaling, SlidingWindow,
};
use support::gguf::Folder;
use support::tiny::{Spec, Tiny};

fn load(tiny: &Tiny) -> Result<Model, ModelError> {
    let folder = Folder::new();
    Model::load(Arc::new(Gguf::open(&tiny.write(&folder)).unwrap()))
}

fn config(tiny: &Tiny) -> Config {
    load(tiny).unwrap().config().clone()
}

/// The error of a model that must be refused: one line, with these words in it.
fn refused(tiny: &Tiny, words: &[&str]) -> ModelError {
    let error = match load(tiny) {
        Ok(model) => panic!("not refused, expected {words:?}: {:?}", model.config()),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(!text.contains('\n'), "more than a line: {text}");
    assert!(text.contains("tiny.gguf"), "the error does not name the file: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    error
}

/// A small model of each architecture, which loads.
fn models() -> [Tiny; 4] {
    [Spec::LLAMA, Spec::QWEN2, Spec::QWEN3, Spec::GEMMA3].map(|spec| {
        let spec = Spec { layers: 1, vocab: 32, rope_factors: spec.arch == "llama", ..spec };
        let tiny = Tiny::new(spec);
        load(&tiny).unwrap();
        tiny
    })
}

#[test]
fn what_each_architecture_means() {
    for tiny in models() {
        let (spec, config) = (tiny.spec, config(&tiny));
        assert_eq!(config.architecture.name(), spec.arch);
        assert_eq!(config.name, "tiny");
        assert_eq!((config.layers, config.width, config.feed_forward), (1, 64, 96));
        assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 64));
        assert_eq!((config.query_width(), config.kv_width()), (256, 128));
        assert_eq!((config.vocab_size, config.context_length), (32, 4096));
        assert_eq!(
            (config.norm_epsilon, config.rope.base, config.rope.dims),
            (spec.epsilon, spec.rope_base, 64)
        );
        assert_eq!(
            (config.attention_scale, config.attention_softcap, config.logit_softcap),
            (0.125, None, None)
        );
        let (order, activation, scale, base) = match config.architecture {
            Architecture::Llama => (RopeOrder::Interleaved, Activation::Silu, 1.0, spec.rope_base),
            Architecture::Qwen2 | Architecture::Qwen3 => {
                (RopeOrder::Halves, Activation::Silu, 1.0, spec.rope_base)
            }
            Architecture::Gemma3 => (RopeOrder::Halves, Activation::GeluTanh, 8.0, 10_000.0),
        };
        assert_eq!(
            (config.rope.order, config.activation, config.embedding_scale),
            (order, activation, scale)
        );
        assert_eq!(config.rope_sliding.base, base);
        let window = SlidingWindow { size: 5, pattern: 6 };
        assert_eq!(config.sliding_window, (spec.arch == "gemma3").then_some(window));
    }
}

#[test]
fn what_is_taken_where_a_key_is_missing() {
    let mut tiny = Tiny::new(Spec { heads: 2, kv_heads: 2, head_dim: 32, ..Spec::LLAMA });
    for key in ["attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base"]
    {
        tiny.unset(&format!("llama.{key}"));
    }
    tiny.unset("general.name");
    let config = config(&tiny);
    assert_eq!((config.kv_heads, config.head_dim, config.rope.base), (2, 32, 10_000.0));
    assert_eq!((config.name.as_str(), config.rope.scaling), ("llama", RopeScaling::None));
}

#[test]
fn the_vocabulary_is_the_tokens() {
    let mut tiny = Tiny::new(Spec { vocab: 33, ..Spec::LLAMA });
    tiny.set("llama.vocab_size", 7_u32);
    tiny.set("tokenizer.ggml.tokens", OwnedValue::array(ValueType::String, (0..33).map(|i| format!("{i}"))));
    assert_eq!(config(&tiny).vocab_size, 33);
    tiny.set("tokenizer.ggml.tokens", OwnedValue::Array(ValueType::String, Vec::new()));
    refused(&tiny, &["tokenizer.ggml.tokens", "vocabulary"]);
}

#[test]
fn sliding_layers() {
    let layers = |pattern: Option<u32>| {
        let mut tiny = Tiny::new(Spec { layers: 12, vocab: 32, ..Spec::GEMMA3 });
        tiny.unset("gemma3.attention.sliding_window_pattern");
        if let Some(pattern) = pattern {
            tiny.set("gemma3.attention.sliding_window_pattern", pattern);
        }
        let config = config(&tiny);
        (0..12)
            .map(|layer| {
                assert_eq!(config.window(layer), config.is_sliding(layer).then_some(5));
                let base = if config.is_sliding(layer) { 10_000.0 } else { 1e6 };
                assert_eq!(config.rope(layer).base, base, "layer {layer}");
                if config.is_sliding(layer) { 's' } else { 'F' }
            })
            .collect::<String>()
    };
    assert_eq!(layers(None), "sssssFsssssF");
    assert_eq!(layers(Some(2)), "sFsFsFsFsFsF");
    assert_eq!(layers(Some(1)), "FFFFFFFFFFFF");
    assert_eq!(layers(Some(100)), "ssssssssssss");
}

#[test]
fn rope_scaling() {
    let scaling = |entries: &[(&str, OwnedValue)]| {
        let mut tiny = Tiny::new(Spec { vocab: 32, layers: 1, ..Spec::QWEN2 });
        for (key, value) in entries {
            tiny.set(&format!("qwen2.rope.{key}"), value.clone());
        }
        tiny
    };
    let read = |entries: &[(&str, OwnedValue)]| config(&scaling(entries)).rope.scaling;
    let yarn = |original_context, beta_fast| RopeScaling::Yarn {
        factor: 4.0,
        original_context,
        attention_factor: 1.0,
        beta_fast,
        beta_slow: 1.0,
    };
    let factor = || ("scaling.factor", OwnedValue::from(4.0_f32));
    let kind = |name: &str| ("scaling.type", OwnedValue::from(name));
    assert_eq!(read(&[kind("none"), factor()]), RopeScaling::None);
    assert_eq!(read(&[kind("linear"), factor()]), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(read(&[factor()]), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(read(&[("scale_linear", 2.0_f32.into())]), RopeScaling::Linear { factor: 2.0 });
    assert_eq!(read(&[kind("yarn"), factor()]), yarn(4096.0, 32.0));
    let more = [
        kind("yarn"),
        factor(),
        ("scaling.original_context_length", 512_u32.into()),
        ("scaling.yarn_beta_fast", 16.0_f32.into()),
    ];
    assert_eq!(read(&more), yarn(512.0, 16.0));
    refused(&scaling(&[kind("longrope"), factor()]), &["qwen2.rope.scaling.type", "longrope", "yarn"]);
    refused(&scaling(&[kind("a\nb")]), &["a\\nb"]);
    refused(&scaling(&[kind("yarn")]), &["qwen2.rope.scaling.factor", "missing"]);
}

#[test]
fn attention_scales() {
    let scale = |spec| config(&Tiny::new(spec)).attention_scale;
    assert_eq!(scale(Spec { attention_scale: Some(0.3), ..Spec::LLAMA }), 0.3);
    let deep = Spec { layers: 62, vocab: 32, heads: 4, width: 64, ..Spec::GEMMA3 };
    assert_eq!(scale(deep), 0.25, "the 27B model divides by the square root of its width per head");
    assert_eq!(scale(Spec { layers: 61, ..deep }), 0.125);
}

#[test]
fn an_unknown_architecture_lists_the_known_ones() {
    let mut tiny = Tiny::new(Spec::LLAMA);
    tiny.set("general.architecture", "mamba\u{1b}");
    let error = refused(&tiny, &["mamba\\u{1b}", "llama", "qwen2", "qwen3", "gemma3"]);
    assert!(matches!(error, ModelError::UnknownArchitecture { .. }));
    tiny.set("general.architecture", "Llama");
    refused(&tiny, &["`Llama`"]);
    tiny.unset("general.architecture");
    refused(&tiny, &["general.architecture", "missing"]);
    tiny.set("general.architecture", 7_u32);
    refused(&tiny, &["general.architecture"]);
}

/// Zero, the largest number, numbers of no such size and other types, in every key that is a size.
#[test]
fn sizes_that_cannot_be() {
    let sizes = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "rope.scaling.original_context_length",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "vocab_size",
    ];
    for mut tiny in models() {
        let arch = tiny.spec.arch;
        tiny.set(&format!("{arch}.rope.scaling.type"), "yarn");
        tiny.set(&format!("{arch}.rope.scaling.factor"), 2.0_f32);
        load(&tiny).unwrap();
        for size in sizes {
            if size.contains("sliding") && arch != "gemma3" {
                continue;
            }
            let key = format!("{arch}.{size}");
            let refused = |value: OwnedValue| {
                let mut tiny = tiny.clone();
                tiny.set(&key, value);
                refused(&tiny, &[&key]);
            };
            refused(0_u32.into());
            refused(u32::MAX.into());
            refused(u64::MAX.into());
            refused((-1_i32).into());
            refused(1.5_f32.into());
            refused("64".into());
            refused(OwnedValue::array(ValueType::U32, [64_u32]));
        }
    }
}

/// Every size with a value that another tensor or size does not fit: an error or a model, never a panic.
#[test]
fn sizes_that_do_not_fit() {
    for tiny in models() {
        let arch = tiny.spec.arch;
        let cases: &[(&str, u32, &[&str])] = &[
            ("block_count", 2, &["blk.1.attn_norm.weight", "missing"]),
            ("block_count", 1 << 24, &["blk.1.attn_norm.weight", "missing"]),
            ("embedding_length", 32, &["token_embd.weight", "[64, 32]", "[32, 32]"]),
            ("embedding_length", 1 << 24, &["token_embd.weight"]),
            ("feed_forward_length", 64, &["blk.0.ffn_gate.weight", "[64, 96]", "[64, 64]"]),
            ("attention.head_count", 2, &["blk.0.attn_q.weight", "[64, 256]", "[64, 128]"]),
            ("attention.head_count", 3, &["attention.head_count_kv", "head count 3"]),
            ("attention.head_count", 1 << 24, &["blk.0.attn_q.weight"]),
            ("attention.head_count_kv", 4, &["blk.0.attn_k.weight", "[64, 128]", "[64, 256]"]),
            ("attention.head_count_kv", 3, &["attention.head_count_kv", "head count 4"]),
            ("attention.head_count_kv", 8, &["attention.head_count_kv", "head count 4"]),
            ("attention.key_length", 60, &["attention.key_length"]),
            ("attention.key_length", 520, &["attention.key_length"]),
            ("attention.value_length", 72, &["attention.value_length", "64"]),
            ("rope.dimension_count", 66, &["rope.dimension_count", "64"]),
            ("rope.dimension_count", 31, &["rope.dimension_count"]),
            ("vocab_size", 31, &["token_embd.weight", "[64, 32]", "[64, 31]"]),
            ("vocab_size", 33, &["token_embd.weight", "[64, 32]", "[64, 33]"]),
        ];
        for (size, value, words) in cases {
            let mut tiny = tiny.clone();
            tiny.set(&format!("{arch}.{size}"), *value);
            // A head of 60 or 520 also has to fail by itself, not by the value's length.
            if *size == "attention.key_length" {
                tiny.set(&format!("{arch}.attention.value_length"), *value);
            }
            refused(&tiny, words);
        }
        let mut tiny = tiny;
        tiny.unset(&format!("{arch}.attention.key_length"));
        tiny.unset(&format!("{arch}.attention.value_length"));
        tiny.set(&format!("{arch}.attention.head_count"), 5_u32);
        refused(&tiny, &["attention.head_count", "embedding length 64"]);
    }
}

#[test]
fn numbers_that_cannot_be() {
    for tiny in models() {
        let arch = tiny.spec.arch;
        for number in [
            "attention.layer_norm_rms_epsilon",
            "rope.freq_base",
            "rope.scaling.factor",
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "attention.scale",
        ] {
            let key = format!("{arch}.{number}");
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, -0.0001] {
                let mut tiny = tiny.clone();
                tiny.set(&key, value);
                refused(&tiny, &[&key, "above zero"]);
            }
            let mut tiny = tiny.clone();
            tiny.set(&key, "1");
            refused(&tiny, &[&key]);
        }
        let mut tiny = tiny.clone();
        let epsilon = format!("{arch}.attention.layer_norm_rms_epsilon");
        tiny.set(&epsilon, 0.0_f32);
        refused(&tiny, &[&epsilon, "is 0", "above zero"]);
        tiny.set(&epsilon, 1e-6_f32);
        tiny.set(&format!("{arch}.final_logit_softcapping"), 0.0_f32);
        assert_eq!(config(&tiny).logit_softcap, None, "a soft-cap of zero is none");
    }
}

#[test]
fn keys_that_must_be_there() {
    for tiny in models() {
        let arch = tiny.spec.arch;
        for key in [
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.layer_norm_rms_epsilon",
            "vocab_size",
        ] {
            let key = format!("{arch}.{key}");
            let mut tiny = tiny.clone();
            tiny.unset(&key);
            let error = refused(&tiny, &[&key, "missing"]);
            assert!(matches!(error, ModelError::MissingKey { .. }));
        }
    }
}

/// Every tensor, one at a time: missing (which only two may be), with its dimensions exchanged, one too short, in one dimension
/// and in three.
#[test]
fn tensors_that_must_be_there_and_fit() {
    for tiny in models() {
        for name in tiny.names() {
            let optional = ["rope_freqs.weight", "output.weight"].contains(&name.as_str());
            let mut without = tiny.clone();
            without.remove(&name);
            if optional {
                load(&without).unwrap();
            } else {
                let error = refused(&without, &[&name, "missing"]);
                assert!(matches!(error, ModelError::MissingTensor { .. }));
            }
            let dims = tiny.dims(&name);
            let mut shapes = vec![vec![dims[0] + 1], [dims.as_slice(), &[2]].concat()];
            let mut short = dims.clone();
            *short.last_mut().unwrap() -= 1;
            shapes.push(short);
            shapes.push(dims.iter().rev().copied().collect());
            for shape in shapes.into_iter().filter(|shape| *shape != dims) {
                let mut other = tiny.clone();
                other.reshape(&name, &shape);
                let error = refused(&other, &[&name, &format!("{shape:?}"), &format!("{dims:?}")]);
                assert!(matches!(error, ModelError::Shape { .. }));
            }
        }
    }
}

/// A tensor that is passed over would show in nothing but the text.
#[test]
fn tensors_without_a_role() {
    for name in ["blk.0.ffn_gate.bias", "blk.1.attn_norm.weight", "output.bias", "token_types.weight"] {
        let mut tiny = Tiny::new(Spec { layers: 1, ..Spec::LLAMA });
        tiny.add(name, &[96]);
        let error = refused(&tiny, &[name]);
        assert!(matches!(error, ModelError::UnknownTensor { .. }));
    }
}

/// Norms and biases are copied to f32, so a small file of coarse blocks must not make a large copy.
#[test]
fn vectors_are_stored_as_floats() {
    for format in Format::ALL {
        let tiny = Tiny::new(Spec { width: 256, ..Spec::LLAMA });
        let mut tiny = tiny;
        tiny.restore("output_norm.weight", format);
        if format.block_elements() == 1 {
            load(&tiny).unwrap();
        } else {
            refused(&tiny, &["output_norm.weight", format.name(), "F32"]);
        }
    }
}

#[test]
fn tied_and_untied_outputs() {
    let tied = load(&Tiny::new(Spec::QWEN3)).unwrap();
    assert_eq!(tied.output(), tied.embedding());
    let untied = load(&Tiny::new(Spec::LLAMA)).unwrap();
    assert_ne!(untied.output(), untied.embedding());
    assert_eq!((untied.output().rows(), untied.output().columns()), (61, 64));
}
