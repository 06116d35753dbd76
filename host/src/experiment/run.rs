//! Running one experiment: gates, and then, if none is red, what is measured.

use rayon::prelude::*;
use serde::Serialize;

use super::compare::{Difference, Element, NEAR_ZERO, parity};
use super::count::counted;
use super::kernel::Kernel;
use super::machine::{Machine, Taken, Timing};
use super::problem::{Problem, Uploaded};
use super::tiles::TileCost;
use super::variants::Experiment;
use crate::cuda::Error;
use crate::cuda::ops::AttentionShape;

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Query heads, KV heads, head size.
    pub heads: [usize; 3],
    /// Shapes that must agree with f64: tokens, and positions before them.
    pub shapes: Vec<(usize, usize)>,
    /// Tokens of the prompt whose bits are compared, and that is timed.
    pub tokens: usize,
    /// Of the prompt, rows that must agree with f64: that many, spread evenly.
    pub sampled: usize,
    /// Pairs of batches that are timed.
    pub pairs: usize,
    /// Seed of the inputs.
    pub seed: u64,
}

/// Lengths that are ragged in every way: one row, and one less, as many and one more than a
/// fragment, a tile, a block of 48 or 64 rows, and two of them.
pub const LENGTHS: [usize; 16] = [1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 129];
/// Positions before the rows, no multiple of any tile.
pub const PREFIX: usize = 37;

impl Options {
    /// Every length, with and without positions before it.
    #[must_use]
    pub fn ragged() -> Vec<(usize, usize)> {
        [0, PREFIX].into_iter().flat_map(|start| LENGTHS.map(|tokens| (tokens, start))).collect()
    }
}

/// What a gate found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// What is asked.
    pub gate: &'static str,
    /// Of which kernel.
    pub kernel: &'static str,
    /// Whether it is as it must be.
    pub green: bool,
    /// What was seen.
    pub seen: String,
}

/// What is known of one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The kernel.
    pub kernel: Kernel,
    /// The largest error against f64.
    pub error: f64,
    /// What it takes.
    pub taken: Taken,
    /// What a tile costs, counted.
    pub tile: TileCost,
}

/// What is known if no gate is red.
#[derive(Clone, Copy, Debug)]
pub struct Findings {
    /// Of the landed kernel.
    pub landed: Measured,
    /// Of the variant.
    pub variant: Measured,
    /// How the variant's bits differ from the landed kernel's.
    pub difference: Difference,
    /// Landed kernel and variant in turns, on a device.
    pub timing: Option<Timing>,
    /// The kernel before and the variant in turns, on a device, if there is one.
    pub before: Option<Timing>,
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The gates, up to the first that is red.
    pub gates: Vec<Gate>,
    /// The rest, if none is.
    pub findings: Option<Findings>,
}

/// Steps that [`run`] reports: of each kernel parity on every shape and reproducibility, identity,
/// the counters of two kernels, and timing.
#[must_use]
pub fn steps(experiment: &Experiment, options: &Options) -> usize {
    let kernels = 2 + usize::from(experiment.before.is_some());
    kernels * (options.shapes.len() + 2) + 1 + 2 + 1
}

/// Runs an experiment. `step` is told what begins.
///
/// # Errors
/// A launch that fails, and whatever the machine cannot do. A red gate is no error: it is in the
/// outcome, and the last thing in it.
pub fn run(
    machine: &impl Machine,
    experiment: &Experiment,
    options: &Options,
    step: &mut dyn FnMut(&str),
) -> Result<Outcome, Error> {
    let random =
        |tokens, start| Problem::random(AttentionShape::prompt(tokens, start, options.heads), options.seed);
    let cases = options.shapes.iter().map(|&(tokens, start)| Case::new(random(tokens, start), 0..tokens));
    let (tokens, sampled) = (options.tokens, options.sampled.min(options.tokens));
    let rows = (0..sampled).map(|i| if i + 1 == sampled { tokens - 1 } else { i * tokens / sampled });
    let prompt = Case::new(random(tokens, 0), rows);
    let inputs = prompt.problem.upload(machine.queue())?;
    let cases = cases.collect();
    let mut gates =
        Gates { machine, pairs: options.pairs, cases, prompt: &prompt, inputs: &inputs, gates: Vec::new() };
    let findings = gates.findings(experiment, step)?;
    Ok(Outcome { gates: gates.gates, findings })
}

/// A problem, and what some of its rows are in f64.
struct Case {
    problem: Problem,
    /// Row by row: which one, and all its heads.
    expected: Vec<(usize, Vec<f64>)>,
}

impl Case {
    fn new(problem: Problem, rows: impl Iterator<Item = usize>) -> Self {
        let rows: Vec<usize> = rows.collect();
        let expected = rows.into_par_iter().map(|token| (token, problem.reference(token))).collect();
        Self { problem, expected }
    }

    /// The largest error of these rows, or what is wrong with the first that is off. All other rows
    /// have to be numbers.
    fn check(&self, found: &[f32]) -> Result<f64, String> {
        let shape = &self.problem.shape;
        if let Some(index) = found.iter().position(|x| !x.is_finite()) {
            return Err(format!("{} is {}", place(Element::at(index, shape)), found[index]));
        }
        let mut worst = 0.0_f64;
        for (token, expected) in &self.expected {
            let first = token * expected.len();
            let error = parity(&found[first..first + expected.len()], expected, first, shape);
            worst = worst.max(error.map_err(|off| {
                format!("{} is {}, {} in f64", place(off.element), off.found, off.expected)
            })?);
        }
        Ok(worst)
    }
}

/// The gates on their way.
struct Gates<'a, M> {
    machine: &'a M,
    pairs: usize,
    /// The ragged shapes.
    cases: Vec<Case>,
    /// The long prompt.
    prompt: &'a Case,
    inputs: &'a Uploaded,
    gates: Vec<Gate>,
}

impl<M: Machine> Gates<'_, M> {
    fn findings(
        &mut self,
        experiment: &Experiment,
        step: &mut dyn FnMut(&str),
    ) -> Result<Option<Findings>, Error> {
        let (landed, variant) = (Kernel::Landed, experiment.variant);
        let kernels: Vec<Kernel> = [landed, variant].into_iter().chain(experiment.before).collect();
        let (mut errors, mut outputs) = (Vec::new(), Vec::new());
        for &kernel in &kernels {
            let Some((error, output)) = self.parity(kernel, step)? else { return Ok(None) };
            errors.push(error);
            outputs.push(output);
        }
        for (&kernel, output) in kernels.iter().zip(&outputs) {
            step("reproducibility");
            let again = self.machine.run_again(self.inputs, kernel)?;
            let difference = Difference::between(output, &again, &self.prompt.problem.shape);
            if !self.gate("reproducibility", kernel, difference.is_none(), describe(&difference)) {
                return Ok(None);
            }
        }
        step("identity");
        let difference = Difference::between(&outputs[0], &outputs[1], &self.prompt.problem.shape);
        let promised = experiment.promises_identity();
        let contract = if promised {
            "promised by the contract"
        } else {
            "not promised: the sums are grouped otherwise"
        };
        let seen = format!("{}; {contract}", describe(&difference));
        if !self.gate("identity with the landed kernel", variant, difference.is_none() || !promised, seen) {
            return Ok(None);
        }
        let mut measured = |kernel: Kernel, error: f64| -> Result<Measured, Error> {
            step("counters");
            Ok(Measured { kernel, error, taken: self.machine.taken(kernel)?, tile: counted(kernel)? })
        };
        let (landed, variant) = (measured(landed, errors[0])?, measured(variant, errors[1])?);
        step("timing");
        let time = |other| self.machine.time(&self.prompt.problem, [other, experiment.variant], self.pairs);
        let timing = time(Kernel::Landed)?;
        let before = experiment.before.map(time).transpose()?.flatten();
        Ok(Some(Findings { landed, variant, difference, timing, before }))
    }

    /// Every shape against f64, then rows of the prompt. The largest error and the prompt's output,
    /// or nothing if the gate is red.
    fn parity(
        &mut self,
        kernel: Kernel,
        step: &mut dyn FnMut(&str),
    ) -> Result<Option<(f64, Vec<f32>)>, Error> {
        let queue = self.machine.queue();
        let (mut worst, mut red, mut output) = (0.0_f64, None, Vec::new());
        for case in self.cases.iter().chain([self.prompt]) {
            step("parity");
            output = match case.problem.shape {
                shape if shape == self.prompt.problem.shape => self.inputs.run(queue, kernel)?,
                _ => case.problem.upload(queue)?.run(queue, kernel)?,
            };
            match case.check(&output) {
                Ok(error) => worst = worst.max(error),
                Err(seen) => {
                    let AttentionShape { tokens, start, .. } = case.problem.shape;
                    red = Some(format!("{tokens} tokens after {start}: {seen}"));
                    break;
                }
            }
        }
        let (shapes, rows, tokens) =
            (self.cases.len(), self.prompt.expected.len(), self.prompt.problem.shape.tokens);
        let admitted = super::PARITY;
        let seen = red.clone().unwrap_or_else(|| {
            format!(
                "largest error {worst:.1e}, {admitted:.0e} admitted: {shapes} ragged shapes, {rows} rows of \
                 {tokens} tokens"
            )
        });
        let green = self.gate("parity", kernel, red.is_none(), seen);
        Ok(green.then_some((worst, output)))
    }

    /// Enters a gate; whether it is green.
    fn gate(&mut self, gate: &'static str, kernel: Kernel, green: bool, seen: String) -> bool {
        self.gates.push(Gate { gate, kernel: kernel.name(), green, seen });
        green
    }
}

fn place(element: Element) -> String {
    let Element { token, head, dimension } = element;
    format!("token {token}, head {head}, dimension {dimension}")
}

/// A difference in words.
fn describe(difference: &Difference) -> String {
    let Some(first) = difference.first else {
        return format!("all {} elements bit-equal", difference.elements);
    };
    // Across zero the distance is that of all the numbers between, and says nothing.
    let apart = if first.one * first.other < 0.0 { "a change of sign".to_owned() } else { ulps(first.ulp) };
    format!(
        "{} of {} elements differ, first {} ({} and {}: {apart}), at most {} where the larger is at least {NEAR_ZERO} \
         of the largest, and {:.1e}",
        difference.different,
        difference.elements,
        place(first.element),
        first.one,
        first.other,
        ulps(difference.most_ulp),
        difference.most,
    )
}

/// A distance in words.
fn ulps(ulp: Option<u32>) -> String {
    ulp.map_or_else(|| "not a number".to_owned(), |ulp| format!("{ulp} ULP"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn rows_with_a_planted_nan_are_red_where_they_are_not_sampled_too() {
        let problem = Problem::random(AttentionShape::prompt(6, 1, [2, 1, 16]), 3);
        let mut found: Vec<f32> =
            (0..6).flat_map(|token| problem.reference(token)).map(|x| x as f32).collect();
        let all = Case::new(problem.clone(), 0..6);
        assert!(all.check(&found).unwrap() < 1e-6);
        found[(4 * 2 + 1) * 16 + 3] += 2e-4;
        let some = Case::new(problem, 0..4);
        assert!(some.check(&found).is_ok(), "the row is not asked for");
        let seen = all.check(&found).unwrap_err();
        assert!(seen.starts_with("token 4, head 1, dimension 3 is "), "{seen}");
        found[(5 * 2) * 16] = f32::NAN;
        assert_eq!(some.check(&found).unwrap_err(), "token 5, head 0, dimension 0 is NaN");
    }

    #[test]
    fn a_difference_is_told_with_its_place_and_size() {
        let shape = AttentionShape::prompt(2, 0, [1, 1, 16]);
        let (one, mut other) = (vec![1.0_f32; 32], vec![1.0_f32; 32]);
        assert_eq!(describe(&Difference::between(&one, &other, &shape)), "all 32 elements bit-equal");
        other[20] = 1.0 + f32::EPSILON;
        assert_eq!(
            describe(&Difference::between(&one, &other, &shape)),
            "1 of 32 elements differ, first token 1, head 0, dimension 4 (1 and 1.0000001: 1 ULP), at most 1 ULP where \
             the larger is at least 0.001 of the largest, and 1.2e-7"
        );
        other[3] = -1e-6;
        let one = [&[1.0, 1.0, 1.0, 1e-6], &one[4..]].concat();
        let text = describe(&Difference::between(&one, &other, &shape));
        assert!(
            text.contains("dimension 3 (0.000001 and -0.000001: a change of sign), at most 1 ULP"),
            "{text}"
        );
    }
}
