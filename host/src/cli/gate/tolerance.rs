//! `lanemap gate tolerance`: whole models against the CPU's exact mode.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::subject::{Opened, ReferenceArgs, SubjectArgs};
use crate::cli::UsageError;
use crate::cli::output::to_stdout;
use crate::cpu::Arithmetic;
use crate::cuda::backend::{ActivationKind, GpuOptions};
use crate::gate::compare::{Flip, Summary};
use crate::gate::passage::Passage;
use crate::gate::tolerance::{self, CLEAR_GAP, DRAWS, Line, Make, Role, Subject, Tolerance, kept_bytes};
use crate::session::Session;

/// Hold a model on a GPU, or on the emulator, against the CPU's exact mode
///
/// On passages of a text: the largest difference of two logits and the root of the mean square, the
/// Kullback-Leibler divergence, where another token has the largest logit, and how often a draw at
/// temperature 0.8 gives the same token. A control group shows what differences that are known to be benign
/// come to: the other kind of activations, the CPU's 8-bit mode, f16 rounding on the CPU, and other chunks of a
/// prompt, which must give the same bits. A logit may be off by 0.1, or by twice what f16 rounding on the CPU
/// comes to where that is more.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    subject: SubjectArgs,

    #[command(flatten)]
    reference: ReferenceArgs,

    #[command(flatten)]
    size: SizeArgs,
}

/// The most that the reference's logits may take.
const KEPT_BYTES: u64 = 8_000_000_000;

/// How much is compared.
#[derive(Debug, Default, clap::Args)]
pub(super) struct SizeArgs {
    /// Passages [default: 4; on the emulator, and with --quick, 2]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    passages: Option<usize>,

    /// Tokens of each passage's prompt [default: 64, on the emulator 24, with --quick 12]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    tokens: Option<usize>,

    /// Tokens that are evaluated one at a time behind it [default: 16, on the emulator 6, with --quick 3]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    steps: Option<usize>,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..=1 << 20)
}

/// The report of `--json`.
#[derive(serde::Serialize)]
struct Report<'a> {
    model: String,
    device: &'a str,
    green: bool,
    red: &'a [String],
    #[serde(flatten)]
    tolerance: &'a Tolerance,
}

/// Runs `lanemap gate tolerance`.
///
/// # Errors
/// A red gate, after the table; a model or a device that cannot be had or fails.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = args.subject.open()?;
    let tolerance = judge(&opened, args.subject.quick, &args.reference, &args.size)?;
    let (device, red) = (opened.device_name(), tolerance.red());
    to_stdout(|out| {
        if args.subject.json {
            let (model, green) = (opened.file.name(), red.is_empty());
            let report = Report { model, device: &device, green, red: &red, tolerance: &tolerance };
            serde_json::to_writer(&mut *out, &report)?;
            return writeln!(out);
        }
        writeln!(out, "tolerance of {} on {device}, against the CPU's exact mode\n", opened.file.name())?;
        table(out, &tolerance)
    })?;
    anyhow::ensure!(red.is_empty(), "tolerance is red: {}", red[0]);
    Ok(())
}

/// Plays the passages on the device, on the control group and on the reference.
///
/// # Errors
/// When the model cannot be run.
pub(super) fn judge(
    opened: &Opened,
    quick: bool,
    &ReferenceArgs { threads }: &ReferenceArgs,
    size: &SizeArgs,
) -> anyhow::Result<Tolerance> {
    let draws = if quick { 1 } else { DRAWS };
    let (passages, tokens, steps) = match (quick, opened.device) {
        (true, _) => (2, 12, 3),
        (false, Some(_)) => (4, 64, 16),
        (false, None) => (2, 24, 6),
    };
    let passages = size.passages.unwrap_or(passages);
    let (tokens, steps) = (size.tokens.unwrap_or(tokens), size.steps.unwrap_or(steps));
    let context = tokens + steps;
    opened.check_positions(context)?;
    let kept = kept_bytes(passages, context, opened.model.config().vocab_size);
    if kept > KEPT_BYTES {
        let message = format!(
            "{passages} passages of {context} tokens: the reference's logits take {:.1} GB, at most {:.1}: take \
             fewer --passages, --tokens or --steps",
            kept as f64 / 1e9,
            KEPT_BYTES as f64 / 1e9
        );
        return Err(UsageError(message).into());
    }
    let passages = Passage::some(&opened.tokenizer, passages, [tokens, steps]);
    let options = opened.options()?;
    let mut reference = Session::new(opened.on_cpu(threads, Arithmetic::Exact)?, context)?;
    let device = |options: GpuOptions| -> Box<Make<'_>> {
        Box::new(move || Ok(Session::new(opened.on_device(options)?, context)?))
    };
    let other = |kind| match kind {
        ActivationKind::F16 => ActivationKind::Q8,
        ActivationKind::Q8 | ActivationKind::F16Wgmma | ActivationKind::F16SplitK => ActivationKind::F16,
    };
    let named = |role: &str, options: GpuOptions| format!("{role}: {options}");
    let one = GpuOptions::steady(options.prompt, options.step);
    let many = GpuOptions::steady(options.prompt, options.step_of_many);
    let exchanged = GpuOptions::steady(other(options.prompt), other(options.step));
    let mut subjects = vec![
        Subject { name: named("the device", one), session: device(one), role: Role::Judged },
        Subject { name: named("control", exchanged), session: device(exchanged), role: Role::Control },
        Subject {
            name: "control: the CPU's 8-bit mode".to_owned(),
            session: Box::new(|| Ok(Session::new(opened.on_cpu(threads, Arithmetic::EightBit)?, context)?)),
            role: Role::Control,
        },
    ];
    // What sessions for many sequences read, if that is something else.
    if many != one {
        let name = named("the device, many sequences", many);
        subjects.insert(1, Subject { name, session: device(many), role: Role::Judged });
    }
    subjects.extend((0..draws).map(|draw| Subject {
        name: format!("control: f16 rounding on the CPU, draw {draw}"),
        session: Box::new(move || {
            Ok(Session::new(opened.on_cpu(threads, Arithmetic::Half { draw })?, context)?)
        }),
        role: Role::Yardstick,
    }));
    let bar = ProgressBar::new((subjects.len() * passages.len()) as u64);
    bar.set_style(ProgressStyle::with_template(
        "{wide_bar} {pos}/{len} passages of all models, {elapsed} so far",
    )?);
    bar.tick();
    let result =
        tolerance::run(&mut reference, &subjects, &passages, &mut |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    Ok(result?)
}

/// Two lines a subject, then the flips, then what is red.
pub(super) fn table(out: &mut dyn Write, tolerance: &Tolerance) -> io::Result<()> {
    writeln!(
        out,
        "| what | phase | positions | max abs | limit | RMS | KL mean | KL max | same argmax | same draw at 0.8 | verdict |"
    )?;
    writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")?;
    for line in &tolerance.lines {
        let Line { name, phase, limit, comparison } = line;
        let Summary { positions, largest, rms, kl_mean, kl_max, same_argmax, same_sample, .. } = comparison;
        let (limit, verdict) = match (limit, line.red()) {
            (None, _) => ("-".to_owned(), "-"),
            (Some(limit), None) => (format!("{limit:.4}"), "green"),
            (Some(limit), Some(_)) => (format!("{limit:.4}"), "RED"),
        };
        writeln!(
            out,
            "| {name} | {phase} | {positions} | {:.2e} | {limit} | {rms:.2e} | {kl_mean:.2e} | {kl_max:.2e} \
             | {same_argmax} | {same_sample} | {verdict} |",
            largest.delta
        )?;
    }
    writeln!(out)?;
    for line in &tolerance.lines {
        for flip in &line.comparison.flips {
            let &Flip { passage, position, expected, found, gap, drift } = flip;
            let why = match (gap > CLEAR_GAP, flip.is_knife_edge()) {
                (true, _) => "a clear lead",
                (false, true) => "knife edge",
                (false, false) => "drift",
            };
            writeln!(
                out,
                "{}, {}, passage {passage}, position {position}: token {found} instead of {expected}, which \
                 leads by {gap:.4}; drift {drift:.4}: {why}",
                line.name, line.phase
            )?;
        }
    }
    match &tolerance.chunks {
        None => writeln!(out, "the same bits with the prompt cut into other chunks")?,
        Some(_) => writeln!(out, "OTHER BITS with the prompt cut into other chunks")?,
    }
    tolerance.red().iter().try_for_each(|red| writeln!(out, "RED {red}"))
}
