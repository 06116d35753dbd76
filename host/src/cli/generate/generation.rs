//! The generation loop: prompt in, tokens and text out, until something ends it.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::stop::StopStrings;
use crate::hex::hex;
use crate::sampling::{Sampler, SamplingError};
use crate::session::{Session, SessionError};
use crate::tokenizer::{Detokenizer, Tokenizer};

/// What to generate.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Ids of the prompt, at least one and at most as many as the session's context holds.
    pub(super) prompt: &'a [u32],
    /// Tokens to generate at most; 0 evaluates the prompt only.
    pub(super) limit: Option<usize>,
    /// Prompt tokens in one pass, at least 1.
    pub(super) batch: usize,
    /// Texts that end the generation, none of them empty.
    pub(super) stop: &'a [String],
    /// Whether control tokens show in the text.
    pub(super) special: bool,
    /// How many of the largest logits of each step to keep.
    pub(super) top_logits: usize,
    /// Whether all logits go into a hash.
    pub(super) hash_logits: bool,
}

/// The world around a generation.
pub(super) trait Surroundings {
    /// Takes text that is certain to be part of the answer.
    ///
    /// # Errors
    /// When it cannot be written; the generation ends with this error.
    fn show(&mut self, text: &str) -> io::Result<()>;

    /// Hears how much of the prompt is evaluated.
    fn prefilled(&mut self, done: usize, total: usize);

    /// Whether the generation should end now.
    fn interrupted(&self) -> bool;
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Generation {
    /// Generated ids, with the end-of-generation token if one ended it.
    pub(super) ids: Vec<u32>,
    /// Their text, up to a stop string.
    pub(super) text: String,
    /// The largest logits of each step, `(id, logit)` in descending order; the first step is
    /// the prompt's last position.
    pub(super) top_logits: Vec<Vec<(u32, f32)>>,
    /// SHA-256 of the logits of all these steps, f32 in little endian, one row behind the other.
    pub(super) logits_hash: Option<String>,
    /// Prompt tokens that were evaluated: not all, if that was interrupted.
    pub(super) prefilled: usize,
    /// Time in the evaluation of the prompt.
    pub(super) prefill_time: Duration,
    /// Generated tokens that were evaluated in turn, and the time in that.
    pub(super) decoded: usize,
    /// Time in the evaluation of generated tokens, without sampling and output.
    pub(super) decode_time: Duration,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StopReason {
    /// The model gave an end-of-generation token.
    EndOfGeneration,
    /// As many tokens as asked for.
    Length,
    /// A stop string.
    StopString,
    /// No room for another token.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
}

/// Why a generation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GenerationError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error("cannot write the text")]
    Output(#[source] io::Error),
}

/// Evaluates the prompt, then chooses and evaluates tokens until one of the
/// [`StopReason`]s. The sampler takes the prompt's tokens into account.
///
/// # Errors
/// When the backend fails, the logits are unusable, or the text cannot be written.
pub(super) fn generate(
    session: &mut Session,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request<'_>,
    world: &mut dyn Surroundings,
) -> Result<(Generation, StopReason), GenerationError> {
    request.prompt.iter().for_each(|&id| sampler.accept(id));
    let mut output = Output {
        detokenizer: Detokenizer::new(request.special),
        stop: StopStrings::new(request.stop),
        text: String::new(),
    };
    let mut generation = Generation::default();
    let reason = run(session, tokenizer, sampler, request, world, &mut output, &mut generation)?;
    if reason != StopReason::StopString {
        output.finish(world)?;
    }
    generation.text = output.text;
    Ok((generation, reason))
}

fn run(
    session: &mut Session,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: &Request<'_>,
    world: &mut dyn Surroundings,
    output: &mut Output<'_>,
    generation: &mut Generation,
) -> Result<StopReason, GenerationError> {
    let started = Instant::now();
    let mut report = |done, total| {
        generation.prefilled = done;
        world.prefilled(done, total);
        if world.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let prefilled = session.prefill(request.prompt, request.batch, &mut report);
    generation.prefill_time = started.elapsed();
    let mut logits = match prefilled {
        Err(SessionError::Interrupted { .. }) => return Ok(StopReason::Interrupted),
        prefilled => prefilled?,
    };
    // Where only the largest logit counts, the device finds it, and the others stay there.
    let device_chooses = sampler.takes_largest() && request.top_logits == 0 && !request.hash_logits;
    let mut chosen = None;
    let mut hash = request.hash_logits.then(Sha256::new);
    loop {
        if let Some(hash) = &mut hash {
            logits.iter().for_each(|logit| hash.update(logit.to_le_bytes()));
            generation.logits_hash = Some(hex(&hash.clone().finalize()));
        }
        if request.top_logits > 0 {
            generation.top_logits.push(largest(logits, request.top_logits));
        }
        if request.limit == Some(generation.ids.len()) {
            return Ok(StopReason::Length);
        }
        let id = match chosen.take() {
            Some(id) => id,
            None => sampler.sample(logits)?,
        };
        sampler.accept(id);
        generation.ids.push(id);
        if output.push(tokenizer, id, world)? {
            return Ok(StopReason::StopString);
        }
        if tokenizer.is_end_of_generation(id) {
            return Ok(StopReason::EndOfGeneration);
        }
        // The last token need not be evaluated: its logits would not be used.
        if request.limit == Some(generation.ids.len()) {
            return Ok(StopReason::Length);
        }
        if world.interrupted() {
            return Ok(StopReason::Interrupted);
        }
        if session.position() >= session.context() {
            return Ok(StopReason::ContextFull);
        }
        let started = Instant::now();
        if device_chooses {
            chosen = Some(session.decode_greedy(id)?);
            logits = &[];
        } else {
            logits = session.decode(id)?;
        }
        generation.decode_time += started.elapsed();
        generation.decoded += 1;
    }
}

/// Ids on their way to shown text.
struct Output<'a> {
    detokenizer: Detokenizer,
    stop: StopStrings<'a>,
    text: String,
}

impl Output<'_> {
    /// Shows what the token completes; true when a stop string is reached.
    fn push(
        &mut self,
        tokenizer: &Tokenizer,
        id: u32,
        world: &mut dyn Surroundings,
    ) -> Result<bool, GenerationError> {
        let piece = self.detokenizer.push(tokenizer, id);
        self.pass(&piece, world)
    }

    /// Shows what was held back: half a character, the beginning of a stop string.
    fn finish(&mut self, world: &mut dyn Surroundings) -> Result<(), GenerationError> {
        let rest = self.detokenizer.finish();
        if !self.pass(&rest, world)? {
            let held = self.stop.finish();
            self.show(&held, world)?;
        }
        Ok(())
    }

    fn pass(&mut self, piece: &str, world: &mut dyn Surroundings) -> Result<bool, GenerationError> {
        let passed = self.stop.push(piece);
        self.show(&passed.text, world)?;
        Ok(passed.stopped)
    }

    fn show(&mut self, text: &str, world: &mut dyn Surroundings) -> Result<(), GenerationError> {
        if text.is_empty() {
            return Ok(());
        }
        self.text.push_str(text);
        world.show(text).map_err(GenerationError::Output)
    }
}

/// The `count` largest logits in descending order; equal ones lowest id first.
fn largest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    let compare = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count < all.len() {
        all.select_nth_unstable_by(count, compare);
        all.truncate(count);
    }
    all.sort_unstable_by(compare);
    all
}

#[cfg(test)]
mod tests;
