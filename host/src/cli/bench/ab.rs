//! `lanemap bench --ab`: two lanemaps in turns, or one with two settings.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{Args, bar, finish, list, program};
use crate::bench::{ComparisonReport, Kind, Pairs, Test};
use crate::cli::UsageError;
use crate::cli::record::Provenance;
use crate::experiment::timing::Side as Turn;

/// Pairs without `--pairs`: enough that a difference in two tests can be told from noise.
const PAIRS: usize = 12;

/// One of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Side {
    /// Variables of its environment.
    settings: Vec<(String, String)>,
    /// The program, if it is not this one.
    program: Option<PathBuf>,
}

impl Side {
    /// Reads `NAME=VALUE … [PATH]`: words with `=` after a name at the start are variables, all behind them is
    /// the path of a program, white space included; `.` is no path but this program.
    fn parse(text: &str) -> Self {
        let (mut settings, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_name(name)) else { break };
            settings.push((name.to_owned(), value.to_owned()));
            rest = behind.trim_start();
        }
        let program = (!rest.is_empty() && rest != ".").then(|| PathBuf::from(rest));
        Self { settings, program }
    }
}

/// Whether a variable of the environment is commonly called so.
fn is_name(text: &str) -> bool {
    let letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Runs both in turns, the first also against itself.
///
/// # Errors
/// When a program cannot be run or fails.
pub(super) fn run(
    args: &Args,
    tests: &[Test],
    sides: &[String],
    record: Option<&Path>,
) -> anyhow::Result<()> {
    let [a, b] = sides else {
        return Err(UsageError("--ab takes two sides".to_owned()).into());
    };
    let (one, other) = (Side::parse(a), Side::parse(b));
    let own = env::current_exe().context("cannot find this program's own path")?;
    let (model, model_name) = args.model.flags()?;
    let pairs = args.pairs.unwrap_or(PAIRS);
    let bar = bar(3 * pairs)?;
    let mut of_a = None;
    let found = Pairs::in_turns(tests, pairs, true, |turn| {
        let (side, name) = if turn == Turn::One { (&one, "A") } else { (&other, "B") };
        bar.set_message(name);
        let mut command = Command::new(side.program.as_ref().unwrap_or(&own));
        command.arg("bench").args(&model).args(flags(args, tests));
        command.envs(side.settings.iter().map(|(name, value)| (name, value)));
        let found = program::medians(&mut command, tests).with_context(|| format!("--ab: {name}"))?;
        let (rates, first) = found;
        if turn == Turn::One {
            of_a = first;
        }
        bar.inc(1);
        anyhow::Ok(rates)
    })?;
    bar.finish_and_clear();
    let report = ComparisonReport {
        a: a.clone(),
        b: b.clone(),
        repetitions: args.repetitions_of_a_pair(),
        ratios: found.ratios(),
    };
    let of_a = of_a.as_ref();
    let flags = args.machine.flags();
    let asked = flags.iter().find_map(|flag| flag.strip_prefix("--device="));
    let provenance = Provenance {
        command: "bench --ab",
        model: &model_name,
        device: match (of_a.and_then(|measured| measured.backends.as_deref()), asked) {
            (Some("CUDA"), Some(named)) if named.starts_with("cuda:") => named,
            (Some("CUDA"), _) => "cuda:0",
            _ => "cpu",
        },
        description: of_a.and_then(|measured| measured.device.as_deref()).unwrap_or("unknown"),
    };
    finish(args, record, &provenance, &|out, format| report.write(out, format))
}

/// The flags of one run. Those that have their defaults are left out, so that a side can be a lanemap that did
/// not have them yet.
fn flags(args: &Args, tests: &[Test]) -> Vec<String> {
    let some = |kind: Kind, given: &[usize]| {
        if tests.iter().any(|test| test.kind == kind) { list(given.iter().copied()) } else { "0".to_owned() }
    };
    let (prompts, generations) = (some(Kind::Prefill, &args.n_prompt), some(Kind::Decode, &args.n_gen));
    let mut flags = vec!["-p".to_owned(), prompts, "-n".to_owned(), generations];
    for (flag, given, default) in [("-d", &args.n_depth, 0), ("--sequences", &args.sequences, 1)] {
        if given[..] != [default] {
            flags.extend([flag.to_owned(), list(given.iter().copied())]);
        }
    }
    flags.extend(["-r".to_owned(), args.repetitions_of_a_pair().to_string()]);
    flags.extend(args.no_warmup.then(|| "--no-warmup".to_owned()));
    flags.extend(args.machine.flags());
    flags.extend(["-o".to_owned(), "jsonl".to_owned()]);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_settings_and_a_program() {
        let side = |text| {
            let Side { settings, program } = Side::parse(text);
            let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            (settings.join(" "), program.map(|path| path.display().to_string()))
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(side("."), (String::new(), None));
        assert_eq!(side(""), (String::new(), None));
        assert_eq!(side("LANEMAP_CPU=avx2"), ("LANEMAP_CPU:avx2".to_owned(), None));
        assert_eq!(side("A=1 B_2= ."), ("A:1 B_2:".to_owned(), None));
        assert_eq!(side("target/release/lanemap"), (String::new(), some("target/release/lanemap")));
        assert_eq!(side(" A=x=y  old build/lanemap "), ("A:x=y".to_owned(), some("old build/lanemap")));
        assert_eq!(side("./a=b/lanemap"), (String::new(), some("./a=b/lanemap")));
        assert_eq!(side("1=2"), (String::new(), some("1=2")));
    }
}
