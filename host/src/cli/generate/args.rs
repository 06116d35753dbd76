//! The flags of `lanemap generate`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::UsageError;
use crate::cli::machine::{MachineArgs, ModelArgs};
use crate::sampling::{SamplingOptions, Stage, parse_logit_bias, parse_stages};

/// Continue a prompt, or answer it
///
/// The text goes to stdout as it is generated; everything else goes to stderr.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) prompt: PromptArgs,

    #[command(flatten)]
    pub(super) run: RunArgs,

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
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Context in tokens, prompt included; 0: the model's own [default: 4096 or what is needed]
    #[arg(short = 'c', long, visible_alias = "ctx-size", value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new())]
    pub(super) ctx: Option<usize>,

    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Always take the most likely token (the same as --temp 0)
    #[arg(long, conflicts_with = "temp")]
    greedy: bool,

    /// Seed of the random choices; -1: a random one, which is printed
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true, default_value_t = -1)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    seed: i64,

    /// Temperature; 0 or less: greedy
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().temperature)]
    temp: f32,

    /// Keep the K most likely tokens; 0 or less: all
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().top_k)]
    top_k: i32,

    /// Keep the most likely tokens up to this probability mass; 1: all
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().top_p)]
    top_p: f32,

    /// Keep tokens with at least this share of the largest probability; 0: all
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().min_p)]
    min_p: f32,

    /// Keep the most typical tokens up to this probability mass; 1: all
    #[arg(long, visible_alias = "typical-p", value_name = "P", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().typical)]
    typical: f32,

    /// Keep tokens within N standard deviations of the largest logit; 0 or less: all
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().top_n_sigma)]
    top_nsigma: f32,

    /// Chance of dropping all but the least of the tokens above --xtc-threshold
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().xtc_probability)]
    xtc_probability: f32,

    /// Least probability of the tokens that are dropped so; above 0.5: off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().xtc_threshold)]
    xtc_threshold: f32,

    /// Tokens the penalties look back on, prompt included; 0: none, -1: the context
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().repeat_last_n)]
    repeat_last_n: i32,

    /// Divide the logits of tokens that occurred; 1: off
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().repeat_penalty)]
    repeat_penalty: f32,

    /// Lower the logits of tokens that occurred; 0: off
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().presence_penalty)]
    presence_penalty: f32,

    /// Lower the logits of tokens for each time they occurred; 0: off
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    #[arg(default_value_t = defaults().frequency_penalty)]
    frequency_penalty: f32,

    /// Add to the logit of a token, such as 15043+1 or 15043-inf; can be repeated
    #[arg(short = 'l', long, value_name = "TOKEN(+/-)BIAS", value_parser = parse_logit_bias)]
    logit_bias: Vec<(u32, f32)>,

    /// The stages and their order, separated by `;`
    #[arg(long, value_name = "NAMES", default_value_t = stage_names(&defaults().samplers))]
    samplers: String,

    /// Go on where the model would end
    #[arg(long)]
    ignore_eos: bool,
}

fn defaults() -> SamplingOptions {
    SamplingOptions::default()
}

fn stage_names(stages: &[Stage]) -> String {
    let names: Vec<&str> = stages.iter().map(|stage| stage.name()).collect();
    names.join(";")
}

/// What is printed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Tokens to generate at most; -1: until the end or a full context; 0: evaluate the prompt only
    #[arg(short = 'n', long, visible_alias = "predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    n_predict: i64,

    /// End at this text, which is not printed; can be repeated
    #[arg(long, value_name = "STRING", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) stop: Vec<String>,

    /// Print one JSON object (ids, text, stop reason, seed, timings) instead of the text
    #[arg(long)]
    pub(super) json: bool,

    /// Put the K largest logits of each step into the JSON object
    #[arg(long, value_name = "K", default_value_t = 0, requires = "json")]
    pub(super) top_logits: usize,

    /// Print a hash of the logits of all steps: the same one for the same tokens, however the prompt is cut
    #[arg(long)]
    pub(super) logits_hash: bool,

    /// Print the prompt's ids and pieces to stderr
    #[arg(long)]
    pub(super) verbose_prompt: bool,
}

impl Args {
    /// Tokens to generate at most.
    pub(super) fn limit(&self) -> Option<usize> {
        usize::try_from(self.output.n_predict).ok()
    }

    /// The sampling options, checked except for the token ids of the logit bias.
    ///
    /// # Errors
    /// A [`UsageError`] that names the flag.
    pub(super) fn sampling_options(&self) -> Result<SamplingOptions, UsageError> {
        let args = &self.sampling;
        let samplers =
            parse_stages(&args.samplers).map_err(|error| UsageError(format!("--samplers: {error}")))?;
        let options = SamplingOptions {
            seed: u32::try_from(args.seed).ok(),
            temperature: if args.greedy { 0.0 } else { args.temp },
            top_k: args.top_k,
            top_p: args.top_p,
            min_p: args.min_p,
            typical: args.typical,
            top_n_sigma: args.top_nsigma,
            xtc_probability: args.xtc_probability,
            xtc_threshold: args.xtc_threshold,
            repeat_last_n: args.repeat_last_n,
            repeat_penalty: args.repeat_penalty,
            presence_penalty: args.presence_penalty,
            frequency_penalty: args.frequency_penalty,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn options(flags: &[&str]) -> SamplingOptions {
        Cli::try_parse_from([&["generate"], flags].concat()).unwrap().args.sampling_options().unwrap()
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        assert_eq!(options(&[]), SamplingOptions::default());
    }

    #[test]
    fn greedy_leaves_the_penalties_alone() {
        let greedy = SamplingOptions { repeat_penalty: 1.1, ..SamplingOptions::greedy() };
        assert_eq!(options(&["--greedy", "--repeat-penalty", "1.1"]), greedy);
        assert_eq!(options(&["--temp", "0", "--repeat-penalty", "1.1"]), greedy);
    }

    #[test]
    fn each_flag_reaches_its_option() {
        let flags = "-s 4294967295 --temp -1 --top-k -3 --top-p 0.5 --min-p 0.25 --typical 0.75 \
                     --top-nsigma 2 --xtc-probability 0.125 --xtc-threshold 0.2 --repeat-last-n -1 \
                     --repeat-penalty 1.5 --presence-penalty -0.5 --frequency-penalty 0.3 \
                     --logit-bias 5+1 -l 7-inf --samplers temperature;top_k";
        let expected = SamplingOptions {
            seed: Some(u32::MAX),
            temperature: -1.0,
            top_k: -3,
            top_p: 0.5,
            min_p: 0.25,
            typical: 0.75,
            top_n_sigma: 2.0,
            xtc_probability: 0.125,
            xtc_threshold: 0.2,
            repeat_last_n: -1,
            repeat_penalty: 1.5,
            presence_penalty: -0.5,
            frequency_penalty: 0.3,
            logit_bias: vec![(5, 1.0), (7, f32::NEG_INFINITY)],
            samplers: vec![Stage::Temperature, Stage::TopK],
        };
        assert_eq!(options(&flags.split_whitespace().collect::<Vec<_>>()), expected);
    }
}
