//! What the documentation says, held against the program.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu::quant::Format;
use lanemap::model::Architecture;
use lanemap::pull::MODELS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn help(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lanemap")).args(args).arg("--help").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The long flags of a text, such as `--model`.
fn flags(text: &str) -> BTreeSet<&str> {
    text.split("--")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(rest.len());
            Some(rest[..end].trim_end_matches('-')).filter(|flag| !flag.is_empty())
        })
        .collect()
}

/// The flags that the options of a `--help` define: each begins a line.
fn defined(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    lines.filter_map(|line| flags(line.split("  ").next()?).into_iter().next()).collect()
}

/// The flags that tables of `text` define: in the first column.
fn documented(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| flags(row.split(" |").next().unwrap_or_default())).collect()
}

#[test]
fn every_flag_is_documented_and_every_documented_flag_exists() {
    let page = read("docs/cli.md");
    let sections: Vec<_> = page.split("\n## ").collect();
    let common = documented(sections[0]);
    let text = help(&[]);
    let commands =
        text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut count = 0;
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let mut named = sections.iter().filter(|section| section.lines().next() == Some(command));
        let (Some(section), None) = (named.next(), named.next()) else {
            panic!("docs/cli.md has not exactly one section `{command}`");
        };
        let text = help(&[command]);
        let expected: BTreeSet<_> = documented(section).union(&common).copied().collect();
        assert_eq!(defined(&text), expected, "flags of `{command}`: the program's, and docs/cli.md's");
        count += 1;
    }
    assert!(count > 0, "no command in: {text}");
}

#[test]
fn formats_architectures_and_demo_models_are_documented() {
    let page = read("docs/models.md");
    for format in Format::ALL {
        let cells = format!("| {format} | {} | {} |", format.block_elements(), format.block_bytes());
        assert!(page.contains(&cells), "docs/models.md: {cells}");
    }
    for architecture in Architecture::ALL {
        assert!(page.contains(&format!("| `{}` |", architecture.name())), "{architecture:?}");
    }
    for model in &MODELS {
        let (start, end) =
            (format!("| `{}` | {}", model.id, model.title), format!("| `{}` |", model.file_name));
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {start}"));
        assert!(row.contains(&end) && row.contains(&format!("| {} |", model.licence)), "{row}");
        assert!(row.replace(',', "").ends_with(&format!("| {} |", model.bytes)), "{row}");
        let packages = model.packages.iter().map(|package| package.requirement);
        for requirement in packages.take(if model.terms.is_some() { 0 } else { 1 }) {
            assert!(page.contains(requirement), "{requirement}");
        }
    }
}

#[test]
fn every_kernel_has_its_row_in_the_readme() {
    let readme = read("README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("Kernels\n")).unwrap();
    let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let mut documented: Vec<_> = first_cells.flat_map(|cell| cell.split("`, `")).collect();
    documented.iter_mut().for_each(|name| *name = name.trim_end_matches('`'));
    let mut kernels: Vec<_> = gpu::kernels::ALL.iter().map(|entry| entry.name).collect();
    documented.sort_unstable();
    kernels.sort_unstable();
    assert_eq!(documented, kernels, "README.md's kernels, and those that are exported");
}

#[test]
fn links_lead_somewhere() {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(Into::into).into();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let page = Path::new("docs").join(entry.unwrap().file_name());
        pages.extend(page.extension().is_some_and(|extension| extension == "md").then_some(page));
    }
    let mut count = 0;
    for page in pages {
        let text = read(page.to_str().unwrap());
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            let path = root().join(page.parent().unwrap()).join(target);
            assert!(path.exists(), "{}: {target}", page.display());
            count += 1;
        }
    }
    assert!(count > 5, "{count} links found");
}
