//! `lanemap generate`: text from a model.

mod args;
mod console;
mod framing;
mod generation;
mod report;
mod stop;

use std::time::Instant;

use anyhow::Context;
use tracing::info;

pub use args::Args;

use self::console::Console;
use self::generation::{GenerationError, Request};
use self::report::{Report, Timings};
use super::load::ModelFile;
use super::output::{note, to_stdout, unless_closed};
use super::tokenize::piece;
use super::{UsageError, interrupt, prompt};
use crate::sampling::{Sampler, SamplingOptions};
use crate::tokenizer::Tokenizer;

/// The context that is used unless more is needed or another one is asked for: enough for a
/// conversation, and small enough for any machine.
const DEFAULT_CONTEXT: usize = 4096;

/// Room that a prompt leaves for the answer where neither has a stated length.
const ANSWER_ROOM: usize = 1024;

/// Runs `lanemap generate`.
///
/// # Errors
/// A [`UsageError`] when a flag or the prompt is refused; another error when the model cannot
/// be loaded or run, or the text cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = args.sampling_options()?;
    args.run.machine.check()?;
    let text = prompt::read(args.prompt.given().map(AsRef::as_ref), args.prompt.file.as_deref())?;
    let source = args.run.model.source()?;
    interrupt::install()?;

    let mut console = Console::new(!args.output.json);
    let started = Instant::now();
    let file = ModelFile::open(source)?;
    let tokenizer = file.tokenizer()?;
    let model = file.model()?;
    let config = model.config();
    console.loaded();

    let ids = framing::prompt_ids(&args.prompt, &text, &file.gguf, &tokenizer)?;
    if args.output.verbose_prompt {
        note_pieces(&ids, &tokenizer);
    }
    let context = context_length(args.run.ctx, config.context_length, ids.len(), args.limit())?;
    let mut sampler = sampler(args, options, &tokenizer, config.vocab_size, context)?;
    let mut session = args.run.machine.session(&model, context, 1)?;
    let load = started.elapsed();
    info!("{}, context {context}", session.description());

    let request = Request {
        prompt: &ids,
        limit: args.limit(),
        batch: args.run.machine.batch.unwrap_or_else(|| session.prompt_rows()),
        stop: &args.output.stop,
        special: args.prompt.special,
        top_logits: args.output.top_logits,
        hash_logits: args.output.logits_hash,
    };
    let result = generation::generate(&mut session, &tokenizer, &mut sampler, &request, &mut console)
        .and_then(|done| console.finish().map(|()| done).map_err(GenerationError::Output));
    let (generation, stop_reason) = match result {
        Err(GenerationError::Output(error)) => {
            // Whoever closed the pipe has read enough.
            return unless_closed(Err(error)).context("cannot write to standard output");
        }
        result => result?,
    };

    let timings = Timings::new(load, &generation);
    note(&timings);
    note(format_args!("stopped: {stop_reason}"));
    if let Some(hash) = &generation.logits_hash {
        note(format_args!("logits:  sha256 {hash}"));
    }
    if !args.output.json {
        return Ok(());
    }
    let report = Report {
        model: file.name(),
        architecture: config.architecture.name(),
        device: session.device(),
        exact: args.run.machine.exact,
        context,
        seed: sampler.seed(),
        prompt_ids: &ids,
        generated_ids: &generation.ids,
        text: &generation.text,
        stop_reason,
        timings,
        top_logits: &generation.top_logits,
        logits_hash: generation.logits_hash.as_deref(),
    };
    to_stdout(|out| {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)
    })
}

/// The sampler, with the tokens that end a generation excluded where that was asked for. Says
/// which seed is in use.
fn sampler(
    args: &Args,
    mut options: SamplingOptions,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    context: usize,
) -> anyhow::Result<Sampler> {
    if args.ignore_eos() {
        let all = 0..u32::try_from(vocab_size).unwrap_or(u32::MAX);
        let ends = all.filter(|&id| tokenizer.is_end_of_generation(id));
        options.logit_bias.extend(ends.map(|id| (id, f32::NEG_INFINITY)));
    }
    options.validate(vocab_size).map_err(|error| UsageError(error.to_string()))?;
    let draws = !options.is_greedy();
    let sampler = Sampler::new(options, vocab_size, context)?;
    if draws {
        note(format_args!("seed: {}", sampler.seed()));
    }
    Ok(sampler)
}

/// Tokens that the context is to hold.
///
/// # Errors
/// When the prompt is longer.
fn context_length(
    asked: Option<usize>,
    models_own: usize,
    prompt: usize,
    limit: Option<usize>,
) -> Result<usize, UsageError> {
    let context = match asked {
        Some(0) => models_own,
        Some(asked) => asked,
        None => {
            let needed = prompt.saturating_add(limit.unwrap_or(ANSWER_ROOM));
            models_own.min(DEFAULT_CONTEXT.max(needed))
        }
    };
    if prompt > context {
        return Err(UsageError(format!(
            "the prompt has {prompt} tokens, but the context holds {context}: shorten the prompt or raise --ctx \
             (the model's own context is {models_own})"
        )));
    }
    if context > models_own {
        note(format_args!(
            "warning: --ctx {context} is more than the {models_own} tokens that the model was made for"
        ));
    }
    Ok(context)
}

fn note_pieces(ids: &[u32], tokenizer: &Tokenizer) {
    for &id in ids {
        note(format_args!("{id:7} {}", piece(tokenizer, id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_the_models_or_what_is_needed() {
        let length = |asked, own, prompt, limit| context_length(asked, own, prompt, limit).ok();
        assert_eq!(length(None, 2048, 10, None), Some(2048));
        assert_eq!(length(None, 32768, 10, None), Some(4096));
        assert_eq!(length(None, 32768, 5000, Some(100)), Some(5100));
        assert_eq!(length(None, 32768, 5000, None), Some(6024));
        assert_eq!(length(None, 32768, 5000, Some(usize::MAX)), Some(32768));
        assert_eq!(length(Some(0), 32768, 10, Some(5)), Some(32768));
        assert_eq!(length(Some(64), 32768, 64, Some(5)), Some(64));
        assert_eq!(length(Some(64), 32768, 65, Some(5)), None);
        assert_eq!(length(None, 2048, 2049, Some(0)), None);
    }

    #[test]
    fn a_prompt_that_is_too_long_is_told_with_both_numbers() {
        let message =
            context_length(Some(64), 2048, 65, None).map_or_else(|e| e.to_string(), |_| String::new());
        assert!(message.contains("65") && message.contains("64") && message.contains("2048"), "{message}");
    }
}
