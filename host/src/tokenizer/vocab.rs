//! A vocabulary as a model file states it: plain data, nothing checked yet.

use super::TokenizerError;
use crate::gguf::{Gguf, GgufError};

/// What a token is for, numbered as in `tokenizer.ggml.token_type` of the GGUF specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenKind {
    /// Ordinary text.
    #[default]
    Normal,
    /// Stands for text that the vocabulary cannot spell.
    Unknown,
    /// Steers the model (begin of text, end of turn); never made from text that a user typed.
    Control,
    /// Text that is one token wherever it stands, before anything is merged.
    UserDefined,
    /// A reserved place. Text may spell it; it prints nothing.
    Unused,
    /// One byte, written `<0xE2>`: how a SentencePiece vocabulary spells what it has no piece for.
    Byte,
}

impl TokenKind {
    /// The kind with this number in the file; a number that the specification does not know is
    /// [`TokenKind::Unused`], which prints nothing.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }

    /// Whether text written by anyone may be merged into such a token. Control, unknown and byte
    /// tokens have a spelling too (`</s>`, `<0x41>`), but it is a name, not their text.
    pub(super) const fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

/// Ids of tokens with a role, as the keys `tokenizer.ggml.*_token_id` give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the keys")]
pub struct RoleIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unknown: Option<u32>,
    pub fim_prefix: Option<u32>,
    pub fim_suffix: Option<u32>,
    pub fim_middle: Option<u32>,
    pub fim_pad: Option<u32>,
    pub fim_repo: Option<u32>,
    pub fim_separator: Option<u32>,
}

/// A vocabulary as the metadata of a model file states it.
///
/// Source: the section "Tokenizer" of the GGUF specification; field `x` is the key
/// `tokenizer.ggml.x` unless said otherwise. `None` means that the file has no such key.
#[derive(Clone, Debug, Default)]
pub struct Vocab {
    /// The algorithm: `gpt2` (byte-level BPE) or `llama` (SentencePiece-style).
    pub model: String,
    /// The name of the rule that cuts text into words before BPE merges inside them.
    pub pre: Option<String>,
    /// The text of each token; its index is the token's id. Not necessarily UTF-8.
    pub tokens: Vec<Vec<u8>>,
    /// The kind of each token. Empty: all are normal.
    pub kinds: Vec<TokenKind>,
    /// The score of each token; the pair whose union scores highest merges first. Empty: all 0.
    pub scores: Vec<f32>,
    /// BPE merges, each `left right` with one space between, the first in the list going first.
    pub merges: Vec<Vec<u8>>,
    /// Tokens with a role.
    pub roles: RoleIds,
    /// Whether a text starts with the BOS token.
    pub add_bos: Option<bool>,
    /// Whether a text ends with the EOS token.
    pub add_eos: Option<bool>,
    /// Whether SentencePiece-style text starts with a space of the tokenizer's own.
    pub add_space_prefix: Option<bool>,
}

impl Vocab {
    /// Reads the vocabulary of a model file.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::NoVocabulary`] if the file says that it has none,
    /// [`TokenizerError::Gguf`] if a key that is needed is missing or of the wrong type.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let model = gguf.str("tokenizer.ggml.model")?.unwrap_or_default();
        if matches!(model, "" | "no_vocab" | "none") {
            return Err(TokenizerError::NoVocabulary);
        }
        let merges = match model {
            "gpt2" => gguf.require("tokenizer.ggml.merges", Gguf::strings)?.map(<[u8]>::to_vec).collect(),
            _ => Vec::new(),
        };
        let kinds = gguf.i32s("tokenizer.ggml.token_type")?;
        let scores = gguf.f32s("tokenizer.ggml.scores")?;
        Ok(Self {
            model: model.into(),
            pre: gguf.str("tokenizer.ggml.pre")?.map(str::to_owned),
            tokens: gguf.require("tokenizer.ggml.tokens", Gguf::strings)?.map(<[u8]>::to_vec).collect(),
            kinds: kinds.map(|kinds| kinds.map(TokenKind::from_number).collect()).unwrap_or_default(),
            scores: scores.map(Iterator::collect).unwrap_or_default(),
            merges,
            roles: RoleIds::from_gguf(gguf)?,
            add_bos: gguf.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: gguf.bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: gguf.bool("tokenizer.ggml.add_space_prefix")?,
        })
    }

    /// Checks that the parallel arrays agree and that every id fits a `u32`; ids that lie outside
    /// the vocabulary are dropped with a warning.
    pub(super) fn checked(mut self) -> Result<Self, TokenizerError> {
        let tokens = self.tokens.len();
        if tokens == 0 {
            return Err(TokenizerError::Empty);
        }
        if u32::try_from(tokens).is_err() {
            return Err(TokenizerError::Length {
                array: "tokens",
                found: tokens,
                expected: u32::MAX as usize,
            });
        }
        for (array, found) in [("token_type", self.kinds.len()), ("scores", self.scores.len())] {
            if found != 0 && found != tokens {
                return Err(TokenizerError::Length { array, found, expected: tokens });
            }
        }
        self.kinds.resize(tokens, TokenKind::Normal);
        self.scores.resize(tokens, 0.0);
        for id in self.roles.all_mut() {
            if id.is_some_and(|id| id as usize >= tokens) {
                tracing::warn!(
                    "a special token id of the model file ({id:?}) is not below {tokens}, the size of its vocabulary: ignored"
                );
                *id = None;
            }
        }
        Ok(self)
    }
}

impl RoleIds {
    fn from_gguf(gguf: &Gguf) -> Result<Self, GgufError> {
        // The last three roles were once spelled out.
        let id = |names: &[&str]| {
            for name in names {
                if let Some(id) = gguf.u32(&format!("tokenizer.ggml.{name}_token_id"))? {
                    return Ok(Some(id));
                }
            }
            Ok(None)
        };
        Ok(Self {
            bos: id(&["bos"])?,
            eos: id(&["eos"])?,
            eot: id(&["eot"])?,
            eom: id(&["eom"])?,
            unknown: id(&["unknown"])?,
            fim_pad: id(&["fim_pad"])?,
            fim_repo: id(&["fim_rep"])?,
            fim_separator: id(&["fim_sep"])?,
            fim_prefix: id(&["fim_pre", "prefix"])?,
            fim_suffix: id(&["fim_suf", "suffix"])?,
            fim_middle: id(&["fim_mid", "middle"])?,
        })
    }

    fn all_mut(&mut self) -> [&mut Option<u32>; 11] {
        [
            &mut self.bos,
            &mut self.eos,
            &mut self.eot,
            &mut self.eom,
            &mut self.unknown,
            &mut self.fim_prefix,
            &mut self.fim_suffix,
            &mut self.fim_middle,
            &mut self.fim_pad,
            &mut self.fim_repo,
            &mut self.fim_separator,
        ]
    }
}
