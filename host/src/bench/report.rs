//! The report of a benchmark: llama-bench's columns and field names.

use std::io::{self, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{Samples, mean_and_deviation};
use crate::model::Model;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A Markdown table.
    Md,
    /// A JSON array with one object a test.
    Json,
    /// One JSON object a line and test.
    Jsonl,
}

/// What the samples of a benchmark have in common.
#[derive(Clone, Debug)]
pub struct Report {
    fields: Map<String, Value>,
    model_type: String,
    backend: &'static str,
    threads: usize,
}

impl Report {
    /// A report on `model` (read from `file`), run by the backend that `description` tells of.
    #[must_use]
    pub fn new(model: &Model, file: &str, description: &str, threads: usize, batch: usize) -> Self {
        let config = model.config();
        let output = model.output().format();
        let weights = model.layers().first().map_or(output, |layer| layer.gate.format());
        let model_type =
            format!("{} {} {weights}", config.architecture.name(), parameters(model.parameters()));
        let fields = json!({
            "build_version": env!("CARGO_PKG_VERSION"),
            "engine": "lanemap",
            "device": description,
            "backends": "CPU",
            "model_filename": file,
            "model_type": model_type,
            "model_size": model.byte_len(),
            "model_n_params": model.parameters(),
            "n_batch": batch,
            "n_ubatch": batch,
            "n_threads": threads,
            "type_k": "f16",
            "type_v": "f16",
        });
        let fields = fields.as_object().cloned().unwrap_or_default();
        Self { fields, model_type, backend: "CPU", threads }
    }

    /// Writes the samples of all tests.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write, format: Format, samples: &[Samples]) -> io::Result<()> {
        let now = Utc::now();
        match format {
            Format::Md => self.write_table(out, samples),
            Format::Json => {
                let objects: Vec<_> = samples.iter().map(|samples| self.object(samples, now)).collect();
                serde_json::to_writer_pretty(&mut *out, &objects)?;
                writeln!(out)
            }
            Format::Jsonl => samples.iter().try_for_each(|samples| {
                serde_json::to_writer(&mut *out, &self.object(samples, now))?;
                writeln!(out)
            }),
        }
    }

    fn object(&self, samples: &Samples, now: DateTime<Utc>) -> Value {
        let (avg_ns, stddev_ns) = mean_and_deviation(&samples.nanoseconds());
        let (avg_ts, stddev_ts) = mean_and_deviation(&samples.rates());
        let mut fields = self.fields.clone();
        let own = json!({
            "n_prompt": samples.test.n_prompt,
            "n_gen": samples.test.n_gen,
            "n_depth": 0,
            "test_time": now.to_rfc3339_opts(SecondsFormat::Secs, true),
            "avg_ns": avg_ns.round() as u64,
            "stddev_ns": stddev_ns.round() as u64,
            "avg_ts": avg_ts,
            "stddev_ts": stddev_ts,
            "samples_ns": samples.nanoseconds().iter().map(|&ns| ns as u64).collect::<Vec<_>>(),
            "samples_ts": samples.rates(),
        });
        fields.extend(own.as_object().cloned().unwrap_or_default());
        Value::Object(fields)
    }

    fn write_table(&self, out: &mut dyn Write, samples: &[Samples]) -> io::Result<()> {
        let mebibytes = self.fields["model_size"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
        let count = parameters(self.fields["model_n_params"].as_u64().unwrap_or(0));
        let rows: Vec<[String; 7]> = samples
            .iter()
            .map(|samples| {
                let (mean, deviation) = mean_and_deviation(&samples.rates());
                [
                    self.model_type.clone(),
                    format!("{mebibytes:.2} MiB"),
                    count.clone(),
                    self.backend.to_owned(),
                    self.threads.to_string(),
                    samples.test.name(),
                    format!("{mean:.2} ± {deviation:.2}"),
                ]
            })
            .collect();
        let titles = ["model", "size", "params", "backend", "threads", "test", "t/s"].map(str::to_owned);
        let width = |column: usize| {
            rows.iter().chain([&titles]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; 7] = core::array::from_fn(width);
        // The model and the backend are words, the rest are numbers.
        let left = [true, false, false, true, false, false, false];
        let mut line = |row: &[String; 7]| {
            let cells = row.iter().zip(widths).zip(left).map(|((cell, width), left)| {
                if left { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
            });
            writeln!(out, "|{}", cells.collect::<String>())
        };
        line(&titles)?;
        let rules = core::array::from_fn(|i| {
            let dashes = "-".repeat(widths[i] - usize::from(!left[i]));
            if left[i] { dashes } else { format!("{dashes}:") }
        });
        line(&rules)?;
        rows.iter().try_for_each(line)
    }
}

/// A number of parameters for people: `134.52 M`.
fn parameters(count: u64) -> String {
    let count = count as f64;
    if count >= 1e9 { format!("{:.2} B", count / 1e9) } else { format!("{:.2} M", count / 1e6) }
}
