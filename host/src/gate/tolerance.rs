//! Whole models: a GPU's or the emulator's logits against those of the CPU's exact mode.

use std::error::Error;

use serde::Serialize;

use super::compare::{Comparison, Summary};
use super::passage::Passage;
use crate::sampling::SamplingError;
use crate::session::{Session, SessionError};

/// The largest reference's gap between its first two tokens at which another token may be chosen.
pub const CLEAR_GAP: f64 = 0.5;

/// By how much a logit of a model on a device may be off, whatever the yardsticks say.
pub const LIMIT: f64 = 0.1;

/// How many times a yardstick's largest difference a logit may be off.
const YARDSTICKS: f64 = 2.0;

/// Makes a model on something.
pub type Make<'a> = dyn Fn() -> Result<Session, Box<dyn Error + Send + Sync>> + 'a;

/// A model on something, to be held against the reference.
pub struct Subject<'a> {
    /// What it is called in the report.
    pub name: String,
    /// Makes the model, which is there only while it is played: two may not fit into a device's memory.
    pub session: Box<Make<'a>>,
    /// What it is played for.
    pub role: Role,
}

/// What a subject is played for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To be judged.
    Judged,
    /// To show what a difference that is known to be benign comes to. It is not judged.
    Control,
    /// As a control, in the precision of those that are judged and rightly computed: their logits may be off by
    /// twice as much as the worst of its own, or by [`LIMIT`] where that is more.
    Yardstick,
}

/// What came of one subject's prompts, or steps.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The subject.
    pub name: String,
    /// `prompt` or `steps`.
    pub phase: &'static str,
    /// By how much a logit may be off, if it is judged.
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
                "passage {}, position {}: the logit of token {} is {}, expected {}, off by {:.4}, at most {limit:.4}",
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

/// The parts of a passage.
const PHASES: [&str; 2] = ["prompt", "steps"];

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
    let (mut played, mut chunks) = (Vec::new(), None);
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
        let phases = comparisons.map(Comparison::summary);
        played.push(Played { name: name.clone(), role: subject.role, phases });
    }
    Ok(Tolerance { lines: lines(played), chunks })
}

/// What came of a subject.
struct Played {
    name: String,
    role: Role,
    /// Of the prompts, and of the steps.
    phases: [Summary; 2],
}

/// Two lines a subject, with the limits that the yardsticks among them give.
fn lines(played: Vec<Played>) -> Vec<Line> {
    let limits = [0, 1].map(|phase| {
        let yardsticks = played.iter().filter(|played| played.role == Role::Yardstick);
        let usable = yardsticks.map(|played| &played.phases[phase]).filter(|phase| phase.unusable.is_none());
        limit(usable.map(|phase| phase.largest.delta))
    });
    let lines = played.into_iter().flat_map(|Played { name, role, phases }| {
        let both = PHASES.into_iter().zip(phases).zip(limits);
        both.map(move |((phase, comparison), limit)| {
            let limit = (role == Role::Judged).then_some(limit);
            Line { name: name.clone(), phase, limit, comparison }
        })
    });
    lines.collect()
}

/// Roundings to f16 on the CPU that are the yardsticks of a device: the first is f16's own, more of them show how far
/// such a rounding goes by chance.
pub const DRAWS: u32 = 3;

/// The most that a logit may be off, given by how much those of the yardsticks, or of none, are off at most. A yardstick
/// that is not finite is ignored.
pub fn limit(yardsticks: impl IntoIterator<Item = f64>) -> f64 {
    let finite = yardsticks.into_iter().filter(|off| off.is_finite());
    finite.fold(LIMIT, |limit, off| limit.max(YARDSTICKS * off))
}

/// Bytes of the reference's logits of so many passages of so many tokens each.
#[must_use]
pub const fn kept_bytes(passages: usize, tokens: usize, vocab_size: usize) -> u64 {
    let positions = (passages as u64).saturating_mul(tokens as u64);
    positions.saturating_mul(vocab_size as u64).saturating_mul(size_of::<f32>() as u64)
}

/// The first logit whose bits differ.
fn other_bits(one: &[Vec<f32>; 2], other: &[Vec<f32>; 2], vocab_size: usize) -> Option<String> {
    for (phase, (one, other)) in PHASES.into_iter().zip(one.iter().zip(other)) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// A subject whose logits are off by so much in the prompt, and in the steps.
    fn played(name: &str, role: Role, off: [f32; 2]) -> Played {
        let phases = off.map(|off| {
            let mut comparison = Comparison::new(3).unwrap();
            comparison.add(0, &[0.0, 2.0, 8.0], &[off, 2.0, 8.0], 3).unwrap();
            comparison.summary()
        });
        Played { name: name.to_owned(), role, phases }
    }

    /// What is red of a device that is off by so much in the prompt, beside yardsticks.
    fn red(off: f32, yardsticks: &[f32]) -> Vec<String> {
        let mut all = vec![
            played("the device", Role::Judged, [off, 0.05]),
            // What is no yardstick allows nothing, and is not judged.
            played("8 bits", Role::Control, [3.0, 3.0]),
        ];
        all.extend(yardsticks.iter().map(|&off| played("f16", Role::Yardstick, [off, 0.01])));
        let tolerance = Tolerance { lines: lines(all), chunks: None };
        assert_eq!(tolerance.lines.len(), 2 * (2 + yardsticks.len()));
        assert!(tolerance.lines[2..].iter().all(|line| line.limit.is_none()));
        tolerance.red()
    }

    #[test]
    fn twice_the_worst_yardstick_is_allowed() {
        assert!(red(0.15, &[0.08]).is_empty());
        assert!(red(0.15, &[0.08, 0.01]).is_empty());
        assert!(red(0.15, &[0.01, 0.08]).is_empty());
        let found = red(0.15, &[0.07, 0.03]);
        assert!(found[0].contains("the device, prompt") && found[0].ends_with("at most 0.1400"), "{found:?}");
    }

    #[test]
    fn the_limit_is_never_below_its_constant() {
        assert!(red(0.09, &[]).is_empty());
        assert!(red(0.09, &[0.0, 0.001]).is_empty());
        assert!(red(0.11, &[0.001])[0].ends_with("at most 0.1000"));
    }

    #[test]
    fn a_phase_has_its_own_yardstick() {
        let all = vec![
            played("the device", Role::Judged, [0.15, 0.15]),
            played("f16", Role::Yardstick, [0.08, 0.02]),
        ];
        let lines = lines(all);
        assert!(lines[0].red().is_none());
        assert!(lines[1].red().unwrap().ends_with("at most 0.1000"));
    }

    #[test]
    fn what_is_not_finite_is_red_and_no_yardstick() {
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(red(bad, &[0.08])[0].contains("NaN or infinite"));
            assert!(red(0.15, &[bad])[0].ends_with("at most 0.1000"));
            assert!(red(bad, &[bad])[0].contains("NaN or infinite"));
            // Another one still counts.
            assert!(red(0.15, &[bad, 0.08]).is_empty());
        }
    }
}
