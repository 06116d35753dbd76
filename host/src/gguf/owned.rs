//! Metadata values that own what they hold, for files that are yet to be written.

use super::value::{Value, ValueType};

/// A metadata value, to be written.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the types they hold")]
pub enum OwnedValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Vec<u8>),
    /// The elements' type, which an empty array has too, and the elements, all of that type.
    Array(ValueType, Vec<OwnedValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl OwnedValue {
    /// An array, possibly empty, of elements of the type given.
    pub fn array<T: Into<Self>>(element_type: ValueType, elements: impl IntoIterator<Item = T>) -> Self {
        Self::Array(element_type, elements.into_iter().map(Into::into).collect())
    }

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
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Appends the value as it stands in a file, without its own type before it.
    ///
    /// # Errors
    /// An array with an element that is not of the array's type; the two types, as declared and found.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), (ValueType, ValueType)> {
        match self {
            Self::U8(v) => out.extend(v.to_le_bytes()),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::String(bytes) => encode_string(bytes, out),
            Self::Array(element_type, elements) => {
                out.extend(element_type.id().to_le_bytes());
                out.extend((elements.len() as u64).to_le_bytes());
                for element in elements {
                    if element.value_type() != *element_type {
                        return Err((*element_type, element.value_type()));
                    }
                    element.encode(out)?;
                }
            }
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
        }
        Ok(())
    }
}

/// Appends a string: its length in bytes, then the bytes.
pub(super) fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

macro_rules! from_number {
    ($($variant:ident($number:ty)),*) => {
        $(impl From<$number> for OwnedValue {
            fn from(value: $number) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
from_number!(
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    U64(u64),
    I64(i64),
    F64(f64)
);

impl From<&str> for OwnedValue {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for OwnedValue {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<&[u8]> for OwnedValue {
    fn from(bytes: &[u8]) -> Self {
        Self::String(bytes.into())
    }
}

/// A value that was read becomes one that can be written.
impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => Self::U8(v),
            Value::I8(v) => Self::I8(v),
            Value::U16(v) => Self::U16(v),
            Value::I16(v) => Self::I16(v),
            Value::U32(v) => Self::U32(v),
            Value::I32(v) => Self::I32(v),
            Value::F32(v) => Self::F32(v),
            Value::Bool(v) => Self::Bool(v),
            Value::String(bytes) => bytes.into(),
            Value::Array(array) => Self::array(array.element_type(), array.values()),
            Value::U64(v) => Self::U64(v),
            Value::I64(v) => Self::I64(v),
            Value::F64(v) => Self::F64(v),
        }
    }
}
