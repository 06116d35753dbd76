//! What launches have to do at least, against what the emulator counts; and where there is a device, their times.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
mod support;

use gpu::product::panels::PANEL_COLUMNS;
use gpu::quant::Format;
use gpu::simt::Unit;
use lanemap::cuda::backend::{ActivationKind, GpuOptions};
use lanemap::cuda::ops::{self, top_k_workspace};
use lanemap::cuda::{Cost, Emulated, Launched, Queue, Recorded};
use lanemap::model::Model;
use lanemap::profile::{Bound, Plan, Profile, Report, Task, on_device, on_emulator};
use support::loaded::Loaded;
use support::tiny::{Spec, Tiny};

const KINDS: [ActivationKind; 4] =
    [ActivationKind::F16, ActivationKind::F16Wgmma, ActivationKind::F16SplitK, ActivationKind::Q8];

fn plan(task: Task, depth: usize) -> Plan {
    Plan { task, depth, batch: None, repetitions: 2 }
}

fn emulated(loaded: &Loaded, plan: &Plan, kind: ActivationKind) -> Profile {
    let options = match kind {
        ActivationKind::F16Wgmma => GpuOptions::steady(kind, ActivationKind::F16),
        ActivationKind::F16SplitK => GpuOptions::steady(ActivationKind::F16, kind),
        kind => GpuOptions::steady(kind, kind),
    };
    on_emulator(&loaded.model, options, plan, &mut |_| ()).unwrap()
}

/// That a launch moves and multiplies no less than it is said to have to, and stores just that.
#[track_caller]
fn check(launched: &Launched, what: &str) {
    let Launched { kernel, work, cost, .. } = *launched;
    let work = work.unwrap_or_else(|| panic!("{what}: {kernel}: nobody has counted its work"));
    let Cost::Counters(counters) = cost else { panic!("{kernel} has no counters") };
    let (read, written) = (counters.bytes_read(), counters.bytes_written());
    assert!(read >= work.bytes_read, "{what}: {kernel}: {read} bytes read, at least {work:?}");
    assert_eq!(written, work.bytes_written, "{what}: {kernel}: bytes written, and {work:?}");
    // Of the largest tensor cores' instructions of each kind.
    let (wmma, mma, wgmma) = (16 * 16 * 16, 16 * 8 * 32, 16 * 256 * 16);
    let multiplied = 2 * (wmma * counters.wmma_mma + mma * counters.mma + wgmma * counters.wgmma);
    if work.unit == Unit::Plain {
        assert_eq!(multiplied, 0, "{what}: {kernel} has tensor cores multiply");
    } else {
        assert!(multiplied >= work.operations, "{what}: {kernel}: {multiplied} operations, {work:?}");
    }
    // Where each element is read by one lane.
    let once = ["convert_", "gated_", "argmax_parts"];
    if once.iter().any(|name| kernel.starts_with(name)) {
        assert_eq!(read, work.bytes_read, "{what}: {kernel}: bytes read");
    }
}

#[test]
fn no_emulated_launch_moves_less_than_it_has_to() {
    let k_quants = &[Format::Q4_K, Format::Q6_K, Format::Q5_K, Format::Q3_K, Format::Q2_K, Format::IQ4_XS];
    let small = &[Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::IQ4_NL];
    let floats = &[Format::F16, Format::F32, Format::BF16, Format::Q8_0];
    let specs = [
        ("llama", Spec { bias: true, ..Spec::LLAMA }),
        ("qwen3", Spec { formats: floats, ..Spec::QWEN3 }),
        ("gemma3", Spec { layers: 6, heads: 4, head_dim: 96, window: Some(33), ..Spec::GEMMA3 }),
        ("k", Spec { width: 256, feed_forward: 256, formats: k_quants, ..Spec::LLAMA }),
        ("small", Spec { formats: small, ..Spec::QWEN2 }),
        ("no attention by chunks", Spec { layers: 1, heads: 17, kv_heads: 1, ..Spec::QWEN3 }),
        ("no attention in tiles", Spec { layers: 1, heads: 2, kv_heads: 1, head_dim: 32, ..Spec::QWEN3 }),
    ];
    for (what, spec) in specs {
        let plain = Loaded::new(&Tiny::new(spec));
        // Panels are whole: with rows that are too, what only fills them up is not stored.
        let feed_forward = spec.feed_forward.next_multiple_of(PANEL_COLUMNS as usize);
        let whole = Loaded::new(&Tiny::new(Spec { feed_forward, ..spec }));
        for kind in KINDS {
            let loaded = if kind == ActivationKind::F16Wgmma { &whole } else { &plain };
            // The second step begins a chunk of attention.
            let depth = if what == "llama" { 127 } else { 6 };
            let mut plans = vec![plan(Task::Prefill(19), 5)];
            if kind != ActivationKind::F16Wgmma {
                plans.push(plan(Task::Decode { steps: 2, greedy: what != "k" }, depth));
            }
            for plan in plans {
                let profile = emulated(loaded, &plan, kind);
                let what = format!("{what}, {kind:?}, {}", plan.name());
                assert!(profile.launches.len() > 5 * spec.layers, "{what}");
                profile.launches.iter().for_each(|launch| check(&launch.launched, &what));
            }
        }
    }
}

#[test]
fn top_k_moves_what_it_is_said_to() {
    let (rows, vocabulary, k) = (2, 5003, 7);
    let queue = Emulated::new();
    let scratch = queue.output("scratch", 0).unwrap();
    let queue = Recorded::new(queue, scratch);
    let logits: Vec<f32> = (0..rows * vocabulary).map(|i| (i * 7919 % 10_007) as f32).collect();
    let logits = queue.input("logits", &logits).unwrap();
    let mut tokens = queue.output("tokens", rows * k).unwrap();
    let mut values = queue.output("values", rows * k).unwrap();
    let mut workspace = queue.output("workspace", top_k_workspace(rows, vocabulary, k)).unwrap();
    let recorder = queue.recorder();
    let mut run = || {
        let outs = (tokens.view_mut(), values.view_mut());
        ops::top_k(&queue, outs, logits.view(), workspace.view_mut(), None, [rows, vocabulary, k]).unwrap();
    };
    run();
    recorder.begin(0, 0);
    run();
    let launches = recorder.finish().unwrap().launches;
    run();
    assert!(recorder.finish().unwrap().launches.len() == launches.len(), "nothing is noted after the end");
    let names: Vec<_> = launches.iter().map(|launched| launched.kernel).collect();
    assert_eq!(names, ["top_k", "top_k_keys"]);
    launches.iter().for_each(|launched| check(launched, "top_k"));
}

/// Elements of the layers' matrices, and of the output's.
fn elements(model: &Model) -> [u64; 2] {
    let size = |matrix: &lanemap::model::Matrix| (matrix.rows() * matrix.columns()) as u64;
    let layers = model.layers().iter().map(|layer| {
        [&layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.gate, &layer.up, &layer.down]
            .into_iter()
            .map(size)
            .sum::<u64>()
    });
    [layers.sum(), size(model.output())]
}

/// The operations of all launches whose kernels' names begin so.
fn operations(profile: &Profile, names: &[&str]) -> u64 {
    let launches = profile.launches.iter().map(|launch| &launch.launched);
    let of_names = launches.filter(|launched| names.iter().any(|name| launched.kernel.starts_with(name)));
    of_names.map(|launched| launched.work.unwrap().operations).sum()
}

#[test]
fn operations_are_those_of_the_model() {
    let spec = Spec { heads: 6, ..Spec::LLAMA };
    let loaded = Loaded::new(&Tiny::new(spec));
    let [layers, output] = elements(&loaded.model);
    let width = (spec.layers * spec.heads * spec.head_dim) as u64;
    let (tokens, depth) = (21_u64, 4_u64);
    let prompt = emulated(&loaded, &plan(Task::Prefill(21), 4), ActivationKind::F16);
    assert_eq!(operations(&prompt, &["matmul_"]), 2 * (tokens * layers + output));
    // Row i sees depth + i + 1 positions: a product for its score, one for its value.
    let pairs = tokens * depth + tokens * (tokens + 1) / 2;
    assert_eq!(operations(&prompt, &["fa_prefill"]), 4 * width * pairs);
    let unpacked = emulated(&loaded, &plan(Task::Prefill(21), 4), ActivationKind::F16Wgmma);
    let products = ["matmul_", "matvec_"];
    assert_eq!(operations(&unpacked, &products), operations(&prompt, &products));
    let steps = plan(Task::Decode { steps: 3, greedy: false }, 4);
    let steps = emulated(&loaded, &steps, ActivationKind::Q8);
    assert_eq!(operations(&steps, &["matvec_"]), 3 * 2 * (layers + output));
    assert_eq!(operations(&steps, &["attn_decode"]), 4 * width * (5 + 6 + 7));
}

/// Times and floors, where there is a device.
#[test]
fn device() {
    let Some(stream) = machine::stream("profile") else { return };
    let spec = Spec { layers: 4, width: 1024, feed_forward: 4096, heads: 8, vocab: 4099, ..Spec::LLAMA };
    let loaded = Loaded::new(&Tiny::new(spec));
    for task in [Task::Prefill(700), Task::Decode { steps: 5, greedy: true }] {
        let plan = Plan { repetitions: 5, ..plan(task, 60) };
        let profile =
            on_device(stream.device(), &loaded.model, GpuOptions::default(), &plan, &mut |_| ()).unwrap();
        let report = Report::new(&profile, "tiny".to_owned());
        let whole = report.whole.as_ref().unwrap();
        let mut out = Vec::new();
        report.write_table(&mut out, task).unwrap();
        println!("{}", String::from_utf8(out).unwrap());
        assert!(whole.ceilings.memory.rate > 1e10, "{:?}", whole.ceilings);
        assert!(whole.ceilings.tensor_f16.as_ref().is_some_and(|ceiling| ceiling.rate > 1e12));
        // Written so that a NaN fails.
        assert!(whole.kernels_seconds > 0.0 && whole.wall.median > 0.0 && whole.mark_seconds >= 0.0);
        assert!(whole.marked_seconds >= 0.9 * whole.kernels_seconds, "a pass is as long as its launches");
        for row in &report.kernels {
            let seconds = row.seconds.unwrap();
            assert!(seconds > 0.0 && seconds < 1.0, "{row:?}");
            assert!(row.floor_seconds.is_some_and(|floor| floor > 0.0), "{row:?}");
            assert!(row.bound.is_some_and(|bound| bound == Bound::Memory || row.operations > Some(0.0)));
        }
        let end = profile.launches.iter().fold(0.0, |end, launch| {
            let Cost::Time { start, seconds } = launch.launched.cost else { panic!("{launch:?}") };
            assert!(start >= end - 1e-6, "launches follow each other: {launch:?} after {end}");
            start + seconds
        });
        assert!(end > 0.0);
    }
}
