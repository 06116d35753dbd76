//! The rules that cut text into words before BPE merges inside them.
//!
//! A vocabulary was trained with one such rule, and `tokenizer.ggml.pre` names it. A rule is a
//! list of stages; each cuts every piece that the stages before it left, as if the piece were a
//! text of its own: what its pattern matches is a piece, and so is what lies between matches.
//! The names are llama.cpp's; the patterns are those of the models' published tokenizers, and
//! a test holds the cuts of every rule against them. Ids recorded with llama.cpp exist for the
//! demo models' rules only.
//!
//! Most patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the
//! word that follows. This lookahead is the only one in use, and an automaton that matches in
//! linear time cannot look ahead; so a stage only says that it ends so ([`Stage::spaces`]), the
//! automaton matches `\s+`, and a match that is followed by anything gives its last character
//! back, which is the same thing because `\s+` is greedy.

use std::ops::Range;

use regex_automata::meta::Regex;
use regex_automata::{Input, PatternID};

use super::TokenizerError;

/// One cut of a rule.
struct Stage {
    pattern: &'static str,
    /// Whether `|\s+(?!\S)|\s+` follows the pattern.
    spaces: bool,
}

const fn spaced(pattern: &'static str) -> Stage {
    Stage { pattern, spaces: true }
}

const fn plain(pattern: &'static str) -> Stage {
    Stage { pattern, spaces: false }
}

/// A rule and its names.
struct Rule {
    names: &'static [&'static str],
    stages: &'static [Stage],
    /// A word that is a token as a whole becomes that token without any merge.
    whole_words_first: bool,
    /// A text starts with BOS where the file does not say.
    adds_bos: bool,
}

/// Contractions, letters, digits, everything else, each with one space before it.
const GPT2: Stage = spaced(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");
const EVERY_DIGIT: Stage = plain(r"\p{N}");
const THREE_DIGITS: Stage = plain("[0-9][0-9][0-9]");

/// The contractions are spelled out instead of `(?i:'s|...)`: ignoring case by the Unicode rules
/// would also take `ſ` for an `s`.
macro_rules! any_case_contractions {
    () => {
        "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}

/// The pattern of Llama 3 with its rule for digits.
macro_rules! llama3_like {
    ($digits:literal) => {
        spaced(concat!(
            any_case_contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        ))
    };
}

/// Words that change from capitals to small letters once, with what may follow them, and the
/// rule for digits. Letters other than A-Z and a-z count as either.
macro_rules! cased_words {
    ($after:expr, $digits:literal) => {
        spaced(concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{L}--a-z]*[\p{L}--A-Z]+",
            $after,
            r"|[^\r\n\p{L}\p{N}]?[\p{L}--a-z]+[\p{L}--A-Z]*",
            $after,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
        ))
    };
}

const RULES: &[Rule] = &[
    Rule {
        names: &["default"],
        stages: &[plain(r"[\p{P}$+<=>\^~|]+"), GPT2, plain(r"\p{N}+"), THREE_DIGITS],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["gpt-2", "phi-2", "mpt", "olmo", "a.x-4.0", "exaone4", "gigachat", "mellum", "trillion"],
        stages: &[GPT2],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        stages: &[EVERY_DIGIT, GPT2],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["falcon"],
        stages: &[plain(r"[\p{P}$+<=>\^~|`]+"), GPT2, THREE_DIGITS],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        stages: &[llama3_like!(r"\p{N}{1,3}")],
        whole_words_first: true,
        adds_bos: true,
    },
    Rule {
        names: &["smaug-bpe", "dbrx"],
        stages: &[llama3_like!(r"\p{N}{1,3}")],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "hunyuan"],
        stages: &[llama3_like!(r"\p{N}")],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["tekken"],
        stages: &[cased_words!("", r"\p{N}")],
        whole_words_first: true,
        adds_bos: true,
    },
    Rule {
        names: &["gpt-4o", "llama4"],
        stages: &[cased_words!(concat!("(?:", any_case_contractions!(), ")?"), r"\p{N}{1,3}")],
        whole_words_first: false,
        adds_bos: false,
    },
    Rule {
        names: &["deepseek-coder"],
        stages: &[
            plain(r"[\r\n]"),
            plain(r"\s?\p{L}+"),
            plain(r"\s?\p{P}+"),
            plain(r"[一-龥ࠀ-一가-\u{D7FF}]+"),
            EVERY_DIGIT,
        ],
        whole_words_first: false,
        adds_bos: false,
    },
];

/// A rule, ready to cut.
pub(super) struct PreTokenizer {
    rule: &'static Rule,
    stages: Vec<Regex>,
}

impl PreTokenizer {
    /// The rule with this name.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let rule = RULES.iter().find(|rule| rule.names.contains(&name)).ok_or_else(|| {
            TokenizerError::UnknownPreTokenizer { name: name.into(), known: names().join(", ") }
        })?;
        let compile = |stage: &Stage| {
            let patterns = [stage.pattern, r"\s+"];
            Regex::new_many(&patterns[..if stage.spaces { 2 } else { 1 }])
                .map_err(|error| TokenizerError::Pattern { name: name.into(), reason: error.to_string() })
        };
        let stages = rule.stages.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { rule, stages })
    }

    pub(super) fn whole_words_first(&self) -> bool {
        self.rule.whole_words_first
    }

    pub(super) fn adds_bos(&self) -> bool {
        self.rule.adds_bos
    }

    /// Cuts `text`; the pieces follow one another and cover it.
    pub(super) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        if !text.is_empty() {
            pieces.push(0..text.len());
        }
        for stage in &self.stages {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                cut(stage, &text[piece.clone()], piece.start, &mut finer);
            }
            pieces = finer;
        }
        pieces
    }
}

/// Cuts one piece by one stage; `offset` is where the piece starts in the text.
fn cut(stage: &Regex, piece: &str, offset: usize, pieces: &mut Vec<Range<usize>>) {
    const SPACES: PatternID = PatternID::new_unchecked(1);
    let mut push = |start: usize, end: usize| {
        if start < end {
            pieces.push(offset + start..offset + end);
        }
    };
    // No pattern matches the empty text, so every turn takes a step.
    let mut at = 0;
    while let Some(found) = stage.find(Input::new(piece).range(at..)) {
        let mut end = found.end();
        if found.pattern() == SPACES && end < piece.len() {
            let last = piece[found.range()].chars().next_back().map_or(0, char::len_utf8);
            if end - last > found.start() {
                end -= last;
            }
        }
        push(at, found.start());
        push(found.start(), end);
        at = end;
    }
    push(at, piece.len());
}

/// Every known name.
fn names() -> Vec<&'static str> {
    RULES.iter().flat_map(|rule| rule.names).copied().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Recorded {
        texts: Vec<String>,
        /// By rule and text, the length of each piece in characters.
        pieces: BTreeMap<String, Vec<Vec<usize>>>,
    }

    /// The recorded cuts were made by another regex engine from patterns with lookahead.
    #[test]
    fn every_rule_cuts_as_its_published_pattern_does() {
        let recorded: Recorded =
            serde_json::from_str(include_str!("../../../tests/data/pretokenizers.json")).unwrap();
        for rule in RULES {
            let name = rule.names[0];
            let words = PreTokenizer::named(name).unwrap();
            let expected = &recorded.pieces[name];
            assert_eq!(expected.len(), recorded.texts.len());
            for (text, expected) in recorded.texts.iter().zip(expected) {
                let pieces: Vec<&str> = words.split(text).into_iter().map(|piece| &text[piece]).collect();
                let lengths: Vec<usize> = pieces.iter().map(|piece| piece.chars().count()).collect();
                assert_eq!(&lengths, expected, "{name} cuts {text:?} into {pieces:?}");
                assert_eq!(pieces.concat(), *text);
            }
        }
    }

    #[test]
    fn no_pattern_matches_the_empty_text() {
        for stage in RULES.iter().flat_map(|rule| rule.stages) {
            assert!(Regex::new(stage.pattern).unwrap().find("").is_none(), "{}", stage.pattern);
        }
    }

    #[test]
    fn every_name_is_unique() {
        let mut sorted = names();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names().len());
    }
}
