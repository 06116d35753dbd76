//! The demo models and the values recorded for them.

use std::io::Write;
use std::path::PathBuf;

/// The file of a demo model, or `None` after a loud word on why the test is skipped.
pub(crate) fn real_model(id: &str) -> Option<PathBuf> {
    let model = lanemap::pull::find(id).unwrap_or_else(|| panic!("there is no demo model {id}"));
    match lanemap::pull::cached(model) {
        Ok(Some(path)) => Some(path),
        absent => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            let why = absent.err().map_or_else(|| "it is not in the cache".into(), |error| error.to_string());
            // `eprintln!` would be kept back, as all output of tests that pass.
            let skipped =
                format!("SKIPPED: {test}: it needs the model {id}: {why}; run `lanemap pull {id}`\n");
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
