//! Measurements of prefill and decode speed in llama-bench's terms.
//!
//! A [`Test`] evaluates prompt tokens in one go, or generates tokens one after the other, of one sequence or
//! of several in each step; before it there are as many tokens in the context as its depth says. Tokens
//! are random and chosen beforehand: neither tokenizing nor sampling is in the time, and neither is filling
//! the context. Each repetition is one sample; what is reported is mean and standard deviation of the samples'
//! rates, as llama-bench reports them, and their median.
//!
//! | file | what |
//! | --- | --- |
//! | `report`, `table` | llama-bench's columns; Markdown and CSV |
//! | `measured` | what a benchmark's process printed |
//! | `compare` | two things in turns: ratios, their spread, and whether noise explains them |

mod compare;
mod measured;
mod report;
mod table;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub use compare::{Comparison, ComparisonReport, Pairs, Ratios, Verdict, signed_rank};
pub use measured::{Measured, MeasuredError};
pub(crate) use report::count;
pub use report::{OutputFormat, Report};

use crate::session::{Session, SessionError};

/// What is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Prompt tokens, together.
    Prefill,
    /// Generated tokens, one by one.
    Decode,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is evaluated.
    pub kind: Kind,
    /// How many tokens of each sequence.
    pub tokens: usize,
    /// Tokens that are in the context before.
    pub depth: usize,
    /// Sequences, a token of each in every step.
    pub sequences: usize,
}

impl Test {
    /// Prompt tokens of one sequence, behind `depth` others.
    #[must_use]
    pub const fn prefill(tokens: usize, depth: usize) -> Self {
        Self { kind: Kind::Prefill, tokens, depth, sequences: 1 }
    }

    /// Generated tokens of each of some sequences, behind `depth` others.
    #[must_use]
    pub const fn decode(tokens: usize, depth: usize, sequences: usize) -> Self {
        Self { kind: Kind::Decode, tokens, depth, sequences }
    }

    /// llama-bench's name of the test: `pp512`, `tg64 @ d4096`.
    #[must_use]
    pub fn name(self) -> String {
        let kind = match self.kind {
            Kind::Prefill => "pp",
            Kind::Decode => "tg",
        };
        let depth = if self.depth == 0 { String::new() } else { format!(" @ d{}", self.depth) };
        format!("{kind}{}{depth}", self.tokens)
    }

    /// Prompt tokens, under llama-bench's name.
    #[must_use]
    pub fn n_prompt(self) -> usize {
        if self.kind == Kind::Prefill { self.tokens } else { 0 }
    }

    /// Generated tokens of a sequence, under llama-bench's name.
    #[must_use]
    pub fn n_gen(self) -> usize {
        if self.kind == Kind::Decode { self.tokens } else { 0 }
    }

    /// Tokens that one repetition evaluates, of all sequences.
    #[must_use]
    pub fn evaluated(self) -> usize {
        self.tokens * self.sequences
    }

    /// Positions of a sequence that it needs.
    #[must_use]
    pub fn positions(self) -> usize {
        self.depth.saturating_add(self.tokens)
    }
}

/// The samples of one test.
#[derive(Clone, Debug)]
pub struct Samples {
    /// What was measured.
    pub test: Test,
    /// The time of each repetition.
    pub times: Vec<Duration>,
}

/// Seed of the random tokens.
const SEED: u64 = 42;

impl Samples {
    /// Tokens per second of each repetition, of all sequences together.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.times.iter().map(|time| self.test.evaluated() as f64 / time.as_secs_f64()).collect()
    }

    /// Nanoseconds of each repetition.
    #[must_use]
    pub fn nanoseconds(&self) -> Vec<u64> {
        self.times.iter().map(|time| time.as_nanos() as u64).collect()
    }
}

/// Mean and sample standard deviation (zero for a single sample).
#[must_use]
pub fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// Runs a test `repetitions` times, after one run that is not counted unless `warm_up` is
/// false. Prompts go through in chunks of `batch`; `progress` is called before each run.
///
/// # Errors
/// [`SessionError`], for instance if the session's context is too short for the test, or it has too few
/// sequences.
pub fn run(
    session: &mut Session,
    test: Test,
    batch: usize,
    repetitions: usize,
    warm_up: bool,
    progress: &mut dyn FnMut(usize),
) -> Result<Samples, SessionError> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let vocab_size = session.config().vocab_size as u64;
    let mut random =
        |count: usize| -> Vec<u32> { (0..count).map(|_| (rng.next_u64() % vocab_size) as u32).collect() };
    let steps: Vec<Vec<(usize, u32)>> =
        (0..test.tokens).map(|_| random(test.sequences).into_iter().enumerate().collect()).collect();
    let prompt: Vec<u32> = steps.iter().flatten().map(|&(_, token)| token).collect();
    let mut go_on = |_, _| ControlFlow::Continue(());
    session.rewind(0);
    for sequence in 0..if test.depth > 0 { test.sequences } else { 0 } {
        session.prefill_sequence(sequence, &random(test.depth), batch, &mut go_on)?;
    }
    let mut times = Vec::new();
    for round in 0..repetitions + usize::from(warm_up) {
        progress(round);
        // What lies before stays in the cache.
        session.rewind(test.depth);
        let start = Instant::now();
        match test.kind {
            Kind::Prefill => {
                session.prefill(&prompt, batch, &mut go_on)?;
            }
            Kind::Decode => {
                for step in &steps {
                    session.decode_batch(step)?;
                }
            }
        }
        let time = start.elapsed();
        if round > 0 || !warm_up {
            times.push(time);
        }
    }
    Ok(Samples { test, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_known_samples() {
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn names_are_those_of_llama_bench() {
        assert_eq!(Test::prefill(512, 0).name(), "pp512");
        assert_eq!(Test::decode(64, 0, 1).name(), "tg64");
        assert_eq!(Test::decode(64, 4096, 8).name(), "tg64 @ d4096");
        assert_eq!((Test::decode(64, 4096, 8).evaluated(), Test::prefill(3, 4).positions()), (512, 7));
    }
}
