//! How far one run's logits are from another's, and what becomes of the choices.

use serde::Serialize;

use crate::perplexity::{Divergence, log_probabilities};
use crate::sampling::{Sampler, SamplingError, SamplingOptions};

/// The largest difference of two logits, and where it is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Largest {
    /// The difference. NaN, for which JSON has null, if one is.
    pub delta: f64,
    /// The passage, counted from 0.
    pub passage: usize,
    /// The position in the passage's prompt, or the step.
    pub position: usize,
    /// The token whose logit it is.
    pub token: usize,
    /// The logit there.
    pub found: f32,
    /// The reference's.
    pub expected: f32,
}

/// A position at which the largest logit is another token's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Flip {
    /// The passage, counted from 0.
    pub passage: usize,
    /// The position in the passage's prompt, or the step.
    pub position: usize,
    /// The reference's token.
    pub expected: u32,
    /// The token that is found in its place.
    pub found: u32,
    /// The reference's largest logit less its second.
    pub gap: f64,
    /// The larger of what the two tokens' logits moved by.
    pub drift: f64,
}

impl Flip {
    /// Whether rounding explains it: the gap is smaller than what such a drift can turn over.
    #[must_use]
    pub fn is_knife_edge(&self) -> bool {
        self.gap < 2.0 * self.drift
    }
}

/// A comparison, as far as it has come.
pub struct Comparison {
    positions: usize,
    logits: usize,
    largest: Largest,
    squares: f64,
    divergence: Divergence,
    same_argmax: usize,
    flips: Vec<Flip>,
    samplers: [Sampler; 2],
    same_sample: usize,
    unusable: Option<(usize, usize)>,
}

/// A comparison in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Rows of logits that were compared.
    pub positions: usize,
    /// The largest difference of two logits.
    pub largest: Largest,
    /// Root of the mean square of all differences.
    pub rms: f64,
    /// Mean of the Kullback-Leibler divergence from the reference, in nats.
    pub kl_mean: f64,
    /// The largest.
    pub kl_max: f64,
    /// Positions at which both have the same largest logit.
    pub same_argmax: usize,
    /// The other positions.
    pub flips: Vec<Flip>,
    /// Positions at which one draw at temperature 0.8, of the same random number, gives the same token.
    pub same_sample: usize,
    /// Passage and position of the first row with a logit that is NaN or infinite.
    pub unusable: Option<(usize, usize)>,
}

/// The temperature of draws.
pub const TEMPERATURE: f32 = 0.8;
/// Their seed.
pub const SEED: u32 = 42;

impl Comparison {
    /// Nothing yet, of logits of so many tokens.
    ///
    /// # Errors
    /// Those of making a sampler.
    pub fn new(vocab_size: usize) -> Result<Self, SamplingError> {
        let sampler = || {
            // The whole distribution: filters would hide what they cut off.
            let options = SamplingOptions {
                seed: Some(SEED),
                temperature: TEMPERATURE,
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                ..SamplingOptions::default()
            };
            Sampler::new(options, vocab_size, 0)
        };
        Ok(Self {
            positions: 0,
            logits: 0,
            largest: Largest::default(),
            squares: 0.0,
            divergence: Divergence::default(),
            same_argmax: 0,
            flips: Vec::new(),
            samplers: [sampler()?, sampler()?],
            same_sample: 0,
            unusable: None,
        })
    }

    /// Compares rows of logits of `vocab_size` tokens each with those of the reference.
    ///
    /// # Errors
    /// Those of sampling, except that of logits which are not finite: these are noted.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn add(
        &mut self,
        passage: usize,
        expected: &[f32],
        found: &[f32],
        vocab_size: usize,
    ) -> Result<(), SamplingError> {
        assert_eq!(expected.len(), found.len(), "rows of one passage");
        let rows = expected.chunks_exact(vocab_size).zip(found.chunks_exact(vocab_size));
        for (position, (expected, found)) in rows.enumerate() {
            self.positions += 1;
            self.logits += vocab_size;
            for (token, (&expected, &found)) in expected.iter().zip(found).enumerate() {
                let delta = (f64::from(found) - f64::from(expected)).abs();
                self.squares += delta * delta;
                // Nothing is above a NaN, and it is not below anything.
                if !(delta <= self.largest.delta || self.largest.delta.is_nan()) {
                    self.largest = Largest { delta, passage, position, token, found, expected };
                }
            }
            let mut logs = [vec![0.0; vocab_size], vec![0.0; vocab_size]];
            let (log_expected, log_found) = logs.split_at_mut(1);
            let usable = log_probabilities(expected, &mut log_expected[0])
                .and(log_probabilities(found, &mut log_found[0]));
            if usable.is_none() {
                self.unusable.get_or_insert((passage, position));
                continue;
            }
            let [(best, first), (_, second)] = two_largest(expected);
            let [(choice, _), _] = two_largest(found);
            let at = (passage, position);
            if self.divergence.add(&logs[0], &logs[1], &[best as u32], at).is_err() {
                self.unusable.get_or_insert(at);
            }
            if choice == best {
                self.same_argmax += 1;
            } else {
                let moved = |token: usize| (f64::from(found[token]) - f64::from(expected[token])).abs();
                self.flips.push(Flip {
                    passage,
                    position,
                    expected: best as u32,
                    found: choice as u32,
                    gap: f64::from(first) - f64::from(second),
                    drift: moved(best).max(moved(choice)),
                });
            }
            let [one, other] = &mut self.samplers;
            self.same_sample += usize::from(one.sample(expected)? == other.sample(found)?);
        }
        Ok(())
    }

    /// All of it in numbers.
    #[must_use]
    pub fn summary(self) -> Summary {
        let divergence = self.divergence.summary();
        Summary {
            positions: self.positions,
            largest: self.largest,
            rms: (self.squares / self.logits as f64).sqrt(),
            // The divergence of nearly equal ones may round to below zero; NaN stays what it is.
            kl_mean: divergence
                .map_or(f64::NAN, |summary| if summary.kl_mean < 0.0 { 0.0 } else { summary.kl_mean }),
            kl_max: divergence.map_or(f64::NAN, |summary| summary.kl_max.value),
            same_argmax: self.same_argmax,
            flips: self.flips,
            same_sample: self.same_sample,
            unusable: self.unusable,
        }
    }
}

/// The two largest of some logits, at least one, and their tokens; of equal ones the lowest comes first.
#[must_use]
pub fn two_largest(logits: &[f32]) -> [(usize, f32); 2] {
    let (mut first, mut second) = ((0, f32::NEG_INFINITY), (0, f32::NEG_INFINITY));
    for (token, &logit) in logits.iter().enumerate() {
        if logit > first.1 {
            (first, second) = ((token, logit), first);
        } else if logit > second.1 {
            second = (token, logit);
        }
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn compared(expected: &[f32], found: &[f32]) -> Summary {
        let mut comparison = Comparison::new(expected.len()).unwrap();
        comparison.add(3, expected, found, expected.len()).unwrap();
        comparison.summary()
    }

    #[test]
    fn what_is_equal_is_off_by_nothing() {
        let summary = compared(&[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0]);
        assert_eq!((summary.largest.delta, summary.rms, summary.kl_max), (0.0, 0.0, 0.0));
        assert_eq!((summary.same_argmax, summary.same_sample, summary.flips.len()), (1, 1, 0));
    }

    #[test]
    fn a_flip_is_attributed() {
        let summary = compared(&[1.0, 2.0, 2.125], &[1.0, 2.25, 2.0]);
        assert_eq!(summary.same_argmax, 0);
        let flip = summary.flips[0];
        assert_eq!((flip.passage, flip.expected, flip.found), (3, 2, 1));
        assert_eq!((flip.gap, flip.drift), (0.125, 0.25));
        assert!(flip.is_knife_edge());
        assert_eq!((summary.largest.delta, summary.largest.token), (0.25, 1));
        assert!(summary.kl_mean > 0.0);
    }

    #[test]
    fn a_nan_stays_and_is_named() {
        let summary = compared(&[1.0, 2.0, 4.0], &[1.0, f32::NAN, 40.0]);
        assert!(summary.largest.delta.is_nan() && summary.largest.token == 1);
        assert_eq!(summary.unusable, Some((3, 0)));
        assert!(summary.rms.is_nan());
    }
}
