//! The flags that say which model runs, and on what.

use std::path::PathBuf;

use super::device::Device;
use super::load::Source;
use super::pull;
use crate::cpu::CpuOptions;
use crate::synth::Spec;

/// Which model.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    #[command(flatten)]
    file: FileArgs,

    /// Instead of a file: a model of random weights, made in memory (see `lanemap synth --list`)
    #[arg(long, value_name = "SHAPE:MIX", conflicts_with = "model")]
    synth: Option<Spec>,
}

impl ModelArgs {
    /// The model that is named, else the demo model.
    ///
    /// # Errors
    /// When the demo model cannot be fetched.
    pub(super) fn source(&self) -> anyhow::Result<Source> {
        self.synth.map_or_else(|| self.file.path().map(Source::File), |spec| Ok(Source::Synth(spec)))
    }
}

/// Which file.
#[derive(Debug, clap::Args)]
pub(super) struct FileArgs {
    /// The GGUF file [default: the demo model, fetched on first use]
    #[arg(short = 'm', long, value_name = "FILE")]
    model: Option<PathBuf>,
}

impl FileArgs {
    /// The file that is named, else the demo model's.
    ///
    /// # Errors
    /// When the demo model cannot be fetched.
    pub(super) fn path(&self) -> anyhow::Result<PathBuf> {
        self.model.clone().map_or_else(pull::demo_model_path, Ok)
    }
}

/// What a model runs on.
#[derive(Debug, clap::Args)]
pub(super) struct MachineArgs {
    /// Prompt tokens in one pass; does not change the result
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N", default_value = "512")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(super) batch: usize,

    /// CPU threads; 0: all cores
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1024))]
    threads: usize,

    /// auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    device: Device,

    /// Dequantized weights, f32 activations and f64 sums: slow, the reference for everything else
    #[arg(long)]
    pub(super) exact: bool,
}

impl MachineArgs {
    /// How the CPU, which is the only device so far, is to run.
    ///
    /// # Errors
    /// When another device is asked for.
    pub(super) fn cpu_options(&self) -> anyhow::Result<CpuOptions> {
        self.device.resolve()?;
        Ok(CpuOptions { threads: self.threads, exact: self.exact })
    }
}
