//! `lanemap inspect`: what a GGUF file holds, for people or as JSON.

mod json;
mod listing;

use std::path::PathBuf;

use anyhow::Result;
use gpu::quant::Format;

use super::output::to_stdout;
use crate::gguf::{Gguf, TensorInfo};

/// Lists the metadata and tensors of a GGUF file
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file; of a split model, its first part
    file: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print long strings and arrays in full
    #[arg(long)]
    full: bool,
}

/// Runs the command.
///
/// # Errors
/// The file cannot be opened as GGUF, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let gguf = Gguf::open(&args.file)?;
    to_stdout(|out| {
        if args.json { json::write(out, &gguf, args.full) } else { listing::write(out, &gguf, args.full) }
    })
}

/// Tensors counted together: all, or those of one format.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    tensors: usize,
    parameters: u64,
    bytes: u64,
}

impl Totals {
    fn of<'a>(tensors: impl Iterator<Item = &'a TensorInfo>) -> Self {
        tensors.fold(Self::default(), |sum, tensor| Self {
            tensors: sum.tensors + 1,
            parameters: sum.parameters + tensor.elements() as u64,
            bytes: sum.bytes + tensor.byte_len() as u64,
        })
    }

    /// `None` without parameters.
    fn bits_per_weight(&self) -> Option<f64> {
        (self.parameters > 0).then(|| self.bytes as f64 * 8.0 / self.parameters as f64)
    }
}

/// The formats that occur, those with most bytes first.
fn by_format(gguf: &Gguf) -> Vec<(Format, Totals)> {
    let totals = |format| Totals::of(gguf.tensors().iter().filter(move |tensor| tensor.format == format));
    let mut formats: Vec<_> = Format::ALL
        .into_iter()
        .map(|format| (format, totals(format)))
        .filter(|(_, t)| t.tensors > 0)
        .collect();
    formats.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.bytes));
    formats
}
