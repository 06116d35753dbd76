//! The listing as one JSON object, written value by value: a vocabulary is never held in memory.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use super::{Totals, by_format};
use crate::gguf::{Array, Gguf, TensorInfo, Value};

/// Longer arrays are summarised unless all is asked for.
const ARRAY_ELEMENTS: usize = 64;

pub(super) fn write(out: &mut dyn Write, gguf: &Gguf, full: bool) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &File { gguf, full })?;
    writeln!(out)
}

struct File<'a> {
    gguf: &'a Gguf,
    full: bool,
}

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { gguf, .. } = self;
        let totals = Totals::of(gguf.tensors().iter());
        let parts: Vec<_> = gguf.parts().map(|path| path.to_string_lossy()).collect();
        let formats: Vec<_> = by_format(gguf)
            .into_iter()
            .map(|(format, Totals { tensors, parameters, bytes })| {
                json!({"format": format.name(), "tensors": tensors, "parameters": parameters, "bytes": bytes})
            })
            .collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("files", &parts)?;
        map.serialize_entry("version", &gguf.version())?;
        map.serialize_entry("alignment", &gguf.alignment())?;
        map.serialize_entry("file_bytes", &gguf.file_bytes())?;
        map.serialize_entry("parameters", &totals.parameters)?;
        map.serialize_entry("bits_per_weight", &totals.bits_per_weight())?;
        map.serialize_entry("metadata", &Metadata(self))?;
        map.serialize_entry("tensors", &Tensors(gguf.tensors()))?;
        map.serialize_entry("formats", &formats)?;
        map.end()
    }
}

struct Metadata<'a>(&'a File<'a>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let File { gguf, full } = *self.0;
        serializer.collect_map(gguf.metadata().map(|(key, value)| (key, Json { value, full })))
    }
}

/// A metadata value. What JSON cannot hold becomes a string or an object: see each case.
struct Json<'a> {
    value: Value<'a>,
    full: bool,
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Bool(v) => serializer.serialize_bool(v),
            // JSON has no NaN and no infinity.
            Value::F32(v) if !v.is_finite() => serializer.collect_str(&v),
            Value::F64(v) if !v.is_finite() => serializer.collect_str(&v),
            Value::F32(v) => serializer.serialize_f32(v),
            Value::F64(v) => serializer.serialize_f64(v),
            Value::String(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serializer.serialize_str(text),
                // Bytes that are not text, as numbers.
                Err(_) => json!({ "bytes": bytes }).serialize(serializer),
            },
            Value::Array(array) if self.full || array.len() <= ARRAY_ELEMENTS => {
                serializer.collect_seq(array.values().map(|value| Json { value, full: self.full }))
            }
            Value::Array(array) => Summary(array).serialize(serializer),
            Value::U64(v) => serializer.serialize_u64(v),
            // Every other integer fits.
            ref integer => serializer.serialize_i64(integer.as_integer().unwrap_or_default() as i64),
        }
    }
}

/// A long array: `{"array": "string", "len": 49152}`.
struct Summary<'a>(Array<'a>);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({"array": self.0.element_type().name(), "len": self.0.len()}).serialize(serializer)
    }
}

struct Tensors<'a>(&'a [TensorInfo]);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|tensor| {
            json!({
                "name": tensor.name,
                "dims": tensor.dims(),
                "format": tensor.format.name(),
                "part": tensor.part(),
                "offset": tensor.offset(),
                "bytes": tensor.byte_len(),
            })
        }))
    }
}
