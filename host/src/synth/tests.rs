#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io;

use gpu::quant::{Format, dequantize_row};
use sha2::{Digest, Sha256};

use super::*;
use crate::model::Model;

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn bytes(text: &str, seed: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Synth::new(spec(text), seed).write_to(&mut out, &mut |_| Ok(())).unwrap();
    out
}

#[test]
fn every_spec_is_read_as_it_is_written() {
    for shape in &SHAPES {
        for mix in &MIXES {
            let written = Spec { shape, mix };
            assert_eq!(written.to_string().parse(), Ok(written));
        }
    }
}

#[test]
fn a_refused_spec_is_told_what_there_is() {
    let refusal = |text: &str| text.parse::<Spec>().unwrap_err().to_string();
    for text in ["qwen2-7b", "", "qwen2-70b:q4_k_m", ":"] {
        let message = refusal(text);
        assert!(message.contains(&format!("`{}`", text.split(':').next().unwrap())), "{message}");
        for shape in &SHAPES {
            assert!(message.contains(shape.name), "{message}");
        }
        assert_eq!(message.lines().count(), 1);
    }
    for text in ["tiny:q9", "tiny:", "tiny:q4_k_m:x", "tiny:Q4_K_M"] {
        let message = refusal(text);
        assert!(message.contains(&format!("`{}`", text.split_once(':').unwrap().1)), "{message}");
        assert!(MIXES.iter().all(|mix| message.contains(mix.name)), "{message}");
    }
    assert!(refusal("qwen2-7b").contains("such as qwen2-7b:q4_k_m"));
}

/// The values have the size that was asked for, and lie evenly around zero, in every format that a mix has.
#[test]
fn values_have_their_size_in_every_format() {
    const DEVIATION: f64 = 0.01;
    for mix in &MIXES {
        for format in [mix.base, mix.more, mix.output] {
            let elements = 1 << 20;
            let len = format.bytes_of(elements);
            let mut values = vec![f32::NAN; elements];
            let mut out = vec![0_u64; len / 8];
            let out: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
            let mut end = 0;
            for piece in Piece::random(format, DEVIATION, (0..len as u64, 3), 1) {
                assert_eq!(piece.range.start, end, "{format}: a gap, or an overlap");
                assert!(piece.range.start.is_multiple_of(32), "{format}: {:?}", piece.range);
                end = piece.range.end;
                piece.make(&mut out[piece.range.start as usize..end as usize]);
            }
            assert_eq!(end, len as u64, "{format}");
            dequantize_row(format, out, &mut values).unwrap();
            let n = elements as f64;
            let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let deviation = (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n).sqrt();
            assert!((deviation / DEVIATION - 1.0).abs() < 0.03, "{format}: {deviation}");
            assert!((mean / DEVIATION).abs() < 0.01, "{format}: {mean}");
            let largest = values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            assert!(f64::from(largest) < 12.0 * DEVIATION, "{format}: {largest}");
        }
    }
}

/// As in the files of an independent generator, read with the Python package `gguf` 0.19.
#[test]
fn qwen2_7b_has_the_tensors_of_other_tools() {
    let Spec { shape, mix } = spec("qwen2-7b:q4_k_m");
    let tensors = shape.tensors(mix);
    let bytes = |tensor: &shape::Tensor| tensor.format.bytes_of(tensor.dims.iter().product::<u64>() as usize);
    assert_eq!((tensors.len(), tensors.iter().map(bytes).sum::<usize>()), (339, 4_677_120_000));
    let finer = tensors.iter().filter(|tensor| tensor.format == Format::Q6_K).map(|t| t.name.clone());
    let layers = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27];
    let expected =
        layers.iter().flat_map(|i| ["attn_v", "ffn_down"].map(|role| format!("blk.{i}.{role}.weight")));
    assert!(finer.eq(expected.chain(["output.weight".to_owned()])));
    let names: Vec<_> =
        tensors[1..13].iter().map(|tensor| tensor.name.trim_start_matches("blk.0.")).collect();
    assert_eq!(
        names.join(" "),
        "attn_norm.weight attn_q.weight attn_q.bias attn_k.weight attn_k.bias attn_v.weight attn_v.bias \
         attn_output.weight ffn_norm.weight ffn_gate.weight ffn_up.weight ffn_down.weight"
    );
    let plain = |text| spec(text).shape.tensors(spec(text).mix).iter().map(bytes).sum::<usize>();
    assert_eq!(plain("qwen2-7b:q8_0"), 8_092_571_648);
    assert_eq!(plain("qwen2-14b:q4_k_m"), 8_982_142_976);
    assert_eq!(plain("qwen2-1.5b:q4_k_m"), 919_930_880);
}

/// Models measured today and tomorrow are the same.
#[test]
fn the_bytes_are_pinned() {
    let hash = |text| {
        Sha256::digest(bytes(text, DEFAULT_SEED)).iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    assert_eq!(hash("tiny:q4_k_m"), "d023ca78ada9c9768652b21d9694e2159e75f9f524c697d4b5c1bf479c71b738");
    assert_eq!(hash("tiny-gemma3:f16"), "d1641ab5cf9085c54b03afb94779222560e32b580a63bfbccf021a9e66b1e89b");
}

#[test]
fn the_bytes_depend_on_seed_and_tensor_and_on_nothing_else() {
    let text = "tiny-qwen2:q5_k_m";
    let expected = bytes(text, 7);
    assert!(expected != bytes(text, 8));
    assert!(expected != bytes(text, 7 + (1 << 32)));
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| bytes(text, 7)) == expected, "{threads} threads");
    }
    let gguf = Synth::new(spec(text), 7).gguf(&mut |_| Ok(())).unwrap();
    let data = |name: &str| gguf.data(gguf.tensor(name).unwrap());
    assert!(data("blk.0.attn_q.weight") != data("blk.0.attn_output.weight"));
    assert!(data("blk.0.ffn_gate.weight") != data("blk.1.ffn_gate.weight"));
}

/// More than one span, so that the seams are seen too.
#[test]
fn a_file_and_memory_hold_the_same() {
    static LONG: Shape = Shape { name: "long", vocab_size: 70_000, feed_forward: 4096, ..SHAPES[4] };
    let spec = Spec { shape: &LONG, mix: &MIXES[2] };
    let model = Synth::new(spec, 1);
    assert!(model.spans().count() > 3);
    let mut done = Vec::new();
    let mut file = Vec::new();
    model
        .write_to(&mut file, &mut |bytes| {
            done.push(bytes);
            Ok(())
        })
        .unwrap();
    assert_eq!(file.len() as u64, model.file_bytes());
    assert!(done.is_sorted() && done.last() == Some(&model.file_bytes()), "{done:?}");

    let mut memory = vec![0_u64; file.len().div_ceil(8)];
    let memory = &mut bytemuck::cast_slice_mut(&mut memory)[..file.len()];
    model.make(&(0..model.file_bytes()), memory);
    assert!(memory == file, "spans make another file than the whole does");

    let gguf = model.gguf(&mut |_| Ok(())).unwrap();
    assert_eq!((gguf.path().to_str(), gguf.file_bytes()), (Some("synth:long:f32"), model.file_bytes()));
    for tensor in gguf.tensors() {
        let start = tensor.offset() as usize;
        assert!(gguf.data(tensor) == &file[start..start + tensor.byte_len()], "{}", tensor.name);
    }
    assert_eq!(Model::load(gguf.into()).unwrap().parameters(), model.parameters());
}

#[test]
fn work_that_is_ended_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let model = Synth::new(spec("tiny:f32"), 1);
    let ended = |_| Err(io::Error::other("enough"));
    let error = model.write_file(&path, false, &mut { ended }).unwrap_err();
    assert!(error.to_string().contains("m.gguf: enough"), "{error}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    let error = model.gguf(&mut { ended }).unwrap_err();
    assert_eq!(error.to_string(), "synth:tiny:f32: enough");

    model.write_file(&path, false, &mut |_| Ok(())).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for replace in [false, true] {
        let other = Synth::new(spec("tiny:f32"), 2);
        assert!(other.write_file(&path, replace, &mut { ended }).is_err());
        assert!(std::fs::read(&path).unwrap() == whole, "what was there is gone");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    assert!(matches!(model.write_file(folder.path(), true, &mut |_| Ok(())), Err(SynthError::NotAFile(_))));
}
