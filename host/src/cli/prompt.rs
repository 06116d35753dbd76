//! Where the prompt comes from, and its bytes as text.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::Context;

use crate::cli::UsageError;

/// No context holds this much text; a device file without an end would fill the memory.
const MAX_BYTES: u64 = 64 << 20;

/// Reads the prompt: the argument, else the file (`-` is stdin), else stdin unless it is a
/// terminal. All three are treated alike: UTF-8, a byte order mark at the start is dropped,
/// and nothing else is changed, line ends included.
///
/// # Errors
/// A [`UsageError`] when there is no prompt, it is too long or is not UTF-8; another error
/// when it cannot be read.
pub(super) fn read(argument: Option<&OsStr>, file: Option<&Path>) -> anyhow::Result<String> {
    if let Some(argument) = argument {
        return text(argument.as_encoded_bytes(), "the prompt");
    }
    match file {
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            text(&bounded(file, &name)?, &name)
        }
        None if io::stdin().is_terminal() => {
            Err(UsageError("no prompt: give it as an argument, with --file, or on stdin".into()).into())
        }
        _ => text(&bounded(io::stdin().lock(), "the prompt on stdin")?, "the prompt on stdin"),
    }
}

fn bounded(source: impl Read, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(UsageError(format!("{name} is longer than {} MiB", MAX_BYTES >> 20)).into());
    }
    Ok(bytes)
}

fn text(bytes: &[u8], name: &str) -> anyhow::Result<String> {
    let utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned()),
        Err(error) => {
            let at = error.valid_up_to();
            let hint = if utf16 { " (it looks like UTF-16: convert it first)" } else { "" };
            Err(UsageError(format!("{name} is not valid UTF-8 at byte {at} (0x{:02x}){hint}", bytes[at]))
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::io::Write;

    use super::*;

    fn from_file(bytes: &[u8]) -> anyhow::Result<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(None, Some(file.path()))
    }

    #[test]
    fn a_file_is_taken_as_it_is() {
        for text in ["", "a\nb", "a\nb\n", "a\r\nb\r\n", "a\rb\r", "a\0b", "   ", "é\u{feff}"] {
            assert_eq!(from_file(text.as_bytes()).unwrap(), text);
            assert_eq!(read(Some(text.as_ref()), None).unwrap(), text);
        }
    }

    #[test]
    fn a_byte_order_mark_is_dropped_once() {
        for text in ["\u{feff}a\n", "\u{feff}\u{feff}a\n"] {
            assert_eq!(from_file(text.as_bytes()).unwrap(), text[3..]);
            assert_eq!(read(Some(text.as_ref()), None).unwrap(), text[3..]);
        }
    }

    #[test]
    fn invalid_utf8_is_a_usage_error_with_its_offset() {
        for (bytes, expected) in [
            (&b"abc\xffdef"[..], "at byte 3 (0xff)"),
            (b"ab\xe2\x82", "at byte 2 (0xe2)"),
            (b"\xff\xfea\0b\0", "at byte 0 (0xff) (it looks like UTF-16"),
        ] {
            let error = from_file(bytes).unwrap_err();
            assert!(error.downcast_ref::<UsageError>().is_some());
            let message = error.to_string();
            let named = message.starts_with(&std::env::temp_dir().display().to_string());
            assert!(named && message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = format!("{:#}", read(None, Some(Path::new("no/such.txt"))).unwrap_err());
        assert!(message.contains("no/such.txt"), "{message}");
    }

    #[test]
    fn a_source_without_an_end_is_cut_off() {
        let error = bounded(io::repeat(b'a'), "it").unwrap_err();
        assert!(error.to_string().contains("64 MiB"));
    }
}
