//! `lanemap gate identity`: a greedy stream against a recorded one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::subject::{Opened, SubjectArgs};
use crate::cli::output::to_stdout;
use crate::gate::identity::{self, Baseline, Baselines, Fork, Key, Verdict};
use crate::gate::{passage, tolerance};
use crate::hex::hex;
use crate::pull::cache_folder;
use crate::session::Session;

/// Hold the tokens that a model generates greedily against recorded ones
///
/// The prompt is the beginning of a text that the program carries. A baseline is of one model, device, kinds
/// of activations and build; without one of this build the newest of another is taken, and without any the
/// stream is recorded. At a fork the step, both tokens, the gap between the two largest logits and the drift of
/// the two tokens' logits are printed. It is a knife edge, and no failure, where the gap is smaller than twice the
/// drift and the drift one that `gate tolerance` allows; else it is kernel drift.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    subject: SubjectArgs,

    /// Tokens to generate [default: 32, with --quick 8]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    predict: Option<usize>,

    /// Tokens of the prompt [default: 2048, on the emulator 64, with --quick 32]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    tokens: Option<usize>,

    /// Record the stream, in the place of one with the same key, and compare nothing [default file: as of
    /// --against]
    #[arg(long, value_name = "FILE", conflicts_with = "against", num_args = 0..=1)]
    record: Option<Option<PathBuf>>,

    /// Compare, and fail if there is no baseline [default file: identity.json in the cache folder]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    against: Option<Option<PathBuf>>,
}

/// What was done with the file of baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Compare if there is a baseline, else record.
    Auto,
    /// Record.
    Record,
    /// Compare.
    Against,
}

/// What came of it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Outcome {
    key: Key,
    /// The file of baselines.
    pub(super) file: PathBuf,
    /// The build of the baseline; none if the stream was recorded.
    baseline: Option<String>,
    tokens: Vec<u32>,
    /// None if the stream was recorded.
    pub(super) verdict: Option<Verdict>,
    /// How the stream came to be recorded; none if it was compared.
    recorded: Option<Recorded>,
}

/// How a stream came to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Recorded {
    /// There was nothing to compare it with.
    Missing,
    /// That was asked for.
    Asked,
    /// That was asked for, and this build's own was there.
    Replaced,
}

/// Runs `lanemap gate identity`.
///
/// # Errors
/// A red gate, after the report; no baseline where one was asked for; a model, a device or a file that cannot
/// be had.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (mode, file) = match (&args.record, &args.against) {
        (Some(file), _) => (Mode::Record, file.as_deref()),
        (None, Some(file)) => (Mode::Against, file.as_deref()),
        (None, None) => (Mode::Auto, None),
    };
    let opened = args.subject.open()?;
    let size = (args.tokens, args.predict);
    let outcome = judge(&opened, args.subject.quick, size, mode, file)?;
    to_stdout(|out| {
        if args.subject.json {
            serde_json::to_writer(&mut *out, &outcome)?;
            return writeln!(out);
        }
        writeln!(out, "identity of {} on {}", opened.file.name(), outcome.key.device)?;
        print(out, &outcome)
    })?;
    let is_green = outcome.verdict.as_ref().is_none_or(Verdict::is_green);
    anyhow::ensure!(is_green, "identity is red");
    Ok(())
}

/// The stream, recorded or compared in a file, which is the user's own if none is named.
///
/// # Errors
/// As [`run`], but for a red gate.
pub(super) fn judge(
    opened: &Opened,
    quick: bool,
    (tokens, predict): (Option<usize>, Option<usize>),
    mode: Mode,
    file: Option<&Path>,
) -> anyhow::Result<Outcome> {
    let file = match file {
        Some(file) => file.to_owned(),
        None => {
            let folder = cache_folder()?;
            if mode != Mode::Against {
                // The program's own, which need not be there yet; a folder that the user names must be.
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            }
            folder.join("identity.json")
        }
    };
    let mut baselines = Baselines::read(&file)?;
    let (default_tokens, default_predict) = match (quick, opened.device) {
        (true, _) => (32, 8),
        (false, Some(_)) => (2048, 32),
        (false, None) => (64, 32),
    };
    let generated = predict.unwrap_or(default_predict);
    let room = opened.model.config().context_length.saturating_sub(generated);
    let tokens = tokens.unwrap_or(default_tokens.min(room));
    opened.check_positions(tokens.saturating_add(generated))?;
    let prompt = passage::tokens(&opened.tokenizer, tokens);
    let options = opened.options()?;
    let key = Key {
        model: hex(&opened.file.gguf.sha256()),
        device: format!("{}, {options}", opened.device_name()),
        build: identity::build(),
        prompt_tokens: prompt.len(),
        generated,
    };
    let found = baselines.find(&key);
    if mode == Mode::Against && found.is_none() {
        anyhow::bail!(
            "{} has no baseline of this model, device and size; record one with --record",
            file.display()
        );
    }
    if mode == Mode::Record || found.is_none() {
        Baselines::check_writable(&file)?;
    }
    let mut session = Session::new(opened.on_device(options)?, prompt.len() + generated)?;
    let steps = identity::stream(&mut session, &prompt, generated)?;
    let tokens = steps.iter().map(|step| step.token).collect();
    if let Some(recorded) = found.filter(|_| mode != Mode::Record) {
        let verdict = identity::compare(recorded, &steps, &key.build, tolerance::LIMIT);
        let baseline = Some(recorded.key.build.clone());
        return Ok(Outcome { key, file, baseline, tokens, verdict: Some(verdict), recorded: None });
    }
    let recorded = match (mode, baselines.add(Baseline { key: key.clone(), steps })) {
        (Mode::Record, true) => Recorded::Replaced,
        (Mode::Record, false) => Recorded::Asked,
        (Mode::Auto | Mode::Against, _) => Recorded::Missing,
    };
    baselines.write(&file)?;
    let recorded = Some(recorded);
    Ok(Outcome { key, file, baseline: None, tokens, verdict: None, recorded })
}

/// One word for the table of all gates, and what it means.
pub(super) fn words(outcome: &Outcome) -> (&'static str, String) {
    let of = outcome.baseline.as_deref().unwrap_or_default();
    match &outcome.verdict {
        None => {
            let how = match outcome.recorded {
                Some(Recorded::Replaced) => "the stream takes the place of this build's own in",
                Some(Recorded::Asked) => "the stream is now a baseline in",
                Some(Recorded::Missing) | None => "no baseline was there, the stream is one now, in",
            };
            ("recorded", format!("{how} {}", outcome.file.display()))
        }
        Some(Verdict::Same { drift }) => {
            ("green", format!("{} tokens as {of} had them, drift {drift:.2e}", outcome.tokens.len()))
        }
        Some(Verdict::Unsteady { step }) => {
            ("RED", format!("step {step} is another one, and the build is the same: it is not deterministic"))
        }
        Some(Verdict::Fork(fork)) => {
            let &Fork { step, expected, found, gap, drift, before, is_knife_edge } = fork;
            let drift = drift.map_or_else(
                || "unknown, it was not among the largest".to_owned(),
                |drift| format!("{drift:.4}"),
            );
            let (verdict, name) =
                if is_knife_edge { ("green", "knife edge") } else { ("RED", "kernel drift") };
            let text = format!(
                "fork from {of} at step {step}: token {found} instead of {expected}, gap {gap:.4}, drift {drift}, \
                 before {before:.4}: {name}"
            );
            (verdict, text)
        }
    }
}

fn print(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let Key { model, build, prompt_tokens, generated, .. } = &outcome.key;
    writeln!(out, "model {model}, build {build}, {generated} tokens behind {prompt_tokens}")?;
    let tokens: Vec<_> = outcome.tokens.iter().map(u32::to_string).collect();
    writeln!(out, "tokens {}", tokens.join(" "))?;
    let (verdict, text) = words(outcome);
    writeln!(out, "{verdict}: {text}")
}
