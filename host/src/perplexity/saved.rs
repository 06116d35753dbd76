//! The file that holds the log-probabilities of a run, so that another run can be compared with it.
//!
//! All numbers are little-endian, nothing is padded:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `lanelogp` |
//! | 4 | the form of the file: 1 |
//! | 4 | tokens of a chunk, `n` |
//! | 4 | chunks, `c` |
//! | 4 | tokens of the vocabulary, `v` |
//! | 32 | sha256 of the model's files |
//! | 32 | sha256 of the text |
//! | 4 `n c` | token ids of all chunks as they were evaluated, u32 |
//! | 4 `v c (n - 1 - n / 2)` | log-probabilities, f32: a row of `v` for each scored position, in order |
//!
//! f32 because a run compared with itself must be off by nothing, and half as many bits would hide what a
//! kernel's rounding does.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{SMALLEST_CONTEXT, Text, scored};
use crate::folder::folder_of;

const MAGIC: [u8; 8] = *b"lanelogp";
const FORM: u32 = 1;
/// Bytes before the token ids.
const FIXED: usize = 8 + 4 * 4 + 2 * 32;

/// Why a file of log-probabilities could not be written or used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried: `write`, `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no such file, or a damaged one.
    #[error("{} is no file of --save-logits: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is of something else.
    #[error("{} cannot be compared with: {reason}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
}

/// What the file says before the log-probabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// sha256 of the model's files.
    pub model: [u8; 32],
    /// sha256 of the text.
    pub text: [u8; 32],
    /// The chunks.
    pub tokens: Text,
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let Self { vocab_size, model, text, tokens } = self;
        let sizes = [tokens.context(), tokens.chunks(), *vocab_size].map(|size| size as u32);
        let mut bytes = MAGIC.to_vec();
        [FORM].iter().chain(&sizes).for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(model);
        bytes.extend(text);
        tokens.tokens().iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes
    }
}

/// A file that is being written: it has its name only once it is whole.
#[derive(Debug)]
pub struct Writer {
    out: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl Writer {
    /// Begins a file beside `path`, with what stands before the log-probabilities.
    ///
    /// # Errors
    /// [`SavedError::File`].
    pub fn create(path: &Path, header: &Header) -> Result<Self, SavedError> {
        let error = |source| SavedError::File { action: "write", path: path.to_path_buf(), source };
        // A name that is a device's or a folder's must not be taken from it.
        if path.exists() && !path.is_file() {
            return Err(error(io::Error::other("it is there and no file")));
        }
        let mut temporary = tempfile::Builder::new();
        temporary.prefix(".lanemap-");
        // As other files are made: what others may read is the user's mask.
        #[cfg(unix)]
        temporary.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = folder_of(path).and_then(|folder| temporary.tempfile_in(folder)).map_err(error)?;
        let mut out = BufWriter::new(file);
        out.write_all(&header.bytes()).map_err(error)?;
        Ok(Self { out, path: path.to_path_buf() })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// [`SavedError::File`].
    pub fn write(&mut self, rows: &[f32]) -> Result<(), SavedError> {
        let write = |out: &mut BufWriter<_>| rows.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()));
        write(&mut self.out).map_err(|source| self.error(source))
    }

    /// Gives the file its name, in place of one that has it.
    ///
    /// # Errors
    /// [`SavedError::File`].
    pub fn finish(self) -> Result<(), SavedError> {
        let Self { out, path } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| {
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)
        });
        file.map(drop).map_err(|source| SavedError::File { action: "write", path, source })
    }

    fn error(&self, source: io::Error) -> SavedError {
        SavedError::File { action: "write", path: self.path.clone(), source }
    }
}

/// A file that is being read.
#[derive(Debug)]
pub struct Reader {
    input: BufReader<File>,
    path: PathBuf,
    header: Header,
    rows: Vec<f32>,
}

impl Reader {
    /// Opens a file and checks that it is whole.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn open(path: &Path) -> Result<Self, SavedError> {
        let error = |source| SavedError::File { action: "read", path: path.to_path_buf(), source };
        let form = |reason: &str| SavedError::Form { path: path.to_path_buf(), reason: reason.to_owned() };
        let file = File::open(path).map_err(error)?;
        let len = file.metadata().map_err(error)?.len();
        if len < FIXED as u64 {
            return Err(form("it is too short"));
        }
        let mut input = BufReader::new(file);
        let mut fixed = [0; FIXED];
        input.read_exact(&mut fixed).map_err(error)?;
        if fixed[..8] != MAGIC {
            return Err(form("it does not begin as one"));
        }
        let numbers = u32s(&fixed[8..24]);
        let [known, context, chunks, vocab_size] = numbers[..] else { return Err(form("it is too short")) };
        if known != FORM {
            return Err(form(&format!("form {known} is not known here, only {FORM}")));
        }
        let (context, chunks, vocab_size) = (context as usize, chunks as usize, vocab_size as usize);
        // No size is believed before the file's length agrees, so nothing large is allocated for a few bytes.
        let expected = (context >= SMALLEST_CONTEXT && chunks > 0 && vocab_size > 0).then(|| {
            let (context, chunks) = (context as u128, chunks as u128);
            FIXED as u128 + 4 * chunks * (context + vocab_size as u128 * scored(context as usize) as u128)
        });
        if expected != Some(len.into()) {
            return Err(form(&format!(
                "{len} bytes do not hold {chunks} chunks of {context} tokens with a vocabulary of {vocab_size}"
            )));
        }
        let mut bytes = vec![0; 4 * context * chunks];
        input.read_exact(&mut bytes).map_err(error)?;
        let (mut model, mut text) = ([0; 32], [0; 32]);
        model.copy_from_slice(&fixed[24..56]);
        text.copy_from_slice(&fixed[56..]);
        let header = Header { vocab_size, model, text, tokens: Text { context, tokens: u32s(&bytes) } };
        Ok(Self { input, path: path.to_path_buf(), header, rows: Vec::new() })
    }

    /// What it says before the log-probabilities.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// That it is of the same tokens, or begins with them.
    ///
    /// # Errors
    /// [`SavedError::Other`] with the first difference.
    pub fn fits(&self, text: &Text, vocab_size: usize) -> Result<(), SavedError> {
        let other = |reason| Err(SavedError::Other { path: self.path.clone(), reason });
        let Header { vocab_size: theirs, tokens: saved, .. } = &self.header;
        if *theirs != vocab_size {
            return other(format!("its vocabulary has {theirs} tokens, this model's {vocab_size}"));
        }
        if saved.context() != text.context() {
            return other(format!("its chunks have {} tokens; use --ctx {0}", saved.context()));
        }
        let mut pairs = saved.tokens().iter().zip(text.tokens()).enumerate();
        if let Some((at, (theirs, own))) = pairs.find(|(_, (theirs, own))| theirs != own) {
            return other(format!(
                "it is of another text or another tokenizer: token {at} is {theirs} there and {own} here"
            ));
        }
        if saved.chunks() < text.chunks() {
            return other(format!(
                "it has {} chunks, this run {}; use --chunks {0}",
                saved.chunks(),
                text.chunks()
            ));
        }
        Ok(())
    }

    /// The next rows.
    ///
    /// # Errors
    /// [`SavedError::File`].
    pub fn read(&mut self, rows: usize) -> Result<&[f32], SavedError> {
        self.rows.resize(rows * self.header.vocab_size, f32::NAN);
        let read = self.input.read_exact(bytemuck::cast_slice_mut(&mut self.rows));
        read.map_err(|source| SavedError::File { action: "read", path: self.path.clone(), source })?;
        if cfg!(target_endian = "big") {
            self.rows.iter_mut().for_each(|row| *row = f32::from_bits(row.to_bits().swap_bytes()));
        }
        Ok(&self.rows)
    }

    /// The error of a row that holds no log-probabilities.
    #[must_use]
    pub fn not_probabilities(&self, chunk: usize, position: usize) -> SavedError {
        let reason = format!("chunk {chunk}, position {position}: what it holds are no log-probabilities");
        SavedError::Form { path: self.path.clone(), reason }
    }
}

fn u32s(bytes: &[u8]) -> Vec<u32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::fs;

    use super::*;

    fn header() -> Header {
        let tokens = Text::new((0..9).collect(), 4, Some(8), None).unwrap();
        Header { vocab_size: 3, model: [7; 32], text: [9; 32], tokens }
    }

    /// One row of three for each of the two chunks.
    const ROWS: [f32; 6] = [-0.5, -1.0, -2.0, -3.0, f32::MIN, -0.0];

    fn saved(path: &Path) {
        let mut writer = Writer::create(path, &header()).unwrap();
        writer.write(&ROWS[..3]).unwrap();
        writer.write(&ROWS[3..]).unwrap();
        assert!(!path.exists(), "the name before the whole");
        writer.finish().unwrap();
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.logits");
        saved(&path);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 88 + 4 * 8 + 4 * 6);
        assert_eq!(
            bytes[..24],
            [&b"lanelogp"[..], &[1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]].concat()
        );
        assert_eq!((bytes[24], bytes[56], &bytes[88..96]), (7, 9, &[8, 0, 0, 0, 1, 0, 0, 0][..]));

        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.header(), &header());
        reader.fits(&header().tokens, 3).unwrap();
        assert_eq!(reader.read(1).unwrap(), &ROWS[..3]);
        assert_eq!(reader.read(1).unwrap(), &ROWS[3..]);
        assert!(reader.read(1).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_run_that_ends_early_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.logits");
        fs::write(&path, "before").unwrap();
        let mut writer = Writer::create(&path, &header()).unwrap();
        writer.write(&ROWS).unwrap();
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.logits");
        saved(&path);
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            Reader::open(&path).unwrap_err().to_string()
        };
        for len in 0..whole.len() {
            assert!(refused(&whole[..len]).contains("a.logits is no file of --save-logits"), "{len} bytes");
        }
        assert!(refused(&[&whole[..], &[0]].concat()).contains("145 bytes do not hold 2 chunks of 4 tokens"));
        for (at, byte) in [(0, 0), (8, 2), (12, 2), (15, 255), (16, 0), (19, 255), (20, 0), (23, 255)] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            refused(&bytes);
        }
    }

    #[test]
    fn only_the_same_tokens_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.logits");
        saved(&path);
        let reader = Reader::open(&path).unwrap();
        let text = |tokens: &[u32], context| Text::new(tokens.to_vec(), context, None, None).unwrap();
        reader.fits(&text(&[8, 1, 2, 3], 4), 3).unwrap();
        for (text, vocab_size, reason) in [
            (text(&[8, 1, 2, 3], 4), 4, "3 tokens, this model's 4"),
            (text(&[8, 1, 2, 3, 8], 5), 3, "use --ctx 4"),
            (text(&[8, 1, 2, 4], 4), 3, "token 3 is 3 there and 4 here"),
            (text(&[8, 1, 2, 3, 8, 5, 6, 7, 8, 9, 9, 9], 4), 3, "2 chunks, this run 3; use --chunks 2"),
        ] {
            let error = reader.fits(&text, vocab_size).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
