//! The stages against plain references (f64, full sorts, the platform's `exp` and `ln`), and
//! the sampler's promises: replay, "off" values, penalties.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::candidates::Candidates;
use super::penalties::History;
use super::rng::Generator;
use super::*;

/// Numbers like a model's logits: a seeded Gaussian-like bulk with a few outliers.
fn logits(seed: u32, count: usize) -> Vec<f32> {
    let mut generator = Generator::new(seed);
    let mut uniform = || generator.uniform() as f32;
    (0..count)
        .map(|at| {
            let bulk = (0..4).map(|_| uniform() - 0.5).sum::<f32>() * 6.0;
            if at % 97 == 3 { bulk + 8.0 * uniform() } else { bulk }
        })
        .collect()
}

/// Ids that are left after one stage, in ascending order.
fn kept(stage: Stage, options: &SamplingOptions, logits: &[f32]) -> Vec<u32> {
    let mut candidates = Candidates::default();
    candidates.load(logits, &[]).unwrap();
    stages::apply(stage, options, &History::new(0), &mut Generator::new(1), &mut candidates);
    candidates.iter().map(|candidate| candidate.id).collect()
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    logits.iter().map(|&x| f64::from(x).exp() / sum).collect()
}

/// Ids by a sort key, ascending.
fn sorted_by(key: &[f64]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..key.len()).collect();
    ids.sort_by(|&a, &b| key[a].partial_cmp(&key[b]).unwrap());
    ids
}

fn ascending(ids: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let mut ids: Vec<u32> = ids.into_iter().map(|id| id.try_into().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Runs `compare(options with the value, logits)` over ragged vocabulary sizes and `values`.
fn for_each_case<T: Copy>(values: &[T], mut compare: impl FnMut(T, &[f32])) {
    for (seed, &count) in (0..).zip(&[1, 2, 3, 127, 128, 129, 1000, 1025, 5000]) {
        for &value in values {
            compare(value, &logits(seed, count));
        }
    }
}

#[test]
fn top_k_keeps_the_largest() {
    for_each_case(&[1, 2, 5, 40, 127, 128, 999, 4999], |top_k: i32, logits| {
        let options = SamplingOptions { top_k, ..Default::default() };
        let descending = sorted_by(&logits.iter().map(|&x| -f64::from(x)).collect::<Vec<_>>());
        let count = usize::try_from(top_k).unwrap();
        assert_eq!(kept(Stage::TopK, &options, logits), ascending(descending.into_iter().take(count)));
    });
    let options = SamplingOptions { top_k: 2, ..Default::default() };
    assert_eq!(kept(Stage::TopK, &options, &[1.0, 2.0, 2.0, 1.5, 2.0]), [1, 2]);
}

#[test]
fn top_p_keeps_the_nucleus() {
    for_each_case(&[0.0, 0.1, 0.5, 0.9, 0.99, 0.9999], |top_p: f32, logits| {
        let options = SamplingOptions { top_p, ..Default::default() };
        let p = softmax(logits);
        let mut nucleus = Vec::new();
        let mut sum = 0.0;
        for id in sorted_by(&p.iter().map(|&x| -x).collect::<Vec<_>>()) {
            nucleus.push(id);
            sum += p[id];
            if sum >= f64::from(top_p) {
                break;
            }
        }
        assert_eq!(kept(Stage::TopP, &options, logits), ascending(nucleus), "{top_p} of {}", logits.len());
    });
}

#[test]
fn min_p_keeps_a_share_of_the_largest() {
    for_each_case(&[0.01, 0.05, 0.3, 1.0], |min_p: f32, logits| {
        let options = SamplingOptions { min_p, ..Default::default() };
        let p = softmax(logits);
        let largest = p.iter().copied().fold(0.0, f64::max);
        let reference = (0..p.len()).filter(|&id| p[id] >= largest * f64::from(min_p));
        assert_eq!(kept(Stage::MinP, &options, logits), ascending(reference));
    });
}

#[test]
fn typical_keeps_what_is_closest_to_the_entropy() {
    for_each_case(&[0.0, 0.2, 0.5, 0.9, 0.999], |typical: f32, logits| {
        let options = SamplingOptions { typical, ..Default::default() };
        let p = softmax(logits);
        let entropy: f64 = p.iter().map(|&x| -x * x.ln()).sum();
        let mut reference = Vec::new();
        let mut sum = 0.0;
        for id in sorted_by(&p.iter().map(|&x| (-x.ln() - entropy).abs()).collect::<Vec<_>>()) {
            reference.push(id);
            sum += p[id];
            if sum > f64::from(typical) {
                break;
            }
        }
        assert_eq!(kept(Stage::Typical, &options, logits), ascending(reference));
    });
}

#[test]
fn typical_can_drop_the_most_likely() {
    // Entropy 1.28: the surprise of 0.4 is 0.92, of 0.3 is 1.2, so 0.3 goes first.
    let p = [0.4f32, 0.3, 0.3];
    let options = SamplingOptions { typical: 0.2, ..Default::default() };
    assert_eq!(kept(Stage::Typical, &options, &p.map(f32::ln)), [1]);
}

#[test]
fn top_n_sigma_keeps_what_is_near_the_largest() {
    for_each_case(&[0.01, 0.5, 1.0, 3.0], |top_n_sigma: f32, logits| {
        let options = SamplingOptions { top_n_sigma, ..Default::default() };
        let count = logits.len() as f64;
        let mean = logits.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let square = logits.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / count;
        let deviation = (square - mean * mean).max(0.0).sqrt();
        let largest = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let reference = (0..logits.len())
            .filter(|&id| f64::from(logits[id]) >= largest - f64::from(top_n_sigma) * deviation);
        assert_eq!(kept(Stage::TopNSigma, &options, logits), ascending(reference));
    });
}

#[test]
fn xtc_drops_all_but_the_least_likely_of_the_likely() {
    let logits = [0.35f32, 0.05, 0.3, 0.1, 0.2].map(f32::ln);
    let with = |xtc_probability, xtc_threshold| {
        let options = SamplingOptions { xtc_probability, xtc_threshold, ..Default::default() };
        kept(Stage::Xtc, &options, &logits)
    };
    assert_eq!(with(1.0, 0.15), [1, 3, 4]);
    assert_eq!(with(1.0, 0.32), [0, 1, 2, 3, 4]);
    assert_eq!(with(1.0, 0.4), [0, 1, 2, 3, 4]);
    assert_eq!(with(1.0, 0.0), [1]);
    assert_eq!(with(0.0, 0.15), [0, 1, 2, 3, 4]);
}

#[test]
fn stages_at_their_off_value_change_nothing() {
    let off = SamplingOptions {
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical: 1.0,
        temperature: 1.0,
        ..Default::default()
    };
    let logits = logits(3, 1000);
    for &stage in &off.samplers {
        assert_eq!(kept(stage, &off, &logits).len(), 1000, "{stage}");
    }
}

/// 200 tokens from changing logits, each taken into the history.
fn run(options: SamplingOptions, vocab_size: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(options, vocab_size, 64).unwrap();
    (0..200)
        .map(|step| {
            let token = sampler.sample(&logits(step, vocab_size)).unwrap();
            sampler.accept(token);
            token
        })
        .collect()
}

#[test]
fn top_k_zero_is_off_and_equals_the_vocabulary() {
    let with =
        |top_k| run(SamplingOptions { seed: Some(9), temperature: 1.0, top_k, ..Default::default() }, 1021);
    let off = with(0);
    assert!(off.iter().any(|&token| token != off[0]));
    for top_k in [-1, 1021, 1022, i32::MAX, i32::MIN] {
        assert_eq!(with(top_k), off, "top_k {top_k}");
    }
    let greedy = run(SamplingOptions::greedy(), 1021);
    assert_eq!(with(1), greedy);
    assert_ne!(off, greedy);
}

#[test]
fn the_seed_in_use_replays() {
    let options = SamplingOptions { repeat_penalty: 1.1, frequency_penalty: 0.2, ..Default::default() };
    let mut sampler = Sampler::new(options.clone(), 501, 64).unwrap();
    let first: Vec<u32> = (0..200)
        .map(|step| {
            let token = sampler.sample(&logits(step, 501)).unwrap();
            sampler.accept(token);
            token
        })
        .collect();
    let replayed = run(SamplingOptions { seed: Some(sampler.seed()), ..options.clone() }, 501);
    assert_eq!(first, replayed);
    let other = run(SamplingOptions { seed: Some(sampler.seed() ^ 1), ..options }, 501);
    assert_ne!(first, other);
}

/// Pins the choices themselves: a printed seed must give the same text in later releases.
#[test]
fn a_seed_means_the_same_tokens_for_ever() {
    let options = SamplingOptions { seed: Some(42), ..Default::default() };
    assert_eq!(run(options, 1000)[..8], [682, 193, 682, 41, 513, 3, 775, 362]);
}

#[test]
fn frequencies_follow_the_probabilities() {
    let p = [0.5f32, 0.25, 0.0, 0.2, 0.05];
    let options = SamplingOptions { seed: Some(7), temperature: 1.0, samplers: vec![], ..Default::default() };
    let mut sampler = Sampler::new(options, p.len(), 8).unwrap();
    let mut counts = [0u32; 5];
    for _ in 0..20_000 {
        counts[usize::try_from(sampler.sample(&p.map(f32::ln)).unwrap()).unwrap()] += 1;
    }
    for (count, p) in counts.into_iter().zip(p) {
        let expected = 20_000.0 * p;
        let four_sigma = 4.0 * (expected * (1.0 - p)).sqrt();
        assert!((count as f32 - expected).abs() <= four_sigma, "{counts:?}");
    }
}

#[test]
fn temperature_comes_last_and_sharpens() {
    // The second token has 54 % of the first one's probability before the division by 0.2 and
    // 4.5 % after it, so it can be drawn only if min_p comes before.
    let options = |samplers: &str| SamplingOptions {
        seed: Some(1),
        temperature: 0.2,
        samplers: parse_stages(samplers).unwrap(),
        ..Default::default()
    };
    let draw = |samplers| {
        let mut sampler = Sampler::new(options(samplers), 2, 8).unwrap();
        (0..500).filter(|_| sampler.sample(&[1.0, 0.38]).unwrap() == 1).count()
    };
    let count = draw("min_p;temperature");
    // 1 / (1 + e^3.1) of 500 is 21.5.
    assert!((8..=36).contains(&count), "{count}");
    assert_eq!(draw("temperature;min_p"), 0);
}

#[test]
fn greedy_takes_the_lowest_id_of_equals() {
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 4, 8).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0]).unwrap(), 1);
    assert_eq!(sampler.sample(&[-0.0, 0.0, -0.0, 0.0]).unwrap(), 0);
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY, f32::MIN, f32::NEG_INFINITY, f32::MIN]).unwrap(), 1);
    let options = SamplingOptions { samplers: vec![], ..SamplingOptions::greedy() };
    assert_eq!(Sampler::new(options, 3, 8).unwrap().sample(&[1.0, 2.0, 2.0]).unwrap(), 1);
}

#[test]
fn penalties_look_at_the_prompt_once_a_candidate() {
    let sample = |options: SamplingOptions, prompt: &[u32], logits: &[f32]| {
        let mut sampler = Sampler::new(options, logits.len(), 64).unwrap();
        prompt.iter().for_each(|&token| sampler.accept(token));
        sampler.sample(logits).unwrap()
    };
    let penalized = SamplingOptions { repeat_penalty: 1.1, ..SamplingOptions::greedy() };
    // 2.0 / 1.1 = 1.82, below 1.9 ...
    assert_eq!(sample(penalized.clone(), &[0, 0, 0], &[2.0, 1.9, 0.0]), 1);
    // ... and above 1.6, which three divisions (1.50) would be below.
    assert_eq!(sample(penalized.clone(), &[0, 0, 0], &[2.0, 1.6, 0.0]), 0);
    let off = SamplingOptions { repeat_last_n: 0, ..penalized.clone() };
    assert_eq!(sample(off, &[0, 0, 0], &[2.0, 1.9, 0.0]), 0);
    // -1.0 * 1.1 is below -1.05; a division would lift it.
    assert_eq!(sample(penalized.clone(), &[0], &[-1.0, -1.05, -9.0]), 1);
    // The window: two tokens back the 0 is out of sight, with -1 it is not.
    let short = SamplingOptions { repeat_last_n: 2, ..penalized.clone() };
    assert_eq!(sample(short, &[0, 2, 2], &[2.0, 1.9, 0.0]), 0);
    let context = SamplingOptions { repeat_last_n: -1, ..penalized };
    assert_eq!(sample(context, &[0, 2, 2], &[2.0, 1.9, 0.0]), 1);

    let presence = SamplingOptions { presence_penalty: 0.2, ..SamplingOptions::greedy() };
    assert_eq!(sample(presence.clone(), &[0, 0, 0], &[2.0, 1.9, 0.0]), 1);
    assert_eq!(sample(presence, &[0, 0, 0], &[2.0, 1.5, 0.0]), 0);
    let frequency = SamplingOptions { frequency_penalty: 0.2, ..SamplingOptions::greedy() };
    assert_eq!(sample(frequency.clone(), &[0, 0, 0], &[2.0, 1.5, 0.0]), 1);
    assert_eq!(sample(frequency, &[0, 0, 0], &[2.0, 1.3, 0.0]), 0);
}

#[test]
fn bias_comes_first_and_can_exclude() {
    let biased = |logit_bias| {
        let options = SamplingOptions { logit_bias, ..SamplingOptions::greedy() };
        Sampler::new(options, 3, 8).unwrap().sample(&[3.0, 2.0, 1.0])
    };
    assert_eq!(biased(vec![(2, 2.5)]), Ok(2));
    assert_eq!(biased(vec![(0, f32::NEG_INFINITY)]), Ok(1));
    let all = (0..3).map(|token| (token, f32::NEG_INFINITY)).collect();
    assert_eq!(biased(all), Err(SamplingError::NoCandidate));
}

#[test]
fn bad_logits_are_an_error_and_never_a_choice() {
    for options in [SamplingOptions::greedy(), SamplingOptions::default()] {
        let mut sampler = Sampler::new(options, 3, 8).unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            match sampler.sample(&[0.0, 1.0, bad]) {
                Err(SamplingError::BadLogit { token: 2, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 3]), Err(SamplingError::NoCandidate));
        assert_eq!(sampler.sample(&[0.0; 2]), Err(SamplingError::LogitCount { found: 2, expected: 3 }));
        let one_left = [f32::NEG_INFINITY, -5.0, f32::NEG_INFINITY];
        assert_eq!(sampler.sample(&one_left), Ok(1));
    }
}

#[test]
fn extreme_values_do_not_overflow() {
    let options = SamplingOptions {
        seed: Some(1),
        temperature: f32::from_bits(1),
        repeat_penalty: f32::MAX,
        presence_penalty: f32::MAX,
        frequency_penalty: f32::MIN,
        min_p: f32::from_bits(1),
        ..Default::default()
    };
    let mut sampler = Sampler::new(options, 4, 8).unwrap();
    [0, 1, 1].into_iter().for_each(|token| sampler.accept(token));
    let token = sampler.sample(&[f32::MIN, f32::MAX, f32::MIN, f32::MAX]).unwrap();
    assert_eq!(token, 1);
}
