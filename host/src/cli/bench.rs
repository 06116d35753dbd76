//! `lanemap bench`: prefill and decode speed in llama-bench's terms, alone or against something else.

mod ab;
mod against;
mod program;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::UsageError;
use super::load::ModelFile;
use super::machine::{MachineArgs, ModelArgs};
use super::output::to_stdout;
use super::record::{self, Provenance, RecordArgs};
use crate::bench::{OutputFormat, Report, Test, run as measure};

/// Measure prefill and decode speed, in llama-bench's terms
///
/// Each test evaluates random tokens behind a context of --n-depth others; neither filling that, nor
/// tokenizing, nor sampling is in the time. Compare only what ran on one machine at one time: --against
/// and --ab do that.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Prompt lengths to measure, in tokens; 0: none
    #[arg(short = 'p', long, value_name = "N,…", value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<usize>,

    /// Generation lengths to measure, in tokens; 0: none
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "128")]
    n_gen: Vec<usize>,

    /// Tokens that are in the context before each test
    #[arg(short = 'd', long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    n_depth: Vec<usize>,

    /// Sequences that generate together, a token of each in a step
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    sequences: Vec<usize>,

    /// Repetitions of each test [default: 5; with --against and --ab 1, in each run]
    #[arg(short = 'r', long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    repetitions: Option<usize>,

    /// Do not run each test once before it is measured
    #[arg(long)]
    no_warmup: bool,

    /// Run this llama-bench in turns with lanemap, and print lanemap's rate over its
    #[arg(long, value_name = "PATH", conflicts_with = "ab")]
    against: Option<PathBuf>,

    /// Run two lanemaps in turns, and print B's rate over A's. Each is `NAME=VALUE …` for its environment,
    /// then the program's path, without one this program; `.` is this program as it is
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    ab: Option<Vec<String>>,

    /// With --against and --ab: how many pairs of runs [default: 3 with --against, 12 with --ab]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=200))]
    pairs: Option<usize>,

    #[command(flatten)]
    machine: MachineArgs,

    /// The report's format
    #[arg(short = 'o', long, value_enum, default_value_t = OutputFormat::Md)]
    output: OutputFormat,

    #[command(flatten)]
    record: RecordArgs,
}

impl Args {
    /// The tests that are asked for, at least one, in the order in which they run.
    fn tests(&self) -> Result<Vec<Test>, UsageError> {
        let at = |&depth: &usize| {
            let prompts = self.n_prompt.iter().map(move |&tokens| Test::prefill(tokens, depth));
            let generations = self.sequences.iter().flat_map(move |&sequences| {
                self.n_gen.iter().map(move |&tokens| Test::decode(tokens, depth, sequences))
            });
            prompts.chain(generations)
        };
        let tests: Vec<_> = self.n_depth.iter().flat_map(at).filter(|test| test.tokens > 0).collect();
        if tests.is_empty() {
            return Err(UsageError("-p and -n are all 0: there is nothing to measure".to_owned()));
        }
        Ok(tests)
    }

    /// Repetitions in a run that is one of a pair.
    fn repetitions_of_a_pair(&self) -> usize {
        self.repetitions.unwrap_or(1)
    }
}

/// Runs `lanemap bench`.
///
/// # Errors
/// A [`UsageError`] for tests that the model's context cannot hold, or none at all; another
/// error when the model cannot be loaded or run, a program that it is compared with fails, or the report
/// cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let tests = args.tests()?;
    if let Some(sides) = &args.ab {
        let record = args.record.target(&[("--model", args.model.named())])?;
        return ab::run(args, &tests, sides, record.as_deref());
    }
    if args.pairs.is_some() && args.against.is_none() {
        return Err(UsageError("--pairs is for --against and --ab".to_owned()).into());
    }
    args.machine.check()?;
    let others = [("--model", args.model.named()), ("--against", args.against.as_deref())];
    let record = args.record.target(&others)?;
    let record = record.as_deref();
    let file = ModelFile::open(args.model.source()?)?;
    let model = file.model()?;
    let limit = model.config().context_length;
    let longest = tests.iter().map(|test| test.positions()).max().unwrap_or(0);
    if longest > limit {
        let message = format!("a test of {longest} tokens does not fit into the model's context of {limit}");
        return Err(UsageError(message).into());
    }
    // For most sequences first: whether there is the memory shows before anything is measured.
    let sequences = tests.iter().map(|test| test.sequences).max().unwrap_or(1);
    let mut session = args.machine.session(&model, longest, sequences)?;
    if let Some(peer) = &args.against {
        return against::run(args, &tests, peer, &file.name(), &mut session, record);
    }
    let batch = args.machine.batch.unwrap_or_else(|| session.prompt_rows());
    let report = Report::new(&model, &file.name(), &session, batch);

    let repetitions = args.repetitions.unwrap_or(5);
    let rounds = repetitions + usize::from(!args.no_warmup);
    let bar = bar(rounds * tests.len())?;
    let mut samples = Vec::new();
    for (index, test) in tests.into_iter().enumerate() {
        bar.set_message(test.name());
        // What a session for so many does, which one for more may do otherwise.
        if session.sequences() != test.sequences {
            session.resize(test.sequences)?;
        }
        let mut progress = |round: usize| bar.set_position((index * rounds + round) as u64);
        samples.push(measure(&mut session, test, batch, repetitions, !args.no_warmup, &mut progress)?);
    }
    bar.finish_and_clear();
    let provenance = Provenance {
        command: "bench",
        model: &file.name(),
        device: &session.device(),
        description: &session.description(),
    };
    finish(args, record, &provenance, &|out, format| report.write(out, format, &samples))
}

/// Prints a report, and records it where that is asked for.
fn finish(
    args: &Args,
    record: Option<&Path>,
    provenance: &Provenance<'_>,
    write: &dyn Fn(&mut dyn Write, OutputFormat) -> io::Result<()>,
) -> anyhow::Result<()> {
    to_stdout(|out| write(out, args.output))?;
    record::append(record, provenance, |out| write(out, OutputFormat::Md))
}

fn bar(len: usize) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len}")?;
    let bar = ProgressBar::new(len as u64).with_style(style);
    bar.tick();
    Ok(bar)
}

/// Numbers as a flag takes them.
fn list(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}
