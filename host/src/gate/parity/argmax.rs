//! `argmax` against a plain search.

use gpu::sampling::NO_TOKEN;

use super::Parity;
use super::trial::{Red, Trial, read};
use crate::cuda::Queue;
use crate::cuda::ops::{self, argmax_workspace};
use crate::gate::guarded::Guarded;
use crate::gate::random::normals;

/// One of the two kernels, which run one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Argmax {
    /// The largest of each part.
    Parts,
    /// The largest of those.
    Whole,
}

impl Parity for Argmax {
    const FAMILY: &'static str = "argmax";

    fn all() -> Vec<Self> {
        vec![Self::Parts, Self::Whole]
    }

    fn kernel(&self) -> String {
        match self {
            Self::Parts => "argmax_parts".to_owned(),
            Self::Whole => "argmax".to_owned(),
        }
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        // What the first kernel does alone, and what needs both.
        let (quick, more) = match self {
            Self::Parts => (vec![(1, 1), (3, 2), (2, 255)], vec![(3, 4096)]),
            Self::Whole => (vec![(2, 4097)], vec![(1, 49_153)]),
        };
        for (rows, vocabulary) in trial.cases(&quick, &more, &[(5, 262_144), (1, 2_000_003)]) {
            let case = format!("{rows} × {vocabulary}");
            let mut logits = normals(&mut trial.random, rows * vocabulary);
            let mut expected = Vec::new();
            for (row, logits) in logits.chunks_exact_mut(vocabulary).enumerate() {
                let token = trial.random.below(vocabulary);
                // Negative ones too are the largest where all are.
                let shift = if row % 2 == 0 { 0.0 } else { -100.0 };
                logits.iter_mut().for_each(|x| *x += shift);
                logits[token] = 7.0 + shift;
                expected.push(token as u32);
                // The last row of several holds a NaN: there is no token then.
                if row == 2 {
                    logits[trial.random.below(vocabulary)] = f32::NAN;
                    expected[row] = NO_TOKEN;
                }
            }
            let input = trial.input("logits", &logits, 4)?;
            let found: Vec<u32> = trial.output(&case, rows, 4, |queue, tokens| {
                let len = argmax_workspace(rows, vocabulary);
                let mut workspace = Guarded::<u64>::output(queue, "workspace", len, 8)?;
                ops::argmax(queue, tokens, input.view(), workspace.view_mut(), None, [rows, vocabulary])?;
                queue.synchronize()?;
                read(&case, &workspace).map(drop)
            })?;
            // Tokens below 2^24 are f32 as they are; what is no token is not near one.
            let found: Vec<f32> = found.into_iter().map(|token| token as f32).collect();
            let expected: Vec<f64> = expected.into_iter().map(|token| f64::from(token as f32)).collect();
            trial.compare(&case, &found, &expected, |_| 0.0)?;
        }
        Ok(())
    }
}
