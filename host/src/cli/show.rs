//! `lanemap show`: draws a lane map, in the terminal or as SVG.

pub(super) mod palette;
mod picture;
pub(super) mod svg;
mod terminal;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use gpu::fragment::Fragment;
use terminal_size::{Width, terminal_size};

use self::picture::Picture;
use super::UsageError;
use super::output::{note, to_stdout};

/// The name of the drawing that is no fragment.
const IDENTITY: &str = "identity";

/// Draw which lane holds which element of a matrix, and in which register
///
/// A cell shows the lane and, as an index, which of the lane's elements it is; a colour stands for
/// a group of four lanes. `identity` draws the accumulator beside the A operand that it already is.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The fragment to draw, as `--list` names them, or `identity`
    #[arg(required_unless_present = "list", hide_possible_values = true)]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    fragment: Option<String>,

    /// List the fragments and their shapes
    #[arg(long, conflicts_with_all = ["fragment", "lane", "svg"])]
    list: bool,

    /// Mark this lane, and list what it holds
    #[arg(long, value_name = "N")]
    lane: Option<u32>,

    /// Write an SVG picture to this file instead, `-` is stdout
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// When to colour; NO_COLOR turns `auto` off
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: When,
}

/// When the drawing is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal
    #[default]
    Auto,
    /// Into files and pipes as well
    Always,
    /// Not at all
    Never,
}

impl When {
    /// `no_color` and `term` are the environment variables, `terminal` whether stdout is one.
    fn coloured(self, no_color: Option<&OsStr>, term: Option<&OsStr>, terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
            }
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    Fragment::ALL.iter().map(|fragment| fragment.name).chain([IDENTITY])
}

/// Runs the command.
///
/// # Errors
/// The fragment has no such lane, or the output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // The parser has refused any other name; without one, it has seen --list.
    let Some(name) = &args.fragment else {
        return to_stdout(list);
    };
    let picture = match Fragment::find(name) {
        Some(fragment) => Picture::of(fragment, args.lane),
        None => Picture::identity(args.lane),
    };
    let lanes = picture.lanes();
    if let Some(lane) = args.lane.filter(|lane| *lane >= lanes) {
        return Err(UsageError(format!("--lane {lane}: {name} has lanes 0 to {}", lanes - 1)).into());
    }
    match &args.svg {
        None => draw(&picture, args.color),
        Some(path) if path.as_os_str() == "-" => {
            to_stdout(|out| out.write_all(svg::render(&picture).as_bytes()))
        }
        Some(path) => {
            fs::write(path, svg::render(&picture))
                .with_context(|| format!("--svg: cannot write {}", path.display()))?;
            note(format_args!("wrote {}", path.display()));
            Ok(())
        }
    }
}

fn draw(picture: &Picture, color: When) -> anyhow::Result<()> {
    let terminal = io::stdout().is_terminal();
    let variable = std::env::var_os;
    let style = terminal::Style {
        colour: color.coloured(variable("NO_COLOR").as_deref(), variable("TERM").as_deref(), terminal),
        width: terminal.then(terminal_size).flatten().map(|(Width(width), _)| usize::from(width)),
    };
    to_stdout(|out| terminal::write(out, picture, style))
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<18} {:>8}  {:>5}  {:<29}  instruction: operand",
        "fragment", "tile", "lanes", "a lane"
    )?;
    for fragment in &Fragment::ALL {
        let Fragment { name, instruction, operand, lanes, .. } = fragment;
        let tile = picture::tile(fragment);
        let share = picture::share(fragment);
        writeln!(out, "{name:<18} {tile:>8}  {lanes:>5}  {share:<29}  {instruction}: {operand}")?;
    }
    writeln!(out, "{IDENTITY:<18} wmma-accumulator and wmma-a-row side by side")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        let (none, some, empty, dumb) =
            (None, Some(OsStr::new("1")), Some(OsStr::new("")), Some(OsStr::new("dumb")));
        assert!(When::Auto.coloured(none, some, true));
        assert!(When::Auto.coloured(empty, none, true));
        assert!(!When::Auto.coloured(none, none, false));
        assert!(!When::Auto.coloured(some, none, true));
        assert!(!When::Auto.coloured(none, dumb, true));
        assert!(When::Always.coloured(some, dumb, false));
        assert!(!When::Never.coloured(none, none, true));
    }
}
