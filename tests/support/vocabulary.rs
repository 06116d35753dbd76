//! A small byte-level vocabulary, for integration tests and unit tests.

/// The texts of a vocabulary.
pub(crate) struct ByteLevel {
    /// The token of a byte is its value; then come what the merges make, then control tokens.
    pub(crate) tokens: Vec<String>,
    /// How many of them are text.
    pub(crate) text: usize,
}

/// A vocabulary of all bytes, of what `merges` make (each `left right`) and of control tokens.
pub(crate) fn byte_level(merges: &[&str], control: &[&str]) -> ByteLevel {
    // Bytes that are no printable characters of Latin-1 are written as those from 256 on.
    let hidden = |byte: u8| matches!(byte, 0..=32 | 127..=160 | 173);
    let mut next = 0x100;
    let mut tokens: Vec<String> = (0..=u8::MAX)
        .map(|byte| {
            let code = if hidden(byte) { next } else { u32::from(byte) };
            next += u32::from(hidden(byte));
            char::from_u32(code).into_iter().collect()
        })
        .collect();
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let text = tokens.len();
    tokens.extend(control.iter().map(ToString::to_string));
    ByteLevel { tokens, text }
}
