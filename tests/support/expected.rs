//! Logits held to those of the reference.
//!
//! Bounds. *Exact mode*: its weights and sums are the reference's and its intermediate values are f32,
//! off by 2⁻²⁴ each, which alone gives 3e-7. But now and then such an error lifts a key or a value over
//! the edge between two f16 numbers, and that element then moves by up to 2⁻¹⁰ of itself, a score by up
//! to 2⁻¹⁰ · |q·k| / √head_dim for that element. The tiny models' queries and keys have a deviation of
//! 1.5: 3e-4 in a score where both are at their deviation, 5e-3 at the very most (both at four times
//! theirs), and at most a quarter of it in a weight of the softmax. Hence [`EXACT_LOGIT`] for the worst
//! logit and [`EXACT_ALL`] for all of them together. A deep model amplifies such a step: the reference is
//! run a second time with errors of the size of f32, and twice what they cost it is allowed in addition.
//!
//! *8-bit mode*: the reference is run with its activations rounded in the same way. What that costs it,
//! the library may lose 1.2 times over in all rows together, because a value next to the edge of a
//! rounding step falls to either side; and no row more than twice what the worst row loses.

use super::reference::{self, Rounding};
use super::tiny::Tiny;

/// The exact mode's largest error, in units of a row's largest logit.
const EXACT_LOGIT: f64 = 5e-4;

/// The exact mode's error of all logits, as a root mean square, relative to the logits'.
const EXACT_ALL: f64 = 1e-4;

/// The reference's logits, and what rounding costs them.
pub(crate) struct Expected {
    logits: Vec<Vec<f64>>,
    f32_cost: Error,
    eight_bit_cost: Error,
}

/// How far logits are from the expected ones.
struct Error {
    /// The largest error of a logit, in units of the largest logit of its row.
    logit: f64,
    /// The worst row's error, as a root mean square, relative to the row's.
    row: f64,
    /// The same of all rows.
    all: f64,
}

impl Expected {
    pub(crate) fn new(tiny: &Tiny, tokens: &[u32]) -> Self {
        let logits = reference::logits(tiny, tokens, Rounding::None);
        let cost = |rounding| Error::of(&reference::logits(tiny, tokens, rounding), &logits);
        let (f32_cost, eight_bit_cost) = (cost(Rounding::F32), cost(Rounding::EightBit));
        assert!(
            f32_cost.all < 1e-2 && eight_bit_cost.all < 0.15,
            "{:?} is too sensitive to test anything",
            tiny.spec
        );
        Self { logits, f32_cost, eight_bit_cost }
    }

    /// Holds the library's logits to the reference's.
    pub(crate) fn hold(&self, what: &str, exact: bool, rows: &[Vec<f32>]) {
        let error = Error::of(rows, &self.logits);
        let (cost, logit, all) = (&self.f32_cost, EXACT_LOGIT, EXACT_ALL);
        let allowed = if exact {
            Error { logit: logit + 2.0 * cost.logit, row: f64::INFINITY, all: all + 2.0 * cost.all }
        } else {
            // Where no matrix is quantized, the exact mode's error is what is left.
            let cost = &self.eight_bit_cost;
            Error { logit: f64::INFINITY, row: logit + 2.0 * cost.row, all: all + 1.2 * cost.all }
        };
        let parts = [(error.logit, allowed.logit), (error.row, allowed.row), (error.all, allowed.all)];
        for ((error, allowed), name) in parts.into_iter().zip(["a logit", "a row", "all rows"]) {
            // Written so that a NaN fails.
            assert!(
                error <= allowed,
                "{what}: exact {exact}: error of {name} {error:.1e}, allowed {allowed:.1e}"
            );
        }
        let used = parts.map(|(error, allowed)| error / allowed).into_iter().fold(0.0, f64::max);
        println!("{what}: exact {exact}: error {:.1e}, {used:.2} of what is allowed", error.all);
    }
}

impl Error {
    /// NaN where a logit is.
    fn of<T: Copy + Into<f64>>(rows: &[Vec<T>], expected: &[Vec<f64>]) -> Self {
        assert_eq!(rows.len(), expected.len());
        let (mut logit, mut row, mut all) = (0.0, 0.0, 0.0);
        for (got, expected) in rows.iter().zip(expected) {
            assert_eq!(got.len(), expected.len());
            let largest = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
            assert!(largest > 0.1 && largest.is_finite(), "the reference is trivial");
            let (mut squares, mut differences) = (0.0, 0.0);
            for (&got, expected) in got.iter().zip(expected) {
                let difference = got.into() - expected;
                logit = maximum(logit, difference.abs() / largest);
                differences += difference * difference;
                squares += expected * expected;
            }
            row = maximum(row, (differences / squares).sqrt());
            all += differences / squares;
        }
        Self { logit, row, all: (all / rows.len() as f64).sqrt() }
    }
}

/// The larger one, or NaN if one is: `f64::max` would drop it.
fn maximum(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}
