//! Metadata values: what a key of a GGUF file holds.
//!
//! Strings and arrays are borrowed from the mapped file and decoded when they are walked, so
//! a vocabulary of a quarter of a million strings costs no memory of its own.

use super::cursor::Cursor;
use super::escape::escape;

/// The type of a metadata value. The discriminant is the type id in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Every type, in the order of the file's type ids: the type with id `i` stands at `i`.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with this id, if there is one.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The type id in the file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name in messages and listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// The fewest bytes that a value of this type takes in the file: all of them for a
    /// number, the length field of a string, the element type and count of an array.
    #[must_use]
    pub const fn min_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value, borrowed from the mapped file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the types they hold")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Not necessarily UTF-8: a vocabulary may hold single bytes of a longer character.
    String(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The type of this value.
    #[must_use]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number, if this is an integer of any width.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The number, if this is an integer of any width that fits.
    #[must_use]
    pub fn as_u32(&self) -> Option<u32> {
        self.as_integer()?.try_into().ok()
    }

    /// The number, if this is an integer of any width that fits.
    #[must_use]
    pub fn as_i32(&self) -> Option<i32> {
        self.as_integer()?.try_into().ok()
    }

    /// The number, if this is a float of either width (an `f64` is rounded to nearest).
    #[must_use]
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// The truth value, if this is a bool.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// The bytes, if this is a string.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }

    /// The text, if this is a string and UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// The array, if this is one.
    #[must_use]
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }

    /// Type and value in a few words, for messages: `u64 5000000000`, `string "llama"`,
    /// `array of 3 f32`.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {} {}", array.len(), array.element_type()),
            Self::String(bytes) => format!("string \"{}\"", escape(bytes, 40)),
            Self::Bool(v) => format!("bool {v}"),
            Self::F32(v) => format!("f32 {v}"),
            Self::F64(v) => format!("f64 {v}"),
            integer => {
                format!("{} {}", integer.value_type(), integer.as_integer().unwrap_or_default())
            }
        }
    }
}

/// An array of a GGUF file: its elements have one type and lie undecoded in the mapped file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    pub(super) element_type: ValueType,
    pub(super) len: usize,
    /// Exactly the elements' bytes, checked when the file was opened.
    pub(super) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of every element.
    #[must_use]
    pub const fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, decoded one by one.
    #[must_use]
    pub fn values(&self) -> Values<'a> {
        Values { cursor: Cursor::new(self.bytes), element_type: self.element_type, left: self.len }
    }

    /// The elements' bytes, if all are strings.
    #[must_use]
    pub fn strings(&self) -> Option<impl ExactSizeIterator<Item = &'a [u8]> + use<'a>> {
        self.converted(|v| v.as_bytes())
    }

    /// The elements, if all are floats.
    #[must_use]
    pub fn f32s(&self) -> Option<impl ExactSizeIterator<Item = f32> + use<'a>> {
        self.converted(|v| v.as_f32())
    }

    /// The elements, if all are integers that fit.
    #[must_use]
    pub fn i32s(&self) -> Option<impl ExactSizeIterator<Item = i32> + use<'a>> {
        self.converted(|v| v.as_i32())
    }

    /// The elements, if all are integers that fit.
    #[must_use]
    pub fn u32s(&self) -> Option<impl ExactSizeIterator<Item = u32> + use<'a>> {
        self.converted(|v| v.as_u32())
    }

    /// The elements, if all are bools.
    #[must_use]
    pub fn bools(&self) -> Option<impl ExactSizeIterator<Item = bool> + use<'a>> {
        self.converted(|v| v.as_bool())
    }

    /// The elements, if all are arrays themselves.
    #[must_use]
    pub fn arrays(&self) -> Option<impl ExactSizeIterator<Item = Array<'a>> + use<'a>> {
        self.converted(|v| v.as_array())
    }

    fn converted<T: Default>(
        &self,
        convert: fn(Value<'a>) -> Option<T>,
    ) -> Option<impl ExactSizeIterator<Item = T> + use<'a, T>> {
        let all = self.values().all(|value| convert(value).is_some());
        // The default never shows: every element has just been seen to convert.
        all.then(|| self.values().map(move |value| convert(value).unwrap_or_default()))
    }
}

impl Default for Array<'_> {
    fn default() -> Self {
        Self { element_type: ValueType::U8, len: 0, bytes: &[] }
    }
}

/// The elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    cursor: Cursor<'a>,
    element_type: ValueType,
    left: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.cursor.value(self.element_type).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}
