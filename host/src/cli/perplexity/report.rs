//! What is said about a perplexity: the JSON object and the lines on stdout.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::hex::hex;
use crate::perplexity::Summary;

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
    /// Path of the text.
    pub(super) text: String,
    /// Tokens of a chunk.
    pub(super) context: usize,
    pub(super) chunks: usize,
    pub(super) scored_tokens: u64,
    /// Mean of the negative log-likelihoods, in nats.
    pub(super) nll: f64,
    pub(super) nll_standard_error: f64,
    pub(super) perplexity: f64,
    pub(super) standard_error: f64,
    /// Time of evaluating and scoring.
    pub(super) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared: Option<Compared>,
}

/// The comparison with another run.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// Path of the other run's file.
    file: String,
    /// sha256 of the other run's model.
    base_model_sha256: String,
    #[serde(flatten)]
    summary: Summary,
}

impl Compared {
    pub(super) fn new(file: &Path, model: &[u8; 32], summary: Summary) -> Self {
        Self { file: file.display().to_string(), base_model_sha256: hex(model), summary }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { perplexity, standard_error, scored_tokens, chunks, context, .. } = self;
        writeln!(
            f,
            "perplexity {perplexity:.4} ± {standard_error:.4} ({scored_tokens} tokens scored in {chunks} chunks of \
             {context}, {:.1} s)",
            self.seconds
        )?;
        self.compared.as_ref().map_or(Ok(()), |compared| write!(f, "{compared}"))
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, summary, .. } = self;
        let (worst, farthest) = (summary.kl_max, summary.log_probability_max);
        writeln!(
            f,
            "{file}: perplexity {:.4} ± {:.4}, ln of the ratio {:.6} ± {:.6}",
            summary.base_perplexity,
            summary.base_standard_error,
            summary.ln_ratio,
            summary.ln_ratio_standard_error
        )?;
        writeln!(
            f,
            "KL divergence: mean {:.3e} ± {:.1e}, median {:.3e}, 99 % {:.3e}, max {:.3e} (chunk {}, position {})",
            summary.kl_mean,
            summary.kl_standard_error,
            summary.kl_median,
            summary.kl_p99,
            worst.value,
            worst.chunk,
            worst.position
        )?;
        writeln!(
            f,
            "log-probabilities: RMS difference {:.4e}, max {:.4e} (token {}, chunk {}, position {})",
            summary.log_probability_rms,
            farthest.value,
            farthest.token.unwrap_or_default(),
            farthest.chunk,
            farthest.position
        )?;
        writeln!(f, "most likely token: the same at {:.3} % of positions", 100.0 * summary.same_top)
    }
}
