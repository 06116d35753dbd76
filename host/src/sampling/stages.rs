//! The stages of the chain, one function each; what they do is said at [`Stage`].

use super::candidates::Candidates;
use super::penalties::{self, History};
use super::rng::Generator;
use super::{SamplingOptions, Stage};

/// Runs one stage. A stage whose option has its "off" value changes nothing.
pub(super) fn apply(
    stage: Stage,
    options: &SamplingOptions,
    history: &History,
    generator: &mut Generator,
    candidates: &mut Candidates,
) {
    match stage {
        Stage::Penalties => penalties::apply(options, history, candidates),
        Stage::TopNSigma => top_n_sigma(candidates, options.top_n_sigma.into()),
        Stage::TopK => candidates.keep_largest(usize::try_from(options.top_k).unwrap_or(0)),
        Stage::Typical => typical(candidates, options.typical.into()),
        Stage::TopP => top_p(candidates, options.top_p.into()),
        Stage::MinP => min_p(candidates, options.min_p.into()),
        Stage::Xtc => {
            xtc(candidates, options.xtc_probability.into(), options.xtc_threshold.into(), generator);
        }
        Stage::Temperature => temperature(candidates, options.temperature.into()),
    }
}

fn top_n_sigma(candidates: &mut Candidates, n: f64) {
    if n <= 0.0 {
        return;
    }
    let count = candidates.len() as f64;
    let mean = candidates.iter().map(|c| c.logit).sum::<f64>() / count;
    let variance = candidates.iter().map(|c| (c.logit - mean) * (c.logit - mean)).sum::<f64>() / count;
    let threshold = candidates.best().logit - n * variance.sqrt();
    candidates.retain(|c| c.logit >= threshold);
}

fn typical(candidates: &mut Candidates, mass: f64) {
    if mass >= 1.0 {
        return;
    }
    let probabilities = candidates.probabilities();
    let surprise = |p: f64| -libm::log(p);
    // A probability of zero adds nothing to the entropy, and its surprise is infinite.
    let entropy: f64 = probabilities.iter().filter(|&&p| p > 0.0).map(|&p| p * surprise(p)).sum();
    let mut sum = 0.0;
    let kept = candidates.ascending_until(
        |at| (surprise(probabilities[at]) - entropy).abs(),
        |at| {
            sum += probabilities[at];
            sum > mass
        },
    );
    candidates.keep_positions(kept);
}

fn top_p(candidates: &mut Candidates, mass: f64) {
    if mass >= 1.0 {
        return;
    }
    let probabilities = candidates.probabilities();
    let mut sum = 0.0;
    let kept = candidates.ascending_until(
        |at| -probabilities[at],
        |at| {
            sum += probabilities[at];
            sum >= mass
        },
    );
    candidates.keep_positions(kept);
}

fn min_p(candidates: &mut Candidates, share: f64) {
    if share <= 0.0 {
        return;
    }
    let threshold = candidates.best().logit + libm::log(share);
    candidates.retain(|c| c.logit >= threshold);
}

fn xtc(candidates: &mut Candidates, probability: f64, threshold: f64, generator: &mut Generator) {
    if probability <= 0.0 || threshold > 0.5 || generator.uniform() >= probability {
        return;
    }
    let probabilities = candidates.probabilities();
    let above: Vec<usize> = (0..probabilities.len()).filter(|&at| probabilities[at] >= threshold).collect();
    // Among equals the one with the highest id counts as the least likely, as in `best`.
    let least = above.iter().copied().rev().min_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
    let Some(least) = least else { return };
    let kept = (0..probabilities.len()).filter(|&at| at == least || probabilities[at] < threshold);
    candidates.keep_positions(kept.collect());
}

fn temperature(candidates: &mut Candidates, temperature: f64) {
    if temperature <= 0.0 {
        candidates.keep_largest(1);
    } else {
        candidates.iter_mut().for_each(|c| c.logit /= temperature);
    }
}
