//! What can be asked of the sampler: options, stages, and how they are written on a
//! command line.

use std::fmt;
use std::str::FromStr;

use super::SamplingError;

/// One step of the sampling chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Lowers the logits of tokens that occur in the last `repeat_last_n` tokens.
    Penalties,
    /// Keeps logits within `top_n_sigma` standard deviations of the largest one.
    TopNSigma,
    /// Keeps the `top_k` most likely candidates.
    TopK,
    /// Keeps the candidates whose surprise is closest to the entropy, until their
    /// probabilities sum to more than `typical` (locally typical sampling, Meister et al.
    /// 2022).
    Typical,
    /// Keeps the most likely candidates until their probabilities sum to `top_p` (nucleus
    /// sampling, Holtzman et al. 2019).
    TopP,
    /// Keeps candidates with at least `min_p` times the probability of the most likely one.
    MinP,
    /// With a chance of `xtc_probability`, drops all but the least likely of the candidates
    /// whose probability is at least `xtc_threshold`.
    Xtc,
    /// Divides the logits by `temperature`; at or below zero keeps only the largest.
    Temperature,
}

/// Each stage with its name, in the order in which they run unless another is asked for.
const STAGES: [(Stage, &str); 8] = [
    (Stage::Penalties, "penalties"),
    (Stage::TopNSigma, "top_n_sigma"),
    (Stage::TopK, "top_k"),
    (Stage::Typical, "typ_p"),
    (Stage::TopP, "top_p"),
    (Stage::MinP, "min_p"),
    (Stage::Xtc, "xtc"),
    (Stage::Temperature, "temperature"),
];

impl Stage {
    /// The stage's name in llama.cpp's `--samplers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        STAGES.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    pub(super) fn known_names() -> String {
        STAGES.map(|(_, name)| name).join(", ")
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stage {
    type Err = SamplingError;

    /// Reads a name; `-` may stand for `_`.
    fn from_str(name: &str) -> Result<Self, SamplingError> {
        let wanted = name.trim().replace('-', "_");
        STAGES
            .iter()
            .find(|(_, known)| *known == wanted)
            .map(|&(stage, _)| stage)
            .ok_or_else(|| SamplingError::UnknownStage { name: name.trim().to_owned() })
    }
}

/// Reads a chain: names separated by `;`, each at most once. The empty text is an empty
/// chain, which draws from the model's own distribution.
///
/// # Errors
/// When a name is unknown or stands there twice.
pub fn parse_stages(text: &str) -> Result<Vec<Stage>, SamplingError> {
    let mut stages = Vec::new();
    if text.trim().is_empty() {
        return Ok(stages);
    }
    for name in text.trim().trim_end_matches(';').split(';') {
        let stage: Stage = name.parse()?;
        if stages.contains(&stage) {
            return Err(SamplingError::RepeatedStage { name: stage.name() });
        }
        stages.push(stage);
    }
    Ok(stages)
}

/// Reads a logit bias as llama.cpp writes it: a token id, then a signed number that is added
/// to its logit (`15043+1.5`, `15043-1`, and `2-inf` for "never").
///
/// # Errors
/// When the text has another form.
pub fn parse_logit_bias(text: &str) -> Result<(u32, f32), SamplingError> {
    let error = || SamplingError::LogitBias { text: text.to_owned() };
    let sign = text.find(['+', '-']).ok_or_else(error)?;
    let (token, bias) = text.split_at(sign);
    let token = token.parse().map_err(|_| error())?;
    let bias: f32 = bias.parse().map_err(|_| error())?;
    // A second sign would parse as part of no number, NaN and plus infinity would.
    if bias.is_nan() || bias == f32::INFINITY { Err(error()) } else { Ok((token, bias)) }
}

/// How the next token is chosen. The defaults are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingOptions {
    /// Seed of the generator; `None` draws one.
    pub seed: Option<u32>,
    /// Divisor of the logits; at or below 0 the most likely token is taken.
    pub temperature: f32,
    /// Most likely candidates to keep; at or below 0 all.
    pub top_k: i32,
    /// Probability mass to keep, from the most likely down; 1 is off.
    pub top_p: f32,
    /// Least probability to keep, as a share of the largest; 0 is off.
    pub min_p: f32,
    /// Probability mass to keep, from the most typical on; 1 is off.
    pub typical: f32,
    /// Standard deviations below the largest logit to keep; at or below 0 off.
    pub top_n_sigma: f32,
    /// Chance that the stage `xtc` acts; 0 is off.
    pub xtc_probability: f32,
    /// Least probability of the tokens that `xtc` drops; above 0.5 off.
    pub xtc_threshold: f32,
    /// Tokens that the penalties look back on; 0 is off, -1 the whole context.
    pub repeat_last_n: i32,
    /// Divisor of the positive logits of tokens that occurred; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted from the logit of a token that occurred; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time that it occurred; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of single tokens before everything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// The chain, in the order in which it runs.
    pub samplers: Vec<Stage>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            seed: None,
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            samplers: STAGES.map(|(stage, _)| stage).to_vec(),
        }
    }
}

impl SamplingOptions {
    /// Always the most likely token, penalties and bias aside.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the most likely token is taken instead of a drawn one.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    pub(super) fn penalties_are_off(&self) -> bool {
        self.repeat_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0
    }

    /// Checks every value, against a vocabulary of `vocab_size` tokens.
    ///
    /// # Errors
    /// Names the first option that is out of range, its value, and the range.
    pub fn validate(&self, vocab_size: usize) -> Result<(), SamplingError> {
        let finite = |x: f32| x.is_finite();
        let share = |x: f32| (0.0..=1.0).contains(&x);
        let above_zero = |x: f32| x.is_finite() && x > 0.0;
        check("--temp", self.temperature, finite, "a finite number (0 or less: greedy)")?;
        check("--top-p", self.top_p, share, "0 to 1 (1: off)")?;
        check("--min-p", self.min_p, share, "0 to 1 (0: off)")?;
        check("--typical", self.typical, share, "0 to 1 (1: off)")?;
        check("--top-nsigma", self.top_n_sigma, finite, "a finite number (0 or less: off)")?;
        check("--xtc-probability", self.xtc_probability, share, "0 to 1 (0: off)")?;
        check("--xtc-threshold", self.xtc_threshold, share, "0 to 1 (above 0.5: off)")?;
        check("--repeat-penalty", self.repeat_penalty, above_zero, "a finite number above 0 (1: off)")?;
        check("--presence-penalty", self.presence_penalty, finite, "a finite number (0: off)")?;
        check("--frequency-penalty", self.frequency_penalty, finite, "a finite number (0: off)")?;
        check("--repeat-last-n", self.repeat_last_n, |n| n >= -1, "-1 (the context), 0 (off) or a count")?;
        for &(token, bias) in &self.logit_bias {
            let known = |token| usize::try_from(token).is_ok_and(|token| token < vocab_size);
            check("--logit-bias token", token, known, &format!("the vocabulary has {vocab_size} tokens"))?;
            let usable = |x: f32| x < f32::INFINITY;
            check("--logit-bias", bias, usable, "a number below infinity (-inf: never)")?;
        }
        let repeated = (1..self.samplers.len()).find(|&at| self.samplers[..at].contains(&self.samplers[at]));
        match repeated {
            Some(at) => Err(SamplingError::RepeatedStage { name: self.samplers[at].name() }),
            None => Ok(()),
        }
    }
}

fn check<T: Copy + fmt::Display>(
    option: &'static str,
    value: T,
    holds: impl Fn(T) -> bool,
    expected: &str,
) -> Result<(), SamplingError> {
    if holds(value) {
        return Ok(());
    }
    Err(SamplingError::Option { option, value: value.to_string(), expected: expected.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn the_default_chain_is_llama_cpps_without_what_is_not_built() {
        let names: Vec<_> = SamplingOptions::default().samplers.iter().map(|s| s.name()).collect();
        assert_eq!(names.join(";"), "penalties;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
        assert_eq!(parse_stages(&names.join(";")).unwrap(), SamplingOptions::default().samplers);
    }

    #[test]
    fn a_chain_is_refused_by_the_name_that_is_wrong() {
        let message = parse_stages("top_k;mirostat;temperature").unwrap_err().to_string();
        assert!(message.contains("`mirostat`") && message.contains("typ_p"), "{message}");
        assert_eq!(parse_stages("top_k; top-k"), Err(SamplingError::RepeatedStage { name: "top_k" }));
        assert!(parse_stages("top_k;;min_p").is_err());
        assert_eq!(parse_stages("top-p;temperature;").unwrap(), [Stage::TopP, Stage::Temperature]);
        assert_eq!(parse_stages("").unwrap(), []);
    }

    #[test]
    fn a_logit_bias_is_a_token_and_a_signed_number() {
        assert_eq!(parse_logit_bias("15043+1.5").unwrap(), (15043, 1.5));
        assert_eq!(parse_logit_bias("15043-1").unwrap(), (15043, -1.0));
        assert_eq!(parse_logit_bias("2-inf").unwrap(), (2, f32::NEG_INFINITY));
        for text in ["", "5", "+1", "-1", "x+1", "5+", "5++1", "5+inf", "5+nan", "5-nan", "4294967296+1"] {
            assert!(parse_logit_bias(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_value_out_of_range_is_named() {
        let valid = SamplingOptions::default();
        assert_eq!(valid.validate(10), Ok(()));
        let nan = f32::NAN;
        let wrong = [
            ("--temp", SamplingOptions { temperature: nan, ..valid.clone() }),
            ("--temp", SamplingOptions { temperature: f32::INFINITY, ..valid.clone() }),
            ("--top-p", SamplingOptions { top_p: 1.5, ..valid.clone() }),
            ("--top-p", SamplingOptions { top_p: nan, ..valid.clone() }),
            ("--min-p", SamplingOptions { min_p: -0.1, ..valid.clone() }),
            ("--typical", SamplingOptions { typical: nan, ..valid.clone() }),
            ("--top-nsigma", SamplingOptions { top_n_sigma: nan, ..valid.clone() }),
            ("--xtc-probability", SamplingOptions { xtc_probability: 2.0, ..valid.clone() }),
            ("--xtc-threshold", SamplingOptions { xtc_threshold: -1.0, ..valid.clone() }),
            ("--repeat-penalty", SamplingOptions { repeat_penalty: 0.0, ..valid.clone() }),
            ("--presence-penalty", SamplingOptions { presence_penalty: nan, ..valid.clone() }),
            ("--frequency-penalty", SamplingOptions { frequency_penalty: f32::INFINITY, ..valid.clone() }),
            ("--repeat-last-n", SamplingOptions { repeat_last_n: -2, ..valid.clone() }),
            ("--logit-bias token", SamplingOptions { logit_bias: vec![(10, 1.0)], ..valid.clone() }),
            ("--logit-bias", SamplingOptions { logit_bias: vec![(9, nan)], ..valid.clone() }),
        ];
        for (name, options) in wrong {
            match options.validate(10) {
                Err(SamplingError::Option { option, .. }) => assert_eq!(option, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
