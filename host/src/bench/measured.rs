//! What a benchmark's process printed: the JSON of llama-bench, or of `lanemap bench`.

use serde::Deserialize;
use serde_json::{Deserializer, Value};

use super::{Kind, Test};

/// A test's rates, as a process reported them.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub test: Test,
    /// Tokens per second of each repetition, at least one.
    pub rates: Vec<f64>,
    /// What the process says of its build, where it says something.
    pub build: Option<String>,
    /// What it says of the device: lanemap's description.
    pub device: Option<String>,
    /// The kind of device: `CPU`, `CUDA`.
    pub backends: Option<String>,
}

/// Why a process's output could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// It is no JSON.
    #[error("no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A result has no rate that is a number above 0.
    #[error("a result without rates: {0}")]
    NoRates(String),
}

/// The fields of a result that are read.
#[derive(Deserialize)]
struct Fields {
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    n_sequences: Option<usize>,
    samples_ts: Option<Vec<f64>>,
    avg_ts: Option<f64>,
    build_commit: Option<String>,
    build_version: Option<String>,
    device: Option<String>,
    backends: Option<String>,
}

impl Measured {
    /// The results in a process's output: objects one after the other, or arrays of them. What llama-bench
    /// reports of prompts and generation together is no test of ours and left out.
    ///
    /// # Errors
    /// [`MeasuredError`].
    pub fn parse(output: &str) -> Result<Vec<Self>, MeasuredError> {
        let mut objects = Vec::new();
        for value in Deserializer::from_str(output).into_iter::<Value>() {
            match value? {
                Value::Array(elements) => objects.extend(elements),
                other => objects.push(other),
            }
        }
        let mut results = Vec::new();
        for object in objects {
            let fields = Fields::deserialize(&object)?;
            let (kind, tokens) = match (fields.n_prompt, fields.n_gen) {
                (tokens, 0) => (Kind::Prefill, tokens),
                (0, tokens) => (Kind::Decode, tokens),
                _ => continue,
            };
            let test =
                Test { kind, tokens, depth: fields.n_depth, sequences: fields.n_sequences.unwrap_or(1) };
            let samples = fields.samples_ts.filter(|rates| !rates.is_empty());
            let rates = samples.or_else(|| fields.avg_ts.map(|rate| vec![rate]));
            match rates.filter(|rates| rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)) {
                Some(rates) => results.push(Self {
                    test,
                    rates,
                    build: fields.build_commit.or(fields.build_version),
                    device: fields.device,
                    backends: fields.backends,
                }),
                None => return Err(MeasuredError::NoRates(object.to_string())),
            }
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn lines_and_arrays_are_read() {
        let one = r#"{"build_commit":"0c1e570","n_prompt":512,"n_gen":0,"n_depth":16,"avg_ts":3.5,"samples_ts":[3.0,4.0]}"#;
        let other =
            r#"{"n_prompt":0,"n_gen":64,"n_sequences":4,"avg_ts":2.5,"device":"a CPU","backends":"CPU"}"#;
        let both = r#"{"n_prompt":5,"n_gen":6,"avg_ts":1.0}"#;
        let first = Measured {
            test: Test::prefill(512, 16),
            rates: vec![3.0, 4.0],
            build: Some("0c1e570".to_owned()),
            device: None,
            backends: None,
        };
        let second = Measured {
            test: Test::decode(64, 0, 4),
            rates: vec![2.5],
            build: None,
            device: Some("a CPU".to_owned()),
            backends: Some("CPU".to_owned()),
        };
        for text in [
            format!("{one}\n{other}\n{both}\n"),
            format!("[{one},\n {both}, {other}]"),
            format!("{one}[{other}]"),
        ] {
            assert_eq!(Measured::parse(&text).unwrap(), [first.clone(), second.clone()]);
        }
        assert_eq!(Measured::parse("").unwrap(), []);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for text in [
            "| model | t/s |",
            r#"{"n_prompt":5}"#,
            r#"{"n_prompt":5,"n_gen":0}"#,
            r#"{"n_prompt":5,"n_gen":0,"avg_ts":0}"#,
            r#"{"n_prompt":5,"n_gen":0,"avg_ts":null,"samples_ts":[]}"#,
            r#"{"n_prompt":5,"n_gen":0,"samples_ts":[1.0,-1.0]}"#,
        ] {
            assert!(Measured::parse(text).is_err(), "{text}");
        }
    }
}
