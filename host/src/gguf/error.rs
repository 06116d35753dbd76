//! What can be wrong with a GGUF file, said in one line that names the file.

use std::io;
use std::path::{Path, PathBuf};

use gpu::quant::Format;

use super::cursor::Fault;
use super::escape::escape;

/// A GGUF file that cannot be used, and why. Displays as `path: reason`.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct GgufError {
    /// The file; of a split model, the part.
    pub path: PathBuf,
    /// What is wrong with it. Not its `source`: the message holds it already.
    pub kind: Box<ErrorKind>,
}

impl GgufError {
    pub(super) fn new(path: &Path, kind: ErrorKind) -> Self {
        Self { path: path.to_path_buf(), kind: Box::new(kind) }
    }
}

/// What is wrong with a GGUF file. Names from the file are escaped and shortened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum ErrorKind {
    #[error("{0}")]
    Io(io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("is not a GGUF file: {0}")]
    Magic(String),
    #[error("GGUF version {version} is not supported (2 and 3 are){hint}")]
    Version { version: u32, hint: &'static str },
    #[error(
        "is a big-endian GGUF file (its version reads {0:#010x}); only little-endian files are supported"
    )]
    BigEndian(u32),
    #[error("{place}: {fault}")]
    Malformed { place: String, fault: Fault },
    #[error("metadata key \"{0}\" appears twice")]
    DuplicateKey(String),
    #[error("metadata key \"{0}\" is missing")]
    MissingKey(String),
    #[error("metadata key \"{key}\" should be {wanted}, but is {found}")]
    KeyType { key: String, wanted: &'static str, found: String },
    #[error("general.alignment is {0}; it must be a power of two from 8 to {max}", max = super::part::MAX_ALIGNMENT)]
    Alignment(String),

    #[error("tensor \"{tensor}\" has {count} dimensions; 1 to {max} are possible", max = super::tensor::MAX_DIMS)]
    DimensionCount { tensor: String, count: u32 },
    #[error("tensor \"{tensor}\" has a dimension of zero: {dims:?}")]
    ZeroDimension { tensor: String, dims: Vec<u64> },
    #[error("tensor \"{tensor}\" is larger than any file: dimensions {dims:?} in {format}")]
    TensorOverflow { tensor: String, dims: Vec<u64>, format: Format },
    #[error("tensor \"{tensor}\" has type {id}, {}", type_name(*id))]
    TensorType { tensor: String, id: u32 },
    #[error(
        "tensor \"{tensor}\" has rows of {row_len} values, which do not divide into the blocks of {} of its \
         format {format}",
        format.block_elements()
    )]
    RowLength { tensor: String, row_len: u64, format: Format },
    #[error(
        "tensor \"{tensor}\" starts at offset {offset}, which is no multiple of the alignment {alignment}"
    )]
    Misaligned { tensor: String, offset: u64, alignment: u64 },
    #[error(
        "tensor \"{tensor}\" needs {wanted} bytes from offset {at}, but the file holds only {present} of them: it is \
         truncated or damaged; fetch it again"
    )]
    TensorTruncated { tensor: String, at: u64, wanted: u64, present: u64 },
    #[error("tensors \"{first}\" and \"{second}\" overlap")]
    Overlap { first: String, second: String },
    #[error("tensor \"{0}\" appears twice")]
    DuplicateTensor(String),
    #[error("tensor \"{tensor}\" appears twice: here and in {}", other.display())]
    DuplicateAcrossParts { tensor: String, other: PathBuf },

    #[error("is part {number} of {count} of a split model; open the first part, {}", first.display())]
    NotFirstPart { number: u64, count: u64, first: PathBuf },
    #[error(
        "says it is part {number} of {count}, so its name must end in -{number:05}-of-{count:05}.gguf for the other \
         parts to be found (parts joined with cat are not a model: merge them with a GGUF tool)"
    )]
    PartName { number: u64, count: u64 },
    #[error(
        "is named part {named} of {named_count}, but says (split.no, split.count) that it is part {number} of {count}: \
         files were swapped or renamed"
    )]
    PartMismatch { named: u64, named_count: u64, number: u64, count: u64 },
    #[error("part {number} of {count} of the split model is missing")]
    MissingPart { number: u64, count: u64 },
    #[error("all parts together hold {found} tensors, but split.tensors.count says {wanted}")]
    SplitTensorCount { wanted: u64, found: usize },
}

/// A name from a file, fit for a message.
pub(super) fn shown(name: &str) -> String {
    escape(name.as_bytes(), 100)
}

/// What is known of a tensor type that is not one of ours, by its id in the file.
///
/// Ids as in ggml's `ggml_type`. They are never given out twice, so those of types that were
/// withdrawn can be named too.
fn type_name(id: u32) -> String {
    let name = match id {
        9 => "Q8_1",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        4 => return withdrawn("Q4_2"),
        5 => return withdrawn("Q4_3"),
        31 => return withdrawn("Q4_0_4_4"),
        32 => return withdrawn("Q4_0_4_8"),
        33 => return withdrawn("Q4_0_8_8"),
        36 => return withdrawn("IQ4_NL_4_4"),
        37 => return withdrawn("IQ4_NL_4_8"),
        38 => return withdrawn("IQ4_NL_8_8"),
        _ => return format!("which is not a known format; supported are {}", supported()),
    };
    format!("which is {name}: that format is not supported; supported are {}", supported())
}

fn withdrawn(name: &str) -> String {
    format!("which is {name}: that format was withdrawn from GGUF; convert the model again")
}

fn supported() -> String {
    Format::ALL.map(Format::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_type_id_up_to_the_last_known_has_a_name() {
        for id in 0..=41 {
            if Format::from_id(id).is_none() {
                let text = type_name(id);
                assert!(!text.contains("not a known format"), "type {id}: {text}");
            }
        }
        assert!(type_name(42).contains("not a known format"));
    }
}
