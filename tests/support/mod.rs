//! What the integration tests share.

use std::path::PathBuf;

/// The file of a real model, if it is in the cache folder.
pub(crate) fn real_model(id: &str) -> Option<PathBuf> {
    let file = match id {
        "smollm2-135m" => "SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma3-270m" => "gemma-3-270m-q4_k_m.gguf",
        _ => return None,
    };
    let path = PathBuf::from(std::env::var_os("LANEMAP_CACHE")?).join(file);
    path.exists().then_some(path)
}
