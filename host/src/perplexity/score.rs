//! Log-probabilities of logits, and means with their standard errors.

/// ln Σ exp(logit), in f64: what is taken from a logit to make it a log-probability. `None` if a logit is
/// NaN or infinite, or there is none.
#[must_use]
pub fn normalizer(logits: &[f32]) -> Option<f64> {
    if logits.is_empty() || logits.iter().any(|logit| !logit.is_finite()) {
        return None;
    }
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    Some(largest + sum.ln())
}

/// Writes the log-probabilities of `logits` into `row`, which is as long, and returns their
/// [`normalizer`].
#[must_use]
pub fn log_probabilities(logits: &[f32], row: &mut [f32]) -> Option<f64> {
    let normalizer = normalizer(logits)?;
    for (out, &logit) in row.iter_mut().zip(logits) {
        *out = (f64::from(logit) - normalizer) as f32;
    }
    Some(normalizer)
}

/// The mean of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Estimate {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.count += 1;
        self.sum += number;
        self.squares += number * number;
    }

    /// Numbers so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; NaN of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The standard error of their mean, as if they were independent; 0 of fewer than two.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let variance = self.squares / self.count as f64 - self.mean().powi(2);
        // Rounding can leave less than nothing; NaN stays.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        (variance / (self.count - 1) as f64).sqrt()
    }

    /// exp of the mean, and its standard error to first order: of negative log-likelihoods, the
    /// perplexity as llama.cpp prints it.
    #[must_use]
    pub fn perplexity(&self) -> (f64, f64) {
        let perplexity = self.mean().exp();
        (perplexity, perplexity * self.standard_error())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::gate::random::{Random, normal};

    #[test]
    fn log_probabilities_are_those_of_the_formula() {
        let mut random = Random(3);
        for len in [1, 2, 31, 32, 33, 1000] {
            for shift in [0.0, 1e4, -300.0] {
                let logits: Vec<f32> = (0..len).map(|_| (4.0 * normal(&mut random) + shift) as f32).collect();
                let mut row = vec![f32::NAN; len];
                let normalizer = log_probabilities(&logits, &mut row).unwrap();
                // As it is written, around the first logit, which is as good a centre as any.
                let sum: f64 = logits.iter().map(|&x| (f64::from(x) - f64::from(logits[0])).exp()).sum();
                let expected = f64::from(logits[0]) + sum.ln();
                assert!((normalizer - expected).abs() <= 1e-11 * expected.abs().max(1.0), "{len} {shift}");
                let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                assert!((total - 1.0).abs() < 1e-6, "{len} {shift}: {total}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_has_no_probabilities() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..3 {
                let mut logits = [0.0, 1.0, 2.0];
                logits[at] = bad;
                assert_eq!(normalizer(&logits), None, "{bad} at {at}");
            }
        }
        assert_eq!(normalizer(&[]), None);
    }

    /// The formula of the sample's standard deviation over the root of the count.
    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let mut random = Random(4);
        let numbers: Vec<f64> = (0..97).map(|_| 3.0 + normal(&mut random)).collect();
        let mut estimate = Estimate::default();
        numbers.iter().for_each(|&number| estimate.add(number));
        let n = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let deviation = (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        assert!((estimate.mean() - mean).abs() < 1e-12);
        assert!((estimate.standard_error() - deviation / n.sqrt()).abs() < 1e-12);
        let (perplexity, error) = estimate.perplexity();
        assert!(
            (perplexity - mean.exp()).abs() < 1e-9
                && (error - mean.exp() * deviation / n.sqrt()).abs() < 1e-9
        );

        let mut same = Estimate::default();
        (0..3).for_each(|_| same.add(0.1));
        assert!(same.standard_error() < 1e-8);
        same.add(f64::NAN);
        assert!(same.standard_error().is_nan() && same.perplexity().0.is_nan());
        assert!(Estimate::default().mean().is_nan());
    }
}
