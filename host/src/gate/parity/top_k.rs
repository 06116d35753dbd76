//! `top_k` against a plain sort.

use std::cmp::Reverse;

use super::Parity;
use super::trial::{Red, Trial, read};
use crate::cuda::Queue;
use crate::cuda::ops::{self, top_k_workspace};
use crate::gate::guarded::Guarded;
use crate::gate::random::normals;

/// One of the two kernels: a round over logits, and one over the keys that rounds before have left.
#[derive(Clone, Copy, Debug)]
pub enum TopK {
    /// Of logits.
    Logits,
    /// Of keys.
    Keys,
}

impl Parity for TopK {
    const FAMILY: &'static str = "top_k";

    fn all() -> Vec<Self> {
        vec![Self::Logits, Self::Keys]
    }

    fn kernel(&self) -> String {
        match self {
            Self::Logits => "top_k".to_owned(),
            Self::Keys => "top_k_keys".to_owned(),
        }
    }

    fn play<Q: Queue>(&self, trial: &mut Trial<'_, Q>) -> Result<(), Red> {
        // What one round does alone, and what needs two or three.
        let (quick, more) = match self {
            Self::Logits => (vec![[1, 1, 1], [2, 100, 64]], vec![[3, 2048, 5]]),
            Self::Keys => (vec![[2, 2049, 40]], vec![[1, 40_000, 128]]),
        };
        for shape @ [rows, vocabulary, k] in trial.cases(&quick, &more, &[[3, 262_144, 128]]) {
            let case = format!("{k} of {rows} × {vocabulary}");
            // Many are equal.
            let mut logits = normals(&mut trial.random, rows * vocabulary);
            logits.iter_mut().for_each(|x| *x = (*x * 64.0).round() / 64.0);
            let input = trial.input("logits", &logits, 4)?;
            let mut values = Vec::new();
            let tokens: Vec<u32> = trial.output(&case, rows * k, 4, |queue, tokens| {
                let len = top_k_workspace(rows, vocabulary, k);
                let mut workspace = Guarded::<u64>::output(queue, "workspace", len, 8)?;
                let mut out = Guarded::<f32>::output(queue, "values", rows * k, 4)?;
                let outs = (tokens, out.view_mut());
                ops::top_k(queue, outs, input.view(), workspace.view_mut(), None, shape)?;
                queue.synchronize()?;
                read(&case, &workspace)?;
                values = read(&case, &out)?;
                Ok(())
            })?;
            let mut expected: Vec<f64> = Vec::new();
            let mut expected_values = Vec::new();
            for logits in logits.chunks_exact(vocabulary) {
                let mut order: Vec<usize> = (0..vocabulary).collect();
                // None is NaN. A stable sort: of equal ones the lower token is first.
                order.sort_by_key(|&token| Reverse(ordered(logits[token])));
                // Tokens below 2^24 are f32 as they are.
                expected.extend(order[..k].iter().map(|&token| token as f64));
                expected_values.extend(order[..k].iter().map(|&token| f64::from(logits[token])));
            }
            let tokens: Vec<f32> = tokens.into_iter().map(|token| token as f32).collect();
            trial.compare(&format!("tokens, {case}"), &tokens, &expected, |_| 0.0)?;
            trial.compare(&format!("values, {case}"), &values, &expected_values, |_| 0.0)?;
        }
        Ok(())
    }
}

/// A number that is larger for a larger `x`, which is no NaN; both zeros are one.
fn ordered(x: f32) -> i32 {
    let bits = (x + 0.0).to_bits().cast_signed();
    if bits < 0 { i32::MIN - bits } else { bits }
}
