//! `lanemap profile`: where the time of a prefill or of decode steps goes, kernel by kernel.

mod svg;

use std::path::PathBuf;

use indicatif::ProgressBar;

use super::UsageError;
use super::device::{Device, Emulator, with_kernels};
use super::load::ModelFile;
use super::machine::{Activations, ModelArgs};
use super::output::{OutputFile, to_stdout};
use super::record::{self, RecordArgs};
use crate::cuda::{self, Emulated};
use crate::profile::{Plan, Report, Task, on_device, on_emulator, write_trace};

/// Tokens of the prompt when neither `-p` nor `-n` is given.
const PROMPT: usize = 512;

/// Show where the time goes: each kernel's part of the wall, and what it could not be faster than
///
/// The wall is measured as `lanemap bench` does; then the same work is timed launch by launch. A kernel's
/// floor are its bytes at the device's memory rate, or its operations at that of the tensor cores. On the
/// emulator, which has no times, bytes are counted instead.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Profile a prompt of so many tokens [default: 512, without -n]
    #[arg(short = 'p', long, value_name = "N", conflicts_with = "n_gen")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    n_prompt: Option<usize>,

    /// Profile so many generated tokens
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    n_gen: Option<usize>,

    /// Tokens in the context before
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    n_depth: usize,

    /// With -n: the device chooses each token; without, its logits come to the host
    #[arg(long)]
    greedy: bool,

    /// Repetitions, of which the medians are shown; the emulator counts once
    #[arg(short = 'r', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    repetitions: usize,

    /// Prompt tokens in one pass [default: what is fastest]
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    batch: Option<usize>,

    /// auto (the first GPU), cuda, cuda:N or emulator
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    device: Device<Emulator>,

    /// What products with quantized weights read; auto: f16 in prompts (f16-wgmma on compute
    /// capability 9.0), q8 in generated tokens
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Activations::Auto)]
    activations: Activations,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Also draw the wall, coloured by kernel, into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Also write the launches as a trace for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    record: RecordArgs,
}

/// Runs `lanemap profile`.
///
/// # Errors
/// A [`UsageError`] for work that the model's context cannot hold; another error when there is no GPU, when
/// the model cannot be loaded or run, or when something cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Not the parser's: what -p excludes it does not miss.
    if args.greedy && args.n_gen.is_none() {
        return Err(UsageError("--greedy is for generated tokens: add --n-gen".to_owned()).into());
    }
    let device = match args.device {
        Device::StandIn(Emulator) => None,
        Device::Auto => Some(open(args.device, 0)?),
        Device::Cuda(index) => Some(open(args.device, index)?),
    };
    let task = match args.n_gen {
        Some(steps) => Task::Decode { steps, greedy: args.greedy },
        None => Task::Prefill(args.n_prompt.unwrap_or(PROMPT)),
    };
    let plan = Plan { task, depth: args.n_depth, batch: args.batch, repetitions: args.repetitions };
    let file = ModelFile::open(args.model.source()?)?;
    let model = file.model()?;
    let (limit, positions) = (model.config().context_length, plan.positions());
    if positions > limit {
        let message = format!(
            "{positions} positions do not fit into the model's context of {limit}: lower -p, -n or -d"
        );
        return Err(UsageError(message).into());
    }
    let record = args.record.target(&[
        ("--model", args.model.named()),
        ("--svg", args.svg.as_deref()),
        ("--trace", args.trace.as_deref()),
    ])?;
    let open =
        |flag, path: &Option<PathBuf>| path.as_deref().map(|path| OutputFile::open(flag, path)).transpose();
    let (svg, trace) = (open("--svg", &args.svg)?, open("--trace", &args.trace)?);
    let bar = ProgressBar::new_spinner();
    let mut step = |what: &str| {
        bar.set_message(what.to_owned());
        bar.tick();
    };
    let profile = match device {
        Some(device) => {
            let options = args.activations.options(&device.stream()?);
            on_device(device, &model, options, &plan, &mut step)
        }
        None => on_emulator(&model, args.activations.options(&Emulated::new()), &plan, &mut step),
    };
    bar.finish_and_clear();
    let profile = profile?;
    let report = Report::new(&profile, file.name());
    if let Some(file) = svg {
        file.write(|out| out.write_all(svg::render(&report).as_bytes()))?;
    }
    if let Some(file) = trace {
        file.write(|out| write_trace(out, &profile))?;
    }
    to_stdout(|out| if args.json { report.write_json(out) } else { report.write_table(out, task) })?;
    let names = ["profile", &file.name()];
    record::append_of_device(record.as_deref(), names, device, |out| report.write_table(out, task))
}

/// The GPU with this index, which there are kernels for.
fn open(device: Device<Emulator>, index: u32) -> anyhow::Result<cuda::Device> {
    with_kernels(index).map_err(|error| {
        anyhow::anyhow!("--device {device}: {error}; --device emulator counts bytes without a GPU")
    })
}
