//! The demo models and the values recorded for them.

use std::path::PathBuf;

/// The file of a demo model, or `None` after a loud word on why the test is skipped.
pub(crate) fn real_model(id: &str) -> Option<PathBuf> {
    let name = match id { "smollm2-135m" => "SmolLM2-135M-Instruct.Q4_1.gguf", _ => "gemma-3-270m-q4_k_m.gguf" };
    let path = PathBuf::from(std::env::var("LANEMAP_CACHE").ok()?).join(name);
    path.exists().then_some(path)
}

/// The records of `tests/data/goldens/{id}.jsonl`.
pub(crate) fn goldens(id: &str) -> Vec<serde_json::Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/goldens").join(format!("{id}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON record")).collect()
}
