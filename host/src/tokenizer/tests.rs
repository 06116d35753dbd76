//! Small vocabularies whose ids can be worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::vocabulary::{ByteLevel, byte_level};

/// A byte-level BPE vocabulary: the token of a byte is its value, then come what the merges
/// make, then control tokens.
fn bpe_vocab(pre: &str, merges: &[&str], control: &[&str]) -> Vocab {
    let ByteLevel { tokens, text } = byte_level(merges, control);
    Vocab {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        kinds: (0..tokens.len())
            .map(|id| if id < text { TokenKind::Normal } else { TokenKind::Control })
            .collect(),
        tokens: tokens.into_iter().map(String::into_bytes).collect(),
        merges: merges.iter().map(|merge| merge.as_bytes().to_vec()).collect(),
        ..Vocab::default()
    }
}

/// A SentencePiece-style vocabulary: 0 to 2 are `<unk>`, `<s>`, `</s>`, byte `b` is 3 + `b`, and
/// `pieces` follow from 259 on.
fn spm_vocab(pieces: &[(&str, f32, TokenKind)]) -> Vocab {
    let mut vocab = Vocab { model: "llama".into(), ..Vocab::default() };
    let mut add = |text: String, score: f32, kind: TokenKind| {
        vocab.tokens.push(text.into_bytes());
        vocab.scores.push(score);
        vocab.kinds.push(kind);
    };
    add("<unk>".into(), 0.0, TokenKind::Unknown);
    add("<s>".into(), 0.0, TokenKind::Control);
    add("</s>".into(), 0.0, TokenKind::Control);
    for byte in 0..=255u8 {
        add(format!("<0x{byte:02X}>"), 0.0, TokenKind::Byte);
    }
    for &(text, score, kind) in pieces {
        add(text.into(), score, kind);
    }
    vocab
}

fn tokenizer(vocab: Vocab) -> Tokenizer {
    Tokenizer::from_vocab(vocab).unwrap()
}

fn segment(text: &str, trusted: bool) -> Segment {
    Segment { text: text.into(), trusted }
}

/// What `run` logs at the level of warnings.
fn warnings(run: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

const WORDS: [&str; 11] = ["1 2", "12 3", "4 5", "' l", "'l l", "Ċ Ċ", "Ġ Ġ", "Ġ d", "Ġ x", "Ċ ĉ", "Ġ 1"];
const WORDS_TEXT: &str = "I'll 12345 don't\n\n\t  x";

#[test]
fn the_pre_tokenizer_decides_the_ids() {
    let ids = |pre: &str| tokenizer(bpe_vocab(pre, &WORDS, &[])).encode(WORDS_TEXT, true, false);
    // I 'll _ 1 2 3 4 5 _d o n ' t \n\n \t _ _x
    let digits = [73, 260, 32, 49, 50, 51, 52, 53, 263, 111, 110, 39, 116, 261, 9, 32, 264];
    // I 'll _ 123 45 _d o n ' t \n\n \t _ _x
    let triples = [73, 260, 32, 257, 258, 263, 111, 110, 39, 116, 261, 9, 32, 264];
    // I ' l l _ 123 45 _d o n ' t \n\n \t _ _x
    let apart = [73, 39, 108, 108, 32, 257, 258, 263, 111, 110, 39, 116, 261, 9, 32, 264];
    assert_eq!(ids("smollm"), digits);
    assert_eq!(ids("qwen2"), digits);
    assert_eq!(ids("deepseek-r1-qwen"), digits);
    assert_eq!(ids("llama-bpe"), triples);
    assert_eq!(ids("default"), apart);
    let mut unnamed = bpe_vocab("", &WORDS, &[]);
    unnamed.pre = None;
    assert_eq!(tokenizer(unnamed).encode(WORDS_TEXT, true, false), apart);
}

#[test]
fn a_missing_or_default_pre_tokenizer_is_a_warning_and_an_unknown_one_an_error() {
    let mut unnamed = bpe_vocab("", &[], &[]);
    unnamed.pre = None;
    for vocab in [unnamed, bpe_vocab("default", &[], &[])] {
        let log = warnings(|| drop(tokenizer(vocab)));
        assert!(log.contains("WARN") && log.contains("tokenizer.ggml.pre"), "{log:?}");
    }
    assert_eq!(warnings(|| drop(tokenizer(bpe_vocab("qwen2", &[], &[])))), "");

    let error = Tokenizer::from_vocab(bpe_vocab("no-such-name", &[], &[])).err().unwrap().to_string();
    assert!(error.contains("\"no-such-name\"") && error.contains("llama-bpe"), "{error}");
}

#[test]
fn a_whole_word_needs_no_merge_where_the_rule_says_so() {
    let ids = |pre: &str| {
        let mut vocab = bpe_vocab(pre, &["c d"], &[]);
        vocab.tokens.push(b"abcd".to_vec());
        vocab.kinds.push(TokenKind::Normal);
        tokenizer(vocab).encode("abcd", false, false)
    };
    assert_eq!(ids("llama-bpe"), [257]);
    assert_eq!(ids("smaug-bpe"), [97, 98, 256]);
}

#[test]
fn bos_comes_once_or_not_at_all() {
    for (pre, default) in [("llama-bpe", true), ("gpt-2", false)] {
        for flag in [None, Some(true), Some(false)] {
            for named in [true, false] {
                let mut vocab = bpe_vocab(pre, &[], &["<bos>"]);
                vocab.add_bos = flag;
                vocab.roles.bos = named.then_some(256);
                let tokenizer = tokenizer(vocab);
                let adds = named && flag.unwrap_or(default);
                let context = format!("{pre}, add_bos_token {flag:?}, bos_token_id present: {named}");

                assert_eq!(tokenizer.adds_bos(), adds, "{context}");
                assert_eq!(tokenizer.bos(), named.then_some(256), "{context}");
                let plain: &[u32] = if adds { &[256, 97] } else { &[97] };
                assert_eq!(tokenizer.encode("a", true, false), plain, "{context}");
                assert_eq!(tokenizer.encode_segments(&[segment("a", false)], true), plain, "{context}");
                let template = [segment("<bos>", true), segment("a", false)];
                assert_eq!(tokenizer.encode_segments(&template, true), [256, 97], "{context}");
                assert_eq!(tokenizer.encode_segments(&template, false), [256, 97], "{context}");
            }
        }
    }
}

#[test]
fn a_user_cannot_write_the_bos_that_spares_the_models_own() {
    let mut vocab = bpe_vocab("llama-bpe", &[], &["<b>"]);
    vocab.roles.bos = Some(256);
    let tokenizer = tokenizer(vocab);
    assert_eq!(tokenizer.encode_segments(&[segment("<b>", false)], true), [256, 60, 98, 62]);
}

#[test]
fn eos_is_added_once_where_the_model_wants_it() {
    let mut vocab = bpe_vocab("gpt-2", &[], &["<e>"]);
    vocab.roles.eos = Some(256);
    vocab.add_eos = Some(true);
    let tokenizer = tokenizer(vocab);
    assert_eq!(tokenizer.encode("a", true, false), [97, 256]);
    assert_eq!(tokenizer.encode("a", false, false), [97]);
    assert_eq!(tokenizer.encode_segments(&[segment("a<e>", true)], true), [97, 256]);
}

#[test]
fn characters_split_over_tokens_are_held_until_whole() {
    let spm = spm_vocab(&[]);
    for (name, tokenizer, first) in
        [("bpe", tokenizer(bpe_vocab("gpt-2", &[], &[])), 0), ("spm", tokenizer(spm), 3)]
    {
        let stream = |bytes: &[u32]| {
            let mut detokenizer = Detokenizer::new(false);
            let mut texts: Vec<String> =
                bytes.iter().map(|byte| detokenizer.push(&tokenizer, first + byte)).collect();
            texts.push(detokenizer.finish());
            let ids: Vec<u32> = bytes.iter().map(|byte| first + byte).collect();
            assert_eq!(texts.concat(), tokenizer.decode(&ids, false), "{name}");
            texts
        };
        assert_eq!(stream(&[0xF0, 0x9F, 0x98, 0x8A]), ["", "", "", "😊", ""], "{name}");
        assert_eq!(stream(&[0x61, 0xF0, 0x9F]), ["a", "", "", "\u{FFFD}"], "{name}");
        assert_eq!(stream(&[0xFF, 0x61]), ["\u{FFFD}", "a", ""], "{name}");
        assert_eq!(stream(&[0xE2, 0x82, 0x61]), ["", "", "\u{FFFD}a", ""], "{name}");
    }
}

#[test]
fn streamed_bytes_give_the_same_text_as_whole_ones() {
    let tokenizer = tokenizer(bpe_vocab("gpt-2", &[], &[]));
    let mut random = Random(1);
    for _ in 0..2000 {
        // Mostly bytes that begin or go on with a character, so that many are nearly valid.
        let choices = [0x61, 0x80, 0xBF, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0x9F, 0xA0, 0xFF];
        let bytes: Vec<u8> = (0..random.below(12)).map(|_| choices[random.below(choices.len())]).collect();
        let ids: Vec<u32> = bytes.iter().map(|&byte| u32::from(byte)).collect();
        assert_eq!(tokenizer.decode(&ids, false), String::from_utf8_lossy(&bytes), "{bytes:x?}");
    }
}

const HELLO: [(&str, f32, TokenKind); 15] = [
    ("[INST]", 0.0, TokenKind::Control),        // 259
    ("[/INST]", 0.0, TokenKind::Control),       // 260
    ("\u{2581}", -10.0, TokenKind::Normal),     // 261
    ("h", -10.0, TokenKind::Normal),            // 262
    ("e", -10.0, TokenKind::Normal),            // 263
    ("l", -10.0, TokenKind::Normal),            // 264
    ("o", -10.0, TokenKind::Normal),            // 265
    ("i", -10.0, TokenKind::Normal),            // 266
    ("\u{2581}h", -2.0, TokenKind::Normal),     // 267
    ("he", -1.0, TokenKind::Normal),            // 268
    ("ll", -3.0, TokenKind::Normal),            // 269
    ("llo", -4.0, TokenKind::Normal),           // 270
    ("hello", -5.0, TokenKind::Normal),         // 271
    ("\u{2581}hello", -6.0, TokenKind::Normal), // 272
    ("hi", -1.5, TokenKind::Normal),            // 273
];

#[test]
fn the_space_prefix_stands_at_the_start_and_after_special_tokens() {
    let with = tokenizer(spm_vocab(&HELLO));
    assert_eq!(with.encode("hello", true, false), [1, 272]);
    assert_eq!(with.encode("hello", false, false), [272]);
    // A second space, then `hi`, then the space before [/INST].
    let chat = "<s>[INST] hi [/INST]hello";
    assert_eq!(with.encode(chat, false, true), [1, 259, 261, 261, 273, 261, 260, 272]);

    let mut vocab = spm_vocab(&HELLO);
    vocab.add_space_prefix = Some(false);
    let without = tokenizer(vocab);
    assert_eq!(without.encode("hello", true, false), [1, 271]);
    assert_eq!(without.encode(chat, false, true), [1, 259, 261, 273, 261, 260, 271]);
}

#[test]
fn segments_are_one_text_to_the_space_prefix() {
    let tokenizer = tokenizer(spm_vocab(&HELLO));
    let segments =
        [segment("[INST]", true), segment("he", false), segment("llo", true), segment(" hello", false)];
    assert_eq!(tokenizer.encode_segments(&segments, true), [1, 259, 272, 272]);
}

#[test]
fn the_space_prefix_is_taken_away_where_a_whole_text_is_decoded() {
    let tokenizer = tokenizer(spm_vocab(&HELLO));
    assert_eq!(tokenizer.decode(&tokenizer.encode("hello hi", true, false), false), "hello hi");
    assert_eq!(tokenizer.decode(&tokenizer.encode(" hi", true, false), false), " hi");
    // Generated tokens go on with a text: their space is the model's.
    assert_eq!(tokenizer.decode(&[272], false), " hello");
}

#[test]
fn the_best_score_merges_first_and_of_equals_the_leftmost() {
    let piece = |text, score| (text, score, TokenKind::Normal);
    let mut vocab = spm_vocab(&[
        piece("a", -9.0),
        piece("b", -9.0),
        piece("c", -9.0),
        piece("ab", -2.0),
        piece("bc", -1.0),
        piece("aa", -3.0),
        piece("cc", 0.0),
        piece("ccc", -0.0),
    ]);
    vocab.add_space_prefix = Some(false);
    let tokenizer = tokenizer(vocab);
    let encode = |text| tokenizer.encode(text, false, false);
    assert_eq!(encode("abc"), [259, 263], "a bc: the score of bc is higher");
    assert_eq!(encode("aaa"), [264, 259], "aa a: the left pair of equals");
    assert_eq!(encode("cccc"), [266, 261], "ccc c: -0 equals 0, and of equals ccc is the leftmost");
    assert_eq!(encode("é"), [3 + 0xC3, 3 + 0xA9], "bytes where there is no piece");
}

#[test]
fn text_never_merges_into_a_control_or_byte_token() {
    let piece = |text, score| (text, score, TokenKind::Normal);
    let mut vocab = spm_vocab(&[
        piece("<", -9.0),
        piece("/", -9.0),
        piece("s", -9.0),
        piece(">", -9.0),
        piece("</", -1.0),
        piece("s>", -1.0),
        piece("<0x4", -1.0),
        piece("1>", -1.0),
    ]);
    vocab.add_space_prefix = Some(false);
    let spm = tokenizer(vocab);
    assert_eq!(spm.encode("</s>", false, false), [263, 264]);
    assert_eq!(spm.encode("</s>", false, true), [2]);
    assert_eq!(spm.decode(&spm.encode("<0x41>", false, false), false), "<0x41>");

    let mut vocab = bpe_vocab("llama-bpe", &["x y"], &["z"]);
    vocab.kinds[256] = TokenKind::Control;
    let bpe = tokenizer(vocab);
    assert_eq!(bpe.encode("xy", false, false), [120, 121]);
    assert_eq!(bpe.encode("xyz", false, true), [256, 257]);
    // Byte z is 122; the control token of that name is not its text.
    assert_eq!(bpe.encode("xyz", false, false), [120, 121, 122]);
}

#[test]
fn the_longest_special_token_goes_first_through_the_whole_text() {
    let special = |text| (text, 0.0, TokenKind::UserDefined);
    let mut vocab = spm_vocab(&[
        special("ab"),
        special("bcd"),
        special("  "),
        special("   "),
        ("a", -1.0, TokenKind::Normal),
    ]);
    vocab.add_space_prefix = Some(false);
    let tokenizer = tokenizer(vocab);
    assert_eq!(tokenizer.encode("abcd", false, false), [263, 260]);
    assert_eq!(tokenizer.encode("     ", false, false), [262, 261]);
}

#[test]
fn control_tokens_lie_in_trusted_text_from_end_to_end() {
    let tokenizer = tokenizer(bpe_vocab("gpt-2", &[], &["<|x|>"]));
    let spelled: Vec<u32> = b"<|x|>".iter().map(|&byte| u32::from(byte)).collect();
    let encode = |segments: &[Segment]| tokenizer.encode_segments(segments, false);
    assert_eq!(encode(&[segment("<|x|>", true)]), [256]);
    assert_eq!(encode(&[segment("<|", true), segment("x|>", true)]), [256]);
    assert_eq!(encode(&[segment("<|x|>", false)]), spelled);
    for border in 1..5 {
        let (left, right) = "<|x|>".split_at(border);
        assert_eq!(encode(&[segment(left, true), segment(right, false)]), spelled);
        assert_eq!(encode(&[segment(left, false), segment(right, true)]), spelled);
    }
    // The forged token before the real one, and a border in the middle that hides nothing.
    let both = [segment("<|x|>", false), segment("<|x|>", true), segment("", false)];
    assert_eq!(encode(&both), [spelled.as_slice(), &[256]].concat());
}

#[test]
fn words_and_merges_reach_across_segments() {
    let tokenizer = tokenizer(bpe_vocab("gpt-2", &["a b", "ab c"], &[]));
    let segments = [segment("a", true), segment("b", false), segment("c", true)];
    assert_eq!(tokenizer.encode_segments(&segments, false), [257]);
}

#[test]
fn generation_ends_at_a_set_of_tokens() {
    let mut vocab =
        bpe_vocab("llama-bpe", &[], &["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|other|>", "<|odd|>"]);
    vocab.roles.eos = Some(256);
    vocab.roles.eot = Some(260);
    let tokenizer = tokenizer(vocab);
    let ends: Vec<u32> = (0..262).filter(|&id| tokenizer.is_end_of_generation(id)).collect();
    assert_eq!(ends, [256, 257, 258, 260], "by the file's id and by known names");
}

#[test]
fn a_token_with_a_known_name_is_a_control_token_whatever_the_file_calls_it() {
    let mut vocab = bpe_vocab("gpt-2", &[], &["<|im_end|>"]);
    vocab.kinds[256] = TokenKind::UserDefined;
    let tokenizer = tokenizer(vocab);
    assert!(tokenizer.is_end_of_generation(256));
    assert_eq!(tokenizer.encode("<|im_end|>", false, false).len(), 10);
    assert_eq!(tokenizer.encode("<|im_end|>", false, true), [256]);
    assert_eq!(tokenizer.piece(256, false).unwrap().as_ref(), b"");
    assert_eq!(tokenizer.piece(256, true).unwrap().as_ref(), b"<|im_end|>");
}

#[test]
fn every_byte_of_a_text_comes_back() {
    let text: String = (0..0x3000).filter_map(char::from_u32).chain("日本語 😊 \u{10FFFF}".chars()).collect();
    let bpe = tokenizer(bpe_vocab("llama-bpe", &WORDS, &[]));
    assert_eq!(bpe.decode(&bpe.encode(&text, true, false), false), text);
    // The sign with which SentencePiece writes a space cannot be told from one.
    let spm = tokenizer(spm_vocab(&HELLO));
    let text = text.replace('\u{2581}', "");
    assert_eq!(spm.decode(&spm.encode(&text, true, false), false), text);
}

#[test]
fn a_long_run_of_one_letter_takes_no_quadratic_time() {
    let text = "a".repeat(1 << 16);
    let bpe = bpe_vocab("gpt-2", &["a a", "aa aa", "aaaa aaaa"], &[]);
    let piece = |text, score| (text, score, TokenKind::Normal);
    let mut spm =
        spm_vocab(&[piece("a", -9.0), piece("aa", -1.0), piece("aaaa", -2.0), piece("aaaaaaaa", -3.0)]);
    spm.add_space_prefix = Some(false);
    for (vocab, longest) in [(bpe, 258), (spm, 262)] {
        let tokenizer = tokenizer(vocab);
        let start = Instant::now();
        let ids = tokenizer.encode(&text, false, false);
        assert_eq!(ids, vec![longest; 1 << 13]);
        assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    }
}

#[test]
fn a_file_without_a_vocabulary_is_told_apart() {
    for model in ["no_vocab", "none", ""] {
        let vocab = Vocab { model: model.into(), ..Vocab::default() };
        assert!(matches!(Tokenizer::from_vocab(vocab), Err(TokenizerError::NoVocabulary)), "{model:?}");
    }
}

#[test]
fn bad_vocabularies_are_refused_by_name() {
    let refused = |vocab: Vocab, words: &[&str]| {
        let error = Tokenizer::from_vocab(vocab).err().unwrap().to_string();
        assert!(words.iter().all(|word| error.contains(word)) && !error.contains('\n'), "{error}");
    };
    refused(Vocab { model: "bert".into(), ..Vocab::default() }, &["\"bert\"", "gpt2", "llama"]);
    for model in ["gpt2", "llama"] {
        refused(Vocab { model: model.into(), ..Vocab::default() }, &["tokens is empty"]);
    }
    let mut vocab = spm_vocab(&[]);
    vocab.scores.pop();
    refused(vocab, &["scores has 258 entries, expected 259"]);
    let mut vocab = bpe_vocab("gpt-2", &[], &[]);
    vocab.kinds.push(TokenKind::Normal);
    refused(vocab, &["token_type has 257 entries, expected 256"]);
    let vocab = Vocab { model: "llama".into(), tokens: vec![b"a".to_vec()], ..Vocab::default() };
    refused(vocab, &["cannot spell"]);
}

#[test]
fn ids_outside_the_vocabulary_and_unknown_merges_are_ignored() {
    let mut vocab = bpe_vocab("llama-bpe", &["a b"], &[]);
    vocab.roles = RoleIds { bos: Some(257), eos: Some(u32::MAX), ..RoleIds::default() };
    vocab.merges.extend([&b"no such"[..], b"a", b"", b" ", b"  ", b"a b", b"\xFF \xFE"].map(<[u8]>::to_vec));
    let log = warnings(|| {
        let tokenizer = tokenizer(vocab);
        assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, None));
        assert_eq!(tokenizer.encode("ab", true, false), [256]);
        assert_eq!(tokenizer.piece(257, true), None);
        assert_eq!(tokenizer.decode(&[97, u32::MAX, 98], true), "ab");
    });
    assert!(log.contains("7 of 8 tokenizer merges") && log.contains("257"), "{log}");
}

#[test]
fn random_vocabularies_never_panic() {
    let mut random = Random(2);
    let texts = ["", "a", "ab é\u{2581}", "<0x41><s></s>", "aaaa\n\n  b", "日本", "\u{82}\u{301}x"];
    let mut built = 0;
    for round in 0..400 {
        let bytes = [b"a", b"b", b" ", b"<", b">", b"\x82", b"\xE2", b"\xC3", b"\xA9", b"\n"];
        let mut word = |most: usize| -> Vec<u8> {
            (0..random.below(most + 1)).flat_map(|_| *bytes[random.below(bytes.len())]).collect()
        };
        let mut vocab = if round % 2 == 0 { bpe_vocab("gpt-2", &[], &[]) } else { spm_vocab(&[]) };
        for _ in 0..8 {
            vocab.tokens.push(word(3));
            vocab.merges.push(word(4));
        }
        let count = vocab.tokens.len();
        vocab.kinds.resize_with(count, || TokenKind::from_number(random.below(8) as i32));
        let scores = [0.0, -0.0, 1.0, -1.0, f32::NAN, -f32::NAN, f32::INFINITY];
        vocab.scores.resize_with(count, || scores[random.below(scores.len())]);
        if random.below(8) == 0 {
            vocab.kinds = (0..count).map(|_| TokenKind::from_number(random.below(8) as i32)).collect();
        }
        vocab.roles.bos = Some(random.below(count + 4) as u32);
        vocab.roles.unknown = Some(random.below(count + 4) as u32);
        vocab.add_bos = Some(true);
        let Ok(tokenizer) = Tokenizer::from_vocab(vocab) else { continue };
        built += 1;
        for text in texts {
            for parse in [false, true] {
                let ids = tokenizer.encode(text, true, parse);
                assert!(ids.iter().all(|&id| (id as usize) < count));
                let _ = tokenizer.decode(&ids, parse);
            }
        }
        let _ = tokenizer.decode(&(0..count as u32 + 2).collect::<Vec<_>>(), true);
    }
    assert!(built > 250, "only {built} vocabularies could be built");
}

/// A small generator with a fixed seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}
