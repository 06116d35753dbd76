//! The flags that say which model runs, and on what.

use std::path::PathBuf;
use std::sync::Arc;

use super::device::Device;
use super::pull;
use crate::backend::Backend;
use crate::cpu::{CpuBackend, CpuOptions};
use crate::model::Model;

/// Which model.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    /// The GGUF file [default: the demo model, fetched on first use]
    #[arg(short = 'm', long, value_name = "FILE")]
    model: Option<PathBuf>,
}

impl ModelArgs {
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
    /// That the device is there, before anything slow is begun.
    ///
    /// # Errors
    /// When it is not, or cannot run what is asked.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.device.resolve().map(drop)
    }

    /// The same as another lanemap takes it.
    pub(super) fn flags(&self) -> Vec<String> {
        let Self { batch, threads, device, exact } = self;
        let mut flags = vec![format!("-b{batch}"), format!("-t{threads}"), format!("--device={device}")];
        flags.extend(exact.then(|| "--exact".to_owned()));
        flags
    }

    /// The model on the device that is asked for.
    ///
    /// # Errors
    /// When the device cannot run it.
    pub(super) fn backend(&self, model: Arc<Model>) -> anyhow::Result<Box<dyn Backend>> {
        self.device.resolve()?;
        let options = CpuOptions { threads: self.threads, exact: self.exact };
        Ok(Box::new(CpuBackend::new(model, options)?))
    }
}
