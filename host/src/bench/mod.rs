//! Measurements of prefill and decode speed in llama-bench's terms.
//!
//! A [`Test`] evaluates prompt tokens in one go, or generates tokens one after the other, from an
//! empty context. Tokens are random and chosen beforehand: neither tokenizing nor sampling is in
//! the time. Each repetition is one sample; what is reported is mean and standard deviation of
//! the samples' rates, as llama-bench reports them.

mod report;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(crate) use report::count;
pub use report::{OutputFormat, Report};

use crate::session::{Session, SessionError};

/// What is measured, with the number of tokens that one repetition evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Prompt tokens, evaluated together.
    Prefill(usize),
    /// Generated tokens, evaluated one by one.
    Decode(usize),
}

impl Test {
    /// llama-bench's name of the test: `pp512`, `tg64`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Prefill(tokens) => format!("pp{tokens}"),
            Self::Decode(tokens) => format!("tg{tokens}"),
        }
    }

    /// Tokens that one repetition evaluates.
    #[must_use]
    pub fn tokens(self) -> usize {
        match self {
            Self::Prefill(tokens) | Self::Decode(tokens) => tokens,
        }
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
    /// Tokens per second of each repetition.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.times.iter().map(|time| self.test.tokens() as f64 / time.as_secs_f64()).collect()
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
/// [`SessionError`], for instance if the session's context is too short for the test.
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
    let tokens: Vec<u32> = (0..test.tokens()).map(|_| (rng.next_u64() % vocab_size) as u32).collect();
    let mut times = Vec::new();
    for round in 0..repetitions + usize::from(warm_up) {
        progress(round);
        session.rewind(0);
        let start = Instant::now();
        match test {
            Test::Prefill(_) => {
                session.prefill(&tokens, batch, &mut |_, _| ControlFlow::Continue(()))?;
            }
            Test::Decode(_) => {
                for &token in &tokens {
                    session.decode(token)?;
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
        assert_eq!(Test::Prefill(512).name(), "pp512");
        assert_eq!(Test::Decode(64).name(), "tg64");
    }
}
