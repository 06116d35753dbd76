//! The flags that say which model runs, and on what.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use indicatif::{ProgressBar, ProgressStyle};
use tracing::info;

use super::device::{Chosen, Cpu, Device};
use super::load::Source;
use super::output::note;
use super::{UsageError, pull};
use crate::backend::{Backend, BackendError};
use crate::cpu::{Arithmetic, CpuBackend, CpuOptions};
use crate::cuda::backend::{ActivationKind, GpuBackend, GpuOptions};
use crate::cuda::{self, ModelQueue};
use crate::model::Model;
use crate::session::Session;
use crate::synth::Spec;

/// The bar of an upload.
const UPLOAD: &str = "weights {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";

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

    /// The file that is named.
    pub(super) fn named(&self) -> Option<&Path> {
        self.file.model.as_deref()
    }

    /// The same as another lanemap takes it, and its name.
    ///
    /// # Errors
    /// When the demo model cannot be fetched.
    pub(super) fn flags(&self) -> anyhow::Result<([OsString; 2], String)> {
        Ok(match self.source()? {
            Source::File(path) => (["-m".into(), path.clone().into()], path.display().to_string()),
            Source::Synth(spec) => (["--synth".into(), spec.to_string().into()], spec.to_string()),
        })
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
    /// Prompt tokens in one pass; does not change the result [default: what is fastest]
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(super) batch: Option<usize>,

    /// CPU threads; 0: all cores
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1024))]
    threads: usize,

    /// auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    device: Device,

    /// What products with quantized weights read on a GPU; auto: f16 in prompts (f16-wgmma on compute
    /// capability 9.0), q8 in generated tokens (f16-splitk there for more than two sequences)
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Activations::Auto)]
    activations: Activations,

    /// Dequantized weights, f32 activations and f64 sums: slow, the reference for everything else
    #[arg(long)]
    pub(super) exact: bool,
}

/// `--activations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activations {
    /// The faster one.
    Auto,
    /// These, in every session.
    Kind(ActivationKind),
}

impl clap::ValueEnum for Activations {
    fn value_variants<'a>() -> &'a [Self] {
        use ActivationKind::{F16, F16SplitK, F16Wgmma, Q8};
        &[Self::Auto, Self::Kind(F16), Self::Kind(F16Wgmma), Self::Kind(F16SplitK), Self::Kind(Q8)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let Self::Kind(kind) = self else {
            return Some(PossibleValue::new("auto").help("The faster one"));
        };
        let help = match kind {
            ActivationKind::F16 => "16-bit floats, by products that every device has",
            ActivationKind::F16Wgmma => "16-bit floats, in prompts by the products of compute capability 9.0",
            ActivationKind::F16SplitK => {
                "16-bit floats, by the products of compute capability 9.0 in prompts and in generated tokens: for many \
                 sequences, slow for one"
            }
            ActivationKind::Q8 => "Pairs of 8-bit quants: for generated tokens, slow in prompts",
        };
        Some(PossibleValue::new(kind.name()).help(help))
    }
}

impl Activations {
    /// What a GPU's backend makes of it.
    pub(super) fn options(self, queue: &impl ModelQueue) -> GpuOptions {
        match self {
            Self::Auto => GpuOptions::fastest(queue),
            Self::Kind(prompt @ ActivationKind::F16Wgmma) => GpuOptions::steady(prompt, ActivationKind::F16),
            Self::Kind(step @ ActivationKind::F16SplitK) => {
                GpuOptions::steady(ActivationKind::F16Wgmma, step)
            }
            Self::Kind(kind) => GpuOptions::steady(kind, kind),
        }
    }
}

impl MachineArgs {
    /// The device, before anything slow is begun. Says why `auto` is not a GPU that is there.
    ///
    /// # Errors
    /// When it is not there, or cannot run what is asked.
    pub(super) fn check(&self) -> anyhow::Result<Chosen> {
        if self.activations != Activations::Auto && (self.exact || self.device == Device::StandIn(Cpu)) {
            let mode = if self.exact { "--exact" } else { "--device cpu" };
            let message = format!("--activations is for GPUs: leave it out with {mode}");
            return Err(UsageError(message).into());
        }
        if self.exact {
            return match self.device {
                Device::Auto | Device::StandIn(Cpu) => Ok(Chosen::Cpu),
                Device::Cuda(_) => Err(UsageError(format!(
                    "--exact is a mode of the CPU, not of --device {}: use --device cpu",
                    self.device
                ))
                .into()),
            };
        }
        self.device.resolve()
    }

    /// The same as another lanemap takes it.
    pub(super) fn flags(&self) -> Vec<String> {
        let Self { batch, threads, device, activations, exact } = self;
        let mut flags = vec![format!("-t{threads}"), format!("--device={device}")];
        flags.extend(batch.map(|batch| format!("-b{batch}")));
        flags.extend(exact.then(|| "--exact".to_owned()));
        // Left out where it is the default: a lanemap may not have it yet.
        let kind = activations.to_possible_value().filter(|_| *activations != Activations::Auto);
        flags.extend(kind.map(|kind| format!("--activations={}", kind.get_name())));
        flags
    }

    /// A session of the model on the device that is asked for, with room for `sequences` sequences of `context`
    /// positions. Where that is `auto` and a GPU lacks the kernels or the memory, on the CPU, which is said.
    ///
    /// # Errors
    /// When the device cannot run it.
    pub(super) fn session(
        &self,
        model: &Arc<Model>,
        context: usize,
        sequences: usize,
    ) -> anyhow::Result<Session> {
        if let Chosen::Cuda(device) = self.check()? {
            let made = self
                .on_gpu(device, model)
                .and_then(|backend| Session::with_sequences(backend, context, sequences));
            match made {
                Err(
                    error @ (BackendError::Unsupported { .. }
                    | BackendError::DeviceMemory { .. }
                    | BackendError::Device(cuda::Error::OutOfMemory { .. })),
                ) if self.device == Device::Auto && self.activations == Activations::Auto => {
                    note(format_args!("warning: the CPU runs the model: {error}"));
                }
                made => return Ok(made?),
            }
        }
        if self.activations != Activations::Auto {
            note(format_args!("warning: --activations has no meaning on the CPU"));
        }
        let options = CpuOptions { threads: self.threads, arithmetic: Arithmetic::exact_if(self.exact) };
        let backend = CpuBackend::new(Arc::clone(model), options)?;
        Ok(Session::with_sequences(Box::new(backend), context, sequences)?)
    }

    /// The model on a GPU, its weights uploaded behind a bar.
    fn on_gpu(&self, device: cuda::Device, model: &Arc<Model>) -> Result<Box<dyn Backend>, BackendError> {
        let stream = device.stream()?;
        let options = self.activations.options(&stream);
        let started = Instant::now();
        let style = ProgressStyle::with_template(UPLOAD).expect("a template of this program");
        let bar = ProgressBar::no_length().with_style(style);
        let mut progress = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let made = GpuBackend::new(stream, Arc::clone(model), options, &mut progress);
        let (bytes, seconds) = (bar.position() as f64, started.elapsed().as_secs_f64());
        bar.finish_and_clear();
        let backend = made?;
        info!(
            "weights: {:.2} GB to {} in {seconds:.2} s, {:.1} GB/s",
            bytes / 1e9,
            backend.device(),
            bytes / seconds / 1e9
        );
        Ok(Box::new(backend))
    }
}
