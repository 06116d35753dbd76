//! Text to token ids and back, and chat templates.
//!
//! Two algorithms: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece-style
//! (`llama`). Both follow llama.cpp, and the ids of the two demo models are held against ids
//! recorded with it; of the other word rules only the cuts are checked, against the published
//! patterns. They depart from it in two places, for the same reason: text that a user typed
//! never becomes a control token. Merging cannot build a control, unknown or
//! byte token (llama.cpp lets a SentencePiece vocabulary merge `</s>` out of letters), and
//! [`Tokenizer::encode_segments`] parses control tokens only in trusted text. Not done:
//! stripping white space around special tokens, which llama.cpp does for a few models by their
//! name; and removing spaces before punctuation when decoding, because it changes text.
//!
//! Why not the crate `tokenizers`: it reads its own JSON model, so the vocabulary of a GGUF file
//! would have to be converted (its byte-level pieces, its merges as pairs of strings), and it
//! differs from llama.cpp just where exactness is hard: the order in which special tokens are
//! found, SentencePiece merging by score, and text that must not be parsed. What is left of BPE
//! is one merge loop, which SentencePiece needs as well, and the word rules, which
//! `regex-automata` (already in the build) runs in linear time without lookahead. So no crate is
//! compiled that was not compiled before, and a vocabulary loads in a fraction of a second.
//!
//! Layers: [`Vocab`] is data from the file; `lexicon` finds tokens; `pretokenize`, `merge`,
//! `bpe`, `spm` turn text into tokens; `special` finds the tokens that are not merged;
//! [`Detokenizer`] prints; [`ChatTemplate`] turns a conversation into [`Segment`]s.

mod bpe;
mod chat;
mod detokenize;
mod lexicon;
mod merge;
mod pretokenize;
mod roles;
mod special;
mod spm;
#[cfg(test)]
mod tests;
mod vocab;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

pub(crate) use bpe::printable;
pub use chat::{ChatError, ChatTemplate, Message};
pub use detokenize::Detokenizer;
pub use vocab::{RoleIds, TokenKind, Vocab};

use crate::gguf::{Gguf, GgufError};
use bpe::Bpe;
use lexicon::Lexicon;
use pretokenize::PreTokenizer;
use special::{Part, SpecialTokens};
use spm::Spm;

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file says that it has no vocabulary; its model can still run on ids.
    #[error(
        "the model file has no vocabulary (tokenizer.ggml.model is missing or no_vocab): it runs on token ids only"
    )]
    NoVocabulary,
    /// `tokenizer.ggml.model` names an algorithm that is not known here.
    #[error("tokenizer.ggml.model = {0:?} is not a known tokenizer (known: gpt2, llama)")]
    UnknownModel(String),
    /// `tokenizer.ggml.pre` names a rule that is not known here.
    #[error("tokenizer.ggml.pre = {name:?} is not a known pre-tokenizer (known: {known})")]
    #[allow(missing_docs, reason = "the message says it")]
    UnknownPreTokenizer { name: String, known: String },
    /// The vocabulary has no tokens.
    #[error("tokenizer.ggml.tokens is empty: the model file has no usable vocabulary")]
    Empty,
    /// An array of the vocabulary does not fit the list of tokens.
    #[error("tokenizer.ggml.{array} has {found} entries, expected {expected}, one for each token")]
    #[allow(missing_docs, reason = "the message says it")]
    Length { array: &'static str, found: usize, expected: usize },
    /// The model file cannot be read, lacks a key that its tokenizer needs, or holds one of the
    /// wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Some text could not be written in this vocabulary.
    #[error(
        "the vocabulary cannot spell every text: it has neither all 256 byte tokens <0x00>..<0xFF> nor an unknown token"
    )]
    NoByteFallback,
    /// The search for special tokens cannot be built.
    #[error("the special tokens of the vocabulary cannot be searched for: {0}")]
    SpecialTokens(String),
    /// The pattern of a pre-tokenizer does not compile.
    #[error("the pattern of pre-tokenizer {name} does not compile: {reason}")]
    #[allow(missing_docs, reason = "the message says it")]
    Pattern { name: String, reason: String },
}

/// A stretch of text with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The text.
    pub text: String,
    /// Whether control tokens written in the text become tokens: true for the text of a
    /// template, false for what a user typed.
    pub trusted: bool,
}

/// A vocabulary that turns text into token ids and ids into text.
pub struct Tokenizer {
    lexicon: Lexicon,
    algorithm: Algorithm,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    adds_eos: bool,
    space_prefix: bool,
    end_of_generation: BTreeSet<u32>,
}

enum Algorithm {
    Bpe(Bpe),
    Spm(Spm),
}

impl Tokenizer {
    /// The tokenizer of a model file.
    ///
    /// # Errors
    ///
    /// As [`Vocab::from_gguf`] and [`Tokenizer::from_vocab`].
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::from_vocab(Vocab::from_gguf(gguf)?)
    }

    /// Builds the tokenizer that `vocab` describes.
    ///
    /// # Errors
    ///
    /// [`TokenizerError`]: no vocabulary, an unknown algorithm or pre-tokenizer, arrays that do
    /// not fit one another.
    pub fn from_vocab(vocab: Vocab) -> Result<Self, TokenizerError> {
        match vocab.model.as_str() {
            "gpt2" | "llama" => {}
            "" | "no_vocab" | "none" => return Err(TokenizerError::NoVocabulary),
            _ => return Err(TokenizerError::UnknownModel(vocab.model)),
        }
        let Vocab {
            model,
            pre,
            tokens,
            kinds,
            scores,
            merges,
            mut roles,
            add_bos,
            add_eos,
            add_space_prefix,
        } = vocab.checked()?;
        let mut lexicon = Lexicon::new(tokens, kinds);
        let end_of_generation = roles::settle(&mut lexicon, &mut roles);

        let adds_bos;
        let algorithm = if model == "gpt2" {
            let pre = pre.as_deref().unwrap_or("default");
            if pre == "default" {
                tracing::warn!(
                    "the model file names no pre-tokenizer of its own (tokenizer.ggml.pre is missing or \"default\"): \
                     text may come out worse and in more tokens than with the right one"
                );
            }
            let words = PreTokenizer::named(pre)?;
            adds_bos = words.adds_bos();
            Algorithm::Bpe(Bpe::new(words, &merges, &lexicon))
        } else {
            roles::assume_sentencepiece(&lexicon, &mut roles);
            adds_bos = true;
            // Text must not become a control token, not even text that cannot be spelled.
            let unknown = roles.unknown.filter(|&id| lexicon.kind(id) != Some(TokenKind::Control));
            let spm = Spm::new(&scores, &lexicon, unknown);
            if spm.lacks_bytes() {
                return Err(TokenizerError::NoByteFallback);
            }
            Algorithm::Spm(spm)
        };

        let adds = |wanted: bool, id: Option<u32>, name: &str| {
            if wanted && id.is_none() {
                tracing::warn!(
                    "the model asks for {name} around a text but names no such token: none is added"
                );
            }
            wanted && id.is_some()
        };
        Ok(Self {
            special: SpecialTokens::new(&lexicon)?,
            bos: roles.bos,
            eos: roles.eos,
            adds_bos: adds(add_bos.unwrap_or(adds_bos), roles.bos, "BOS"),
            adds_eos: adds(add_eos.unwrap_or(false), roles.eos, "EOS"),
            space_prefix: matches!(algorithm, Algorithm::Spm(_)) && add_space_prefix.unwrap_or(true),
            end_of_generation: end_of_generation.into_iter().chain(roles.eos).collect(),
            lexicon,
            algorithm,
        })
    }

    /// The number of tokens; ids are below it.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.lexicon.len()
    }

    /// The token ids of `text`.
    ///
    /// `add_special` adds BOS and EOS as the model wants them; `parse_special` makes control
    /// tokens that are written in the text into tokens. User-defined tokens are found either
    /// way.
    #[must_use]
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        let all = 0..text.len();
        let untrusted = if parse_special { &[][..] } else { std::slice::from_ref(&all) };
        self.encode_parts(&self.special.split(text, untrusted), text, add_special)
    }

    /// The token ids of one text that is made of `segments`.
    ///
    /// A control token is parsed only where it lies in trusted text from end to end. Otherwise
    /// the segments are one text: words and merges reach across their borders, and only its
    /// start gets BOS and a space prefix. A text that itself starts with BOS or ends with EOS
    /// gets no second one.
    #[must_use]
    pub fn encode_segments(&self, segments: &[Segment], add_special: bool) -> Vec<u32> {
        let mut text = String::with_capacity(segments.iter().map(|segment| segment.text.len()).sum());
        let mut untrusted = Vec::new();
        for segment in segments {
            let start = text.len();
            text.push_str(&segment.text);
            if !segment.trusted && !segment.text.is_empty() {
                untrusted.push(start..text.len());
            }
        }
        let mut parts = self.special.split(&text, &untrusted);
        if add_special {
            let is = |part: Option<&Part>, id: Option<u32>| match part {
                Some(&Part::Token(token)) => Some(token) == id,
                _ => false,
            };
            if self.adds_bos && is(parts.first(), self.bos) {
                parts.remove(0);
            }
            if self.adds_eos && is(parts.last(), self.eos) {
                parts.pop();
            }
        }
        self.encode_parts(&parts, &text, add_special)
    }

    fn encode_parts(&self, parts: &[Part], text: &str, add_special: bool) -> Vec<u32> {
        let mut tokens = Vec::new();
        if add_special && self.adds_bos {
            tokens.extend(self.bos);
        }
        // The start of a text counts as a special token: the space prefix follows both.
        let mut after_special = true;
        for part in parts {
            match part {
                Part::Token(id) => tokens.push(*id),
                Part::Text(range) => {
                    let text = &text[Range::clone(range)];
                    match &self.algorithm {
                        Algorithm::Bpe(bpe) => bpe.encode(&self.lexicon, text, &mut tokens),
                        Algorithm::Spm(spm) => {
                            let prefix = self.space_prefix && after_special;
                            spm.encode(&self.lexicon, text, prefix, &mut tokens);
                        }
                    }
                }
            }
            after_special = matches!(part, Part::Token(_));
        }
        if add_special && self.adds_eos {
            tokens.extend(self.eos);
        }
        tokens
    }

    /// The bytes that a token prints, which may be part of a character; `None` for an id outside
    /// the vocabulary. Control and unknown tokens print nothing, or with `special` their name.
    #[must_use]
    pub fn piece(&self, id: u32, special: bool) -> Option<Cow<'_, [u8]>> {
        let text = self.lexicon.text(id)?;
        Some(match (self.lexicon.kind(id)?, &self.algorithm) {
            (TokenKind::Control | TokenKind::Unknown, _) if special => Cow::Borrowed(text),
            (TokenKind::Control | TokenKind::Unknown | TokenKind::Unused, _) => Cow::Borrowed(&[]),
            (TokenKind::UserDefined, _) => Cow::Borrowed(text),
            (TokenKind::Byte, _) => Cow::Owned(spm::byte_value(text).into_iter().collect()),
            (TokenKind::Normal, Algorithm::Bpe(_)) => Cow::Owned(bpe::print(text)),
            (TokenKind::Normal, Algorithm::Spm(_)) => spm::print(text),
        })
    }

    /// The token that begins a text.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text. Generation ends at more tokens than this one: see
    /// [`Tokenizer::is_end_of_generation`].
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether the model wants BOS before a text (and has one).
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Whether the model wants EOS after a text (and has one).
    #[must_use]
    pub fn adds_eos(&self) -> bool {
        self.adds_eos
    }

    /// Whether generation stops at this token: the model's end of text, of turn or of message,
    /// by the file's ids or by a name that is known to mean it.
    #[must_use]
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.contains(&id)
    }

    /// The text of `ids`, the same that a [`Detokenizer`] streams.
    #[must_use]
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut detokenizer = Detokenizer::new(special);
        let mut text: String = ids.iter().map(|&id| detokenizer.push(self, id)).collect();
        text.push_str(&detokenizer.finish());
        text
    }
}
