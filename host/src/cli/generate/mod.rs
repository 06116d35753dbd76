//! `lanemap generate`: text from a model.

mod args;
mod generation;
mod interrupt;
mod prompt;
mod report;
mod stop;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

pub use args::Args;

use self::args::PromptArgs;
use self::generation::{GenerationError, Request, StopReason, Surroundings};
use self::report::{Report, Timings};
use super::output::{note, to_stdout, unless_closed};
use super::{UsageError, pull};
use crate::cpu::{CpuBackend, CpuOptions};
use crate::gguf::Gguf;
use crate::model::Model;
use crate::sampling::{Sampler, SamplingOptions};
use crate::session::Session;
use crate::tokenizer::{ChatTemplate, Message, Tokenizer};

/// The context that is used unless more is needed or another one is asked for: enough for a
/// conversation, and small enough for any machine.
const DEFAULT_CONTEXT: usize = 4096;
