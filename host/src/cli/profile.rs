//! `lanemap profile`: where the time of a prefill or of decode steps goes, kernel by kernel.

mod svg;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use indicatif::ProgressBar;

use super::UsageError;
use super::device::Device;
use super::load::ModelFile;
use super::machine::{Activations, ModelArgs};
use super::output::{note, to_stdout};
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
    #[arg(long, requires = "n_gen")]
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
    #[arg(long, value_name = "DEVICE", default_value_t = Machine::Device(Device::Auto))]
    device: Machine,

    /// What products with quantized weights read; auto: f16 in prompts, q8 in generated tokens
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
}

/// Where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    Device(Device),
    Emulator,
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "emulator" {
            return Ok(Self::Emulator);
        }
        let device = text.parse().ok().filter(|&device| device != Device::Cpu);
        device.map(Self::Device).ok_or_else(|| "not one of auto, cuda, cuda:N, emulator".to_owned())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Emulator => f.write_str("emulator"),
        }
    }
}

/// Runs `lanemap profile`.
///
/// # Errors
/// A [`UsageError`] for work that the model's context cannot hold; another error when there is no GPU, when
/// the model cannot be loaded or run, or when something cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let device = match args.device {
        Machine::Emulator => None,
        Machine::Device(device) => Some(open(device)?),
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
        let message = format!("{positions} positions do not fit into the model's context of {limit}");
        return Err(UsageError(message).into());
    }
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
    if let Some(path) = &args.svg {
        write_file("--svg", path, |out| out.write_all(svg::render(&report).as_bytes()))?;
    }
    if let Some(path) = &args.trace {
        write_file("--trace", path, |out| write_trace(out, &profile))?;
    }
    to_stdout(|out| if args.json { report.write_json(out) } else { report.write_table(out, task) })
}

/// The GPU, which there are kernels for.
fn open(device: Device) -> anyhow::Result<cuda::Device> {
    let index = if let Device::Cuda(index) = device { index } else { 0 };
    let opened = cuda::Device::open(index).and_then(|opened| {
        opened.description().variant()?;
        Ok(opened)
    });
    opened.map_err(|error| {
        anyhow::anyhow!("--device {device}: {error}; --device emulator counts bytes without a GPU")
    })
}

/// Writes a file that a flag names.
fn write_file(
    flag: &str,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    written.with_context(|| format!("{flag}: cannot write {}", path.display()))?;
    note(format_args!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_to_the_letter() {
        assert_eq!("emulator".parse(), Ok(Machine::Emulator));
        assert_eq!("auto".parse(), Ok(Machine::Device(Device::Auto)));
        assert_eq!("cuda:1".parse(), Ok(Machine::Device(Device::Cuda(1))));
        for text in ["cpu", "Emulator", "", "gpu"] {
            assert!(text.parse::<Machine>().is_err(), "{text}");
        }
    }
}
