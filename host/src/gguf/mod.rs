//! GGUF files: metadata and tensors of a model, read from a memory map, or from memory alone.
//!
//! A file is a header (magic, version, counts), metadata entries (key, type, value), a table of
//! tensors (name, shape, format, offset) and, from the next aligned offset on, the tensors' bytes; all
//! little-endian. Versions 2 and 3 are the same but for the number. Source: the GGUF specification in
//! ggml's `docs/gguf.md`.
//!
//! Every number of a file is checked when it is opened: what [`Gguf::open`] returns can be walked without
//! a further error. Nothing is copied but the tensors' names, so an open file costs little memory
//! however large its vocabulary.
//!
//! ```no_run
//! # fn main() -> Result<(), lanemap::gguf::GgufError> {
//! use lanemap::gguf::Gguf;
//!
//! let gguf = Gguf::open("model.gguf".as_ref())?;
//! let architecture = gguf.require("general.architecture", Gguf::str)?;
//! let layers = gguf.require(&format!("{architecture}.block_count"), Gguf::u32)?;
//! let bytes: usize = gguf.tensors().iter().map(|tensor| gguf.data(tensor).len()).sum();
//! println!("{architecture}: {layers} layers, {bytes} bytes of weights");
//! # Ok(())
//! # }
//! ```

mod cursor;
mod error;
mod escape;
mod owned;
mod part;
mod split;
mod tensor;
mod value;
mod writer;

use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

pub use cursor::Fault;
pub use error::{ErrorKind, GgufError};
pub use escape::escape;
pub use owned::OwnedValue;
pub use tensor::TensorInfo;
pub use value::{Array, Value, ValueType, Values};
pub use writer::{GgufWriter, Layout};

use error::shown;
use part::Part;
use tensor::Conflict;

/// An open GGUF model: one file, or all parts of a split one.
#[derive(Debug)]
pub struct Gguf {
    /// At least one; the first holds the metadata.
    parts: Vec<Part>,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, ordered by name.
    by_name: Vec<u32>,
}

impl Gguf {
    /// Opens and checks a file. Of a split model, `path` names the first part
    /// (`…-00001-of-0000N.gguf`); the others are found beside it.
    ///
    /// The files are mapped, not read: they must not be changed or shortened while they are open.
    /// (Replacing one by renaming another over it is fine.)
    ///
    /// # Errors
    /// A file that cannot be read, is not GGUF of version 2 or 3, is truncated, contradicts itself, or
    /// holds a tensor in a format that is not in [`gpu::quant::Format`]; a part that is missing or misplaced.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let (first, tensors) = Part::open(path, 0)?;
        Self::from_first(first, tensors)
    }

    /// Makes a file in memory and checks it as [`Self::open`] does: `bytes` zeros, over which `fill` writes
    /// the file. `name` is what [`Self::path`] and messages call it.
    ///
    /// # Errors
    /// When there is not so much memory, that of `fill`, and all those of [`Self::open`].
    pub fn in_memory(
        name: &Path,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<Self, GgufError> {
        let (first, tensors) = Part::in_memory(name, bytes, fill)?;
        Self::from_first(first, tensors)
    }

    /// From the first part, or the only one.
    fn from_first(first: Part, tensors: Vec<TensorInfo>) -> Result<Self, GgufError> {
        let (parts, tensors) = split::complete(first, tensors)?;
        let by_name =
            tensor::index(&tensors).map_err(|conflict| conflict_error(&parts, &tensors, conflict))?;
        Ok(Self { parts, tensors, by_name })
    }

    fn first(&self) -> &Part {
        &self.parts[0]
    }

    /// The file, of a split model its first part.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.first().path
    }

    /// The model's files in order: one, unless it is split.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.map.len() as u64).sum()
    }

    /// The sha256 of all files' bytes, one behind the other: reads all of them.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        self.parts.iter().for_each(|part| digest.update(&part.map[..]));
        digest.finalize().into()
    }

    /// The GGUF version, 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.first().version
    }

    /// The tensors' alignment in bytes.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.first().alignment
    }

    /// All keys and values, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.first().metadata()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.first().get(key)
    }

    /// A key that must be there, through one of the typed getters: `gguf.require("x.y", Gguf::u32)`.
    ///
    /// # Errors
    /// The key is missing, or its value is of another type.
    pub fn require<'a, T>(
        &'a self,
        key: &str,
        get: impl FnOnce(&'a Self, &str) -> Result<Option<T>, GgufError>,
    ) -> Result<T, GgufError> {
        get(self, key)?.ok_or_else(|| GgufError::new(self.path(), ErrorKind::MissingKey(shown(key))))
    }

    /// An integer of any type that fits.
    ///
    /// # Errors
    /// The value is something else.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.first().typed(key, "an integer that fits u32", |v| v.as_u32())
    }

    /// A float of either width.
    ///
    /// # Errors
    /// The value is something else.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.first().typed(key, "a float", |v| v.as_f32())
    }

    /// A bool.
    ///
    /// # Errors
    /// The value is something else.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.first().typed(key, "a bool", |v| v.as_bool())
    }

    /// A string that is UTF-8.
    ///
    /// # Errors
    /// The value is something else.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.first().typed(key, "a UTF-8 string", |v| v.as_str())
    }

    /// An array of any type.
    ///
    /// # Errors
    /// The value is something else.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, GgufError> {
        self.first().typed(key, "an array", |v| v.as_array())
    }

    /// The elements of an array of strings, which need not be UTF-8.
    ///
    /// # Errors
    /// The value is something else.
    pub fn strings<'a>(
        &'a self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = &'a [u8]> + use<'a>>, GgufError> {
        self.first().typed(key, "an array of strings", |v| v.as_array()?.strings())
    }

    /// The elements of an array of floats.
    ///
    /// # Errors
    /// The value is something else.
    pub fn f32s<'a>(
        &'a self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = f32> + use<'a>>, GgufError> {
        self.first().typed(key, "an array of floats", |v| v.as_array()?.f32s())
    }

    /// The elements of an array of integers that fit.
    ///
    /// # Errors
    /// The value is something else.
    pub fn i32s<'a>(
        &'a self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = i32> + use<'a>>, GgufError> {
        self.first().typed(key, "an array of integers that fit i32", |v| v.as_array()?.i32s())
    }

    /// The elements of an array of integers that fit.
    ///
    /// # Errors
    /// The value is something else.
    pub fn u32s<'a>(
        &'a self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = u32> + use<'a>>, GgufError> {
        self.first().typed(key, "an array of integers that fit u32", |v| v.as_array()?.u32s())
    }

    /// All tensors, those of all parts together, in file order.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = self.by_name.binary_search_by(|&i| self.tensors[i as usize].name.as_str().cmp(name)).ok()?;
        self.tensors.get(self.by_name[at] as usize)
    }

    /// Exactly the tensor's bytes, aligned to at least 8.
    ///
    /// # Panics
    /// If the tensor is one of another `Gguf`.
    #[must_use]
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let start = tensor.offset() as usize;
        &self.parts[tensor.part()].map[start..start + tensor.byte_len()]
    }
}

fn conflict_error(parts: &[Part], tensors: &[TensorInfo], conflict: Conflict) -> GgufError {
    let path = |i: usize| parts[tensors[i].part()].path.as_path();
    let name = |i: usize| shown(&tensors[i].name);
    match conflict {
        Conflict::Overlap(a, b) => {
            GgufError::new(path(b), ErrorKind::Overlap { first: name(a), second: name(b) })
        }
        Conflict::SameName(a, b) if path(a) == path(b) => {
            GgufError::new(path(a), ErrorKind::DuplicateTensor(name(a)))
        }
        Conflict::SameName(a, b) => {
            let kind = ErrorKind::DuplicateAcrossParts { tensor: name(a), other: path(a).to_path_buf() };
            GgufError::new(path(b), kind)
        }
    }
}
