//! `lanemap bench --against`: in turns with a `llama-bench` on the same file.

use std::path::Path;
use std::process::Command;

use super::{Args, bar, finish, list, program};
use crate::bench::{ComparisonReport, Kind, Pairs, Test, run as measure};
use crate::cli::UsageError;
use crate::cli::record::Provenance;
use crate::experiment::timing::{Side, Spread};
use crate::session::Session;

/// Pairs without `--pairs`: each run of llama-bench loads the model.
const PAIRS: usize = 3;

/// Runs both in turns: A is llama-bench, B this program.
///
/// # Errors
/// A [`UsageError`] for tests that llama-bench does not have; a side that fails.
pub(super) fn run(
    args: &Args,
    tests: &[Test],
    peer: &Path,
    model: &str,
    session: &mut Session,
    record: Option<&Path>,
) -> anyhow::Result<()> {
    if tests.iter().any(|test| test.sequences > 1) {
        let message = "--sequences: llama-bench generates one sequence; leave it out with --against";
        return Err(UsageError(message.to_owned()).into());
    }
    if args.machine.exact {
        let message = "--exact: llama-bench has no such mode; leave it out with --against";
        return Err(UsageError(message.to_owned()).into());
    }
    let repetitions = args.repetitions_of_a_pair();
    if !Path::new(model).exists() {
        let message =
            format!("--against: llama-bench needs a file: write one with `lanemap synth {model} FILE`");
        return Err(UsageError(message).into());
    }
    let batch = args.machine.batch.unwrap_or_else(|| session.prompt_rows());
    let pairs = args.pairs.unwrap_or(PAIRS);
    let bar = bar(2 * pairs)?;
    let mut build = None;
    let found = Pairs::in_turns(tests, pairs, false, |side| {
        let rates = match side {
            Side::One => {
                bar.set_message("peer");
                let mut command = command(args, tests, peer, model, session);
                let (rates, found) = program::medians(&mut command, tests)?;
                build = found.and_then(|measured| measured.build);
                rates
            }
            Side::Other => {
                bar.set_message("lanemap");
                let own = tests.iter().map(|&test| {
                    let samples = measure(session, test, batch, repetitions, !args.no_warmup, &mut |_| ())?;
                    Ok(Spread::of(samples.rates()).median)
                });
                own.collect::<anyhow::Result<_>>()?
            }
        };
        bar.inc(1);
        anyhow::Ok(rates)
    })?;
    bar.finish_and_clear();
    let report = ComparisonReport {
        a: format!("{} {}", peer.display(), build.unwrap_or_default()).trim_end().to_owned(),
        b: format!("lanemap {} ({})", env!("CARGO_PKG_VERSION"), session.description()),
        repetitions,
        ratios: found.ratios(),
    };
    let provenance = Provenance {
        command: "bench --against",
        model,
        device: &session.device(),
        description: &session.description(),
    };
    finish(args, record, &provenance, &|out, format| report.write(out, format))
}

/// llama-bench with the same tests, on the same device.
fn command(args: &Args, tests: &[Test], peer: &Path, model: &str, session: &Session) -> Command {
    let lengths = |kind: Kind, given: &[usize]| {
        let any = tests.iter().any(|test| test.kind == kind);
        if any { list(given.iter().copied().filter(|&tokens| tokens > 0)) } else { "0".to_owned() }
    };
    let mut command = Command::new(peer);
    command.args(["-m", model, "-o", "jsonl", "-fa", "1"]);
    command.args(["-p", &lengths(Kind::Prefill, &args.n_prompt), "-n", &lengths(Kind::Decode, &args.n_gen)]);
    command.args([
        "-d",
        &list(args.n_depth.iter().copied()),
        "-r",
        &args.repetitions_of_a_pair().to_string(),
    ]);
    // Unless one is asked for, each has what is fastest, or what it takes for that.
    if let Some(batch) = args.machine.batch {
        command.args(["-b", &batch.to_string(), "-ub", &batch.to_string()]);
    }
    command.args(["-t", &session.threads().to_string()]);
    if args.no_warmup {
        command.arg("--no-warmup");
    }
    match session.device().strip_prefix("cuda:") {
        Some(index) => {
            command.args(["-ngl", "99", "-sm", "none", "-mg", index]);
        }
        // llama.cpp would give long prompts to a GPU that it sees, even so.
        None => {
            command.args(["-ngl", "0"]).env("CUDA_VISIBLE_DEVICES", "");
        }
    }
    command
}
