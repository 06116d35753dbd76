//! `lanemap show` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpu::fragment::Fragment;
use support::gguf::Folder;

fn lanemap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

fn stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn show(arguments: &[&str]) -> String {
    stdout(lanemap(&[&["show"], arguments].concat()).output().unwrap())
}

/// The one line of a refusal, and its exit code.
fn refused(arguments: &[&str]) -> (String, Option<i32>) {
    let output = lanemap(&[&["show"], arguments].concat()).output().unwrap();
    assert!(output.stdout.is_empty());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    (errors, output.status.code())
}

/// The cells of a drawing without colours, row by row: `28₇` is (28, 7).
fn cells(text: &str) -> Vec<Vec<(u32, u32)>> {
    let cell = |word: &str| {
        let digits: Vec<_> = word.chars().filter(|c| !"[]".contains(*c)).collect();
        let subscript = |c: &char| ('₀'..='₉').contains(c);
        let (lane, index) = digits.split_at(digits.iter().position(subscript)?);
        let ascii = |c: &char| char::from_digit(u32::from(*c) - u32::from('₀'), 10);
        let index: String = index.iter().map(ascii).collect::<Option<_>>()?;
        Some((lane.iter().collect::<String>().parse().ok()?, index.parse().ok()?))
    };
    let row = |line: &str| {
        // A bracket may stand between two cells instead of a space.
        let line = line.replace(['[', ']'], " ");
        let mut words = line.split_whitespace();
        words.next()?.parse::<u32>().ok()?;
        words.map(cell).collect::<Option<Vec<_>>>().filter(|cells| !cells.is_empty())
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn the_list_names_every_fragment_and_its_shape() {
    let text = show(&["--list"]);
    for fragment in &Fragment::ALL {
        let line = text.lines().find(|line| line.split(' ').next() == Some(fragment.name));
        let line = line.unwrap_or_else(|| panic!("{} is not in:\n{text}", fragment.name));
        assert!(line.contains(&format!(" {} × {} ", fragment.rows, fragment.columns)), "{line}");
        assert!(line.contains(fragment.instruction) && line.ends_with(fragment.operand), "{line}");
    }
    assert!(text.lines().any(|line| line.starts_with("identity ")));
}

/// The drawing of the accumulator against a rule written down here.
#[test]
fn the_accumulator_is_drawn_as_it_is_wired() {
    let text = show(&["wmma-accumulator"]);
    for line in [
        "wmma.mma m16n16k16: accumulator, f32",
        r"m\n  0   1   2   3   4   5   6   7    8   9  10  11  12  13  14  15",
        "  0  0₀  0₁  1₀  1₁  2₀  2₁  3₀  3₁   0₄  0₅  1₄  1₅  2₄  2₅  3₄  3₅",
        " 15 28₂ 28₃ 29₂ 29₃ 30₂ 30₃ 31₂ 31₃  28₆ 28₇ 29₆ 29₇ 30₆ 30₇ 31₆ 31₇",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    let cells = cells(&text);
    assert_eq!(cells.len(), 16);
    for (row, cells) in cells.into_iter().enumerate() {
        let expected: Vec<_> = (0..16)
            .map(|column| (row % 8 * 4 + column % 8 / 2, column / 8 * 4 + row / 8 * 2 + column % 2))
            .map(|(lane, i)| (lane as u32, i as u32))
            .collect();
        assert_eq!(cells, expected, "row {row}");
    }
}

#[test]
fn every_cell_of_every_drawing_is_the_maps() {
    for fragment in &Fragment::ALL {
        let cells = cells(&show(&[fragment.name, "--lane", "5"]));
        assert_eq!(cells.len(), fragment.rows as usize, "{}", fragment.name);
        for (row, cells) in (0..).zip(cells) {
            assert_eq!(cells.len(), fragment.columns as usize, "{}", fragment.name);
            for (column, cell) in (0..).zip(cells) {
                assert_eq!(cell, fragment.holder(row, column), "{} ({row}, {column})", fragment.name);
            }
        }
    }
}

#[test]
fn a_lane_is_marked_and_listed() {
    let text = show(&["mma-f16-b", "--lane", "13"]);
    let marked: Vec<_> = text.lines().filter(|line| line.contains('[') && line.contains('₀')).collect();
    assert_eq!(marked, ["  2  1₀  5₀  9₀[13₀]17₀ 21₀ 25₀ 29₀"]);
    assert_eq!(text.matches("[13").count(), 4);
    for line in ["lane 13 (g = 3, t = 1):", "  r0    x[0]   (2, 3)      x[1]   (3, 3)"] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    // Neighbours are in one pair of brackets, and the second copy is listed.
    let text = show(&["wmma-a-row", "--lane", "31"]);
    assert!(text.contains("[31₆ 31₇]\n"), "{text}");
    assert!(text.lines().any(|line| line == "  r7    x[14]  (15, 14)    x[15]  (15, 15)"), "{text}");
}

#[test]
fn the_identity_marks_what_is_shared_and_says_what_it_means() {
    let text = show(&["identity"]);
    let rows = text.lines().filter(|line| line.contains("  ≡  ") && line.matches("28₇").count() != 1);
    assert_eq!(rows.count(), 16, "{text}");
    let sides = text.lines().filter_map(|line| line.split_once("  ≡  "));
    let sides: Vec<_> = sides.map(|(left, right)| (cells(left), cells(right))).collect();
    assert!(sides.iter().all(|(left, right)| left == right && left[0].len() == 16));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ≡")).count(), 8, "a lane's registers");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "256 of 256 elements of wmma m16n16k16 are in the same lane at the same x[i] in both fragments",
        "no shared memory, no barrier, no shuffle",
        "x[3] accumulator r3 (9, 3) matrix_a r1 high (9, 3) ≡",
    ] {
        assert!(words.contains(sentence), "{sentence:?} is not in:\n{text}");
    }
}

#[test]
fn colours_come_when_asked_for() {
    let count = |output: Output| stdout(output).matches("\x1b[38;5;16;48;5;").count();
    assert_eq!(count(lanemap(&["show", "mma-f16-c"]).output().unwrap()), 0, "stdout is no terminal");
    assert_eq!(count(lanemap(&["show", "mma-f16-c", "--color", "never"]).output().unwrap()), 0);
    let mut always = lanemap(&["show", "mma-f16-c", "--color", "always"]);
    assert_eq!(count(always.output().unwrap()), 128);
    assert_eq!(count(always.env("NO_COLOR", "1").output().unwrap()), 128, "the flag has the last word");
    let text = show(&["mma-f16-c", "--color", "always", "--lane", "3"]);
    assert_eq!(text.matches("\x1b[38;5;16;48;5;203m").count(), 4, "only the marked lane has its colour");
    // The same text with and without.
    let mut plain = String::new();
    for part in show(&["identity", "--color", "always"]).split("\x1b[") {
        plain += part.split_once('m').filter(|_| !plain.is_empty()).map_or(part, |(_, text)| text);
    }
    assert_eq!(plain, show(&["identity"]));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let (line, code) = refused(&["wmma-c"]);
    assert_eq!(code, Some(2));
    assert!(line.starts_with("error: invalid value 'wmma-c'"), "{line}");
    for name in Fragment::ALL.iter().map(|fragment| fragment.name).chain(["identity"]) {
        assert!(line.contains(name), "{name} is not in {line}");
    }
    let (line, code) = refused(&["mma-s8-a", "--lane", "32"]);
    assert_eq!((line.as_str(), code), ("error: --lane 32: mma-s8-a has lanes 0 to 31\n", Some(2)));
    let (line, code) = refused(&[]);
    assert!(line.contains("FRAGMENT") && code == Some(2), "{line}");
    let (line, code) = refused(&["--list", "identity"]);
    assert!(line.contains("--list") && code == Some(2), "{line}");
    let (line, code) = refused(&["identity", "--color", "sometimes"]);
    assert!(line.contains("sometimes") && line.contains("always") && code == Some(2), "{line}");
    let folder = Folder::new();
    let path = folder.path("none").join("x.svg");
    let (line, code) = refused(&["identity", "--svg", path.to_str().unwrap()]);
    assert!(line.contains(path.to_str().unwrap()) && code == Some(1), "{line}");
    assert!(show(&["wgmma-a", "--lane", "127"]).contains("lane 127 (g = 7, t = 3):"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = lanemap(&["show", "wgmma-n256"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("", Some(0)));
}

/// The names of the elements of an SVG, each of them closed in its turn.
fn elements(svg: &str) -> Vec<String> {
    let (mut open, mut names) = (Vec::new(), Vec::new());
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('&') || text.contains(';'), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else {
            let name = tag.split(' ').next().unwrap().to_owned();
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if !tag.ends_with('/') {
                open.push(name.clone());
            }
            names.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    names
}

#[test]
fn the_svg_is_whole_and_has_every_cell_once() {
    let folder = Folder::new();
    let path = folder.path("x.svg");
    let output = lanemap(&["show", "mma-s8-a", "--svg", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    let svg = fs::read_to_string(&path).unwrap();
    assert_eq!(svg, show(&["mma-s8-a", "--svg", "-"]));
    let names = elements(&svg);
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(names[0], "svg");
    assert_eq!(count("title"), 1 + 32, "the picture's, and one for each lane");
    assert!(svg.contains("<title id=\"title\">mma.sync m16n8k32: A, s8</title>"));
    assert!(
        !svg.contains('{') || !svg.contains("{body}") && !svg.contains("{width}"),
        "a place not filled in"
    );
    let corners: Vec<_> = svg.match_indices("h36v30h-36z").collect();
    assert_eq!(corners.len(), 16 * 32);
    let places = svg.split('M').skip(1).filter(|part| part.contains("h36v30"));
    let places: HashSet<_> = places.map(|part| part.split('h').next().unwrap()).collect();
    assert_eq!(places.len(), 16 * 32, "no two cells in one place");

    let marked = show(&["mma-s8-a", "--svg", "-", "--lane", "7"]);
    assert_eq!(marked.matches("class=\"lane marked\"").count(), 1);
    assert_eq!(marked.matches("class=\"lane dim\"").count(), 31);
    let identity = show(&["identity", "--svg", "-"]);
    assert!(!elements(&identity).is_empty());
    assert_eq!(identity.matches("h4v4h-4z").count(), 512, "each cell of both maps is marked as shared");
}

/// The pictures in the documentation are what the command writes today.
#[test]
fn the_pictures_are_up_to_date() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/fragments.md")).unwrap();
    let shown: BTreeSet<_> =
        page.split("](images/").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect();
    let mut stored = BTreeSet::new();
    for entry in fs::read_dir(root.join("docs/images")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let fragment = name.strip_suffix(".svg").unwrap_or_else(|| panic!("docs/images/{name} is no SVG"));
        let text = fs::read_to_string(root.join("docs/images").join(&name)).unwrap();
        assert!(
            text.replace("\r\n", "\n") == show(&[fragment, "--svg", "-"]),
            "docs/images/{name} is not what `lanemap show {fragment} --svg docs/images/{name}` writes"
        );
        stored.insert(name);
    }
    assert_eq!(shown, stored, "docs/fragments.md and docs/images");
}

/// Each fragment has its line in the documentation.
#[test]
fn the_fragments_are_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/fragments.md")).unwrap();
    for fragment in &Fragment::ALL {
        let Fragment { name, rows, columns, instruction, operand, .. } = fragment;
        let row = format!("| `{name}` | {instruction}: {operand} | {rows} × {columns} |");
        assert!(page.contains(&row), "docs/fragments.md: {row}");
    }
}
