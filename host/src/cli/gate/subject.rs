//! The models that gates of whole models run: on a GPU or the emulator, and on the CPU.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cli::UsageError;
use crate::cli::device::{Device as Choice, Emulator};
use crate::cli::load::ModelFile;
use crate::cli::machine::ModelArgs;
use crate::cpu::{Arithmetic, CpuBackend, CpuOptions};
use crate::cuda::backend::{GpuBackend, GpuOptions};
use crate::cuda::{Device, Emulated};
use crate::model::Model;
use crate::tokenizer::Tokenizer;

/// Which model, and where it is judged.
#[derive(Debug, clap::Args)]
pub(super) struct SubjectArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// auto (the first GPU, else the emulator), emulator, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    pub(super) device: Choice<Emulator>,

    /// Fewer and shorter prompts: seconds on the emulator with a small model
    #[arg(long)]
    pub(super) quick: bool,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(super) json: bool,
}

/// How the reference runs.
#[derive(Debug, clap::Args)]
pub(super) struct ReferenceArgs {
    /// CPU threads of the reference; 0: all cores
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1024))]
    pub(super) threads: usize,
}

/// An open model, and the device that it is judged on.
pub(super) struct Opened {
    pub(super) file: ModelFile,
    pub(super) model: Arc<Model>,
    pub(super) tokenizer: Tokenizer,
    pub(super) device: Option<Device>,
}

impl SubjectArgs {
    /// Opens both, the device first.
    ///
    /// # Errors
    /// When either cannot be had.
    pub(super) fn open(&self) -> anyhow::Result<Opened> {
        let device = self.device.gpu()?;
        let file = ModelFile::open(self.model.source()?)?;
        let (model, tokenizer) = (file.model()?, file.tokenizer()?);
        Ok(Opened { file, model, tokenizer, device })
    }
}

impl Opened {
    /// The device's name.
    pub(super) fn device_name(&self) -> String {
        self.device.map_or_else(|| "the emulator".to_owned(), |device| device.description().name.clone())
    }

    /// The model on the device.
    ///
    /// # Errors
    /// When it cannot run it.
    pub(super) fn on_device(&self, options: GpuOptions) -> anyhow::Result<Box<dyn Backend>> {
        let model = Arc::clone(&self.model);
        let progress = &mut |_, _| ();
        Ok(match self.device {
            Some(device) => Box::new(GpuBackend::new(device.stream()?, model, options, progress)?),
            None => Box::new(GpuBackend::new(Emulated::new(), model, options, progress)?),
        })
    }

    /// That the model's context has so many positions.
    ///
    /// # Errors
    /// A [`UsageError`] if not.
    pub(super) fn check_positions(&self, positions: usize) -> Result<(), UsageError> {
        let context = self.model.config().context_length;
        if positions <= context {
            return Ok(());
        }
        let message = format!(
            "{positions} positions do not fit into the model's context of {context}: ask for fewer tokens"
        );
        Err(UsageError(message))
    }

    /// What the device runs models with, unless it is told otherwise.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) fn options(&self) -> anyhow::Result<GpuOptions> {
        Ok(match self.device {
            Some(device) => GpuOptions::fastest(&device.stream()?),
            None => GpuOptions::default(),
        })
    }

    /// The model on the CPU, on so many threads; 0: all cores.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub(super) fn on_cpu(&self, threads: usize, arithmetic: Arithmetic) -> anyhow::Result<Box<dyn Backend>> {
        let options = CpuOptions { threads, arithmetic };
        Ok(Box::new(CpuBackend::new(Arc::clone(&self.model), options)?))
    }
}
