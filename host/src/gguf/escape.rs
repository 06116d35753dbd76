//! Text of a file made safe to print: a name in a hostile file cannot move the terminal's
//! cursor, hide a line or fill the screen.

use std::fmt::Write;

/// The first `max_chars` characters, with quotes, backslashes, control and other invisible
/// characters escaped as in Rust, bytes that are not UTF-8 as `\xNN`, and `…` where more follows.
#[must_use]
pub fn escape(bytes: &[u8], max_chars: usize) -> String {
    let mut out = String::new();
    let mut left = max_chars;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(Piece::Char);
        let invalid = chunk.invalid().iter().copied().map(Piece::Byte);
        for piece in valid.chain(invalid) {
            if left == 0 {
                out.push('…');
                return out;
            }
            left -= 1;
            match piece {
                // Quoted with double quotes, an apostrophe needs no backslash.
                Piece::Char('\'') => out.push('\''),
                Piece::Char(c) => out.extend(c.escape_debug()),
                Piece::Byte(b) => _ = write!(out, "\\x{b:02x}"),
            }
        }
    }
    out
}

enum Piece {
    Char(char),
    Byte(u8),
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn control_characters_and_stray_bytes_become_text() {
        assert_eq!(escape(b"a\x1b[2J\n\"q\"\\ 'it'", 99), r#"a\u{1b}[2J\n\"q\"\\ 'it'"#);
        assert_eq!(escape(b"\xf0\x9f ok \xff", 99), r"\xf0\x9f ok \xff");
        assert_eq!(escape("Ġdes é 海 \u{202e}x".as_bytes(), 99), r"Ġdes é 海 \u{202e}x");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(escape("海海海".as_bytes(), 2), "海海…");
        assert_eq!(escape("海海".as_bytes(), 2), "海海");
        assert_eq!(escape(b"x", 0), "…");
        assert_eq!(escape(b"", 0), "");
    }
}
