//! Greedy streams: whether a model still says what it said.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::folder::folder_of;
use crate::hex::hex;
use crate::ptx;
use crate::session::{Session, SessionError};

/// The largest logits that a baseline keeps of each step.
pub const TOP: usize = 8;

/// A step of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamStep {
    /// The token that was chosen.
    pub token: u32,
    /// The [`TOP`] largest logits, largest first, with their tokens.
    pub top: Vec<(u32, f32)>,
}

/// What a stream is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// sha256 of the model's files, in hexadecimal digits.
    pub model: String,
    /// The device, and the kinds of activations.
    pub device: String,
    /// The program and its kernels, see [`build`].
    pub build: String,
    /// Tokens of the prompt, from the beginning of [`passage`](super::passage).
    pub prompt_tokens: usize,
    /// Tokens that were generated.
    pub generated: usize,
}

impl Key {
    /// Whether both are of one model on one device, whatever the build.
    fn is_comparable(&self, other: &Self) -> bool {
        let Self { model, device, build: _, prompt_tokens, generated } = self;
        (model, device, prompt_tokens, generated)
            == (&other.model, &other.device, &other.prompt_tokens, &other.generated)
    }
}

/// A stream that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// What it is of.
    pub key: Key,
    /// Its steps.
    pub steps: Vec<StreamStep>,
}

/// All that were recorded in one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baselines {
    /// The newest last.
    pub baselines: Vec<Baseline>,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The model could not be run.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The kernel that chooses tokens does not choose the largest logit.
    #[error("step {step}: the device chose token {chosen}, the largest logit is that of {largest}")]
    Choice {
        /// The step.
        step: usize,
        /// What was chosen.
        chosen: u32,
        /// What should have been.
        largest: u32,
    },
    /// The file of baselines could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no such file.
    #[error("{} is no file of baselines: {source}; record into another one", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// The version of the program and the sha256 of its kernels' PTX, as far as that tells builds apart.
#[must_use]
pub fn build() -> String {
    let mut hash = Sha256::new();
    for variant in ptx::variants().unwrap_or_default() {
        hash.update(variant.name());
        hash.update(variant.text());
    }
    format!("{} with kernels {}", env!("CARGO_PKG_VERSION"), &hex(&hash.finalize())[..12])
}

/// `count` tokens behind a prompt, each the one with the largest logit.
///
/// They are chosen where generation chooses them, on the device; then they are evaluated a second time for
/// their logits, which have to agree.
///
/// # Errors
/// [`IdentityError`].
pub fn stream(session: &mut Session, prompt: &[u32], count: usize) -> Result<Vec<StreamStep>, IdentityError> {
    session.rewind(0);
    let batch = session.prompt_rows();
    let logits = session.prefill(prompt, batch, &mut |_, _| ControlFlow::Continue(()))?;
    let mut steps = vec![step(logits)?];
    let mut tokens = vec![steps[0].token];
    while tokens.len() < count {
        tokens.push(session.decode_greedy(tokens[tokens.len() - 1])?);
    }
    session.rewind(prompt.len());
    for pair in tokens.windows(2) {
        let found = step(session.decode(pair[0])?)?;
        if found.token != pair[1] {
            let (chosen, largest) = (pair[1], found.token);
            return Err(IdentityError::Choice { step: steps.len(), chosen, largest });
        }
        steps.push(found);
    }
    steps.truncate(count);
    Ok(steps)
}

fn step(logits: &[f32]) -> Result<StreamStep, IdentityError> {
    if logits.is_empty() || !logits.iter().all(|logit| logit.is_finite()) {
        return Err(SessionError::Unusable { sequence: 0 }.into());
    }
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    let top = TOP.min(tokens.len());
    tokens.select_nth_unstable_by(top - 1, order);
    tokens.truncate(top);
    tokens.sort_by(order);
    let top: Vec<_> = tokens.into_iter().map(|token| (token, logits[token as usize])).collect();
    Ok(StreamStep { token: top[0].0, top })
}

/// What a stream is, beside a recorded one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The same tokens.
    Same {
        /// By how much one of the recorded logits moved at most.
        drift: f64,
    },
    /// The same build on the same device gives something else.
    Unsteady {
        /// The first step that is another one.
        step: usize,
    },
    /// Other tokens from a step on.
    Fork(Fork),
}

/// Where two streams part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fork {
    /// The step, counted from 0.
    pub step: usize,
    /// The recorded token.
    pub expected: u32,
    /// The token in its place.
    pub found: u32,
    /// The recorded gap between the two largest logits there.
    pub gap: f64,
    /// The larger of what the two tokens' logits moved by; none if the token in its place was not among the
    /// recorded logits.
    pub drift: Option<f64>,
    /// By how much one of the recorded logits moved at most in the steps before.
    pub before: f64,
    /// Whether rounding explains it: a gap smaller than twice the drift, which is one that tolerance allows.
    pub is_knife_edge: bool,
}

impl Verdict {
    /// Whether it is one of rounding at most.
    #[must_use]
    pub const fn is_green(&self) -> bool {
        match self {
            Self::Same { .. } => true,
            Self::Unsteady { .. } => false,
            Self::Fork(fork) => fork.is_knife_edge,
        }
    }
}

/// Compares a stream with a recorded one of the same length; logits may move by `limit`.
///
/// That a token took another's place means that the two moved by half the gap at least. Rounding is blamed
/// for it only where it could have done that: within the limit of tolerance.
#[must_use]
pub fn compare(recorded: &Baseline, found: &[StreamStep], build: &str, limit: f64) -> Verdict {
    let mut before = 0.0_f64;
    for (step, (expected, found)) in recorded.steps.iter().zip(found).enumerate() {
        if recorded.key.build == build && expected != found {
            return Verdict::Unsteady { step };
        }
        if expected.token == found.token {
            before = expected
                .top
                .iter()
                .filter_map(|&(token, _)| moved(expected, found, token))
                .fold(before, larger);
            continue;
        }
        let gap = match expected.top[..] {
            [(_, first), (_, second), ..] => f64::from(first) - f64::from(second),
            _ => f64::INFINITY,
        };
        let of_both = moved(expected, found, expected.token).zip(moved(expected, found, found.token));
        let drift = of_both.map(|(one, other)| larger(one, other));
        let is_knife_edge = drift.is_some_and(|drift| gap < 2.0 * drift && drift <= limit);
        let (expected, found) = (expected.token, found.token);
        return Verdict::Fork(Fork { step, expected, found, gap, drift, before, is_knife_edge });
    }
    Verdict::Same { drift: before }
}

/// By how much the logit of a token moved, if both have kept it.
fn moved(expected: &StreamStep, found: &StreamStep, token: u32) -> Option<f64> {
    let of = |step: &StreamStep| {
        step.top.iter().find(|(other, _)| *other == token).map(|&(_, logit)| f64::from(logit))
    };
    Some((of(expected)? - of(found)?).abs())
}

/// The larger one, or NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

impl Baselines {
    /// Those in a file; none if there is no such file.
    ///
    /// # Errors
    /// [`IdentityError::File`], [`IdentityError::Form`].
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(IdentityError::File { action: "read", path: path.into(), source }),
        };
        serde_json::from_str(&text).map_err(|source| IdentityError::Form { path: path.into(), source })
    }

    /// That a file with this name can be written: to be asked before a stream is made that would be lost.
    ///
    /// # Errors
    /// [`IdentityError::File`].
    pub fn check_writable(path: &Path) -> Result<(), IdentityError> {
        beside(path).map(drop)
    }

    /// Writes them to a file, which has its name only when it is whole.
    ///
    /// # Errors
    /// [`IdentityError::File`].
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        let failed = |source| IdentityError::File { action: "write", path: path.into(), source };
        let mut file = beside(path)?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|error| failed(error.into()))?;
        file.write_all(b"\n").map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// The baseline to compare with: the newest of the same model on the same device, of this build if
    /// there is one.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<&Baseline> {
        let newest = |is: &dyn Fn(&Key) -> bool| self.baselines.iter().rev().find(|one| is(&one.key));
        newest(&|other| other == key).or_else(|| newest(&|other| other.is_comparable(key)))
    }

    /// Adds one, in the place of one with the same key; whether there was that.
    pub fn add(&mut self, baseline: Baseline) -> bool {
        let before = self.baselines.len();
        self.baselines.retain(|other| other.key != baseline.key);
        let replaced = self.baselines.len() < before;
        self.baselines.push(baseline);
        replaced
    }
}

/// A file in the folder of `path`, without a name until it is whole.
fn beside(path: &Path) -> Result<NamedTempFile, IdentityError> {
    let failed = |source| IdentityError::File { action: "write", path: path.into(), source };
    if path.is_dir() {
        return Err(failed(io::Error::other("it is a folder")));
    }
    folder_of(path).and_then(NamedTempFile::new_in).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn key(build: &str) -> Key {
        let (model, device) = ("00".to_owned(), "a device".to_owned());
        Key { model, device, build: build.to_owned(), prompt_tokens: 5, generated: 2 }
    }

    fn baseline(build: &str) -> Baseline {
        let steps = [vec![5.0, 1.0, 4.0], vec![1.0, 3.0, 2.95]];
        Baseline { key: key(build), steps: steps.iter().map(|logits| step(logits).unwrap()).collect() }
    }

    fn against(second: [f32; 3]) -> Verdict {
        let found = [step(&[5.01, 1.0, 4.0]).unwrap(), step(&second).unwrap()];
        compare(&baseline("old"), &found, "new", 0.1)
    }

    #[test]
    fn the_largest_come_first_and_a_nan_is_an_error() {
        let logits: Vec<f32> = (0..20).map(|i| (i * 7 % 20) as f32).collect();
        let StreamStep { token, top } = step(&logits).unwrap();
        assert_eq!(logits[token as usize], 19.0);
        assert_eq!(
            top.iter().map(|&(_, logit)| logit).collect::<Vec<_>>(),
            [19.0, 18.0, 17.0, 16.0, 15.0, 14.0, 13.0, 12.0]
        );
        assert!(step(&[0.0, f32::NAN]).is_err());
    }

    #[test]
    fn forks_are_told_apart() {
        let Verdict::Same { drift } = against([1.0, 3.0, 2.96]) else { panic!("the same tokens") };
        assert!((drift - 0.01).abs() < 1e-6, "{drift}");
        let Verdict::Fork(fork) = against([1.0, 2.96, 2.97]) else { panic!("another token") };
        assert_eq!((fork.step, fork.expected, fork.found), (1, 1, 2));
        assert!(fork.is_knife_edge && (fork.gap - 0.05).abs() < 1e-6, "{fork:?}");
        // More than tolerance allows; and a token that was far behind.
        for second in [[1.0, 3.0, 3.5], [9.0, 3.0, 2.95]] {
            let verdict = against(second);
            assert!(!verdict.is_green(), "{verdict:?}");
        }
    }

    #[test]
    fn one_build_gives_the_same_bits() {
        let recorded = baseline("one");
        assert!(compare(&recorded, &recorded.steps, "one", 0.1).is_green());
        let mut found = recorded.steps.clone();
        found[1].top[2].1 = found[1].top[2].1.next_up();
        assert_eq!(compare(&recorded, &found, "one", 0.1), Verdict::Unsteady { step: 1 });
        assert!(compare(&recorded, &found, "other", 0.1).is_green());
    }

    #[test]
    fn baselines_come_back_from_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("new").join("identity.json");
        let path = folder.path().join("identity.json");
        let mut baselines = Baselines::read(&path).unwrap();
        assert!(baselines.find(&key("one")).is_none());
        assert_eq!(["one", "two", "one"].map(|build| baselines.add(baseline(build))), [false, false, true]);
        for error in
            [Baselines::check_writable(&missing).unwrap_err(), baselines.write(&missing).unwrap_err()]
        {
            assert!(error.to_string().contains("cannot write"), "{error}");
        }
        assert!(!folder.path().join("new").exists(), "no folder is made");
        Baselines::check_writable(&path).unwrap();
        assert!(!path.exists());
        baselines.write(&path).unwrap();
        let read = Baselines::read(&path).unwrap();
        assert_eq!(read, baselines);
        assert_eq!(read.baselines.len(), 2);
        assert_eq!(read.find(&key("two")).unwrap().key.build, "two", "its own build");
        assert_eq!(read.find(&key("three")).unwrap().key.build, "one", "else the newest");
        assert!(read.find(&Key { prompt_tokens: 6, ..key("one") }).is_none());
        fs::write(&path, "[1]").unwrap();
        assert!(Baselines::read(&path).unwrap_err().to_string().contains("no file of baselines"));
    }
}
