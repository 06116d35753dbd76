//! The drawing in a terminal: `28₇` is lane 28's `x[7]`.

use std::io::{self, Write};
use std::ops::Range;

use gpu::fragment::Fragment;

use super::palette;
use super::picture::{Panel, Picture, register, wrap};

/// How to draw.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) colour: bool,
    /// Characters of a line, if they are limited.
    pub(super) width: Option<usize>,
}

/// Rows and columns between gaps.
const BLOCK: u32 = 8;
/// Characters of a line of words.
const WORDS: usize = 100;
/// Between panels, where rows that are shared are marked.
const BETWEEN: [&str; 2] = ["     ", "  ≡  "];

/// Writes the drawing and the words.
pub(super) fn write(out: &mut dyn Write, picture: &Picture, style: Style) -> io::Result<()> {
    let words = style.width.unwrap_or(WORDS).clamp(20, WORDS);
    for line in wrap(&picture.title, words) {
        writeln!(out, "{line}")?;
    }
    let widths = picture.panels.iter().map(|panel| grid(panel).width(&(0..panel.fragment.columns)));
    let abreast = widths.sum::<usize>() + BETWEEN[0].len() * picture.panels.len().saturating_sub(1);
    if style.width.is_none_or(|width| width >= abreast) {
        write_abreast(out, picture, style)?;
    } else {
        for panel in &picture.panels {
            write_in_bands(out, picture, panel, style)?;
        }
    }
    for note in [key(picture)].iter().chain(&picture.notes) {
        writeln!(out)?;
        for line in wrap(note, words) {
            writeln!(out, "{line}")?;
        }
    }
    match picture.marked {
        Some(lane) => write_lane(out, picture, lane),
        // Without a lane to show it on, the identity shows it on one that is not all zeros.
        None if picture.panels.len() > 1 => write_lane(out, picture, 5),
        None => Ok(()),
    }
}

/// How to read a cell, told with a cell that is there.
fn key(picture: &Picture) -> String {
    let (lane, i) =
        (picture.lanes() - 4, picture.panels.iter().map(|panel| panel.fragment.elements - 1).min());
    let i = i.unwrap_or(0);
    format!(
        "{lane}{} is x[{i}] of lane {lane}. Lanes 4g to 4g + 3 are group g; t is a lane's place in it.",
        subscript(i)
    )
}

/// The panels side by side.
fn write_abreast(out: &mut dyn Write, picture: &Picture, style: Style) -> io::Result<()> {
    let grids: Vec<Grid> = picture.panels.iter().map(grid).collect();
    let join = |out: &mut dyn Write, parts: Vec<String>, shared: bool| {
        writeln!(out, "{}", parts.join(BETWEEN[usize::from(shared)]).trim_end())
    };
    writeln!(out)?;
    if picture.panels.len() > 1 {
        let caption = |(panel, grid): (&Panel, &Grid)| {
            format!("{:<1$}", panel.caption, grid.width(&(0..panel.fragment.columns)))
        };
        join(out, picture.panels.iter().zip(&grids).map(caption).collect(), false)?;
    }
    let every = |line: &dyn Fn(&Grid) -> String| grids.iter().map(line).collect();
    join(out, every(&|grid| grid.heading(0..grid.fragment.columns)), false)?;
    let rows = picture.panels.iter().map(|panel| panel.fragment.rows).min().unwrap_or(0);
    let columns = picture.panels.iter().map(|panel| panel.fragment.columns).min().unwrap_or(0);
    for row in 0..rows {
        if row > 0 && row % BLOCK == 0 {
            writeln!(out)?;
        }
        let shared = (0..columns).all(|column| picture.shared(row, column));
        join(out, every(&|grid| grid.row(row, 0..grid.fragment.columns, picture, style)), shared)?;
    }
    Ok(())
}

/// One panel, cut into as many columns as fit.
fn write_in_bands(out: &mut dyn Write, picture: &Picture, panel: &Panel, style: Style) -> io::Result<()> {
    let (grid, columns) = (grid(panel), panel.fragment.columns);
    let fits = |n: &u32| style.width.is_none_or(|width| grid.width(&(0..n * BLOCK)) <= width);
    let band = (1..=columns / BLOCK).rev().find(fits).unwrap_or(1) * BLOCK;
    if !panel.caption.is_empty() {
        writeln!(out, "\n{}", panel.caption)?;
    }
    let mut start = 0;
    while start < columns {
        let range = start..columns.min(start + band);
        writeln!(out, "\n{}", grid.heading(range.clone()).trim_end())?;
        for row in 0..panel.fragment.rows {
            if row > 0 && row % BLOCK == 0 {
                writeln!(out)?;
            }
            writeln!(out, "{}", grid.row(row, range.clone(), picture, style).trim_end())?;
        }
        start = range.end;
    }
    Ok(())
}

/// A panel's map and the widths of its parts.
struct Grid {
    fragment: &'static Fragment,
    corner: String,
    lane_digits: usize,
    index_digits: usize,
}

fn grid(panel: &Panel) -> Grid {
    let fragment = panel.fragment;
    Grid {
        fragment,
        corner: format!("{}\\{}", fragment.axes.0, fragment.axes.1),
        lane_digits: digits(fragment.lanes - 1),
        index_digits: digits(fragment.elements - 1),
    }
}

impl Grid {
    fn cell(&self) -> usize {
        self.lane_digits + self.index_digits
    }

    /// Characters of a line of these columns: cells with one character before, between and after
    /// those of a block.
    fn width(&self, columns: &Range<u32>) -> usize {
        let (cells, blocks) = (columns.len(), columns.len().div_ceil(BLOCK as usize));
        self.corner.len() + cells * (self.cell() + 1) + blocks
    }

    fn heading(&self, columns: Range<u32>) -> String {
        let mut line = self.corner.clone();
        for column in columns {
            // The number ends above the lane's.
            let lane = format!("{column:>0$}", self.lane_digits);
            line += &format!(" {lane:<0$}", self.cell());
            if column % BLOCK == BLOCK - 1 {
                line.push(' ');
            }
        }
        line
    }

    fn row(&self, row: u32, columns: Range<u32>, picture: &Picture, style: Style) -> String {
        let mut line = format!("{row:>0$}", self.corner.len());
        let mut open = false;
        for column in columns {
            let (lane, i) = self.fragment.holder(row, column);
            let marked = picture.marked == Some(lane);
            let lit = style.colour && picture.marked.is_none_or(|_| marked);
            // Within a block, the space before a cell has the colour of the cell.
            let (before, first) = (if marked && !open { '[' } else { ' ' }, column % BLOCK == 0);
            let before = if open && !marked { ']' } else { before };
            let text = format!("{lane:>0$}{1:<2$}", self.lane_digits, subscript(i), self.index_digits);
            let inside = before == ' ' && !first;
            if !inside {
                line.push(before);
            }
            let text = if inside { format!(" {text}") } else { text };
            if lit {
                let underline = if picture.shared(row, column) { ";4" } else { "" };
                line += &format!("\x1b[38;5;16;48;5;{}{underline}m{text}\x1b[0m", palette::indexed(lane));
            } else if style.colour {
                line += &format!("\x1b[2m{text}\x1b[0m");
            } else {
                line += &text;
            }
            open = marked;
            if column % BLOCK == BLOCK - 1 {
                line.push(if open { ']' } else { ' ' });
                open = false;
            }
        }
        line
    }
}

/// What a lane holds: a line for each register, or, of several panels, for each index.
fn write_lane(out: &mut dyn Write, picture: &Picture, lane: u32) -> io::Result<()> {
    writeln!(out, "\nlane {lane} (g = {}, t = {}):", lane / 4 % 8, lane % 4)?;
    let [first, ..] = picture.panels.as_slice() else {
        return Ok(());
    };
    if picture.panels.len() > 1 {
        return write_shared_registers(out, picture, first.fragment, lane);
    }
    let fragment = first.fragment;
    for register in 0..fragment.registers() {
        let mut line = format!("  r{register:<3}");
        for i in register * fragment.per_register()..(register + 1) * fragment.per_register() {
            let (row, column) = fragment.element(lane, i);
            line += &format!("  {:<6} {:<10}", format!("x[{i}]"), format!("({row}, {column})"));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// For each index, the register in each of the fragments and the element, marked if it is the same.
fn write_shared_registers(
    out: &mut dyn Write,
    picture: &Picture,
    first: &Fragment,
    lane: u32,
) -> io::Result<()> {
    for i in 0..first.elements {
        write!(out, "  x[{i}]")?;
        for Panel { caption, fragment } in &picture.panels {
            let name = caption.split([' ', ',']).next().unwrap_or_default();
            let (row, column) = fragment.element(lane, i);
            let place = format!("({row}, {column})");
            write!(out, "   {name} {:<7} {place:<8}", register(fragment, i))?;
        }
        let (row, column) = first.element(lane, i);
        writeln!(out, "{}", if picture.shared(row, column) { " ≡" } else { "" })?;
    }
    Ok(())
}

fn digits(number: u32) -> usize {
    number.to_string().len()
}

/// `₁₂`
fn subscript(number: u32) -> String {
    let digit = |digit: char| char::from_u32(u32::from(digit) - u32::from('0') + u32::from('₀'));
    number.to_string().chars().filter_map(digit).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn drawn(picture: &Picture, width: Option<usize>) -> String {
        let mut out = Vec::new();
        write(&mut out, picture, Style { colour: false, width }).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn a_drawing_keeps_to_the_terminal() {
        let picture = Picture::identity(None);
        let narrow = drawn(&picture, Some(80));
        assert!(widest(&narrow) <= 80, "{narrow}");
        assert_eq!(narrow.matches(" 28₇").count(), 2, "both maps:\n{narrow}");
        assert!(widest(&drawn(&picture, Some(1000))) > 100, "side by side where there is room");

        let wide = Picture::of(&gpu::fragment::wgmma::D_N128, None);
        for width in [60, 80, 200, 1000] {
            let text = drawn(&wide, Some(width));
            assert!(widest(&text) <= width, "{width}: {}", widest(&text));
            // Each element once, the last one in the last band; the key names one of them.
            assert_eq!(text.matches('₀').count(), drawn(&wide, None).matches('₀').count());
            assert_eq!(text.matches("127₆₃").count(), 1);
        }
        // Narrower than one block cannot be.
        assert_eq!(drawn(&wide, Some(1)).matches("127₆₃").count(), 1);
    }

    #[test]
    fn subscripts_are_decimal() {
        assert_eq!((subscript(0).as_str(), subscript(127).as_str()), ("₀", "₁₂₇"));
    }
}
