//! `lanemap perplexity`: how well a model predicts a text.

mod report;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};
use sha2::{Digest, Sha256};

use self::report::{Compared, Report};
use super::load::ModelFile;
use super::machine::{MachineArgs, ModelArgs};
use super::output::{note, to_stdout};
use super::record::{self, Provenance, RecordArgs};
use super::{UsageError, interrupt, prompt};
use crate::perplexity::{
    Estimate, Header, PerplexityError, Reader, SMALLEST_CONTEXT, Text, Uses, Writer, run as score,
};
use crate::session::Session;
use crate::tokenizer::Tokenizer;

/// Measure how well a model predicts a text: its perplexity, by llama.cpp's definition
///
/// The text is cut into chunks of --ctx tokens, each read from an empty context; the tokens of its second
/// half are scored. Compare only values of the same text and context.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The text (UTF-8; a byte order mark and one line end after all are dropped); -: stdin
    #[arg(value_name = "FILE")]
    text: PathBuf,

    #[command(flatten)]
    model: ModelArgs,

    /// Tokens of a chunk
    #[arg(short = 'c', long, visible_alias = "ctx-size", value_name = "N", default_value = "512")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(SMALLEST_CONTEXT as u64..))]
    ctx: usize,

    /// Score the first N chunks only
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    chunks: Option<usize>,

    #[command(flatten)]
    machine: MachineArgs,

    /// Write the log-probabilities of the scored positions to a file: 4 bytes for each token of the
    /// vocabulary and position
    #[arg(long, value_name = "FILE")]
    save_logits: Option<PathBuf>,

    /// With --save-logits: replace a file that is there
    #[arg(long, requires = "save_logits")]
    force: bool,

    /// Compare with the log-probabilities that another run has written
    #[arg(long, value_name = "FILE")]
    kl: Option<PathBuf>,

    /// Print one JSON object instead of the lines
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    record: RecordArgs,
}

impl Args {
    /// That saving takes nobody's file away.
    fn check_save(&self) -> Result<(), UsageError> {
        let Some(path) = &self.save_logits else { return Ok(()) };
        let name = path.display();
        if path.is_file() && !self.force {
            let message = format!("--save-logits: {name}: there is a file already; --force replaces it");
            return Err(UsageError(message));
        }
        Ok(())
    }
}

/// Runs `lanemap perplexity`.
///
/// # Errors
/// A [`UsageError`] for a text that is too short or not UTF-8, or a file of --save-logits that is there; another
/// error when a file cannot be read or written, or is of another text, or the model cannot be loaded or run.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.machine.check()?;
    let record = args.record.target(&[
        ("the text", Some(&*args.text).filter(|path| path.as_os_str() != "-")),
        ("--model", args.model.named()),
        ("--kl", args.kl.as_deref()),
        ("--save-logits", args.save_logits.as_deref()),
    ])?;
    args.check_save()?;
    let text = prompt::read(None, Some(&args.text))?;
    let base = args.kl.as_deref().map(Reader::open).transpose()?;
    let source = args.model.source()?;
    interrupt::install()?;
    let file = ModelFile::open(source)?;
    let chunks = chunks(args, &text, &file.tokenizer()?)?;
    let model = file.model()?;
    let (vocab_size, models_own) = (model.config().vocab_size, model.config().context_length);
    if args.ctx > models_own {
        note(format_args!(
            "warning: --ctx {} is more than the {models_own} tokens that the model was made for",
            args.ctx
        ));
    }
    if let Some(base) = &base {
        base.fits(&chunks, vocab_size)?;
    }
    let save = args.save_logits.as_deref().map(|path| {
        let text = Sha256::digest(text.as_bytes()).into();
        let header = Header { vocab_size, model: file.gguf.sha256(), text, tokens: chunks.clone() };
        Writer::create(path, &header)
    });
    let save = save.transpose()?;
    let mut session = args.machine.session(&model, args.ctx, 1)?;
    let base_model = base.as_ref().map(|base| base.header().model);
    let mut uses = Uses::new(save, base);

    let started = Instant::now();
    let batch = args.machine.batch.unwrap_or_else(|| session.prompt_rows());
    let losses = score_with_bar(&mut session, &chunks, batch, &mut uses)?;
    let seconds = started.elapsed().as_secs_f64();
    if let Some(file) = uses.save.take() {
        file.finish()?;
    }
    let compared = uses.compare.as_ref().and_then(|(_, divergence)| divergence.summary());
    let compared = args.kl.as_deref().zip(base_model).zip(compared);
    let report = Report {
        model: file.name(),
        architecture: model.config().architecture.name(),
        device: session.device(),
        exact: args.machine.exact,
        text: args.text.display().to_string(),
        context: args.ctx,
        chunks: chunks.chunks(),
        scored_tokens: losses.count(),
        nll: losses.mean(),
        nll_standard_error: losses.standard_error(),
        perplexity: losses.perplexity().0,
        standard_error: losses.perplexity().1,
        seconds,
        compared: compared.map(|((path, model), summary)| Compared::new(path, &model, summary)),
    };
    to_stdout(|out| {
        if args.json {
            serde_json::to_writer(&mut *out, &report)?;
            writeln!(out)
        } else {
            write!(out, "{report}")
        }
    })?;
    let provenance = Provenance {
        command: "perplexity",
        model: &report.model,
        device: &report.device,
        description: &session.description(),
    };
    let lines = record::indented(&report.to_string());
    record::append(record.as_deref(), &provenance, |out| out.write_all(lines.as_bytes()))
}

/// The chunks of a text, as `llama-perplexity` makes them.
fn chunks(args: &Args, text: &str, tokenizer: &Tokenizer) -> anyhow::Result<Text> {
    // llama.cpp drops the line end after the last line of a file.
    let tokens = tokenizer.encode(text.strip_suffix('\n').unwrap_or(text), true, false);
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    Text::new(tokens, args.ctx, bos, args.chunks).map_err(|error| match error {
        PerplexityError::TooShort { .. } => UsageError(format!("{}: {error}", args.text.display())).into(),
        other => other.into(),
    })
}

/// Scores the chunks, with the estimate so far beside a bar on stderr.
fn score_with_bar(
    session: &mut Session,
    chunks: &Text,
    batch: usize,
    uses: &mut Uses,
) -> anyhow::Result<Estimate> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} chunks, {msg}{eta} left")?;
    let bar = ProgressBar::new(chunks.chunks() as u64).with_style(style);
    bar.tick();
    let pool = pool(session)?;
    let losses = score(session, chunks, batch, &pool, uses, &mut |done, losses| {
        bar.set_message(format!("perplexity {:.4}, ", losses.perplexity().0));
        bar.set_position(done as u64);
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    Ok(losses?)
}

/// The threads that take logarithms: those of a model on the CPU were asked for; beside another device all
/// are free.
fn pool(session: &Session) -> anyhow::Result<ThreadPool> {
    let threads = if session.device() == "cpu" { session.threads() } else { 0 };
    ThreadPoolBuilder::new().num_threads(threads).build().context("threads could not be started")
}
