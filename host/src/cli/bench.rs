//! `lanemap bench`: prefill and decode speed in llama-bench's terms.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};

use super::device::Device;
use super::output::to_stdout;
use super::{UsageError, pull};
use crate::bench::{Format, Report, Test, run as measure};
use crate::cpu::{CpuBackend, CpuOptions};
use crate::gguf::Gguf;
use crate::model::Model;
use crate::session::Session;

/// Measure prefill and decode speed, in llama-bench's terms
///
/// Each test starts from an empty context and evaluates random tokens; neither tokenizing nor
/// sampling is in the time. Compare only what ran on one machine at one time.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The GGUF file [default: the demo model, fetched on first use]
    #[arg(short = 'm', long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Prompt lengths to measure, in tokens; 0: none
    #[arg(short = 'p', long, value_name = "N,…", value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<usize>,

    /// Generation lengths to measure, in tokens; 0: none
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "128")]
    n_gen: Vec<usize>,

    /// Repetitions of each test
    #[arg(short = 'r', long, value_name = "N", default_value = "5")]
    repetitions: NonZeroUsize,

    /// Do not run each test once before it is measured
    #[arg(long)]
    no_warmup: bool,

    /// Prompt tokens in one pass
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N", default_value = "512")]
    batch: NonZeroUsize,

    /// CPU threads; 0: all cores
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1024))]
    threads: usize,

    /// auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    device: Device,

    /// Measure the exact mode
    #[arg(long)]
    exact: bool,

    /// The report's format
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Md)]
    output: Format,
}

/// Runs `lanemap bench`.
///
/// # Errors
/// A [`UsageError`] for tests that the model's context cannot hold, or none at all; another
/// error when the model cannot be loaded or run, or the report cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.device.resolve()?;
    let prompts = args.n_prompt.iter().map(|&n_prompt| Test { n_prompt, n_gen: 0 });
    let generations = args.n_gen.iter().map(|&n_gen| Test { n_prompt: 0, n_gen });
    let tests: Vec<_> = prompts.chain(generations).filter(|test| test.tokens() > 0).collect();
    let Some(longest) = tests.iter().map(|test| test.tokens()).max() else {
        return Err(UsageError("-p and -n are all 0: there is nothing to measure".to_owned()).into());
    };
    let path = match &args.model {
        Some(path) => path.clone(),
        None => pull::demo_model_path()?,
    };
    let model = Arc::new(Model::load(Arc::new(Gguf::open(&path)?))?);
    let limit = model.config().context_length;
    if longest > limit {
        let message = format!("a test of {longest} tokens does not fit into the model's context of {limit}");
        return Err(UsageError(message).into());
    }
    let options = CpuOptions { threads: args.threads, exact: args.exact };
    let backend = CpuBackend::new(Arc::clone(&model), options)?;
    let threads = backend.threads();
    let mut session = Session::new(Box::new(backend), longest)?;
    let file = path.display().to_string();
    let report = Report::new(&model, &file, &session.description(), threads, args.batch.get());

    let rounds = args.repetitions.get() + usize::from(!args.no_warmup);
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len}")?;
    let bar = ProgressBar::new((rounds * tests.len()) as u64).with_style(style);
    let mut samples = Vec::new();
    for (index, test) in tests.into_iter().enumerate() {
        bar.set_message(test.name());
        let mut progress = |round: usize| bar.set_position((index * rounds + round) as u64);
        samples.push(measure(
            &mut session,
            test,
            args.batch.get(),
            args.repetitions.get(),
            !args.no_warmup,
            &mut progress,
        )?);
    }
    bar.finish_and_clear();
    to_stdout(|out| report.write(out, args.output, &samples))
}
