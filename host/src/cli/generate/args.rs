//! The flags of `lanemap generate`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::cli::UsageError;
use crate::cli::device::Device;
use crate::sampling::{SamplingOptions, parse_logit_bias, parse_stages};

/// Continue a prompt, or answer it
///
/// The text goes to stdout as it is generated; everything else goes to stderr.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) prompt: PromptArgs,

    /// Tokens to generate at most; -1: until the end or a full context; 0: evaluate the prompt only
    #[arg(short = 'n', long, visible_alias = "predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    n_predict: i64,

    /// End at this text, which is not printed; can be repeated
    #[arg(long, value_name = "STRING", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) stop: Vec<String>,

    #[command(flatten)]
    pub(super) machine: MachineArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// What is asked.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub(super) struct PromptArgs {
    /// The prompt; without it and without --file it is read from stdin
    #[arg(value_name = "PROMPT", conflicts_with = "option")]
    argument: Option<OsString>,

    /// The prompt, as an option
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", allow_hyphen_values = true)]
    option: Option<OsString>,

    /// Read the prompt from a file (UTF-8; taken as it is, a byte order mark aside); -: stdin
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["argument", "option"])]
    pub(super) file: Option<PathBuf>,

    /// Use the model's chat template, or fail if it has none [default: use it if there is one]
    #[arg(long)]
    pub(super) chat: bool,

    /// Continue the prompt as it stands, without the chat template
    #[arg(long, conflicts_with = "chat")]
    pub(super) no_chat: bool,

    /// The system message of the chat
    #[arg(long, value_name = "TEXT", conflicts_with = "no_chat", allow_hyphen_values = true)]
    pub(super) system: Option<String>,

    /// Read control tokens written in the prompt as such, and print those that are generated
    #[arg(long)]
    pub(super) special: bool,
}

impl PromptArgs {
    pub(super) fn given(&self) -> Option<&OsString> {
        self.argument.as_ref().or(self.option.as_ref())
    }
}

/// What runs it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model and machine")]
pub(super) struct MachineArgs {
    /// The GGUF file [default: the demo model, fetched on first use]
    #[arg(short = 'm', long, value_name = "FILE")]
    pub(super) model: Option<PathBuf>,

    /// Context in tokens, prompt included; 0: the model's own [default: 4096 or what is needed]
    #[arg(short = 'c', long, visible_alias = "ctx-size", value_name = "N")]
    pub(super) ctx: Option<usize>,

    /// Prompt tokens in one pass; does not change the result
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N", default_value = "512")]
    pub(super) batch: NonZeroUsize,

    /// CPU threads; 0: all cores
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1024))]
    pub(super) threads: usize,

    /// auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    pub(super) device: Device,

    /// Dequantized weights, f32 activations and f64 sums: slow, the reference for everything else
    #[arg(long)]
    pub(super) exact: bool,
}

/// How tokens are chosen. What is not given has [`SamplingOptions`]'s default, which the
/// help repeats; a test holds the two together.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Always take the most likely token (the same as --temp 0)
    #[arg(long, conflicts_with = "temp")]
    greedy: bool,

    /// Seed of the random choices; -1: a random one, which is printed [default: -1]
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    seed: Option<i64>,

    /// Temperature; 0 or less: greedy [default: 0.8]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,

    /// Keep the K most likely tokens; 0 or less: all [default: 40]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<i32>,

    /// Keep the most likely tokens up to this probability mass; 1: all [default: 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// Keep tokens with at least this share of the largest probability; 0: all [default: 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,

    /// Keep the most typical tokens up to this probability mass; 1: all [default: 1]
    #[arg(long, visible_alias = "typical-p", value_name = "P", allow_negative_numbers = true)]
    typical: Option<f32>,

    /// Keep tokens within N standard deviations of the largest logit; 0 or less: all [default: -1]
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", allow_negative_numbers = true)]
    top_nsigma: Option<f32>,

    /// Chance of dropping all but the least of the tokens above --xtc-threshold [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    xtc_probability: Option<f32>,

    /// Least probability of the tokens that are dropped so; above 0.5: off [default: 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    xtc_threshold: Option<f32>,

    /// Tokens the penalties look back on, prompt included; 0: none, -1: the context [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    repeat_last_n: Option<i32>,

    /// Divide the logits of tokens that occurred; 1: off [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,

    /// Lower the logits of tokens that occurred; 0: off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,

    /// Lower the logits of tokens for each time they occurred; 0: off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,

    /// Add to the logit of a token, such as 15043+1 or 15043-inf; can be repeated
    #[arg(short = 'l', long, value_name = "TOKEN(+/-)BIAS", value_parser = parse_logit_bias)]
    logit_bias: Vec<(u32, f32)>,

    /// The stages and their order, separated by `;` [default: penalties;top_n_sigma;top_k;typ_p;
    /// top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES")]
    samplers: Option<String>,

    /// Go on where the model would end
    #[arg(long)]
    ignore_eos: bool,
}

/// What is printed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Print one JSON object (ids, text, stop reason, seed, timings) instead of the text
    #[arg(long)]
    pub(super) json: bool,

    /// Put the K largest logits of each step into the JSON object
    #[arg(long, value_name = "K", default_value_t = 0, requires = "json")]
    pub(super) top_logits: usize,

    /// Print the prompt's ids and pieces to stderr
    #[arg(long)]
    pub(super) verbose_prompt: bool,
}

impl Args {
    /// Tokens to generate at most.
    pub(super) fn limit(&self) -> Option<usize> {
        usize::try_from(self.n_predict).ok()
    }

    /// The sampling options, checked except for the token ids of the logit bias.
    ///
    /// # Errors
    /// A [`UsageError`] that names the flag.
    pub(super) fn sampling_options(&self) -> Result<SamplingOptions, UsageError> {
        let args = &self.sampling;
        let defaults = SamplingOptions::default();
        let samplers = match &args.samplers {
            Some(text) => parse_stages(text).map_err(|error| UsageError(format!("--samplers: {error}")))?,
            None => defaults.samplers,
        };
        let options = SamplingOptions {
            seed: args.seed.and_then(|seed| u32::try_from(seed).ok()),
            temperature: if args.greedy { 0.0 } else { args.temp.unwrap_or(defaults.temperature) },
            top_k: args.top_k.unwrap_or(defaults.top_k),
            top_p: args.top_p.unwrap_or(defaults.top_p),
            min_p: args.min_p.unwrap_or(defaults.min_p),
            typical: args.typical.unwrap_or(defaults.typical),
            top_n_sigma: args.top_nsigma.unwrap_or(defaults.top_n_sigma),
            xtc_probability: args.xtc_probability.unwrap_or(defaults.xtc_probability),
            xtc_threshold: args.xtc_threshold.unwrap_or(defaults.xtc_threshold),
            repeat_last_n: args.repeat_last_n.unwrap_or(defaults.repeat_last_n),
            repeat_penalty: args.repeat_penalty.unwrap_or(defaults.repeat_penalty),
            presence_penalty: args.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: args.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            logit_bias: args.logit_bias.clone(),
            samplers,
        };
        options.validate(usize::MAX).map_err(|error| UsageError(error.to_string()))?;
        Ok(options)
    }

    /// Whether end-of-generation tokens are never to be chosen.
    pub(super) fn ignore_eos(&self) -> bool {
        self.sampling.ignore_eos
    }
}
