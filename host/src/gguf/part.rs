//! One GGUF file: header, metadata and tensor table, read and checked from its mapping.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapMut};

use super::cursor::{Cursor, Fault};
use super::error::{ErrorKind, GgufError, shown};
use super::escape::escape;
use super::tensor::{self, TensorInfo};
use super::value::Value;

/// Where tensor data start when the file does not say (`general.alignment`).
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

/// The largest alignment that is believed. Files use 32; a page or two is as far as reason goes.
pub(super) const MAX_ALIGNMENT: u64 = 1 << 20;

/// The fewest bytes that a metadata entry takes: length and one character of its key, type, value.
const MIN_ENTRY_BYTES: usize = 8 + 1 + 4 + 1;

/// The fewest bytes that a tensor takes: 33 in the table (length and one character of its name, dimension
/// count, one dimension, type, offset), and its data, which start at a multiple of 8 of their own.
/// That makes 41, but 2 for the last one's data, and the table's end is padded to a multiple of 8:
/// 40 is the largest number that holds for every count.
const MIN_TENSOR_BYTES: usize = 40;

/// A mapped and checked file. Of metadata and tensors it keeps offsets only, so that its memory is
/// bounded by the file's size: 28 bytes an entry, which is twice [`MIN_ENTRY_BYTES`].
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) map: Mmap,
    pub(super) version: u32,
    pub(super) alignment: u64,
    entries: Vec<Entry>,
    /// Indices into `entries`, ordered by key.
    by_key: Vec<u32>,
}

/// A metadata entry, as offsets into the file.
#[derive(Debug)]
struct Entry {
    key: Range<usize>,
    /// Where the value's type stands.
    value: usize,
}

impl Part {
    /// Maps and checks a file, which is number `index` of its model, counted from zero.
    pub(super) fn open(path: &Path, index: u32) -> Result<(Self, Vec<TensorInfo>), GgufError> {
        Self::new(path, map(path), index)
    }

    /// Checks a file of so many bytes that `fill` writes into memory.
    pub(super) fn in_memory(
        name: &Path,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<(Self, Vec<TensorInfo>), GgufError> {
        // A map, as of a file: its pages are zero and aligned, and cost nothing before they are written.
        let map = MmapMut::map_anon(bytes).and_then(|mut map| {
            fill(&mut map)?;
            map.make_read_only()
        });
        Self::new(name, map.map_err(ErrorKind::Io), 0)
    }

    fn new(
        path: &Path,
        map: Result<Mmap, ErrorKind>,
        index: u32,
    ) -> Result<(Self, Vec<TensorInfo>), GgufError> {
        let fail = |kind| GgufError::new(path, kind);
        let map = map.map_err(fail)?;
        let mut part = Self {
            path: path.to_path_buf(),
            map,
            version: 0,
            alignment: DEFAULT_ALIGNMENT,
            entries: Vec::new(),
            by_key: Vec::new(),
        };
        let tensors = part.read(index).map_err(fail)?;
        Ok((part, tensors))
    }

    fn read(&mut self, index: u32) -> Result<Vec<TensorInfo>, ErrorKind> {
        let header = |fault| ErrorKind::Malformed { place: "header".to_owned(), fault };
        let mut cursor = Cursor::new(&self.map);
        check_magic(cursor.take(4).map_err(header)?)?;
        self.version = supported_version(cursor.u32().map_err(header)?)?;

        // Both counts are checked together before anything is allocated for either.
        let (tensors, entries) = (cursor.u64().map_err(header)?, cursor.u64().map_err(header)?);
        let left = cursor.left();
        let count =
            |what: &str, fault| ErrorKind::Malformed { place: format!("header, number of {what}"), fault };
        let tensors =
            cursor.fits(tensors, MIN_TENSOR_BYTES, left).map_err(|fault| count("tensors", fault))?;
        let entries = cursor
            .fits(entries, MIN_ENTRY_BYTES, left - tensors * MIN_TENSOR_BYTES)
            .map_err(|fault| count("metadata entries", fault))?;

        self.entries = read_entries(&mut cursor, entries)?;
        let at = cursor.offset();
        self.by_key = self.index()?;
        self.alignment = self.read_alignment()?;
        tensor::read_table(&mut Cursor::at(&self.map, at), tensors, index, self.alignment)
    }

    fn index(&self) -> Result<Vec<u32>, ErrorKind> {
        let mut order: Vec<u32> = (0..self.entries.len()).map(|i| i as u32).collect();
        order.sort_unstable_by_key(|&i| self.key(i));
        match order.windows(2).find(|pair| self.key(pair[0]) == self.key(pair[1])) {
            Some(pair) => Err(ErrorKind::DuplicateKey(shown(self.key(pair[0])))),
            None => Ok(order),
        }
    }

    fn read_alignment(&self) -> Result<u64, ErrorKind> {
        let Some(value) = self.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
        value
            .as_integer()
            .and_then(|v| u64::try_from(v).ok())
            .filter(|v| v.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(v))
            .ok_or_else(|| ErrorKind::Alignment(value.summary()))
    }

    fn key(&self, index: u32) -> &str {
        self.entries.get(index as usize).map_or("", |entry| self.entry_key(entry))
    }

    fn entry_key(&self, entry: &Entry) -> &str {
        self.map.get(entry.key.clone()).and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default()
    }

    fn entry_value(&self, entry: &Entry) -> Option<Value<'_>> {
        Cursor::at(&self.map, entry.value).typed_value().ok()
    }

    /// Keys and values in file order.
    pub(super) fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().filter_map(|entry| Some((self.entry_key(entry), self.entry_value(entry)?)))
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Value<'_>> {
        let at = self.by_key.binary_search_by(|&i| self.key(i).cmp(key)).ok()?;
        self.entry_value(&self.entries[self.by_key[at] as usize])
    }

    /// The value of a key, converted; `wanted` names what it should be.
    pub(super) fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| {
            let kind = ErrorKind::KeyType { key: shown(key), wanted, found: value.summary() };
            GgufError::new(&self.path, kind)
        })
    }
}

fn map(path: &Path) -> Result<Mmap, ErrorKind> {
    let file = File::open(path).map_err(ErrorKind::Io)?;
    // A folder or a pipe cannot be mapped, and the system's own message would not say so.
    if !file.metadata().map_err(ErrorKind::Io)?.is_file() {
        return Err(ErrorKind::NotAFile);
    }
    #[expect(unsafe_code, reason = "mapping a file is the only way not to copy a model into memory")]
    // SAFETY: the mapping is read-only, it lives as long as every slice handed out of it, and any bytes are
    // valid `u8`s. That nobody shortens or rewrites the file meanwhile is the one thing that cannot be
    // enforced here; it is stated at `Gguf::open`.
    unsafe { Mmap::map(&file) }.map_err(ErrorKind::Io)
}

fn check_magic(magic: &[u8]) -> Result<(), ErrorKind> {
    let seems = match magic {
        b"GGUF" => return Ok(()),
        b"FUGG" => "it starts with \"FUGG\": the bytes of each word are swapped",
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            "it is in a GGML format from before GGUF; convert the model again"
        }
        b"vers" => "it looks like a Git LFS pointer; fetch the file that it stands for",
        b"<!DO" | b"<!do" | b"<htm" | b"<HTM" => "it is a web page, perhaps a download that needed a login",
        b"PK\x03\x04" => "it is a zip archive",
        other => {
            return Err(ErrorKind::Magic(format!(
                "it starts with \"{}\", not with \"GGUF\"",
                escape(other, 4)
            )));
        }
    };
    Err(ErrorKind::Magic(seems.to_owned()))
}

fn supported_version(version: u32) -> Result<u32, ErrorKind> {
    match version {
        2 | 3 => Ok(version),
        1 => Err(ErrorKind::Version { version, hint: "; convert the model again with a current tool" }),
        // No version so high will come, but a low one with its bytes swapped looks like that.
        _ if version != 0 && version & 0xffff == 0 => Err(ErrorKind::BigEndian(version)),
        _ => Err(ErrorKind::Version { version, hint: "" }),
    }
}

fn read_entries(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Entry>, ErrorKind> {
    let mut entries = Vec::with_capacity(count);
    for index in 0..count {
        let key = cursor.name().map_err(|fault| ErrorKind::Malformed {
            place: format!("key of metadata entry {} of {count}", index + 1),
            fault,
        })?;
        let value = cursor.offset();
        cursor.typed_value().map_err(|fault: Fault| ErrorKind::Malformed {
            place: format!("value of metadata key \"{}\"", shown(key)),
            fault,
        })?;
        entries.push(Entry { key: value - key.len()..value, value });
    }
    Ok(entries)
}
