//! Small GGUF files for tests, and ways to damage them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::PathBuf;

use gpu::quant::Format;
use lanemap::gguf::{GgufWriter, OwnedValue, ValueType};

pub(crate) use super::random::Random;

/// A folder that is removed with the value.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        // Some file systems wait for the disk when a file is overwritten, but not when it is new.
        _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Bytes for a tensor: as many as its shape and format need, none of them special.
pub(crate) fn tensor_bytes(dims: &[u64], format: Format) -> Vec<u8> {
    let elements = dims.iter().product::<u64>() as usize;
    Random(elements as u64).bytes(elements / format.block_elements() * format.block_bytes())
}

/// [`GgufWriter::tensor`] with [`tensor_bytes`].
pub(crate) fn with_tensor(writer: GgufWriter, name: &str, dims: &[u64], format: Format) -> GgufWriter {
    writer.tensor(name, dims, format, tensor_bytes(dims, format))
}

/// The tensors of [`tiny`].
pub(crate) const TINY_TENSORS: [(&str, &[u64], Format); 4] = [
    ("token_embd.weight", &[64, 5], Format::Q8_0),
    ("blk.0.attn_norm.weight", &[64], Format::F32),
    ("blk.0.attn_q.weight", &[256, 3], Format::Q4_K),
    ("blk.0.ffn_exps.weight", &[32, 2, 3], Format::F16),
];

/// A file with one of everything: all metadata types, nested and empty arrays, tensors of several
/// formats and dimensions.
pub(crate) fn tiny() -> GgufWriter {
    let writer = GgufWriter::new().meta("general.architecture", "llama");
    let writer = every_value().into_iter().fold(writer, |writer, (key, value)| writer.meta(key, value));
    TINY_TENSORS.iter().fold(writer, |writer, (name, dims, format)| with_tensor(writer, name, dims, *format))
}

/// A value of every metadata type, at its limits.
pub(crate) fn every_value() -> Vec<(&'static str, OwnedValue)> {
    let pair = |a: &str, b: &str| OwnedValue::array(ValueType::String, [a, b]);
    let empty = |element_type| OwnedValue::Array(element_type, Vec::new());
    vec![
        ("x.u8", u8::MAX.into()),
        ("x.i8", i8::MIN.into()),
        ("x.u16", u16::MAX.into()),
        ("x.i16", i16::MIN.into()),
        ("x.u32", u32::MAX.into()),
        ("x.i32", i32::MIN.into()),
        ("x.f32", (-0.1_f32).into()),
        ("x.infinite", f32::INFINITY.into()),
        ("x.bool", true.into()),
        ("x.string", "Ġdes Füße 海\n\"\u{1b}[2J".into()),
        ("x.bytes", b"\xf0\x9f".as_slice().into()),
        ("x.no_text", "".into()),
        ("x.u64", u64::MAX.into()),
        ("x.i64", i64::MIN.into()),
        ("x.f64", 0.1_f64.into()),
        ("x.f32s", OwnedValue::array(ValueType::F32, [0.5_f32, f32::MIN_POSITIVE, -1e30])),
        ("x.bools", OwnedValue::array(ValueType::Bool, [true, false, true])),
        ("x.strings", OwnedValue::array(ValueType::String, ["", "a", "aé\0"])),
        (
            "x.pairs",
            OwnedValue::array(ValueType::Array, [pair("a", "b"), pair("", "c"), empty(ValueType::U64)]),
        ),
        (
            "x.deep",
            OwnedValue::array(
                ValueType::Array,
                [OwnedValue::array(ValueType::Array, [OwnedValue::array(ValueType::I16, [-1_i16, 2])])],
            ),
        ),
        ("x.no_u32", empty(ValueType::U32)),
        ("x.no_arrays", empty(ValueType::Array)),
    ]
}

/// Where a sequence of bytes stands. It must be there exactly once.
pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    let mut hits = bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
    let (at, _) =
        hits.next().unwrap_or_else(|| panic!("{:?} is not there", wanted.escape_ascii().to_string()));
    assert!(hits.next().is_none(), "{:?} is there twice", wanted.escape_ascii().to_string());
    at
}

/// Overwrites bytes from an offset on.
pub(crate) fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// Replaces a name by another of the same length.
pub(crate) fn rename(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = find(bytes, from.as_bytes());
    put(bytes, at, to.as_bytes());
}

/// Where the fields of a tensor's table entry stand.
pub(crate) struct TensorEntry {
    pub(crate) n_dims: usize,
    pub(crate) dims: usize,
    pub(crate) format: usize,
    pub(crate) offset: usize,
}

pub(crate) fn tensor_entry(bytes: &[u8], name: &str) -> TensorEntry {
    let n_dims = find(bytes, name.as_bytes()) + name.len();
    let dims = n_dims + 4;
    let format = dims + 8 * usize::from(bytes[n_dims]);
    TensorEntry { n_dims, dims, format, offset: format + 4 }
}

/// A model in `count` parts, each with one tensor `part.N`; the paths in order.
pub(crate) fn write_split(folder: &Folder, count: u16) -> Vec<PathBuf> {
    (0..count)
        .map(|index| {
            let bytes = split_part(index, count, i32::from(count)).to_bytes().unwrap();
            folder.write(&part_name(index, count), &bytes)
        })
        .collect()
}

pub(crate) fn part_name(index: u16, count: u16) -> String {
    format!("t-{:05}-of-{count:05}.gguf", index + 1)
}

pub(crate) fn split_part(index: u16, count: u16, tensors: i32) -> GgufWriter {
    let writer = GgufWriter::new().meta("split.no", index).meta("split.count", count);
    let writer = writer.meta("split.tensors.count", tensors);
    let writer = if index == 0 { writer.meta("general.name", "split") } else { writer };
    with_tensor(writer, &format!("part.{index}"), &[32 * (u64::from(index) + 1), 2], Format::Q8_0)
}
