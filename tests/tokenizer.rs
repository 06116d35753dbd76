//! The tokenizers of the real models against ids recorded with llama.cpp.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use lanemap::gguf::Gguf;
use lanemap::tokenizer::{Detokenizer, Tokenizer};
use serde::Deserialize;

/// The fields of a line of `tests/data/goldens/*.jsonl` that concern tokens.
#[derive(Deserialize)]
struct Golden {
    text: String,
    special: bool,
    tokens: Vec<u32>,
}

fn goldens(id: &str) -> Vec<Golden> {
    let path = format!("{}/../tests/data/goldens/{id}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let lines = std::fs::read_to_string(path).unwrap();
    let goldens: Vec<Golden> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(goldens.len() >= 50, "the golden file of {id} has only {} lines", goldens.len());
    goldens
}

/// The model file, or `None` after saying loudly that the test does not run.
fn model(test: &str, id: &str) -> Option<Gguf> {
    let Some(path) = support::models::real_model(id) else {
        eprintln!("SKIPPED: {test}: {id} is not in the cache: run `lanemap pull {id}`");
        return None;
    };
    Some(Gguf::open(&path).unwrap())
}

fn check_goldens(test: &str, id: &str) {
    let Some(gguf) = model(test, id) else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let mut wrong = Vec::new();
    for Golden { text, special, tokens } in goldens(id) {
        let found = tokenizer.encode(&text, true, special);
        if found != tokens {
            wrong.push(format!("{text:?}\n expected {tokens:?}\n found    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} texts of {id} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn check_round_trip(test: &str, id: &str) {
    let Some(gguf) = model(test, id) else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    for Golden { text, .. } in goldens(id) {
        let tokens = tokenizer.encode(&text, true, false);
        assert_eq!(tokenizer.decode(&tokens, false), text, "{id}: {tokens:?}");
        let mut stream = Detokenizer::new(false);
        let streamed: String = tokens.iter().map(|&token| stream.push(&tokenizer, token)).collect();
        assert_eq!(streamed + &stream.finish(), text, "{id}, streamed: {tokens:?}");
    }
}

#[test]
fn smollm2_gives_the_recorded_ids() {
    check_goldens("smollm2_gives_the_recorded_ids", "smollm2-135m");
}

#[test]
fn gemma3_gives_the_recorded_ids() {
    check_goldens("gemma3_gives_the_recorded_ids", "gemma3-270m");
}

#[test]
fn smollm2_decodes_what_it_encodes() {
    check_round_trip("smollm2_decodes_what_it_encodes", "smollm2-135m");
}

#[test]
fn gemma3_decodes_what_it_encodes() {
    check_round_trip("gemma3_decodes_what_it_encodes", "gemma3-270m");
}
