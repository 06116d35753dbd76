//! The Jinja dialect of Hugging Face's chat templates.

use std::error::Error as _;

use chrono::format::StrftimeItems;
use chrono::{DateTime, Local};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, filters};

/// Macros and includes in one another, and nested loops.
const DEPTH: usize = 100;

/// The words of a template that called `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// An environment with what Hugging Face's `apply_chat_template` gives a template: a block tag
/// takes its line with it, Python's methods on strings, lists and dictionaries,
/// `raise_exception`, and `tojson` that leaves `<`, `>`, `&` and `'` as they are.
pub(super) fn hugging_face() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
    environment.set_recursion_limit(DEPTH);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |words: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, words.clone()).with_source(Refusal(words)))
    });
    environment
}

/// What the template said if the error is its own refusal.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(Refusal(words)) = error.downcast_ref() {
            return Some(words.clone());
        }
        source = error.source();
    }
    None
}

/// The function `strftime_now`, at a fixed time.
pub(super) fn strftime(now: DateTime<Local>) -> Value {
    Value::from_function(move |format: &str| {
        let items = StrftimeItems::new(format).parse().map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now: no such format: {format:?}"))
        })?;
        Ok::<_, Error>(now.format_with_items(items.iter()).to_string())
    })
}

/// minijinja's `tojson` makes JSON that is also safe inside HTML; a prompt is not HTML.
fn tojson(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let json = filters::tojson(value, indent, options)?;
    let escaped = json.as_str().unwrap_or_default();
    let mut plain = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let html = [(r"\u003c", '<'), (r"\u003e", '>'), (r"\u0026", '&'), (r"\u0027", '\'')];
        if let Some((escape, c)) = html.into_iter().find(|(escape, _)| rest.starts_with(escape)) {
            plain.push(c);
            rest = &rest[escape.len()..];
        } else {
            // Any other escape is kept, both characters: the second may be a backslash.
            let escape = rest.chars().take(2).map(char::len_utf8).sum();
            plain.push_str(&rest[..escape]);
            rest = &rest[escape..];
        }
    }
    plain.push_str(rest);
    Ok(Value::from(plain))
}
