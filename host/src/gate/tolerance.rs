//! Whole models: a GPU's or the emulator's logits against those of the CPU's exact mode.

use std::error::Error;

use serde::Serialize;

use super::compare::{Comparison, Summary};
use super::passage::Passage;
use crate::sampling::SamplingError;
use crate::session::{Session, SessionError};

/// The largest reference's gap between its first two tokens at which another token may be chosen.
pub const CLEAR_GAP: f64 = 0.5;

/// By how much a logit of a model on a device may be off.
pub const LIMIT: f64 = 0.1;

/// Makes a model on something.
pub type Make<'a> = dyn Fn() -> Result<Session, Box<dyn Error + Send + Sync>> + 'a;

/// A model on something, to be held against the reference.
pub struct Subject<'a> {
    /// What it is called in the report.
    pub name: String,
    /// Makes the model, which is there only while it is played: two may not fit into a device's memory.
    pub session: Box<Make<'a>>,
    /// Whether it is a control, which shows what a difference that is known to be benign comes to, and is not
    /// judged.
    pub is_control: bool,
}

/// What came of one subject's prompts, or steps.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The subject.
    pub name: String,
    /// `prompt` or `steps`.
    pub phase: &'static str,
    /// By how much a logit may be off, unless it is a control.
    pub limit: Option<f64>,
    /// The comparison.
    pub comparison: Summary,
}

impl Line {
    /// Why it is red, if it is.
    #[must_use]
    pub fn red(&self) -> Option<String> {
        let limit = self.limit?;
        let Summary { largest, unusable, positions, .. } = &self.comparison;
        if let Some((passage, position)) = unusable {
            return Some(format!("a logit of passage {passage}, position {position} is NaN or infinite"));
        }
        if *positions == 0 {
            return Some("nothing was compared".to_owned());
        }
        // Written so that a NaN is red.
        let is_within = largest.delta <= limit;
        if !is_within {
            return Some(format!(
                "passage {}, position {}: the logit of token {} is {}, expected {}, off by {:.3}, at most {limit}",
                largest.passage,
                largest.position,
                largest.token,
                largest.found,
                largest.expected,
                largest.delta
            ));
        }
        let clear = self.comparison.flips.iter().find(|flip| flip.gap > CLEAR_GAP)?;
        Some(format!(
            "passage {}, position {}: token {} instead of {}, which leads by {:.3}",
            clear.passage, clear.position, clear.found, clear.expected, clear.gap
        ))
    }
}

/// What came of all.
#[derive(Clone, Debug, Serialize)]
pub struct Tolerance {
    /// Two lines a subject.
    pub lines: Vec<Line>,
    /// Where the first subject's prompt, cut into other chunks, gave other bits.
    pub chunks: Option<String>,
}

impl Tolerance {
    /// What is red, in words.
    #[must_use]
    pub fn red(&self) -> Vec<String> {
        let lines = self.lines.iter().filter_map(|line| {
            let red = line.red()?;
            Some(format!("{}, {}: {red}", line.name, line.phase))
        });
        lines.chain(self.chunks.clone()).collect()
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ToleranceError {
    /// A model could not be made.
    #[error("{name}")]
    Made {
        /// Which one.
        name: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A model could not be run.
    #[error("{name}: {error}")]
    Session {
        /// Which one.
        name: String,
        /// What failed.
        error: SessionError,
    },
    /// Nothing could be drawn.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// Prompt tokens of a chunk of the control that has to give the same bits.
const OTHER_CHUNK: usize = 7;

/// Plays passages on each subject, one after the other, and on the reference, whose logits are all kept meanwhile:
/// see [`kept_bytes`]. The first subject's prompts are played a second time in other chunks. `progress` is told
/// passages done, of each subject.
///
/// # Errors
/// [`ToleranceError`].
pub fn run(
    reference: &mut Session,
    subjects: &[Subject<'_>],
    passages: &[Passage],
    progress: &mut dyn FnMut(usize),
) -> Result<Tolerance, ToleranceError> {
    let vocab_size = reference.config().vocab_size;
    let play = |name: &str, session: &mut Session, passage: &Passage, batch| {
        passage.play(session, batch).map_err(|error| ToleranceError::Session { name: name.to_owned(), error })
    };
    let mut expected: Vec<[Vec<f32>; 2]> = Vec::new();
    let (mut lines, mut chunks) = (Vec::new(), None);
    for (index, subject) in subjects.iter().enumerate() {
        let name = &subject.name;
        let made = |source| ToleranceError::Made { name: name.clone(), source };
        let mut session = (subject.session)().map_err(made)?;
        let mut comparisons = [Comparison::new(vocab_size)?, Comparison::new(vocab_size)?];
        for (number, passage) in passages.iter().enumerate() {
            // Behind the first subject, so that one that cannot be made has nobody wait for the reference.
            if expected.len() == number {
                let batch = reference.prompt_rows();
                expected.push(play("the reference", reference, passage, batch)?);
            }
            let batch = session.prompt_rows();
            let found = play(name, &mut session, passage, batch)?;
            for ((comparison, expected), found) in comparisons.iter_mut().zip(&expected[number]).zip(&found) {
                comparison.add(number, expected, found, vocab_size)?;
            }
            if index == 0 && chunks.is_none() {
                let again = play(name, &mut session, passage, OTHER_CHUNK)?;
                chunks = other_bits(&found, &again, vocab_size)
                    .map(|what| format!("{name}: passage {number} in chunks of {OTHER_CHUNK}: {what}"));
            }
            progress(index * passages.len() + number + 1);
        }
        let limit = (!subject.is_control).then_some(LIMIT);
        for (phase, comparison) in ["prompt", "steps"].into_iter().zip(comparisons) {
            lines.push(Line { name: name.clone(), phase, limit, comparison: comparison.summary() });
        }
    }
    Ok(Tolerance { lines, chunks })
}

/// Bytes of the reference's logits of so many passages of so many tokens each.
#[must_use]
pub const fn kept_bytes(passages: usize, tokens: usize, vocab_size: usize) -> u64 {
    let positions = (passages as u64).saturating_mul(tokens as u64);
    positions.saturating_mul(vocab_size as u64).saturating_mul(size_of::<f32>() as u64)
}

/// The first logit whose bits differ.
fn other_bits(one: &[Vec<f32>; 2], other: &[Vec<f32>; 2], vocab_size: usize) -> Option<String> {
    for (phase, (one, other)) in ["prompt", "steps"].into_iter().zip(one.iter().zip(other)) {
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        if let Some(at) = one.iter().zip(other).position(differs) {
            let (position, token) = (at / vocab_size, at % vocab_size);
            return Some(format!(
                "{phase}, position {position}: the logit of token {token} is {}, it was {} in one chunk",
                other[at], one[at]
            ));
        }
    }
    None
}
