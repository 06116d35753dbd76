//! Choosing the next token from logits.
//!
//! A [`Sampler`] starts with every token of the vocabulary as a candidate, adds the logit
//! bias, and sends the candidates through a chain of [`Stage`]s; each stage changes logits
//! or drops candidates. From what is left one token is drawn by its softmax probability.
//! Names, defaults, order and the meaning of each "off" value are llama.cpp's, so that its
//! users find what they know.
//!
//! **Reproducibility.** The same seed and the same logits give the same tokens on every
//! platform: the generator is ChaCha8 (a published stream cipher), exponentials and
//! logarithms come from the pure-Rust crate `libm` in f64 instead of the platform's library,
//! and candidates stay in the order of their ids throughout, so that the sums do not depend
//! on how many candidates a stage was asked to keep.

mod candidates;
mod options;
mod penalties;
mod rng;
mod stages;
#[cfg(test)]
mod tests;

pub use options::{SamplingOptions, Stage, parse_logit_bias, parse_stages};

use candidates::Candidates;
use penalties::History;
use rng::Generator;

/// Why no token could be chosen, or why the options were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// An option's value is outside its range.
    #[error("{option} {value} is out of range: {expected}")]
    Option {
        /// The option's name on the command line.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// The values that it may have.
        expected: String,
    },
    /// A stage's name is not known.
    #[error("unknown sampler `{name}`: the known ones are {}", Stage::known_names())]
    UnknownStage {
        /// The name that was given.
        name: String,
    },
    /// A stage is named twice.
    #[error("sampler `{name}` is named twice: each one runs once")]
    RepeatedStage {
        /// The name that was given twice.
        name: &'static str,
    },
    /// A logit bias is not written as a token id and a signed number.
    #[error("logit bias `{text}` is not TOKEN(+/-)BIAS, for example 15043+1.5 or 2-inf")]
    LogitBias {
        /// The text that was given.
        text: String,
    },
    /// The number of logits is not the size of the vocabulary.
    #[error("{found} logits for a vocabulary of {expected} tokens")]
    LogitCount {
        /// The logits that were given.
        found: usize,
        /// The size of the vocabulary.
        expected: usize,
    },
    /// A logit is NaN or plus infinity, so the model's output is meaningless.
    #[error("the logit of token {token} is {value}: the model's output is not usable")]
    BadLogit {
        /// The first token whose logit is bad.
        token: usize,
        /// The logit.
        value: f32,
    },
    /// Every token has a logit of minus infinity.
    #[error("every token is excluded: all logits are -inf after the logit bias")]
    NoCandidate,
    /// The operating system gave no random seed.
    #[error("no random seed from the operating system ({0}): choose one with --seed")]
    NoEntropy(String),
}

/// Chooses tokens by [`SamplingOptions`] and remembers those that came before.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    vocab_size: usize,
    seed: u32,
    generator: Generator,
    history: History,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for `vocab_size` tokens and a context of `context` tokens (the length of the
    /// penalty window when `repeat_last_n` is -1). Without a seed it draws one.
    ///
    /// # Errors
    /// When [`SamplingOptions::validate`] refuses the options, or when a seed is needed and
    /// the operating system has none.
    pub fn new(options: SamplingOptions, vocab_size: usize, context: usize) -> Result<Self, SamplingError> {
        options.validate(vocab_size)?;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u32().map_err(|error| SamplingError::NoEntropy(error.to_string()))?,
        };
        let window = usize::try_from(options.repeat_last_n).unwrap_or(context);
        Ok(Self {
            history: History::new(if options.penalties_are_off() { 0 } else { window }),
            options,
            vocab_size,
            seed,
            generator: Generator::new(seed),
            candidates: Candidates::default(),
        })
    }

    /// Whether [`sample`](Self::sample) takes the largest logit, whatever came before.
    #[must_use]
    pub fn takes_largest(&self) -> bool {
        let options = &self.options;
        let keeps_largest = |stage: &Stage| match stage {
            Stage::Penalties => options.penalties_are_off(),
            Stage::Typical => options.typical >= 1.0,
            Stage::Xtc => options.xtc_probability <= 0.0,
            Stage::TopNSigma | Stage::TopK | Stage::TopP | Stage::MinP | Stage::Temperature => true,
        };
        options.is_greedy() && options.logit_bias.is_empty() && options.samplers.iter().all(keeps_largest)
    }

    /// The seed in use: giving it again repeats the choices.
    #[must_use]
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Takes a token into the penalty window. The prompt's tokens count too.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Chooses a token for `logits` (one for each token of the vocabulary). Does not
    /// [`accept`](Self::accept) it. Equal logits are taken lowest id first.
    ///
    /// # Errors
    /// When the number of logits is wrong, one of them is NaN or plus infinity, or none is
    /// above minus infinity.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        if logits.len() != self.vocab_size {
            return Err(SamplingError::LogitCount { found: logits.len(), expected: self.vocab_size });
        }
        self.candidates.load(logits, &self.options.logit_bias)?;
        for &stage in &self.options.samplers {
            stages::apply(stage, &self.options, &self.history, &mut self.generator, &mut self.candidates);
        }
        if self.options.is_greedy() {
            return Ok(self.candidates.best().id);
        }
        Ok(self.candidates.draw(self.generator.uniform()))
    }
}
