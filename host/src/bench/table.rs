//! Tables of text: Markdown, aligned for people, and CSV as llama-bench writes it.

use std::io::{self, Write};

use serde::Serialize;

use super::OutputFormat;

/// A column's title, and whether it holds words, which stand on the left, or numbers.
pub(super) type Column = (&'static str, bool);

/// Writes rows, each as long as `columns`, as a Markdown table.
pub(super) fn markdown(out: &mut dyn Write, columns: &[Column], rows: &[Vec<String>]) -> io::Result<()> {
    let titles: Vec<_> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&titles]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut line = |row: &[String]| {
        let cells = row.iter().zip(&widths).zip(columns).map(|((cell, &width), (_, left))| {
            if *left { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
        });
        writeln!(out, "|{}", cells.collect::<String>())
    };
    line(&titles)?;
    let rules = widths.iter().zip(columns).map(|(&width, &(_, left))| {
        let dashes = "-".repeat(width - usize::from(!left));
        if left { dashes } else { format!("{dashes}:") }
    });
    line(&rules.collect::<Vec<_>>())?;
    rows.iter().try_for_each(|row| line(row))
}

/// Writes names and then rows, every value in quotes.
pub(super) fn csv(out: &mut dyn Write, names: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    writeln!(out, "{}", names.join(","))?;
    rows.iter().try_for_each(|row| {
        let cells: Vec<_> = row.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
        writeln!(out, "{}", cells.join(","))
    })
}

/// Writes rows in a format; `table` writes the one for people.
pub(super) fn write_rows<R: Serialize>(
    out: &mut dyn Write,
    format: OutputFormat,
    rows: &[R],
    table: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match format {
        OutputFormat::Md => table(out),
        OutputFormat::Csv => {
            csv_of(out, &rows.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?)
        }
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, rows)?;
            writeln!(out)
        }
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| {
            serde_json::to_writer(&mut *out, row)?;
            writeln!(out)
        }),
    }
}

/// Writes JSON objects as CSV: the fields of the first one that are no arrays, which must be those of
/// all.
fn csv_of(out: &mut dyn Write, objects: &[serde_json::Value]) -> io::Result<()> {
    let scalar = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = |object: &serde_json::Value| -> Vec<(String, String)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(_, value)| !value.is_array())
            .map(|(name, value)| (name.clone(), scalar(value)))
            .collect()
    };
    let all: Vec<_> = objects.iter().map(fields).collect();
    let names: Vec<_> = all.iter().take(1).flatten().map(|(name, _)| name.as_str()).collect();
    let rows: Vec<Vec<String>> =
        all.iter().map(|fields| fields.iter().map(|(_, value)| value.clone()).collect()).collect();
    csv(out, &names, &rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn values_are_quoted() {
        let mut out = Vec::new();
        let objects = [
            serde_json::json!({"a": "x \"y\", z", "n": 1.5, "list": [1]}),
            serde_json::json!({"a": "", "n": 2}),
        ];
        csv_of(&mut out, &objects).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a,n\n\"x \"\"y\"\", z\",\"1.5\"\n\"\",\"2\"\n");
    }
}
