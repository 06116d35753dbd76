//! How far logits are from the expected ones.

/// How far logits are from the expected ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Error {
    /// The largest error of a logit, in units of the largest logit of its row.
    pub(crate) logit: f64,
    /// The worst row's error, as a root mean square, relative to the row's.
    pub(crate) row: f64,
    /// The same of all rows.
    pub(crate) all: f64,
}

impl Error {
    /// NaN where a logit is.
    pub(crate) fn of<T: Copy + Into<f64>>(rows: &[Vec<T>], expected: &[Vec<f64>]) -> Self {
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
