//! `lanemap tokenize`: what a model sees of a text.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use super::load::{ModelFile, Source};
use super::machine::FileArgs;
use super::output::to_stdout;
use super::prompt;
use crate::tokenizer::Tokenizer;

/// Print the token ids of a text, and the piece that each stands for
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The text; without it and without --file it is read from stdin
    text: Option<OsString>,

    /// Read the text from a file; -: stdin
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,

    #[command(flatten)]
    model: FileArgs,

    /// Read control tokens written in the text as such
    #[arg(long)]
    special: bool,

    /// Leave out the tokens that the model wants around a text
    #[arg(long)]
    no_bos: bool,

    /// Print the ids alone, as one JSON array
    #[arg(long)]
    ids: bool,
}

/// Runs `lanemap tokenize`.
///
/// # Errors
/// When the text cannot be read, the model has no usable vocabulary, or stdout cannot be
/// written to.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = prompt::read(args.text.as_deref(), args.file.as_deref())?;
    let tokenizer = ModelFile::open(Source::File(args.model.path()?))?.tokenizer()?;
    let ids = tokenizer.encode(&text, !args.no_bos, args.special);
    to_stdout(|out| {
        if args.ids {
            serde_json::to_writer(&mut *out, &ids)?;
            return writeln!(out);
        }
        for &id in &ids {
            writeln!(out, "{id:7} {}", piece(&tokenizer, id))?;
        }
        Ok(())
    })
}

/// What a token prints, quoted; a control token shows its name. Bytes that are no whole
/// character stand as `\xNN`.
pub(super) fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = tokenizer.piece(id, true).unwrap_or(Cow::Borrowed(&[]));
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        quoted.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted + "\""
}
