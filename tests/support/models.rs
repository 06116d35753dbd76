//! The demo models and the values recorded for them.

use std::io::Write;
use std::path::PathBuf;

use lanemap::pull::{self, Progress};

/// The file of a demo model, fetched if it is not in the cache and has no terms to accept, or
/// `None` after a loud word on why the test is skipped.
pub(crate) fn real_model(id: &str) -> Option<PathBuf> {
    let model = pull::find(id).unwrap_or_else(|| panic!("there is no demo model {id}"));
    let found = match pull::cached(model) {
        Ok(None) => pull::pull(model, false, Progress::Silent),
        Ok(Some(path)) => Ok(path),
        Err(error) => Err(error),
    };
    match found {
        Ok(path) => Some(path),
        Err(error) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // `eprintln!` would be kept back, as all output of tests that pass.
            let skipped = format!("SKIPPED: {test}: it needs the model {id}: {error}\n");
            let _ = std::io::stderr().write_all(skipped.as_bytes());
            None
        }
    }
}

/// The records of `tests/data/goldens/{id}.jsonl`.
pub(crate) fn goldens(id: &str) -> Vec<serde_json::Value> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/goldens").join(format!("{id}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON record")).collect()
}
