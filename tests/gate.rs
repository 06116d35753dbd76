//! The gates: green on what is right, and red, with the kernel's name, on what is wrong.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/sabotage.rs"]
mod sabotage;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Instant;

use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::cuda::backend::{GpuBackend, GpuOptions};
use lanemap::gate::identity::{self, Baseline, IdentityError, Key, Verdict};
use lanemap::gate::parity::{Check, Extent, Row};
use lanemap::gate::passage::{self, Passage};
use lanemap::gate::tolerance::{self, Role, Subject, Tolerance};
use lanemap::model::Model;
use lanemap::session::{Session, SessionError};
use lanemap::synth::{DEFAULT_SEED, Synth};
use lanemap::tokenizer::Tokenizer;
use sabotage::{Deed, Saboteur};
use serde_json::Value;

const MODEL: &str = "tiny:q4_k_m";

fn gate(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.arg("gate").args(args).env_remove("RUST_LOG").env("LANEMAP_CACHE", cache);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All gates over a tiny model, as CI has them without a GPU; the second time there is a baseline.
#[test]
fn the_gates_are_green_on_the_emulator() {
    let cache = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let model = ["--device", "emulator", "--synth", MODEL, "--quick"];
    let record = cache.path().join("record.md");
    let recorded = format!("--record={}", record.display());
    let all = json(&gate(cache.path(), &[&["all"], &model[..], &["--json", &recorded]].concat()));
    let recorded = std::fs::read_to_string(record).unwrap();
    assert!(recorded.contains("## `lanemap gate all`, ") && recorded.contains("| tolerance | green |"));
    println!("gate all took {:.0} s", started.elapsed().as_secs_f64());
    assert_eq!(all["green"], true, "{all}");
    let verdicts: Vec<_> = all["gates"].as_array().unwrap().iter().map(|gate| &gate["verdict"]).collect();
    assert_eq!(verdicts, ["green", "recorded", "green"]);
    let kernels = all["parity"].as_array().unwrap();
    assert_eq!(kernels.len(), Check::all().len());
    assert!(kernels.iter().all(|row| row["red"].is_null() && row["elements"].as_u64() > Some(0)));
    assert_eq!(all["tolerance"]["lines"].as_array().unwrap().len(), 8);
    assert!(cache.path().join("identity.json").is_file());

    assert_eq!(all["identity"]["recorded"], "missing");
    let identity = |args: &[&str]| gate(cache.path(), &[&["identity"], &model[..], args].concat());
    let again = json(&identity(&["--against", "--json"]));
    assert_eq!(again["verdict"]["verdict"], "same", "{again}");
    assert_eq!(again["tokens"], all["identity"]["tokens"]);

    let own = cache.path().join("own.json").into_os_string().into_string().unwrap();
    for how in ["recorded: the stream is now a baseline", "recorded: the stream takes the place"] {
        let output = text(&identity(&["--record", &own]).stdout);
        assert!(output.contains(how) && output.contains("own.json"), "{output}");
    }
}

#[test]
fn what_cannot_be_judged_is_refused_in_a_line() {
    let cache = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], code, part: &str| {
        let output = gate(cache.path(), args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(part), "{stderr}");
    };
    refused(&["parity", "--kernel", "matmul"], 2, "no kernel or family 'matmul'");
    refused(&["parity", "--device", "cpu"], 2, "not one of auto, emulator");
    let much = ["tolerance", "--synth", MODEL, "--device", "emulator", "--passages", "1000000"];
    refused(&much, 2, "fewer --passages, --tokens or --steps");
    let identity = ["identity", "--synth", MODEL, "--device", "emulator", "--quick", "--against"];
    refused(&identity, 1, "no baseline of this model");
    let missing = cache.path().join("no").join("own.json").into_os_string().into_string().unwrap();
    let record = ["identity", "--synth", MODEL, "--device", "emulator", "--quick", "--record", &missing];
    refused(&record, 1, "cannot write");
    assert!(!cache.path().join("no").exists(), "no folder is made for a file that is named");
    std::fs::write(cache.path().join("identity.json"), "{}").unwrap();
    refused(&identity, 1, "is no file of baselines");
}

#[test]
fn a_kernel_and_a_family_are_judged_alone() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["parity", "--device", "emulator", "--quick", "--kernel", "argmax", "--kernel", "convert_q8"];
    let output = gate(cache.path(), &args);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}");
    for line in ["| `convert_q8` |", "| `argmax` |", "| `argmax_parts` |", "3 of 3 kernels are green"] {
        assert!(table.contains(line), "no {line:?} in {table}");
    }
}

/// What parity says of a kernel where this goes wrong.
fn parity(kernel: &str, deed: Deed) -> Row {
    let check = Check::all().into_iter().find(|check| check.kernel() == kernel).unwrap();
    let row = check.run(&Saboteur::new(deed), Extent::Quick);
    println!("{deed:?}: {kernel}: {:?}", row.red);
    assert_eq!(row.kernel, kernel);
    row
}

const ATTENTION: &str = "fa_prefill_f16kv_hd64";
const PRODUCT: &str = "matmul_f16_q4_k";
const WGMMA: &str = "matmul_f16_wgmma_n128";

#[test]
fn parity_catches_sabotage_and_names_the_kernel() {
    for kernel in [ATTENTION, PRODUCT, WGMMA, "embed_q4_0"] {
        assert!(parity(kernel, Deed::Nothing).is_green());
    }
    // What goes wrong with one kernel is not another one's.
    assert!(parity("fa_prefill_f16kv_hd80", Deed::Mask).is_green());

    let red = |kernel: &str, deed| {
        let row = parity(kernel, deed);
        assert!(!row.is_green(), "{kernel}: {deed:?} is not seen");
        row
    };
    let worst = red(ATTENTION, Deed::Mask).worst.unwrap();
    assert!(worst.off() > 0.01 && worst.found.is_finite(), "{worst:?}");
    // The emulator's fault has the kernel's name too.
    let fault = red(ATTENTION, Deed::CopyWait).red.unwrap();
    assert!(fault.contains(ATTENTION), "{fault}");
    for deed in [Deed::StageWait, Deed::ProductWait] {
        let fault = red(WGMMA, deed).red.unwrap();
        assert!(fault.contains(WGMMA), "{fault}");
    }
    let worst = red(WGMMA, Deed::LastSlab).worst.unwrap();
    assert!(worst.off() > 0.01 && worst.found.is_finite(), "{worst:?}");
    for kernel in [ATTENTION, PRODUCT, WGMMA] {
        let worst = red(kernel, Deed::HalfSums).worst.unwrap();
        assert!(worst.found.is_finite() && worst.off() < 1.0, "only inaccurate: {worst:?}");
    }
    let row = red(ATTENTION, Deed::Nan);
    let worst = row.worst.unwrap();
    assert!(worst.found.is_nan() && worst.index == 5, "{worst:?}");
    assert!(row.red.unwrap().contains("[5] is NaN"));
}

#[test]
fn what_the_device_cannot_run_is_named_and_not_red() {
    let row = parity(WGMMA, Deed::Older);
    assert!(!row.is_red() && !row.is_green() && row.cases == 0, "{row:?}");
    let why = row.unavailable.unwrap();
    assert!(why.contains(WGMMA) && why.contains("sm_90a") && why.contains("8.6"), "{why}");
    // That something is said to be elsewhere is no way out for what was compared and is wrong.
    assert!(parity(WGMMA, Deed::LastSlab).unavailable.is_none());
}

/// A tiny model and its vocabulary.
fn model() -> (Arc<Model>, Tokenizer) {
    let synth = Synth::new(MODEL.parse().unwrap(), DEFAULT_SEED);
    let gguf = Arc::new(synth.gguf(&mut |_| Ok(())).unwrap());
    (Arc::new(Model::load(Arc::clone(&gguf)).unwrap()), Tokenizer::from_gguf(&gguf).unwrap())
}

const CONTEXT: usize = 48;

fn session(model: &Arc<Model>, deed: Deed) -> Session {
    let options = GpuOptions::default();
    let backend = GpuBackend::new(Saboteur::new(deed), Arc::clone(model), options, &mut |_, _| ()).unwrap();
    Session::new(Box::new(backend), CONTEXT).unwrap()
}

/// What tolerance says of a model where this goes wrong.
fn tolerance(deed: Deed) -> Result<Tolerance, String> {
    let (model, tokenizer) = model();
    let on_cpu = |arithmetic| {
        let cpu = CpuBackend::new(Arc::clone(&model), CpuOptions { threads: 1, arithmetic }).unwrap();
        Session::new(Box::new(cpu), CONTEXT).unwrap()
    };
    let mut reference = on_cpu(Arithmetic::Exact);
    let subject = |name: &str, role, session| Subject { name: name.to_owned(), role, session };
    let subjects = [
        subject("subject", Role::Judged, Box::new(|| Ok(session(&model, deed)))),
        subject("f16", Role::Yardstick, Box::new(|| Ok(on_cpu(Arithmetic::Half { draw: 0 })))),
    ];
    let passages = Passage::some(&tokenizer, 1, [20, 2]);
    let result = tolerance::run(&mut reference, &subjects, &passages, &mut |_| ());
    result.map_err(|error| error.to_string())
}

#[test]
fn tolerance_catches_sabotage() {
    let green = tolerance(Deed::Nothing).unwrap();
    assert!(green.red().is_empty(), "{:?}", green.red());
    // Rounding to f16 moves a tiny model's logits, and by less than would raise the limit.
    for line in &green.lines[2..] {
        let moved = line.comparison.largest.delta;
        println!("{}, {}: {moved:.2e}", line.name, line.phase);
        assert!(moved > 1e-5 && moved < tolerance::LIMIT / 2.0, "{line:?}");
    }
    let red = tolerance(Deed::Mask).unwrap().red();
    println!("{red:?}");
    assert!(red.iter().any(|red| red.starts_with("subject, prompt: passage 0")), "{red:?}");
    let red = tolerance(Deed::Nan).unwrap().red();
    assert!(red[0].contains("NaN"), "{red:?}");
    let error = tolerance(Deed::CopyWait).unwrap_err();
    assert!(error.contains("subject") && error.contains(ATTENTION), "{error}");
}

#[test]
fn identity_catches_sabotage() {
    let (model, tokenizer) = model();
    let prompt = passage::tokens(&tokenizer, 30);
    let stream = |deed| identity::stream(&mut session(&model, deed), &prompt, 6);
    let steps = stream(Deed::Nothing).unwrap();
    assert_eq!(steps.len(), 6);
    let key = Key {
        model: String::new(),
        device: String::new(),
        build: "before".to_owned(),
        prompt_tokens: prompt.len(),
        generated: 6,
    };
    let recorded = Baseline { key, steps };
    let compare = |deed, build| identity::compare(&recorded, &stream(deed).unwrap(), build, 1.0);
    assert_eq!(compare(Deed::Nothing, "before"), Verdict::Same { drift: 0.0 });
    // The build is said to be the same, and it is not what it was.
    assert_eq!(compare(Deed::Mask, "before"), Verdict::Unsteady { step: 0 });
    let verdict = compare(Deed::Mask, "after");
    println!("{verdict:?}");
    let error = stream(Deed::Nan).unwrap_err();
    assert!(matches!(error, IdentityError::Session(SessionError::Unusable { .. })), "{error}");
}
