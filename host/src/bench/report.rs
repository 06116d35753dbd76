//! The report of a benchmark: llama-bench's columns and field names.

use std::io::{self, Write};

use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use super::table::{markdown, write_rows};
use super::{Samples, mean_and_deviation};
use crate::experiment::timing::Spread;
use crate::model::Model;
use crate::session::Session;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// A Markdown table.
    Md,
    /// Names, then a line of quoted values a test.
    Csv,
    /// A JSON array with one object a test.
    Json,
    /// One JSON object a line and test.
    Jsonl,
}

/// Format of the KV cache, under llama.cpp's name.
const CACHE_FORMAT: &str = "f16";

/// What the samples of a benchmark have in common.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    build_version: &'static str,
    engine: &'static str,
    device: String,
    backends: &'static str,
    model_filename: String,
    model_type: String,
    /// Bytes of the weights.
    model_size: u64,
    model_n_params: u64,
    n_batch: usize,
    n_ubatch: usize,
    n_threads: usize,
    /// Format of the cached keys.
    type_k: &'static str,
    /// Format of the cached values.
    type_v: &'static str,
}

/// One test in the report.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    report: &'a Report,
    n_prompt: usize,
    n_gen: usize,
    /// Tokens in the context before the test.
    n_depth: usize,
    /// Sequences; llama-bench has one.
    n_sequences: usize,
    test_time: String,
    avg_ns: u64,
    stddev_ns: u64,
    median_ns: u64,
    /// Mean of the rates, in tokens per second.
    avg_ts: f64,
    stddev_ts: f64,
    median_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// The test's name in the table.
    #[serde(skip)]
    test: String,
}

impl Report {
    /// A report on `model` (read from `file`), which `session` runs.
    #[must_use]
    pub fn new(model: &Model, file: &str, session: &Session, batch: usize) -> Self {
        let config = model.config();
        let output = model.output().format();
        let weights = model.layers().first().map_or(output, |layer| layer.gate.format());
        Self {
            build_version: env!("CARGO_PKG_VERSION"),
            engine: "lanemap",
            device: session.description(),
            backends: if session.device() == "cpu" { "CPU" } else { "CUDA" },
            model_filename: file.to_owned(),
            model_type: format!("{} {} {weights}", config.architecture.name(), count(model.parameters())),
            model_size: model.byte_len(),
            model_n_params: model.parameters(),
            n_batch: batch,
            n_ubatch: batch,
            n_threads: session.threads(),
            type_k: CACHE_FORMAT,
            type_v: CACHE_FORMAT,
        }
    }

    /// Writes the samples of all tests.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write, format: OutputFormat, samples: &[Samples]) -> io::Result<()> {
        let now = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
        let rows: Vec<_> = samples.iter().map(|samples| self.row(samples, &now)).collect();
        write_rows(out, format, &rows, |out| write_table(out, &rows))
    }

    fn row(&self, samples: &Samples, now: &str) -> Row<'_> {
        let (samples_ns, samples_ts) = (samples.nanoseconds(), samples.rates());
        let times: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
        let (avg_ns, stddev_ns) = mean_and_deviation(&times);
        let (avg_ts, stddev_ts) = mean_and_deviation(&samples_ts);
        Row {
            report: self,
            n_prompt: samples.test.n_prompt(),
            n_gen: samples.test.n_gen(),
            n_depth: samples.test.depth,
            n_sequences: samples.test.sequences,
            test_time: now.to_owned(),
            avg_ns: avg_ns.round() as u64,
            stddev_ns: stddev_ns.round() as u64,
            median_ns: Spread::of(times).median.round() as u64,
            avg_ts,
            stddev_ts,
            median_ts: Spread::of(samples_ts.iter().copied()).median,
            samples_ns,
            samples_ts,
            test: samples.test.name(),
        }
    }
}

fn write_table(out: &mut dyn Write, rows: &[Row<'_>]) -> io::Result<()> {
    let sequences = rows.iter().any(|row| row.n_sequences != 1);
    let mut columns = vec![
        ("model", true),
        ("size", false),
        ("params", false),
        ("backend", true),
        ("threads", false),
        ("test", false),
    ];
    // llama-bench has no such column, so none where there is nothing to say.
    columns.extend(sequences.then_some(("sequences", false)));
    columns.extend([("t/s", false), ("median", false)]);
    let cells = |row: &Row<'_>| {
        let mut cells = vec![
            row.report.model_type.clone(),
            format!("{:.2} MiB", row.report.model_size as f64 / f64::from(1 << 20)),
            count(row.report.model_n_params),
            row.report.backends.to_owned(),
            row.report.n_threads.to_string(),
            row.test.clone(),
        ];
        cells.extend(sequences.then(|| row.n_sequences.to_string()));
        cells.extend([format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts), format!("{:.2}", row.median_ts)]);
        cells
    };
    markdown(out, &columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// A number of parameters for people: `134.52 M`.
pub(crate) fn count(count: u64) -> String {
    let count = count as f64;
    if count >= 1e9 { format!("{:.2} B", count / 1e9) } else { format!("{:.2} M", count / 1e6) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::bench::Test;

    fn written(format: OutputFormat, sequences: usize) -> String {
        let report = Report {
            build_version: "1",
            engine: "lanemap",
            device: "a CPU".into(),
            backends: "CPU",
            model_filename: "m.gguf".into(),
            model_type: "llama 2.00 M Q4_1".into(),
            model_size: 3 << 19,
            model_n_params: 2_000_000,
            n_batch: 4,
            n_ubatch: 4,
            n_threads: 2,
            type_k: CACHE_FORMAT,
            type_v: CACHE_FORMAT,
        };
        let samples = [
            Samples {
                test: Test::prefill(8, 0),
                times: vec![Duration::from_secs(2), Duration::from_secs(4)],
            },
            Samples { test: Test::decode(3, 16, sequences), times: vec![Duration::from_secs(1)] },
        ];
        let mut out = Vec::new();
        report.write(&mut out, format, &samples).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_llama_benchs_fields_in_its_order() {
        let text = written(OutputFormat::Json, 1);
        let objects: Vec<Value> = serde_json::from_str(&text).unwrap();
        let lines: Vec<Value> =
            written(OutputFormat::Jsonl, 1).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names = "build_version engine device backends model_filename model_type model_size \
                     model_n_params n_batch n_ubatch n_threads type_k type_v n_prompt n_gen n_depth \
                     n_sequences test_time avg_ns stddev_ns median_ns avg_ts stddev_ts median_ts samples_ns samples_ts";
        for objects in [&objects, &lines] {
            assert_eq!(objects.len(), 2);
            for object in objects {
                assert!(object.as_object().unwrap().keys().eq(names.split_whitespace()), "{object}");
            }
            assert_eq!([&objects[0]["n_prompt"], &objects[0]["n_gen"]], [&json!(8), &json!(0)]);
            assert_eq!([&objects[1]["n_prompt"], &objects[1]["n_gen"]], [&json!(0), &json!(3)]);
            assert_eq!(objects[0]["samples_ns"], json!([2_000_000_000u64, 4_000_000_000u64]));
            assert_eq!(objects[0]["samples_ts"], json!([4.0, 2.0]));
            assert_eq!(
                [&objects[0]["avg_ns"], &objects[0]["avg_ts"]],
                [&json!(3_000_000_000u64), &json!(3.0)]
            );
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let expected = "\
| model             |     size | params | backend | threads |      test |         t/s | median |
| ----------------- | -------: | -----: | ------- | ------: | --------: | ----------: | -----: |
| llama 2.00 M Q4_1 | 1.50 MiB | 2.00 M | CPU     |       2 |       pp8 | 3.00 ± 1.41 |   3.00 |
| llama 2.00 M Q4_1 | 1.50 MiB | 2.00 M | CPU     |       2 | tg3 @ d16 | 3.00 ± 0.00 |   3.00 |
";
        assert_eq!(written(OutputFormat::Md, 1), expected);
        let several = written(OutputFormat::Md, 4);
        let last = several.lines().last().unwrap();
        assert!(last.ends_with("| tg3 @ d16 |         4 | 12.00 ± 0.00 |  12.00 |"), "{several}");
    }

    #[test]
    fn csv_has_the_fields_that_are_no_arrays() {
        let text = written(OutputFormat::Csv, 4);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("build_version,engine,") && lines[0].ends_with(",stddev_ts,median_ts"),
            "{text}"
        );
        assert!(lines[2].ends_with("\"12.0\",\"0.0\",\"12.0\""), "{text}");
        assert_eq!(lines[1].matches("\",\"").count(), lines[0].matches(',').count());
    }
}
