//! Two things in turns: the ratios of their rates, how those scatter, and whether noise explains them.
//!
//! What is compared runs in one window. Each round has one run of A beside one of B and, where that is
//! asked for, beside another one of A; rounds are mirrored in turns (`A A B`, `B A A`), so that neither a
//! machine that drifts nor being the later one is for or against anybody.
//!
//! Whether there is a difference is decided by Wilcoxon's signed-rank test on the logarithms of the pairs'
//! ratios: if A and B are alike, each is as likely above 0 as below it by as much. Its distribution is
//! counted out, not approximated, so that what is alike is called different at most once in 100 comparisons,
//! whatever the noise looks like; of 20 comparisons of A with itself 19 or more then find nothing, but for once
//! in 60. The tests of one comparison share that chance: with more of them each must be surer.

use std::io::{self, Write};

use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use super::table::{markdown, write_rows};
use super::{OutputFormat, Test};
use crate::experiment::timing::{Side, Spread};

/// How often what is alike may be called different, over all tests of a comparison.
const SIGNIFICANCE: f64 = 0.01;

/// What the ratios say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B has the larger rate.
    Faster,
    /// B has the smaller rate.
    Slower,
    /// Noise explains it.
    NoDifference,
    /// Not even if all pairs agreed could it be told from noise.
    TooFewPairs,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "no difference",
            Self::TooFewPairs => "too few pairs to say",
        }
    }
}

/// Ratios of pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many there are.
    pub pairs: usize,
    /// Their median, and where eight tenths of them lie.
    pub ratio: Spread,
    /// How likely such ratios or less even ones are, if noise is all there is.
    pub p_value: f64,
    /// What they say.
    pub verdict: Verdict,
}

impl Comparison {
    /// Of at least one ratio, each above 0; `tests` such comparisons share the chance of a false alarm.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of(ratios: &[f64], tests: usize) -> Self {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let ratio = Spread::of(ratios.iter().copied());
        let (p_value, above) = ranked(&logarithms);
        let bound = SIGNIFICANCE / tests.max(1) as f64;
        let verdict = if 2.0 * 0.5_f64.powi(ratios.len() as i32) > bound {
            Verdict::TooFewPairs
        } else if p_value > bound {
            Verdict::NoDifference
        } else if above {
            Verdict::Faster
        } else {
            Verdict::Slower
        };
        Self { pairs: ratios.len(), ratio, p_value, verdict }
    }
}

/// The two-sided p-value of Wilcoxon's signed-rank test that some numbers lie evenly around 0, exact.
/// Numbers that are 0 are left out, equal ones share their ranks; 1 if none is left.
#[must_use]
pub fn signed_rank(numbers: &[f64]) -> f64 {
    ranked(numbers).0
}

/// The p-value, and whether the numbers lie above 0 rather than below.
fn ranked(numbers: &[f64]) -> (f64, bool) {
    let mut numbers: Vec<f64> = numbers.iter().copied().filter(|&number| number != 0.0).collect();
    numbers.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Twice the ranks, which are whole even where two share one.
    let (mut ranks, mut start) = (Vec::new(), 0);
    for alike in numbers.chunk_by(|a, b| a.abs() == b.abs()) {
        let end = start + alike.len();
        ranks.extend(alike.iter().map(|_| start + 1 + end));
        start = end;
    }
    let total: usize = ranks.iter().sum();
    // How likely each sum of the positive numbers' ranks is, if all signs are equally likely.
    let mut likely = vec![0.0; total + 1];
    likely[0] = 1.0;
    let mut reached = 0;
    for &rank in &ranks {
        reached += rank;
        for sum in (0..=reached).rev() {
            let with = if sum >= rank { likely[sum - rank] } else { 0.0 };
            likely[sum] = 0.5 * (likely[sum] + with);
        }
    }
    let positive: usize =
        ranks.iter().zip(&numbers).filter(|(_, number)| **number > 0.0).map(|(rank, _)| rank).sum();
    let least = positive.min(total - positive);
    ((2.0 * likely[..=least].iter().sum::<f64>()).min(1.0), 2 * positive > total)
}

/// The rates of A and B in turns, test by test.
#[derive(Clone, Debug)]
pub struct Pairs {
    tests: Vec<Test>,
    /// For each test, A's rates and B's.
    both: Vec<Vec<(f64, f64)>>,
    /// For each test, A's and A's again.
    alone: Vec<Vec<(f64, f64)>>,
}

/// What the pairs of a test come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// The test.
    pub test: Test,
    /// A's rates, in tokens per second.
    pub a: Spread,
    /// B's rates.
    pub b: Spread,
    /// B's rate over A's.
    pub ratio: Comparison,
    /// A's rate over A's, in the same window.
    pub control: Option<Comparison>,
}

impl Pairs {
    /// Runs both sides `pairs` times, A ([`Side::One`]) once more in each round if there is to be a `control`.
    /// `run` gives a rate for each of `tests`, in their order.
    ///
    /// # Errors
    /// The first of `run`.
    pub fn in_turns<E>(
        tests: &[Test],
        pairs: usize,
        control: bool,
        mut run: impl FnMut(Side) -> Result<Vec<f64>, E>,
    ) -> Result<Self, E> {
        let (mut both, mut alone) = (vec![Vec::new(); tests.len()], vec![Vec::new(); tests.len()]);
        for round in 0..pairs {
            let mirrored = round % 2 == 1;
            let (mut again, mut late) = (None, None);
            if control && !mirrored {
                again = Some(run(Side::One)?);
            }
            if mirrored {
                late = Some(run(Side::Other)?);
            }
            let a = run(Side::One)?;
            let b = match late {
                Some(rates) => rates,
                None => run(Side::Other)?,
            };
            if control && mirrored {
                again = Some(run(Side::One)?);
            }
            both.iter_mut().zip(a.iter().zip(&b)).for_each(|(pairs, (&a, &b))| pairs.push((a, b)));
            let again = again.unwrap_or_default();
            alone
                .iter_mut()
                .zip(a.iter().zip(&again))
                .for_each(|(pairs, (&a, &again))| pairs.push((a, again)));
        }
        Ok(Self { tests: tests.to_vec(), both, alone })
    }

    /// What they come to, for each test that has pairs.
    #[must_use]
    pub fn ratios(&self) -> Vec<Ratios> {
        let compare = |pairs: &[(f64, f64)]| {
            let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b / a).collect();
            (!ratios.is_empty()).then(|| Comparison::of(&ratios, self.tests.len()))
        };
        let tests = self.tests.iter().zip(self.both.iter().zip(&self.alone));
        tests
            .filter_map(|(&test, (both, alone))| {
                Some(Ratios {
                    test,
                    ratio: compare(both)?,
                    control: compare(alone),
                    a: Spread::of(both.iter().map(|&(a, _)| a)),
                    b: Spread::of(both.iter().map(|&(_, b)| b)),
                })
            })
            .collect()
    }
}

/// The report of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonReport {
    /// What A is.
    pub a: String,
    /// What B is.
    pub b: String,
    /// Repetitions in each run.
    pub repetitions: usize,
    /// The results.
    pub ratios: Vec<Ratios>,
}

/// One test in the report.
#[derive(Debug, Serialize)]
struct Row<'a> {
    a: &'a str,
    b: &'a str,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    n_sequences: usize,
    test_time: String,
    pairs: usize,
    repetitions: usize,
    a_median_ts: f64,
    b_median_ts: f64,
    ratio_median: f64,
    ratio_low: f64,
    ratio_high: f64,
    p_value: f64,
    verdict: Verdict,
    control_median: Option<f64>,
    control_low: Option<f64>,
    control_high: Option<f64>,
    control_verdict: Option<Verdict>,
}

impl ComparisonReport {
    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write, format: OutputFormat) -> io::Result<()> {
        let now = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
        let rows: Vec<_> = self.ratios.iter().map(|ratios| self.row(ratios, &now)).collect();
        write_rows(out, format, &rows, |out| self.write_table(out))
    }

    fn row(&self, ratios: &Ratios, now: &str) -> Row<'_> {
        let Ratios { test, a, b, ratio, control } = *ratios;
        Row {
            a: &self.a,
            b: &self.b,
            n_prompt: test.n_prompt(),
            n_gen: test.n_gen(),
            n_depth: test.depth,
            n_sequences: test.sequences,
            test_time: now.to_owned(),
            pairs: ratio.pairs,
            repetitions: self.repetitions,
            a_median_ts: a.median,
            b_median_ts: b.median,
            ratio_median: ratio.ratio.median,
            ratio_low: ratio.ratio.low,
            ratio_high: ratio.ratio.high,
            p_value: ratio.p_value,
            verdict: ratio.verdict,
            control_median: control.map(|control| control.ratio.median),
            control_low: control.map(|control| control.ratio.low),
            control_high: control.map(|control| control.ratio.high),
            control_verdict: control.map(|control| control.verdict),
        }
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let control = self.ratios.iter().any(|ratios| ratios.control.is_some());
        writeln!(out, "- A: {}", self.a)?;
        writeln!(out, "- B: {}\n", self.b)?;
        let sequences = self.ratios.iter().any(|ratios| ratios.test.sequences != 1);
        let mut columns = vec![("test", false)];
        columns.extend(sequences.then_some(("sequences", false)));
        columns.extend([("A t/s", false), ("B t/s", false), ("B / A", false), ("8 of 10 pairs", true)]);
        columns.extend(control.then_some(("of A / A", true)));
        columns.extend([("pairs", false), ("p", false), ("B is", true)]);
        let band =
            |comparison: &Comparison| format!("{:.3} to {:.3}", comparison.ratio.low, comparison.ratio.high);
        let rows = self.ratios.iter().map(|Ratios { test, a, b, ratio, control: alone }| {
            let mut row = vec![test.name()];
            row.extend(sequences.then(|| test.sequences.to_string()));
            row.extend([
                format!("{:.2}", a.median),
                format!("{:.2}", b.median),
                format!("{:.3}", ratio.ratio.median),
                band(ratio),
            ]);
            row.extend(control.then(|| alone.as_ref().map_or_else(String::new, band)));
            row.extend([
                ratio.pairs.to_string(),
                format!("{:.3}", ratio.p_value),
                ratio.verdict.words().to_owned(),
            ]);
            row
        });
        markdown(out, &columns, &rows.collect::<Vec<_>>())
    }
}

#[cfg(test)]
#[path = "compare/tests.rs"]
mod tests;
