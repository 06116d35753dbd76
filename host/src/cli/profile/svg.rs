//! The wall as a bar, complete in itself: a part for each kernel, the largest first, the floor of each as a
//! strip inside it, and a legend with the numbers.

use std::fmt::Write;

use super::super::show::palette;
use super::super::show::svg::escape;
use crate::profile::{Report, Row};

/// Everything around the drawing: root element, style, card.
const FRAME: &str = include_str!("wall.svg");

/// Pixels: of the bar, around everything, of a line of the legend, of a swatch.
const BAR: (f64, f64) = (912.0, 64.0);
const MARGIN: f64 = 24.0;
const LINE: f64 = 22.0;
const SWATCH: f64 = 13.0;
/// Of the strip that shows a floor.
const FLOOR: f64 = 12.0;
/// Where the legend's numbers end, from the left edge of the bar.
const ENDS: [f64; 5] = [480.0, 590.0, 690.0, 800.0, 912.0];

/// A part of the bar.
struct Part {
    name: String,
    /// In the unit of the bar.
    size: f64,
    floor: Option<f64>,
    fill: String,
    numbers: [String; 5],
}

/// The whole file.
pub(super) fn render(report: &Report) -> String {
    let parts = parts(report);
    let all: f64 = parts.iter().map(|part| part.size).sum();
    let title = match &report.whole {
        Some(whole) => format!(
            "{} of {}: {:.4} ms, {:.1} tokens per second",
            report.test,
            report.model,
            whole.wall.median * 1e3,
            whole.tokens_per_second
        ),
        None => format!("{} of {}: bytes of global memory", report.test, report.model),
    };
    let mut body = String::new();
    let mut put = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = body.write_fmt(arguments);
    };
    let mut y = MARGIN + 16.0;
    put(format_args!("<text class=\"title\" x=\"{MARGIN}\" y=\"{y}\">{}</text>\n", escape(&title)));
    y += 20.0;
    put(format_args!("<text class=\"heading\" x=\"{MARGIN}\" y=\"{y}\">{}</text>\n", escape(&report.device)));
    y += 16.0;

    put(format_args!("<g class=\"bar\">\n"));
    let scale = if all > 0.0 { BAR.0 / all } else { 0.0 };
    let mut x = MARGIN;
    for part in &parts {
        let width = part.size * scale;
        let [first, second, ..] = &part.numbers;
        put(format_args!("<g><title>{}: {second} ({first})</title>", escape(&part.name)));
        put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" {}/>",
            BAR.1, part.fill
        ));
        if let Some(floor) = part.floor {
            let (top, width) = (y + BAR.1 - FLOOR, floor.min(part.size) * scale);
            put(format_args!(
                "<rect class=\"floor\" x=\"{x:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{FLOOR}\"/>"
            ));
        }
        put(format_args!("</g>\n"));
        x += width;
    }
    put(format_args!("</g>\n"));
    y += BAR.1 + 28.0;

    let headings = match report.whole {
        Some(_) => ["calls", "ms", "of the wall", "floor, ms", "time / floor"],
        None => ["calls", "bytes moved", "of all", "least bytes", "moved / least"],
    };
    for (heading, end) in headings.into_iter().zip(ENDS) {
        put(format_args!(
            "<text class=\"heading number\" x=\"{}\" y=\"{y}\">{heading}</text>\n",
            MARGIN + end
        ));
    }
    for part in &parts {
        y += LINE;
        let top = y - SWATCH + 2.0;
        put(format_args!(
            "<rect x=\"{MARGIN}\" y=\"{top}\" width=\"{SWATCH}\" height=\"{SWATCH}\" rx=\"2\" {}/>",
            part.fill
        ));
        put(format_args!("<text x=\"{}\" y=\"{y}\">{}</text>", MARGIN + 22.0, escape(&part.name)));
        for (number, end) in part.numbers.iter().zip(ENDS) {
            put(format_args!("<text class=\"number\" x=\"{}\" y=\"{y}\">{number}</text>", MARGIN + end));
        }
        put(format_args!("\n"));
    }
    y += 26.0;
    put(format_args!(
        "<text class=\"heading\" x=\"{MARGIN}\" y=\"{y}\">The dark strip of a part is its floor.</text>\n"
    ));

    let (width, height) = (BAR.0 + 2.0 * MARGIN, y + MARGIN);
    FRAME
        .replace("{width}", &width.to_string())
        .replace("{height}", &height.to_string())
        .replace("{inner_width}", &(width - 1.0).to_string())
        .replace("{inner_height}", &(height - 1.0).to_string())
        .replace("{title}", &escape(&title))
        .replace("{body}", &body)
}

/// The kernels' parts, and what is left of the wall.
fn parts(report: &Report) -> Vec<Part> {
    let unknown = || "?".to_owned();
    let moved = |row: &Row| row.traffic.map_or(0.0, |traffic| traffic.read + traffic.written);
    let all: f64 = report.kernels.iter().map(moved).sum();
    let part = |(index, row): (usize, &Row)| {
        let calls =
            if row.calls.fract() == 0.0 { format!("{:.0}", row.calls) } else { format!("{:.1}", row.calls) };
        let number = |number: Option<f64>, digits: usize| {
            number.map_or_else(unknown, |number| format!("{number:.digits$}"))
        };
        let fill = format!("fill=\"{}\"", colour(index));
        let (name, ratio) = (row.kernel.to_owned(), row.traffic.map_or(row.ratio, |traffic| traffic.ratio));
        match row.seconds {
            Some(seconds) => Part {
                name,
                size: seconds,
                floor: row.floor_seconds,
                fill,
                numbers: [
                    calls,
                    format!("{:.4}", seconds * 1e3),
                    number(row.share.map(|share| 100.0 * share), 1) + " %",
                    number(row.floor_seconds.map(|floor| floor * 1e3), 4),
                    number(ratio, 2),
                ],
            },
            None => Part {
                name,
                size: moved(row),
                floor: row.bytes,
                fill,
                numbers: [
                    calls,
                    format!("{:.0}", moved(row)),
                    format!("{:.1} %", 100.0 * moved(row) / all),
                    number(row.bytes, 0),
                    number(ratio, 2),
                ],
            },
        }
    };
    let mut parts: Vec<Part> = report.kernels.iter().enumerate().map(part).collect();
    // Below 0 there is nothing to draw.
    if let Some(whole) = report.whole.as_ref().filter(|whole| whole.host_and_gaps_seconds > 0.0) {
        let rest = whole.host_and_gaps_seconds;
        let (ms, share) =
            (format!("{:.4}", rest * 1e3), format!("{:.1} %", 100.0 * rest / whole.wall.median));
        parts.push(Part {
            name: "host and gaps".to_owned(),
            size: rest,
            floor: None,
            fill: "class=\"rest\"".to_owned(),
            numbers: [String::new(), ms, share, String::new(), String::new()],
        });
    }
    parts
}

/// Neighbours have different hues: the palette has a hue for each four lanes, and in those its shades.
fn colour(index: usize) -> &'static str {
    const SHADES: usize = 4;
    const HUES: usize = palette::LANES as usize / SHADES;
    let (hue, shade) = (3 * index % HUES, SHADES - 1 - index / HUES % SHADES);
    palette::rgb((SHADES * hue + shade) as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_bar_is_the_wall() {
        let (report, _) = crate::profile::test_report();
        let svg = render(&report);
        assert!(svg.contains("<title>many: 8.0000 (1)</title>") && svg.contains("host and gaps"), "{svg}");
        assert!(svg.contains("a &lt;model&gt;: 13.0000 ms") && !svg.contains("<model>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("{title}"), "{svg}");
        // 8 of 13 ms are 8/13 of the bar, and half of that is floor.
        let widths = [912.0 * 8.0 / 13.0, 912.0 * 4.0 / 13.0, 912.0 * 1.5 / 13.0];
        for width in widths.map(|width| format!("width=\"{width:.2}\"")) {
            assert!(svg.contains(&width), "{width}: {svg}");
        }
    }

    #[test]
    fn kernels_have_colours_of_their_own() {
        assert_eq!((0..32).map(colour).collect::<HashSet<_>>().len(), 32);
    }
}
