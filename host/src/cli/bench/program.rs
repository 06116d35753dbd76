//! A program that measures, as a process: what it printed, or why not.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::bench::{Measured, Test};
use crate::experiment::timing::Spread;

/// Runs a program and returns the median of its rates for each test, in their order, and the first of its
/// results.
///
/// # Errors
/// When it cannot be started, fails, or prints no result of one of the tests; the message ends with
/// the last line that it wrote to stderr.
pub(super) fn medians(command: &mut Command, tests: &[Test]) -> anyhow::Result<(Vec<f64>, Option<Measured>)> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last =
        stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing on stderr").trim();
    if !output.status.success() {
        bail!("{name}: {}: {last}", output.status);
    }
    let found = Measured::parse(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("{name} printed what is no result ({last})"))?;
    let median = |test: &Test| {
        let of_test = found.iter().find(|measured| measured.test == *test);
        let rates = of_test.map(|measured| Spread::of(measured.rates.iter().copied()).median);
        rates.with_context(|| format!("{name} printed no result of {} ({last})", test.name()))
    };
    let medians = tests.iter().map(median).collect::<anyhow::Result<_>>()?;
    Ok((medians, found.into_iter().next()))
}
