//! What is said about a generation: the JSON object and the lines on stderr.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::generation::{Generation, StopReason};

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    /// Path of the model's file.
    pub(super) model: String,
    /// The architecture that the file names.
    pub(super) architecture: &'a str,
    /// What it ran on.
    pub(super) device: String,
    /// Whether it ran in the exact mode.
    pub(super) exact: bool,
    /// Tokens that the context holds.
    pub(super) context: usize,
    /// The sampler's seed; with the same flags it gives the same ids.
    pub(super) seed: u32,
    pub(super) prompt_ids: &'a [u32],
    /// With the end-of-generation token, if one ended the generation.
    pub(super) generated_ids: &'a [u32],
    pub(super) text: &'a str,
    pub(super) stop_reason: StopReason,
    pub(super) timings: Timings,
    /// `[id, logit]` pairs in descending order for each step, from the prompt's last
    /// position on; only where asked for.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) top_logits: &'a [Vec<(u32, f32)>],
    /// SHA-256 of the logits of all steps; only where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logits_hash: Option<&'a str>,
}

/// How long the parts took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Timings {
    /// Opening the file and making the model ready.
    pub(super) load_ms: f64,
    pub(super) prefill: Rate,
    pub(super) decode: Rate,
}

/// Tokens evaluated, and the time that took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rate {
    pub(super) tokens: usize,
    pub(super) ms: f64,
    /// Absent where there is nothing to divide.
    pub(super) tokens_per_second: Option<f64>,
}

impl Rate {
    fn new(tokens: usize, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let measured = tokens > 0 && seconds > 0.0;
        Self { tokens, ms: seconds * 1e3, tokens_per_second: measured.then(|| tokens as f64 / seconds) }
    }
}

impl Timings {
    pub(super) fn new(load: Duration, generation: &Generation) -> Self {
        Self {
            load_ms: load.as_secs_f64() * 1e3,
            prefill: Rate::new(generation.prefilled, generation.prefill_time),
            decode: Rate::new(generation.decoded, generation.decode_time),
        }
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "load:    {:9.1} ms", self.load_ms)?;
        writeln!(f, "prefill: {}", self.prefill)?;
        write!(f, "decode:  {}", self.decode)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.1} ms, {:5} tokens", self.ms, self.tokens)?;
        match self.tokens_per_second {
            Some(rate) => write!(f, ", {rate:8.2} tok/s"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndOfGeneration => "end of generation",
            Self::Length => "as many tokens as asked for",
            Self::StopString => "stop string",
            Self::ContextFull => "the context is full (raise --ctx for more)",
            Self::Interrupted => "interrupted",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use serde_json::json;

    use super::*;

    fn timings() -> Timings {
        let generation = Generation {
            prefilled: 100,
            prefill_time: Duration::from_millis(500),
            decode_time: Duration::ZERO,
            ..Generation::default()
        };
        Timings::new(Duration::from_millis(20), &generation)
    }

    #[test]
    fn the_object_has_the_documented_fields() {
        let report = Report {
            model: "m.gguf".into(),
            architecture: "llama",
            device: "cpu".to_owned(),
            exact: true,
            context: 64,
            seed: 7,
            prompt_ids: &[1, 2],
            generated_ids: &[3],
            text: "a\"b",
            stop_reason: StopReason::EndOfGeneration,
            timings: timings(),
            top_logits: &[vec![(3, 1.5), (0, -0.1)]],
            logits_hash: None,
        };
        let object: serde_json::Value = serde_json::to_value(&report).unwrap();
        let expected = json!({
            "model": "m.gguf",
            "architecture": "llama",
            "device": "cpu",
            "exact": true,
            "context": 64,
            "seed": 7,
            "prompt_ids": [1, 2],
            "generated_ids": [3],
            "text": "a\"b",
            "stop_reason": "end-of-generation",
            "timings": {
                "load_ms": 20.0,
                "prefill": { "tokens": 100, "ms": 500.0, "tokens_per_second": 200.0 },
                "decode": { "tokens": 0, "ms": 0.0, "tokens_per_second": null },
            },
            "top_logits": [[[3, 1.5], [0, -0.1f32]]],
        });
        assert_eq!(object, expected);
        let without = Report { top_logits: &[], ..report };
        assert!(serde_json::to_value(&without).unwrap().get("top_logits").is_none());
    }

    #[test]
    fn a_rate_of_nothing_is_left_out() {
        let text = timings().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "prefill:     500.0 ms,   100 tokens,   200.00 tok/s");
        assert_eq!(lines[2], "decode:        0.0 ms,     0 tokens");
    }
}
