//! `lanemap experiment` as a user runs it, on the emulator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod command;

use std::process::{Command, Output, Stdio};

use command::{assert_refused, text};
use lanemap::experiment::{ALL, Kernel};
use lanemap::ptx::Assembler;
use serde_json::Value;

/// `lanemap experiment` with these arguments, without a GPU.
fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.arg("experiment").args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().unwrap()
}

/// What is on stdout, and that nothing else is said.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = text(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    text(&output.stdout)
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["-o", "json"]].concat())).unwrap()
}

#[test]
fn the_list_names_every_experiment() {
    let list = printed(&["--list"]);
    let names: Vec<_> = list.lines().map(|line| line.split("  ").next().unwrap()).collect();
    let expected: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
    assert_eq!(names, expected);
    assert_eq!(names, ["r46", "r48", "r50", "r57", "tkv64", "tq128", "double"]);
    for (line, experiment) in list.lines().zip(ALL) {
        assert!(line.ends_with(experiment.title), "{line}");
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let names = "r46, r48, r50, r57, tkv64, tq128, double, and `ledger`";
    assert_refused(&run(&["r51"]), 2, &["'r51'", names]);
    assert_refused(&run(&[]), 2, &["NAME"]);
    assert_refused(&run(&["r50", "--list"]), 2, &["--list"]);
    assert_refused(&run(&["r50", "--tokens", "0"]), 2, &["--tokens"]);
    let heads = ["r50", "--device", "cpu", "--heads", "6", "--kv-heads", "4"];
    assert_refused(&run(&heads), 2, &["--heads 6", "--kv-heads 4"]);
    assert_refused(&run(&["ledger", "--tile-q", "40"]), 2, &["40 rows", "multiples of 16"]);
    assert_refused(&run(&["ledger", "--stages", "4"]), 2, &["--stages"]);
    assert_refused(&run(&["ledger", "--shared", "--tile-kv", "48"]), 2, &["48 positions"]);
    assert_refused(&run(&["ledger", "--shared", "--padding", "4"]), 2, &["4 f32"]);
    assert_refused(&run(&["ledger", "--padding", "8"]), 2, &["--shared"]);
}

/// The lines of a Markdown table that begins with this title, as cells.
fn rows(page: &str, title: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {title} ")));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.take_while(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

#[test]
fn a_report_has_gates_and_numbers_beside_the_claims() {
    let page = printed(&["r50", "--device", "cpu"]);
    let head: Vec<_> = page.lines().take(4).collect();
    assert_eq!(head[0], "# r50: tiles of 16 positions instead of 32");
    assert!(head[2].starts_with("`fa_prefill_f16kv_tkv16` against `fa_prefill_f16kv`, on the emulator; "));
    assert_eq!(head[3], "130 tokens, 2 heads, 1 KV heads, head size 128, seed 42.");
    let gates = rows(&page, "gate");
    let names: Vec<_> = gates.iter().map(|gate| (gate[0].as_str(), gate[2].as_str())).collect();
    let (parity, reproducible) = (("parity", "green"), ("reproducibility", "green"));
    let identity = ("identity with the landed kernel", "green");
    assert_eq!(names, [parity, parity, reproducible, reproducible, identity]);
    assert!(gates[0][3].contains("24 ragged shapes, 130 rows of 130 tokens"), "{:?}", gates[0]);
    let numbers = rows(&page, "what");
    let row = |title: &str| numbers.iter().find(|row| row[0] == title).unwrap();
    assert_eq!(row("shared memory, bytes of a block")[1..3], ["34,816", "32,768"]);
    assert_eq!(row("shared memory, bytes of a block")[4..], ["r50 §3.1", "as said"]);
    assert_eq!(row("a tile: barriers")[1..3], ["2", "2"]);
    assert_eq!(row("a tile: barriers")[5], "otherwise", "the source has three");
    assert_eq!(row("time over the landed kernel's")[5], "not seen");
    assert!(page.ends_with("Not timed: there is no GPU.\n"), "{page}");
}

/// The number of elements whose bits differ from the landed kernel's.
fn different(name: &str, more: &[&str]) -> u64 {
    let report = json(&[&[name, "--device", "cpu"], more].concat());
    assert_eq!(report["name"], name);
    assert!(report["gates"].as_array().unwrap().iter().all(|gate| gate["green"] == true));
    assert!(report["timing"].is_null() && report["verdict"].is_null());
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == "identity").unwrap();
    row["variant"].as_f64().unwrap() as u64
}

/// What r57 says of the rows of a block does not hold here, and what r50 says of tiles does.
#[test]
fn rows_of_a_block_do_not_change_a_bit_and_tiles_of_positions_do() {
    for seed in ["1", "2"] {
        for name in ["r57", "tq128", "double"] {
            assert_eq!(different(name, &["--seed", seed]), 0, "{name}, seed {seed}");
        }
    }
    for name in ["r46", "r48", "r50", "tkv64"] {
        assert_ne!(different(name, &[]), 0, "{name}");
    }
    // As long as there is one tile alone, nothing is grouped otherwise.
    assert_eq!(different("r50", &["--tokens", "16"]), 0);
    assert_eq!(different("tkv64", &["--tokens", "32"]), 0);
}

#[test]
fn sizes_and_seed_are_those_that_are_asked_for() {
    let arguments = ["tq128", "--device", "cpu", "--tokens", "33", "--heads", "4", "--kv-heads", "2"];
    let report = json(&[&arguments[..], &["--seed", "7"]].concat());
    let numbers = ["tokens", "heads", "kv_heads", "head_size", "seed"].map(|name| report[name].as_u64());
    assert_eq!(numbers, [33, 4, 2, 128, 7].map(Some));
    let seen = report["gates"][4]["seen"].as_str().unwrap();
    assert_eq!(seen, format!("all {} elements bit-equal; promised by the contract", 33 * 4 * 128));
}

#[test]
fn registers_are_ptxas_own() {
    if Assembler::find().is_none() || lanemap::ptx::variants().is_err() {
        let report = json(&["r50", "--device", "cpu"]);
        assert!(report["machine"].as_str().unwrap().contains("no ptxas"));
        return;
    }
    let report = json(&["double", "--device", "cpu", "--arch", "sm_86"]);
    assert!(report["machine"].as_str().unwrap().ends_with("ptxas for sm_86"));
    let row = |metric: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["metric"] == metric).unwrap();
        ["landed", "variant"].map(|kernel| row[kernel].as_f64().unwrap())
    };
    assert!(row("registers").iter().all(|&registers| (100.0..=255.0).contains(&registers)));
    assert_eq!(row("spill-bytes"), [0.0, 0.0]);
    // 100 KiB of shared memory, of which a block takes 35 KiB or 52.
    assert_eq!(row("blocks"), [2.0, 1.0]);
    assert_refused(&run(&["double", "--device", "cpu", "--arch", "gfx90"]), 2, &["gfx90"]);
}

fn ledger(arguments: &[&str]) -> Value {
    json(&[&["ledger"], arguments].concat())
}

/// A line of the ledger: what was computed, and what was counted.
fn line(ledger: &Value, what: &str) -> (u64, Option<u64>) {
    let lines = ledger["tile"].as_array().unwrap();
    let line = lines.iter().find(|line| line["what"] == what).unwrap();
    (line["computed"].as_u64().unwrap(), line["counted"].as_u64())
}

const ROUND_TRIP: &str = "S and P through shared memory, bytes";

/// The numbers of r48.
#[test]
fn the_ledger_has_the_account_of_both_structures() {
    let (new, old) = (ledger(&[]), ledger(&["--shared"]));
    assert_eq!(
        (&new["kernel"], &old["kernel"]),
        (&"fa_prefill_f16kv".into(), &"fa_prefill_f16kv_shared".into())
    );
    assert_eq!((&new["shared_bytes"], &old["shared_bytes"]), (&34_816.into(), &69_376.into()));
    assert_eq!((&new["threads"], &old["threads"]), (&128.into(), &256.into()));
    let both = |number: u64| (number, Some(number));
    assert_eq!(line(&new, ROUND_TRIP), both(0));
    assert_eq!(line(&old, ROUND_TRIP), both(57_344));
    assert_eq!(line(&new, "K and V copied, bytes"), both(16_384));
    assert_eq!(line(&new, "barriers"), both(2));
    assert_eq!(line(&old, "barriers"), both(4));
    assert_eq!(line(&new, "bank conflicts"), both(0));
    assert_eq!(line(&old, "bank conflicts"), both(1280));
    // 4 warps, 8 steps along d and 2 fragments of positions, twice.
    assert_eq!(line(&new, "products"), both(128));
    let registers = new["registers"].as_array().unwrap();
    let of = |what: &str| registers.iter().find(|line| line["what"].as_str().unwrap().starts_with(what));
    assert_eq!(of("O, ").unwrap()["registers"], 64);
    assert_eq!(of("S ").unwrap()["registers"], 16);
    let sum: u64 = registers.iter().map(|line| line["registers"].as_u64().unwrap()).sum();
    assert_eq!(new["registers_in_all"], sum);
}

#[test]
fn r50s_shared_memory_is_the_tile_of_o() {
    let narrow = ledger(&["--tile-kv", "16"]);
    let parts = narrow["shared_memory"].as_array().unwrap();
    let staged: u64 = parts.iter().rev().skip(1).map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(staged, 26_112);
    assert_eq!(parts.last().unwrap()["bytes"], 32_768);
    assert_eq!(narrow["shared_bytes"], 32_768);
}

#[test]
fn without_a_kernel_the_ledger_is_computed_alone() {
    let page = printed(&["ledger", "--tile-q", "32", "--head-size", "112"]);
    assert!(page.contains("No kernel is compiled with this geometry: computed, not counted."), "{page}");
    let geometry = ledger(&["--tile-q", "32", "--head-size", "112"]);
    assert!(geometry["kernel"].is_null() && geometry["registers_assembled"].is_null());
    assert_eq!(line(&geometry, "K and V copied, bytes"), (2 * 32 * 112 * 2, None));
}

/// Every kernel that is compiled, through the flags.
#[test]
fn every_kernels_ledger_is_counted() {
    use lanemap::experiment::Tiles;
    for kernel in Kernel::ALL {
        let flags = match kernel.tiles() {
            Tiles::Registers(g) => format!(
                "--head-size {} --tile-q {} --tile-kv {} --stages {} --staging-warps {}",
                g.head_size, g.tile_q, g.tile_kv, g.stages, g.staging_warps
            ),
            Tiles::Shared(g) => format!(
                "--shared --head-size {} --tile-kv {} --padding {}",
                g.head_size, g.tile_kv, g.padding
            ),
        };
        let found = ledger(&flags.split(' ').collect::<Vec<_>>());
        assert_eq!(found["kernel"], kernel.name(), "{flags}");
    }
}
