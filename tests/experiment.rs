//! `lanemap experiment` as a user runs it, on the emulator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod command;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use command::{assert_refused, text};
use lanemap::cuda::{Emulated, Error};
use lanemap::experiment::timing::{Comparison, Side};
use lanemap::experiment::{
    ALL, Assembled, Emulation, Experiment, Format, Kernel, Machine, Options, Outcome, Problem, Report, Taken,
    Timing, Uploaded,
};
use lanemap::ptx::Assembler;
use serde_json::Value;

/// `lanemap experiment` with these arguments.
fn run(arguments: &[&str]) -> Output {
    // Where it was built, or, on another machine, beside this executable.
    let built = PathBuf::from(env!("CARGO_BIN_EXE_lanemap"));
    let program =
        if built.exists() { built } else { std::env::current_exe().unwrap().with_file_name("lanemap") };
    let mut command = Command::new(program);
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
    assert_refused(&run(&["r50", "--tokens", "0"]), 2, &["--tokens", "at least 1"]);
    let heads = ["r50", "--device", "cpu", "--heads", "6", "--kv-heads", "4"];
    assert_refused(&run(&heads), 2, &["--heads 6", "--kv-heads 4"]);
    assert_refused(&run(&["ledger", "--tile-q", "40"]), 2, &["40 rows", "multiples of 16"]);
    assert_refused(&run(&["ledger", "--stages", "4"]), 2, &["--stages"]);
    assert_refused(&run(&["ledger", "--shared", "--tile-kv", "48"]), 2, &["48 positions"]);
    assert_refused(&run(&["ledger", "--shared", "--padding", "4"]), 2, &["4 f32"]);
    assert_refused(&run(&["ledger", "--padding", "8"]), 2, &["--shared"]);
}

/// Before anything is allocated, and before the emulator plays for hours.
#[test]
fn what_is_too_large_is_refused_at_once() {
    let large = ["r50", "--device", "cpu", "--tokens", "1048576", "--heads", "1024", "--kv-heads", "1024"];
    assert_refused(
        &run(&large),
        2,
        &["--heads 1024", "MiB", "at most 2048 MiB", "lower --tokens or --heads"],
    );
    for arguments in [["--tokens", "100000"], ["--heads", "512"]] {
        let flag = arguments.join(" ");
        let output = run(&[&["r50", "--device", "cpu"][..], &arguments].concat());
        assert_refused(&output, 2, &[&flag, "at most 40000", "lower --tokens or --heads"]);
    }
    assert_refused(&run(&["r50", "--heads", "1025"]), 2, &["--heads", "at most 1024"]);
}

#[test]
fn flags_in_the_wrong_place_are_named() {
    for arguments in [&["-o", "json", "ledger"][..], &["--tokens", "5", "ledger"]] {
        assert_refused(&run(arguments), 2, &["flags come after `ledger`"]);
    }
    assert_refused(&run(&["--list", "--tokens", "5"]), 2, &["--list", "--tokens"]);
    assert_refused(&run(&["--list", "-o", "json"]), 2, &["--list", "--output"]);
}

#[test]
fn a_geometry_for_no_gpu_has_a_warning() {
    let large = ["--head-size", "256", "--tile-q", "512", "--staging-warps", "0"];
    let page = printed(&[&["ledger"][..], &large].concat());
    let warning = page.lines().find(|line| line.starts_with("Warning: it fits on no GPU: ")).unwrap();
    assert!(warning.contains("shared memory, a block has at most 232,448; "), "{warning}");
    assert!(warning.contains("registers of all threads, a block has at most 65,536."), "{warning}");
    assert!(ledger(&large)["fits_on_no_gpu"].is_string());
    assert!(ledger(&[])["fits_on_no_gpu"].is_null());
    let page = printed(&["ledger"]);
    assert!(!page.contains("Warning") && page.contains("The sum is an estimate"), "{page}");
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
    assert!(gates[0][3].contains("32 ragged shapes, 130 rows of 130 tokens"), "{:?}", gates[0]);
    let numbers = rows(&page, "what");
    let row = |title: &str| numbers.iter().find(|row| row[0] == title).unwrap();
    assert_eq!(row("shared memory, bytes of a block")[1..3], ["34,816", "32,768"]);
    assert_eq!(row("shared memory, bytes of a block")[4..], ["r50 §3.1", "as said"]);
    assert_eq!(row("a tile: barriers")[1..3], ["2", "2"]);
    assert_eq!(row("a tile: barriers")[5], "otherwise", "the source has three");
    assert_eq!(row("time over the landed kernel's")[5], "not seen");
    assert!(page.ends_with("Not timed: there is no GPU.\n"), "{page}");
}

/// How many elements of a prompt's output have other bits than the landed kernel's.
fn different(name: &str, tokens: usize, seed: u64) -> usize {
    let options = Options { heads: [2, 1, 128], shapes: Vec::new(), tokens, sampled: 4, pairs: 1, seed };
    let machine = Emulation::new(Assembled::Not("not asked".to_owned()));
    let experiment = Experiment::find(name).unwrap();
    let outcome = lanemap::experiment::run(&machine, experiment, &options, &mut |_| ()).unwrap();
    let findings = outcome.findings.unwrap_or_else(|| panic!("{name}, seed {seed}: {:?}", outcome.gates));
    findings.difference.different
}

/// What r57 says of the rows of a block does not hold here, and what r50 says of tiles does.
#[test]
fn rows_of_a_block_do_not_change_a_bit_and_tiles_of_positions_do() {
    for seed in 1..4 {
        for name in ["r57", "tq128", "double"] {
            assert_eq!(different(name, 130, seed), 0, "{name}, seed {seed}");
        }
    }
    for name in ["r46", "r48", "r50", "tkv64"] {
        assert_ne!(different(name, 130, 1), 0, "{name}");
    }
    // As long as there is one tile alone, nothing is grouped otherwise.
    assert_eq!(different("r50", 16, 1), 0);
    assert_eq!(different("tkv64", 32, 1), 0);
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
        let why = "no ptxas or no PTX; set LANEMAP_PTXAS (`pip install nvidia-cuda-nvcc` has one)";
        return writeln!(io::stderr(), "SKIPPED: registers_are_ptxas_own: {why}").unwrap();
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

/// The flags name the geometry of the kernel that they should.
#[test]
fn the_ledgers_flags_find_the_kernel() {
    use lanemap::experiment::Tiles;
    for kernel in [Kernel::Head80, Kernel::Tq48Double, Kernel::SharedPadded] {
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

/// An emulator that looks like a device: the variant takes so many times as long as the others, and a
/// second run may have another last bit.
struct Device {
    queue: Emulated,
    times: f64,
    flips: bool,
}

impl Machine for Device {
    type Queue = Emulated;

    fn queue(&self) -> &Emulated {
        &self.queue
    }

    fn description(&self) -> String {
        "a device".to_owned()
    }

    fn run_again(&self, inputs: &Uploaded, kernel: Kernel) -> Result<Vec<f32>, Error> {
        let mut output = inputs.run(&self.queue, kernel)?;
        if self.flips {
            output[2 * 256 + 130] = output[2 * 256 + 130].next_up();
        }
        Ok(output)
    }

    fn taken(&self, _: Kernel) -> Result<Taken, Error> {
        Ok(Taken { registers: Some(126), spill_bytes: Some(0), blocks: Some(4) })
    }

    fn time(&self, _: &Problem, kernels: [Kernel; 2], pairs: usize) -> Result<Option<Timing>, Error> {
        let mut turn = 0;
        let comparison = Comparison::interleaved(pairs, |side| {
            turn += 1;
            let noise = [1.0, 1.01, 0.99][turn % 3];
            let own = if side == Side::One { 1.0 } else { self.times };
            // The structure before takes twice as long as the landed kernel.
            Ok(own * noise * if kernels[0] == Kernel::Landed || side == Side::Other { 0.5 } else { 1.0 })
        });
        comparison.map(|comparison| Some(Timing { launches: 20, comparison }))
    }
}

fn on_a_device(name: &str, times: f64, flips: bool) -> (Outcome, Report) {
    let options = Options {
        heads: [2, 1, 128],
        shapes: vec![(17, 0), (3, 37)],
        tokens: 40,
        sampled: 3,
        pairs: 9,
        seed: 5,
    };
    let experiment = Experiment::find(name).unwrap();
    let machine = Device { queue: Emulated::new(), times, flips };
    let mut steps = 0;
    let outcome = lanemap::experiment::run(&machine, experiment, &options, &mut |_| steps += 1).unwrap();
    if outcome.findings.is_some() {
        assert_eq!(steps, lanemap::experiment::steps(experiment, &options), "{name}");
    }
    (outcome.clone(), Report::new(experiment, machine.description(), &options, outcome))
}

fn written(report: &Report, format: Format) -> String {
    let mut out = Vec::new();
    report.write(&mut out, format).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_first_red_gate_is_the_last_thing_in_the_report() {
    let (outcome, report) = on_a_device("double", 0.8, true);
    assert!(outcome.findings.is_none());
    let red = report.red().unwrap();
    assert_eq!((red.gate, red.kernel), ("reproducibility", "fa_prefill_f16kv"));
    let seen = "1 of 10240 elements differ, first token 2, head 1, dimension 2 ";
    assert!(red.seen.starts_with(seen) && red.seen.contains("at most 1 ULP"), "{}", red.seen);
    assert_eq!(outcome.gates.len(), 3, "two of parity and this one");
    let page = written(&report, Format::Md);
    assert!(page.ends_with("\nreproducibility is red: nothing else was run.\n"), "{page}");
    assert!(!page.contains("ms") && !page.contains("registers"), "{page}");
    let object: Value = serde_json::from_str(&written(&report, Format::Json)).unwrap();
    assert_eq!(object["gates"][2]["green"], false);
    assert!(object["rows"].as_array().unwrap().is_empty() && object["timing"].is_null());
}

/// What the claims about time come to, for a variant that takes so many times as long.
fn seen(name: &str, times: f64, metric: &str) -> String {
    let (_, report) = on_a_device(name, times, false);
    let object: Value = serde_json::from_str(&written(&report, Format::Json)).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == metric).unwrap();
    row["claims"][0]["seen"].as_str().unwrap().to_owned()
}

#[test]
fn times_are_held_against_the_claims_by_their_direction() {
    assert_eq!(seen("r48", 2.0, "ratio"), "as-said");
    assert_eq!(seen("r48", 0.9, "ratio"), "otherwise");
    assert_eq!(seen("r50", 1.0, "ratio"), "as-said");
    assert_eq!(seen("r50", 1.3, "ratio"), "otherwise");
    assert_eq!(seen("double", 0.8, "ratio"), "as-said");
    assert_eq!(seen("double", 1.0, "ratio"), "otherwise");
    // Half as long again as the landed kernel is less than the one before.
    assert_eq!(seen("r46", 1.5, "ratio-before"), "as-said");
    assert_eq!(seen("r46", 2.5, "ratio-before"), "otherwise");

    let (_, report) = on_a_device("r46", 1.5, false);
    let page = written(&report, Format::Md);
    let times: Vec<_> = page.lines().filter(|line| line.starts_with("In turns, 20 launches")).collect();
    assert_eq!(times.len(), 2, "{page}");
    assert!(times[0].contains("`fa_prefill_f16kv` 0.5") && times[0].ends_with("the variant is slower."));
    assert!(
        times[1].contains("`fa_prefill_f16kv_shared` 1.0") && times[1].ends_with("the variant is faster.")
    );
}

/// On a GPU both kernels are timed, and the driver is asked.
#[test]
fn a_device_has_times() {
    if let Err(Error::Unavailable(why)) = lanemap::cuda::devices() {
        return writeln!(io::stderr(), "NO DEVICE: a_device_has_times: {why}").unwrap();
    }
    let report = json(&["r50", "--device", "cuda", "--tokens", "500", "--pairs", "5"]);
    let median = |side: &str| report["timing"]["comparison"][side]["median"].as_f64().unwrap();
    let (landed, variant, ratio) = (median("one"), median("other"), median("ratio"));
    assert!(landed > 0.0 && variant > 0.0 && (0.1..10.0).contains(&ratio), "{report}");
    assert!(report["gates"].as_array().unwrap().iter().all(|gate| gate["green"] == true), "{report}");
    let rows = report["rows"].as_array().unwrap();
    let registers = rows.iter().find(|row| row["metric"] == "registers").unwrap();
    assert!(registers["landed"].as_f64().unwrap() > 32.0, "{report}");
}
