//! Chat templates: from a conversation to the text that the model was trained to continue.
//!
//! A template is a Jinja program that the model file carries (`tokenizer.chat_template`). It is
//! run as Hugging Face runs it, by `minijinja`, with limits on time, memory and depth. What
//! comes out is not one string but [`Segment`]s: the template's own text, whose control tokens
//! count, and text of messages, whose control tokens are only text. [`provenance`] says how the
//! two are told apart.

mod environment;
mod provenance;
#[cfg(test)]
mod tests;

use chrono::{DateTime, Local};
use minijinja::{Environment, Value, context};

use super::{Segment, Tokenizer};
use crate::gguf::{Gguf, GgufError};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or another name that the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The template is not valid Jinja.
    #[error("the model's chat template cannot be read: {0} (--no-chat does without it)")]
    Syntax(String),
    /// The template itself refuses the conversation: the user's error, in the template's words.
    #[error("{0}")]
    Refused(String),
    /// The template failed, or ran into the limits.
    #[error("the model's chat template failed: {0} (--no-chat does without it)")]
    Failed(String),
    /// A role is empty or holds characters that are not of a name.
    #[error("{0:?} is not a role (letters, digits, _ and - only)")]
    Role(String),
    /// The template changes text of messages in a way that cannot be followed.
    #[error(
        "the model's chat template rewrites the text of messages, so what a user typed cannot be told from the \
         template's own text (--no-chat does without it)"
    )]
    Untraceable,
    /// The template's key in the model file is unusable.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

/// A model's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

const NAME: &str = "chat template";

/// Steps that a template may take in any case, and those that a byte of the messages adds. A
/// step is an instruction or 64 bytes of made text, so a template without messages can make at
/// most 64 MB.
const FUEL: u64 = 1_000_000;
const FUEL_PER_BYTE: u64 = 16;

impl ChatTemplate {
    /// The template of a model file, `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`ChatError::Gguf`] if the key is not a string, [`ChatError::Syntax`] if it is no template.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<Self>, ChatError> {
        let name = |id: Option<u32>| {
            let text = id.and_then(|id| tokenizer.piece(id, true)).unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        };
        gguf.str("tokenizer.chat_template")?
            .map(|source| Self::new(source, &name(tokenizer.bos()), &name(tokenizer.eos())))
            .transpose()
    }

    /// A template from its source; `bos` and `eos` are the names of those tokens, which
    /// templates write as `bos_token` and `eos_token`.
    ///
    /// # Errors
    ///
    /// [`ChatError::Syntax`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, ChatError> {
        let mut environment = environment::hugging_face();
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| ChatError::Syntax(error.to_string()))?;
        Ok(Self { environment, source: source.into(), bos: bos.into(), eos: eos.into() })
    }

    /// The text of a conversation; `add_generation_prompt` ends it with the beginning of the
    /// assistant's next turn. Neighbouring segments differ in trust, and none is empty.
    ///
    /// # Errors
    ///
    /// [`ChatError::Refused`] with the template's own words if it does not take this
    /// conversation; else as the variants of [`ChatError`] say.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<Vec<Segment>, ChatError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(message) = messages.iter().find(|m| m.role.is_empty() || !m.role.chars().all(is_name)) {
            return Err(ChatError::Role(message.role.clone()));
        }
        // One time for all passes, so that a template with a date gives the same text in each.
        let now = Local::now();
        let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
        provenance::render(&self.source, &contents, |contents: &[String]| {
            let roles = messages.iter().map(|message| message.role.as_str());
            self.pass(roles.zip(contents), add_generation_prompt, now)
        })
    }

    fn pass<'a>(
        &self,
        messages: impl Iterator<Item = (&'a str, &'a String)>,
        add_generation_prompt: bool,
        now: DateTime<Local>,
    ) -> Result<String, ChatError> {
        let mut bytes = 0;
        let messages: Vec<Value> = messages
            .map(|(role, content)| {
                bytes += content.len() as u64;
                context! { role, content }
            })
            .collect();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(bytes.saturating_mul(FUEL_PER_BYTE))));
        environment
            .get_template(NAME)
            .and_then(|template| {
                template.render(context! {
                    messages,
                    add_generation_prompt,
                    bos_token => self.bos.as_str(),
                    eos_token => self.eos.as_str(),
                    // Always there in Hugging Face's runs; templates ask `is none`.
                    tools => Value::from(()),
                    documents => Value::from(()),
                    strftime_now => environment::strftime(now),
                })
            })
            .map_err(|error| match environment::refusal(&error) {
                Some(words) => ChatError::Refused(words),
                None => ChatError::Failed(error.to_string()),
            })
    }
}
