//! Tokens with a role, by the file's ids and by names that are known to mean one.

use std::collections::BTreeSet;

use super::lexicon::Lexicon;
use super::vocab::{RoleIds, TokenKind};

/// Names of tokens at which generation ends, in whatever vocabulary they stand.
const END_NAMES: [&str; 20] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<end_of_utterance>",
    "<turn|>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

/// Names of the tokens that steer filling in the middle of a text, by role.
const FIM_PREFIX: [&str; 7] =
    ["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|prefix|>"];
const FIM_SUFFIX: [&str; 7] =
    ["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|suffix|>"];
const FIM_MIDDLE: [&str; 7] =
    ["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|middle|>"];
const FIM_PAD: [&str; 5] = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REPO: [&str; 5] = ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FIM_SEPARATOR: [&str; 1] = ["<|file_sep|>"];

/// Completes `roles` by known names, makes every token with such a name a control token (some
/// files call them ordinary text), and returns the tokens at which generation ends.
///
/// A model that is left alone after its turn goes on with the next file of a repository, so the
/// padding and file tokens of fill-in-the-middle end generation too, as in llama.cpp.
pub(super) fn settle(lexicon: &mut Lexicon, roles: &mut RoleIds) -> BTreeSet<u32> {
    let mut ends: BTreeSet<u32> = [roles.eot, roles.eom].into_iter().flatten().collect();
    for name in END_NAMES {
        if let Some(id) = lexicon.find(name.as_bytes()) {
            lexicon.set_kind(id, TokenKind::Control);
            ends.insert(id);
        }
    }
    let by_name: [(&mut Option<u32>, &[&str], bool); 6] = [
        (&mut roles.fim_prefix, &FIM_PREFIX, false),
        (&mut roles.fim_suffix, &FIM_SUFFIX, false),
        (&mut roles.fim_middle, &FIM_MIDDLE, false),
        (&mut roles.fim_pad, &FIM_PAD, true),
        (&mut roles.fim_repo, &FIM_REPO, true),
        (&mut roles.fim_separator, &FIM_SEPARATOR, true),
    ];
    for (role, names, ends_generation) in by_name {
        if role.is_none() {
            *role = names.iter().find_map(|name| lexicon.find(name.as_bytes()));
            if let Some(id) = *role {
                lexicon.set_kind(id, TokenKind::Control);
            }
        }
        if ends_generation {
            ends.extend(*role);
        }
    }
    ends
}

/// The ids that a SentencePiece vocabulary gives its own tokens where the file names none: 0
/// unknown, 1 begin, 2 end. Taken only if the token there is what it should be, so that no file
/// gets a role it never gave.
pub(super) fn assume_sentencepiece(lexicon: &Lexicon, roles: &mut RoleIds) {
    let customary = |id: u32, kind: TokenKind, name: &str| {
        let fits = lexicon.kind(id) == Some(kind) || lexicon.text(id) == Some(name.as_bytes());
        fits.then_some(id)
    };
    roles.unknown = roles.unknown.or(customary(0, TokenKind::Unknown, "<unk>"));
    roles.bos = roles.bos.or(customary(1, TokenKind::Control, "<s>"));
    roles.eos = roles.eos.or(customary(2, TokenKind::Control, "</s>"));
}
