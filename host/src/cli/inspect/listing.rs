//! The listing for people. Whatever comes from the file is escaped before it is printed.

use std::io::{self, Write};

use super::{Totals, by_format};
use crate::gguf::{Array, Gguf, TensorInfo, Value, escape};

/// Characters of a string, unless it is printed in full.
const STRING_CHARS: usize = 72;
/// The same for a string inside an array.
const ELEMENT_CHARS: usize = 24;
/// Elements of an array, unless it is printed in full.
const ARRAY_ELEMENTS: usize = 6;

pub(super) fn write(out: &mut dyn Write, gguf: &Gguf, full: bool) -> io::Result<()> {
    let totals = Totals::of(gguf.tensors().iter());
    for (number, path) in gguf.parts().enumerate() {
        let label = if number == 0 { "file" } else { "" };
        writeln!(out, "{label:<12}{}", escape(path.as_os_str().as_encoded_bytes(), usize::MAX))?;
    }
    writeln!(out, "{:<12}GGUF version {}, alignment {}", "format", gguf.version(), gguf.alignment())?;
    writeln!(out, "{:<12}{} MiB", "size", mib(gguf.file_bytes()))?;
    write!(out, "{:<12}{}", "parameters", count(totals.parameters))?;
    match totals.bits_per_weight() {
        Some(bits) => writeln!(out, " ({bits:.2} bits per weight)")?,
        None => writeln!(out)?,
    }

    write_metadata(out, gguf, full)?;
    write_tensors(out, gguf.tensors())?;
    write_formats(out, gguf)
}

fn write_metadata(out: &mut dyn Write, gguf: &Gguf, full: bool) -> io::Result<()> {
    let keys: Vec<String> = gguf.metadata().map(|(key, _)| escape(key.as_bytes(), usize::MAX)).collect();
    // One absurdly long key must not push all values out of sight.
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0).min(48);
    writeln!(out, "\nmetadata ({})", keys.len())?;
    for (key, (_, value)) in keys.iter().zip(gguf.metadata()) {
        write!(out, "  {key:<width$}  {:<6}  ", value.value_type())?;
        write_value(out, value, STRING_CHARS, full)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_value(out: &mut dyn Write, value: Value<'_>, string_chars: usize, full: bool) -> io::Result<()> {
    match value {
        Value::String(bytes) => {
            let shown = escape(bytes, if full { usize::MAX } else { string_chars });
            write!(out, "\"{shown}\"")
        }
        Value::Array(array) => write_array(out, array, full),
        Value::Bool(v) => write!(out, "{v}"),
        Value::F32(v) => write!(out, "{v:?}"),
        Value::F64(v) => write!(out, "{v:?}"),
        integer => write!(out, "{}", integer.as_integer().unwrap_or_default()),
    }
}

/// `[49152 string] "a", "b", …`
fn write_array(out: &mut dyn Write, array: Array<'_>, full: bool) -> io::Result<()> {
    write!(out, "[{} {}]", array.len(), array.element_type())?;
    let shown = if full { array.len() } else { array.len().min(ARRAY_ELEMENTS) };
    for (index, value) in array.values().take(shown).enumerate() {
        write!(out, "{}", if index == 0 { " " } else { ", " })?;
        write_value(out, value, ELEMENT_CHARS, full)?;
    }
    write!(out, "{}", if shown < array.len() { ", …" } else { "" })
}

fn write_tensors(out: &mut dyn Write, tensors: &[TensorInfo]) -> io::Result<()> {
    let rows: Vec<(String, String)> =
        tensors.iter().map(|t| (escape(t.name.as_bytes(), usize::MAX), shape(t.dims()))).collect();
    let names = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(64);
    let shapes = rows.iter().map(|(_, shape)| shape.len()).max().unwrap_or(0);
    writeln!(out, "\ntensors ({})", tensors.len())?;
    for ((name, shape), tensor) in rows.iter().zip(tensors) {
        let size = mib(tensor.byte_len() as u64);
        writeln!(out, "  {name:<names$}  {shape:>shapes$}  {:<6}  {size:>10} MiB", tensor.format)?;
    }
    Ok(())
}

fn write_formats(out: &mut dyn Write, gguf: &Gguf) -> io::Result<()> {
    writeln!(out, "\nformats")?;
    for (format, totals) in by_format(gguf) {
        let (parameters, size) = (count(totals.parameters), mib(totals.bytes));
        writeln!(
            out,
            "  {format:<6}  {:>5} tensors  {parameters:>10} parameters  {size:>10} MiB",
            totals.tensors
        )?;
    }
    Ok(())
}

/// `576 x 49152`, the row length first.
fn shape(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn mib(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / f64::from(1 << 20))
}

/// `134.52 M`: thousands, millions, billions.
fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}
