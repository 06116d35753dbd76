//! The bytes of a GGUF file, read front to back with every length checked before it is used.
//!
//! All numbers are little-endian. Nothing here allocates: strings and arrays are slices.

use super::value::{Array, Value, ValueType};

/// How deep arrays may stand inside arrays. Files in the wild nest once or not at all; the
/// bound keeps a hostile file from exhausting the stack.
pub(super) const MAX_ARRAY_DEPTH: usize = 8;

/// Why bytes do not read as what they should be. The caller adds file and field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field reaches past the end of the file.
    #[error("needs {wanted} bytes at offset {at}, but only {present} are left (is the file truncated?)")]
    Truncated {
        /// Offset of the field in the file.
        at: u64,
        /// Bytes that the field needs.
        wanted: u64,
        /// Bytes from `at` to the end of the file.
        present: u64,
    },
    /// A count that the rest of the file cannot hold, however short its items are.
    #[error(
        "the count {count} is larger than the bytes left: each takes at least {item_bytes} bytes, \
         and only {present} are left at offset {at} (is the file truncated?)"
    )]
    Count {
        /// The number in the file.
        count: u64,
        /// The fewest bytes that one item takes.
        item_bytes: usize,
        /// Offset of the first item.
        at: u64,
        /// Bytes from `at` to the end of the file.
        present: u64,
    },
    /// A value type that GGUF does not define.
    #[error("unknown value type {0} (known are 0 to 12)")]
    ValueType(u32),
    /// Arrays of arrays of arrays, beyond reason.
    #[error("arrays are nested more than {MAX_ARRAY_DEPTH} deep")]
    Depth,
    /// A bool that is neither false nor true.
    #[error("{0} is not a bool (0 or 1)")]
    Bool(u8),
    /// A key or a tensor name that is not text.
    #[error("is not UTF-8")]
    Utf8,
    /// A key or a tensor name without a character.
    #[error("is empty")]
    Empty,
}

/// A position in the bytes of a file.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// At an offset that an earlier walk found; past the end, everything reads as truncated.
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at: at.min(bytes.len()) }
    }

    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    pub(super) const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let (at, left) = (self.at, self.left());
        match usize::try_from(count) {
            Ok(count) if count <= left => {
                self.at += count;
                Ok(&self.bytes[at..at + count])
            }
            _ => Err(Fault::Truncated { at: at as u64, wanted: count, present: left as u64 }),
        }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64)?);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// `count` as a size, if that many items of at least `item_bytes` fit into `left` bytes.
    pub(super) fn fits(&self, count: u64, item_bytes: usize, left: usize) -> Result<usize, Fault> {
        let fault = Fault::Count { count, item_bytes, at: self.at as u64, present: left as u64 };
        let count = usize::try_from(count).map_err(|_| fault)?;
        if count <= left / item_bytes { Ok(count) } else { Err(fault) }
    }

    /// A string: its length in bytes, then the bytes.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.u64()?;
        self.take(len)
    }

    /// A metadata key or a tensor name: a string that is UTF-8 and not empty.
    pub(super) fn name(&mut self) -> Result<&'a str, Fault> {
        match std::str::from_utf8(self.string()?) {
            Ok("") => Err(Fault::Empty),
            name => name.map_err(|_| Fault::Utf8),
        }
    }

    fn value_type(&mut self) -> Result<ValueType, Fault> {
        let id = self.u32()?;
        ValueType::from_id(id).ok_or(Fault::ValueType(id))
    }

    /// A value with its type before it.
    pub(super) fn typed_value(&mut self) -> Result<Value<'a>, Fault> {
        let value_type = self.value_type()?;
        self.value(value_type)
    }

    /// A value of the type given.
    pub(super) fn value(&mut self, value_type: ValueType) -> Result<Value<'a>, Fault> {
        self.value_inside(value_type, 0)
    }

    /// A value inside `depth` arrays.
    fn value_inside(&mut self, value_type: ValueType, depth: usize) -> Result<Value<'a>, Fault> {
        Ok(match value_type {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.fixed()?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.fixed()?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.fixed()?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.fixed()?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(self.fixed()?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.fixed()?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(self.fixed()?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(self.fixed()?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.fixed()?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.fixed()?)),
            ValueType::Bool => match self.fixed()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return Err(Fault::Bool(other)),
            },
            ValueType::String => Value::String(self.string()?),
            ValueType::Array => Value::Array(self.array(depth)?),
        })
    }

    /// An array inside `depth` others: element type, count, elements.
    fn array(&mut self, depth: usize) -> Result<Array<'a>, Fault> {
        if depth == MAX_ARRAY_DEPTH {
            return Err(Fault::Depth);
        }
        let element_type = self.value_type()?;
        let count = self.u64()?;
        let len = self.fits(count, element_type.min_bytes(), self.left())?;
        let start = self.at;
        match element_type {
            ValueType::Bool | ValueType::String | ValueType::Array => {
                for _ in 0..len {
                    self.value_inside(element_type, depth + 1)?;
                }
            }
            // Any bits are a number: nothing to look at. The product fits, as `fits` found.
            _ => _ = self.take((len * element_type.min_bytes()) as u64)?,
        }
        Ok(Array { element_type, len, bytes: &self.bytes[start..self.at] })
    }
}
