//! The drawing as SVG, complete in itself: a card with its own background, so that it can be read
//! on any page, in light or dark colours as the reader's system asks for.

use std::fmt::Write;

use super::palette;
use super::picture::{Panel, Picture, wrap};

/// Everything around the drawing: root element, style, card.
const FRAME: &str = include_str!("picture.svg");

/// Pixels: of a cell, of the gap between blocks of 8, around everything, for headings, for a line.
const CELL: (u32, u32) = (36, 30);
const GAP: u32 = 5;
const MARGIN: u32 = 24;
const HEADING: (u32, u32) = (44, 22);
const LINE: u32 = 19;
/// Between panels.
const BETWEEN: u32 = 50;
/// A picture is at least this wide, for its words.
const MIN_WIDTH: u32 = 560;
/// Pixels of a character, about; a font may be wider than ours.
const CHARACTER: u32 = 7;
const TITLE_CHARACTER: u32 = 11;
/// Cells of a block.
const BLOCK: u32 = 8;

/// The whole file.
pub(super) fn render(picture: &Picture) -> String {
    let mut page = Page { body: String::new(), y: MARGIN };
    let widths = picture.panels.iter().map(|panel| HEADING.0 + span(panel.fragment.columns, CELL.0));
    let drawing = widths.sum::<u32>() + BETWEEN * (picture.panels.len().saturating_sub(1) as u32);
    let inner = drawing.max(MIN_WIDTH - 2 * MARGIN);

    page.words("title", &picture.title, inner / TITLE_CHARACTER, 24);
    page.y += 10;
    page.panels(picture);
    page.y += 16;
    page.swatches(inner / CHARACTER);
    for note in &picture.notes {
        page.words("note", note, inner / CHARACTER, LINE);
        page.y += 6;
    }

    let (width, height) = (inner + 2 * MARGIN, page.y - 6 + MARGIN);
    FRAME
        .replace("{width}", &width.to_string())
        .replace("{height}", &height.to_string())
        .replace("{inner_width}", &(width - 1).to_string())
        .replace("{inner_height}", &(height - 1).to_string())
        .replace("{title}", &escape(&picture.title))
        .replace("{body}", &page.body)
}

/// Pixels of `cells` cells and the gaps between their blocks.
fn span(cells: u32, pixels: u32) -> u32 {
    start(cells - 1, pixels) + pixels
}

/// Where a cell begins.
fn start(cell: u32, pixels: u32) -> u32 {
    cell * pixels + cell / BLOCK * GAP
}

/// What has been drawn, and where the next thing begins.
struct Page {
    body: String,
    y: u32,
}

impl Page {
    /// Writing to a string does not fail.
    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(what);
    }

    fn text(&mut self, class: &str, (x, y): (u32, u32), text: &str) {
        self.put(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>\n", escape(text)));
    }

    /// A paragraph; moves on below it.
    fn words(&mut self, class: &str, text: &str, characters: u32, line: u32) {
        for words in wrap(text, characters as usize) {
            self.text(class, (MARGIN, self.y + line * 3 / 4), &words);
            self.y += line;
        }
    }

    /// All maps side by side; moves on below them.
    fn panels(&mut self, picture: &Picture) {
        if picture.panels.len() > 1 {
            self.y += LINE + 4;
        }
        let mut x = MARGIN;
        let mut bottom = self.y;
        for (n, panel) in picture.panels.iter().enumerate() {
            let height = HEADING.1 + span(panel.fragment.rows, CELL.1);
            if n > 0 {
                self.text("equal", (x + BETWEEN / 2 + HEADING.0 / 4, self.y + height / 2 + HEADING.1), "≡");
                x += BETWEEN;
            }
            if !panel.caption.is_empty() {
                self.text("caption", (x + HEADING.0, self.y - 8), &panel.caption);
            }
            self.panel(picture, panel, x);
            x += HEADING.0 + span(panel.fragment.columns, CELL.0);
            bottom = bottom.max(self.y + height);
        }
        self.y = bottom;
    }

    /// One map, its left edge at `left`.
    fn panel(&mut self, picture: &Picture, panel: &Panel, left: u32) {
        let fragment = panel.fragment;
        let (x0, y0) = (left + HEADING.0, self.y + HEADING.1);
        let (row, column) = fragment.axes;
        self.text("axis", (left + HEADING.0 / 2, self.y + 15), &format!("{row} \\ {column}"));
        for column in 0..fragment.columns {
            self.text("axis", (x0 + start(column, CELL.0) + CELL.0 / 2, self.y + 15), &column.to_string());
        }
        for row in 0..fragment.rows {
            let y = y0 + start(row, CELL.1) + CELL.1 / 2 + 4;
            self.text("axis", (left + HEADING.0 / 2, y), &row.to_string());
        }
        self.put(format_args!("<g class=\"cells\">\n"));
        for lane in 0..fragment.lanes {
            let class = match picture.marked {
                Some(marked) if marked == lane => "lane marked",
                Some(_) => "lane dim",
                None => "lane",
            };
            let places: Vec<_> = (0..fragment.elements).map(|i| fragment.element(lane, i)).collect();
            let held =
                places.iter().enumerate().map(|(i, (row, column))| format!("x[{i}] ({row}, {column})"));
            let held = held.collect::<Vec<_>>().join(", ");
            self.put(format_args!("<g class=\"{class}\"><title>lane {lane}: {held}</title>\n"));
            self.put(format_args!("<path fill=\"{}\" d=\"", palette::rgb(lane)));
            let corner = |(row, column): (u32, u32)| (x0 + start(column, CELL.0), y0 + start(row, CELL.1));
            for place in &places {
                let (x, y) = corner(*place);
                self.put(format_args!("M{x} {y}h{}v{}h-{}z", CELL.0, CELL.1, CELL.0));
            }
            self.put(format_args!("\"/>\n"));
            for place in &places {
                let (x, y) = corner(*place);
                self.put(format_args!("<text x=\"{}\" y=\"{}\">{lane}</text>", x + CELL.0 / 2, y + 15));
            }
            self.put(format_args!("\n<g class=\"i\">"));
            for (i, place) in places.iter().enumerate() {
                let (x, y) = corner(*place);
                self.put(format_args!("<text x=\"{}\" y=\"{}\">x[{i}]</text>", x + CELL.0 / 2, y + 26));
            }
            self.put(format_args!("</g>\n"));
            let shared: Vec<_> = places
                .iter()
                .filter(|place| picture.shared(place.0, place.1))
                .map(|place| corner(*place))
                .collect();
            if !shared.is_empty() {
                self.put(format_args!("<path class=\"shared\" d=\""));
                for (x, y) in shared {
                    self.put(format_args!("M{} {}h4v4h-4z", x + CELL.0 - 7, y + 3));
                }
                self.put(format_args!("\"/>\n"));
            }
            self.put(format_args!("</g>\n"));
        }
        self.put(format_args!("</g>\n"));
    }

    /// The colours of the lanes; moves on below them.
    fn swatches(&mut self, characters: u32) {
        const SIDE: u32 = 11;
        let mut x = MARGIN;
        for lane in 0..palette::LANES {
            let (y, fill) = (self.y, palette::rgb(lane));
            self.put(format_args!("<path fill=\"{fill}\" d=\"M{x} {y}h{SIDE}v{SIDE}h-{SIDE}z\"/>\n"));
            x += SIDE + if lane % 4 == 3 { 4 } else { 0 };
        }
        self.y += SIDE + 6;
        self.words(
            "note",
            "Large the lane, small its x[i]. A colour for each group of four lanes, a shade for each of the four.",
            characters,
            LINE,
        );
        self.y += 6;
    }
}

/// Text as it may stand between tags.
pub(in crate::cli) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("g = lane >> 2 & <7>"), "g = lane &gt;&gt; 2 &amp; &lt;7&gt;");
    }

    #[test]
    fn cells_of_a_block_touch_and_blocks_do_not() {
        assert_eq!((start(0, 36), start(7, 36), start(8, 36)), (0, 252, 293));
        assert_eq!((span(8, 36), span(16, 36)), (288, 581));
    }
}
