//! The parser's refusals in one line, as every other error.

use clap::Error;

/// The message without the usage text and the hint at `--help` that follow it. Paragraphs
/// are joined by `; `.
pub(super) fn one_line(error: &Error) -> String {
    let text = error.render().to_string();
    let mut paragraphs: Vec<String> = Vec::new();
    for paragraph in text.split("\n\n") {
        let paragraph = paragraph.trim();
        if paragraph.starts_with("Usage:") || paragraph.starts_with("For more information") {
            break;
        }
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        if !words.is_empty() {
            paragraphs.push(words.join(" "));
        }
    }
    paragraphs.join("; ")
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let batch = Arg::new("batch").long("batch").value_parser(clap::value_parser!(u32).range(1..));
        let file = Arg::new("file").long("file").required(true);
        let command = Command::new("x").args([batch, file]);
        command
            .try_get_matches_from([&["x"], arguments].concat())
            .map_or_else(|e| one_line(&e), |_| String::new())
    }

    #[test]
    fn a_refusal_names_flag_and_value_in_one_line() {
        assert_eq!(
            refusal(&["--batch", "0", "--file", "a"]),
            "error: invalid value '0' for '--batch <batch>': 0 is not in 1..=4294967295"
        );
        assert_eq!(refusal(&[]), "error: the following required arguments were not provided: --file <file>");
        assert_eq!(
            refusal(&["--fil", "a"]),
            "error: unexpected argument '--fil' found; tip: a similar argument exists: '--file'"
        );
    }
}
