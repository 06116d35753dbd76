//! How far the log-probabilities of one run are from another's.

use rayon::prelude::*;
use serde::Serialize;

use super::score::Estimate;

/// The comparison so far.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    /// Of each position.
    divergences: Vec<f64>,
    mean: Estimate,
    largest: Farthest,
    /// Negative log-likelihoods of the other run.
    base: Estimate,
    /// Of this run, less those.
    losses: Estimate,
    same: u64,
    /// Differences of log-probabilities.
    square_sum: f64,
    differences: u64,
    farthest: Farthest,
}

/// The largest of some numbers, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Farthest {
    /// The number.
    pub value: f64,
    /// Its chunk, counted from 0.
    pub chunk: usize,
    /// Its position in the chunk: that of the token after which the logits are.
    pub position: usize,
    /// The token, where it is a token's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<usize>,
}

/// A comparison in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Positions that are compared.
    pub positions: u64,
    /// The other run's perplexity.
    pub base_perplexity: f64,
    /// Its standard error.
    pub base_standard_error: f64,
    /// ln of this run's perplexity over the other's.
    pub ln_ratio: f64,
    /// Its standard error: smaller than that of either, as both see the same text.
    pub ln_ratio_standard_error: f64,
    /// Mean of the Kullback-Leibler divergence of this run's distribution from the other's, in nats.
    pub kl_mean: f64,
    /// Its standard error.
    pub kl_standard_error: f64,
    /// Half of the positions are not above it.
    pub kl_median: f64,
    /// 99 of 100 positions are not above it.
    pub kl_p99: f64,
    /// The largest one.
    pub kl_max: Farthest,
    /// Root of the mean square of the differences of all log-probabilities.
    pub log_probability_rms: f64,
    /// The largest of them.
    pub log_probability_max: Farthest,
    /// Part of the positions at which both runs hold the same token for the most likely.
    pub same_top: f64,
}

/// One position's part.
struct Row {
    divergence: f64,
    base_loss: f64,
    loss: f64,
    same: bool,
    square_sum: f64,
    farthest: (f64, usize),
}

impl Divergence {
    /// Compares rows of log-probabilities with those of the other run, a row for each of `targets`, the tokens
    /// that followed; the first is that of the chunk and position `at`.
    ///
    /// # Errors
    /// Chunk and position of the first row whose divergence is not finite.
    pub fn add(
        &mut self,
        base: &[f32],
        rows: &[f32],
        targets: &[u32],
        at: (usize, usize),
    ) -> Result<(), (usize, usize)> {
        let width = rows.len() / targets.len().max(1);
        let pairs = base.par_chunks_exact(width).zip(rows.par_chunks_exact(width)).zip(targets);
        let compared: Vec<Row> =
            pairs.map(|((base, row), &target)| compare(base, row, target as usize)).collect();
        let (chunk, start) = at;
        for (position, row) in (start..).zip(compared) {
            if !(row.divergence.is_finite() && row.square_sum.is_finite() && row.base_loss.is_finite()) {
                return Err((chunk, position));
            }
            self.divergences.push(row.divergence);
            self.mean.add(row.divergence);
            if self.divergences.len() == 1 || row.divergence > self.largest.value {
                self.largest = Farthest { value: row.divergence, chunk, position, token: None };
            }
            self.base.add(row.base_loss);
            self.losses.add(row.loss - row.base_loss);
            self.same += u64::from(row.same);
            self.square_sum += row.square_sum;
            self.differences += width as u64;
            let (value, token) = row.farthest;
            if self.divergences.len() == 1 || value > self.farthest.value {
                self.farthest = Farthest { value, chunk, position, token: Some(token) };
            }
        }
        Ok(())
    }

    /// All of it in numbers, or `None` if nothing was compared.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted = self.divergences.clone();
        sorted.sort_by(f64::total_cmp);
        // The least number that so many are not above.
        let at = |part: f64| sorted.get(((part * sorted.len() as f64).ceil() as usize).max(1) - 1).copied();
        let (base_perplexity, base_standard_error) = self.base.perplexity();
        Some(Summary {
            positions: self.mean.count(),
            base_perplexity,
            base_standard_error,
            ln_ratio: self.losses.mean(),
            ln_ratio_standard_error: self.losses.standard_error(),
            kl_mean: self.mean.mean(),
            kl_standard_error: self.mean.standard_error(),
            kl_median: at(0.5)?,
            kl_p99: at(0.99)?,
            kl_max: self.largest,
            log_probability_rms: (self.square_sum / self.differences as f64).sqrt(),
            log_probability_max: self.farthest,
            same_top: self.same as f64 / self.mean.count() as f64,
        })
    }
}

fn compare(base: &[f32], row: &[f32], target: usize) -> Row {
    let (mut divergence, mut square_sum, mut farthest) = (0.0, 0.0, (0.0, 0));
    for (token, (&base, &own)) in base.iter().zip(row).enumerate() {
        let base = f64::from(base);
        let difference = base - f64::from(own);
        divergence += base.exp() * difference;
        square_sum += difference * difference;
        if difference.abs() > farthest.0 {
            farthest = (difference.abs(), token);
        }
    }
    let loss = |row: &[f32]| -row.get(target).copied().map_or(f64::NAN, f64::from);
    Row {
        divergence,
        base_loss: loss(base),
        loss: loss(row),
        same: largest(base) == largest(row),
        square_sum,
        farthest,
    }
}

/// The place of the largest number, of equal ones the first.
fn largest(row: &[f32]) -> usize {
    let better = |best: usize, next: usize| if row[next] > row[best] { next } else { best };
    (0..row.len()).reduce(better).unwrap_or(0)
}
