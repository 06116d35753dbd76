//! Which characters of a rendered template came from messages.
//!
//! The template runs twice. The first run takes the messages as they are, and its text is the
//! result. The second takes messages in which every visible character is followed by a tag, a
//! character that occurs nowhere else; wherever a tag stands in its output, the character
//! before it is a user's. However the template trims, splits and joins a message, a piece of it
//! keeps its tags. The second run must give the first one's text once its tags are removed.
//! White space gets no tag, so that trimming and splitting into lines work.
//!
//! It does not give the same text if the template looks for a literal in a message and finds it,
//! as in `content.split('</think>')`. Then runs follow in which such literals, gathered from
//! the template's source, stay untagged in the messages; as few of them as it takes. Where an
//! untagged literal stands in the output, it may be the template's or the user's: it counts as
//! the user's. If no such run gives the right text, the template is refused: a guess would let
//! users write control tokens.

use std::collections::BTreeSet;

use super::ChatError;
use crate::tokenizer::Segment;

/// Literals of the template that messages may hold: each costs a run.
const MOST_LITERALS: usize = 64;

/// Renders `contents`, the texts of the messages, with `run` and tells whose the text is.
pub(super) fn render(
    source: &str,
    contents: &[&str],
    run: impl Fn(&[String]) -> Result<String, ChatError>,
) -> Result<Vec<Segment>, ChatError> {
    let owned: Vec<String> = contents.iter().map(|&content| content.to_owned()).collect();
    let text = run(&owned)?;

    let tag = unused_character(source, contents).ok_or(ChatError::Untraceable)?;
    // Bytes of `text` that are a user's, if a run with these literals untagged gives `text`.
    let trace = |untagged: &[&str]| -> Option<Vec<bool>> {
        let tagged: Vec<String> = contents.iter().map(|content| tagged(content, tag, untagged)).collect();
        untag(&run(&tagged).ok()?, tag, &text)
    };

    let literals;
    let mut untagged: Vec<&str> = Vec::new();
    let mut users = trace(&untagged);
    if users.is_none() {
        literals = self::literals(source);
        untagged.extend(
            literals
                .iter()
                .map(String::as_str)
                .filter(|literal| contents.iter().any(|content| content.contains(literal))),
        );
        if untagged.len() > MOST_LITERALS {
            return Err(ChatError::Untraceable);
        }
        users = trace(&untagged);
        let mut index = 0;
        while users.is_some() && index < untagged.len() {
            let mut fewer = untagged.clone();
            fewer.remove(index);
            match trace(&fewer) {
                Some(found) => (untagged, users) = (fewer, Some(found)),
                None => index += 1,
            }
        }
    }
    let mut users = users.ok_or(ChatError::Untraceable)?;
    for (start, _) in text.char_indices() {
        for literal in untagged.iter().filter(|literal| text[start..].starts_with(**literal)) {
            users[start..start + literal.len()].fill(true);
        }
    }
    claim_spaces(&text, &mut users);
    Ok(segments(&text, &users))
}

/// A character that occurs neither in the template nor in a message: a noncharacter, which no
/// text should hold, or else one for private use.
fn unused_character(source: &str, contents: &[&str]) -> Option<char> {
    let used: BTreeSet<char> =
        contents.iter().copied().chain([source]).flat_map(str::chars).filter(|c| !c.is_ascii()).collect();
    ('\u{FDD0}'..='\u{FDEF}').chain('\u{F0000}'..='\u{FFFFD}').find(|c| !used.contains(c))
}

/// `content` with `tag` after every visible character that lies in no literal of `untagged`.
fn tagged(content: &str, tag: char, untagged: &[&str]) -> String {
    let mut tagged = String::with_capacity(content.len() * 4);
    let mut rest = content;
    while let Some(c) = rest.chars().next() {
        let literal = untagged.iter().filter(|literal| rest.starts_with(**literal)).max_by_key(|l| l.len());
        let taken = literal.map_or(c.len_utf8(), |literal| literal.len());
        tagged.push_str(&rest[..taken]);
        if literal.is_none() && !c.is_whitespace() {
            tagged.push(tag);
        }
        rest = &rest[taken..];
    }
    tagged
}

/// Which bytes of `text` bear a tag in `rendered`; `None` if that is another text.
fn untag(rendered: &str, tag: char, text: &str) -> Option<Vec<bool>> {
    let mut users = vec![false; text.len()];
    let mut at = 0;
    let mut last = 0..0;
    for c in rendered.chars() {
        if c == tag {
            users[last.clone()].fill(true);
        } else if text[at..].starts_with(c) {
            last = at..at + c.len_utf8();
            at = last.end;
        } else {
            return None;
        }
    }
    (at == text.len()).then_some(users)
}

/// White space between two characters of a user is the user's too.
fn claim_spaces(text: &str, users: &mut [bool]) {
    let mut end_of_users = None;
    for (start, c) in text.char_indices() {
        if users[start] {
            if let Some(end) = end_of_users {
                users[end..start].fill(true);
            }
            end_of_users = Some(start + c.len_utf8());
        } else if !c.is_whitespace() {
            end_of_users = None;
        }
    }
}

/// `text`, cut where its origin changes.
fn segments(text: &str, users: &[bool]) -> Vec<Segment> {
    let mut start = 0;
    users
        .chunk_by(|a, b| a == b)
        .map(|run| {
            let end = start + run.len();
            let segment = Segment { text: text[start..end].to_owned(), trusted: !run[0] };
            start = end;
            segment
        })
        .collect()
}

/// The string literals in a template's expressions and statements that are longer than one
/// character and not all white space.
fn literals(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut characters = source.chars().peekable();
    while let Some(c) = characters.next() {
        if c != '{' {
            continue;
        }
        let end = match characters.next_if(|c| matches!(c, '{' | '%' | '#')) {
            Some('{') => '}',
            Some(other) => other,
            None => continue,
        };
        // To the end of the tag, which no string can hold; in a comment a quote is just a quote.
        while let Some(c) = characters.next() {
            match c {
                '\'' | '"' if end != '#' => {
                    let literal = literal(&mut characters, c);
                    if literal.chars().count() > 1 && !literal.trim().is_empty() {
                        found.insert(literal);
                    }
                }
                _ if c == end && characters.next_if_eq(&'}').is_some() => break,
                _ => {}
            }
        }
    }
    found
}

/// The rest of a string literal after its opening `quote`.
fn literal(characters: &mut impl Iterator<Item = char>, quote: char) -> String {
    let mut text = String::new();
    while let Some(c) = characters.next() {
        match c {
            _ if c == quote => break,
            '\\' => match characters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => {}
            },
            _ => text.push(c),
        }
    }
    text
}
