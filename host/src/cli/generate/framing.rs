//! The prompt's token ids: as it stands, or as a message inside the model's chat template.

use super::args::PromptArgs;
use crate::cli::UsageError;
use crate::gguf::Gguf;
use crate::tokenizer::{ChatError, ChatTemplate, Message, Tokenizer};

/// Tokenizes the prompt, inside the chat template if one is to be used: with `--chat`, or
/// without `--no-chat` if the model has one and the prompt is plain. A prompt is plain
/// unless it is empty or, with `--special`, spells control tokens: then it has been framed
/// by hand.
///
/// # Errors
/// A [`UsageError`] when the flags ask for a template that is not there, the template refuses
/// the messages, or there is nothing to start from; another error when the template is broken.
pub(super) fn prompt_ids(
    args: &PromptArgs,
    text: &str,
    gguf: &Gguf,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<u32>> {
    let ids = match template(args, text, gguf, tokenizer)? {
        Some(template) => chat_ids(args, text, &template, tokenizer)?,
        None => tokenizer.encode(text, true, args.special),
    };
    if !ids.is_empty() {
        return Ok(ids);
    }
    let bos = tokenizer.bos().ok_or_else(|| {
        UsageError(
            "the prompt is empty and the model has no token to begin a text with: give a prompt".into(),
        )
    })?;
    Ok(vec![bos])
}

fn template(
    args: &PromptArgs,
    text: &str,
    gguf: &Gguf,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Option<ChatTemplate>> {
    if args.no_chat {
        return Ok(None);
    }
    let asked = args.chat || args.system.is_some();
    if !asked && !is_plain(args, text, tokenizer) {
        return Ok(None);
    }
    let template = ChatTemplate::from_gguf(gguf, tokenizer)?;
    if asked && template.is_none() {
        let flag = if args.chat { "--chat" } else { "--system" };
        let message = format!("{flag}: {} has no chat template", gguf.path().display());
        return Err(UsageError(message).into());
    }
    Ok(template)
}

fn is_plain(args: &PromptArgs, text: &str, tokenizer: &Tokenizer) -> bool {
    let spells_control = || tokenizer.encode(text, false, true) != tokenizer.encode(text, false, false);
    let framed_by_hand = args.special && spells_control();
    !text.is_empty() && !framed_by_hand
}

fn chat_ids(
    args: &PromptArgs,
    text: &str,
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<u32>> {
    let message = |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let system = args.system.as_deref().map(|system| message("system", system));
    let messages: Vec<Message> = system.into_iter().chain([message("user", text)]).collect();
    let segments = template.render(&messages, true).map_err(|error| match error {
        ChatError::Refused(reason) => {
            UsageError(format!("the model's chat template refuses the prompt: {reason}")).into()
        }
        error => anyhow::Error::from(error),
    })?;
    if args.special {
        let whole: String = segments.iter().map(|segment| segment.text.as_str()).collect();
        return Ok(tokenizer.encode(&whole, true, true));
    }
    Ok(tokenizer.encode_segments(&segments, true))
}
