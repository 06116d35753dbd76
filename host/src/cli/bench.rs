//! `lanemap bench`: prefill and decode speed in llama-bench's terms.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};

use super::UsageError;
use super::load::ModelFile;
use super::machine::{MachineArgs, ModelArgs};
use super::output::to_stdout;
use crate::bench::{OutputFormat, Report, Test, run as measure};
use crate::session::Session;

/// Measure prefill and decode speed, in llama-bench's terms
///
/// Each test starts from an empty context and evaluates random tokens; neither tokenizing nor
/// sampling is in the time. Compare only what ran on one machine at one time.
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

    /// Repetitions of each test
    #[arg(short = 'r', long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    repetitions: usize,

    /// Do not run each test once before it is measured
    #[arg(long)]
    no_warmup: bool,

    #[command(flatten)]
    machine: MachineArgs,

    /// The report's format
    #[arg(short = 'o', long, value_enum, default_value_t = OutputFormat::Md)]
    output: OutputFormat,
}

/// Runs `lanemap bench`.
///
/// # Errors
/// A [`UsageError`] for tests that the model's context cannot hold, or none at all; another
/// error when the model cannot be loaded or run, or the report cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.machine.check()?;
    let prompts = args.n_prompt.iter().map(|&tokens| Test::Prefill(tokens));
    let generations = args.n_gen.iter().map(|&tokens| Test::Decode(tokens));
    let tests: Vec<_> = prompts.chain(generations).filter(|test| test.tokens() > 0).collect();
    let Some(longest) = tests.iter().map(|test| test.tokens()).max() else {
        return Err(UsageError("-p and -n are all 0: there is nothing to measure".to_owned()).into());
    };
    let file = ModelFile::open(args.model.source()?)?;
    let model = file.model()?;
    let limit = model.config().context_length;
    if longest > limit {
        let message = format!("a test of {longest} tokens does not fit into the model's context of {limit}");
        return Err(UsageError(message).into());
    }
    let mut session = Session::new(args.machine.backend(Arc::clone(&model))?, longest)?;
    let batch = args.machine.batch.unwrap_or_else(|| session.prompt_rows());
    let report = Report::new(&model, &file.name(), &session, batch);

    let rounds = args.repetitions + usize::from(!args.no_warmup);
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len}")?;
    let bar = ProgressBar::new((rounds * tests.len()) as u64).with_style(style);
    let mut samples = Vec::new();
    for (index, test) in tests.into_iter().enumerate() {
        bar.set_message(test.name());
        let mut progress = |round: usize| bar.set_position((index * rounds + round) as u64);
        samples.push(measure(&mut session, test, batch, args.repetitions, !args.no_warmup, &mut progress)?);
    }
    bar.finish_and_clear();
    to_stdout(|out| report.write(out, args.output, &samples))
}
