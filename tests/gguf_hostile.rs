//! Damaged GGUF files by the thousand: cut at every byte, and with 10,000 seeded mutations of the header. Each
//! must end in an error or a success: never in a panic, and never with more memory allocated than twice
//! the file's size plus 16 MiB.
//!
//! The allocator of this binary counts, so everything that measures holds [`lock`].

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu::quant::Format;
use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::gguf::{Gguf, GgufWriter, OwnedValue, Value, ValueType};
use lanemap::model::Model;
use lanemap::session::Session;
use lanemap::tokenizer::Tokenizer;
use support::gguf::{Folder, Random, tensor_bytes, tiny, with_tensor};
use support::tiny::{Spec, Stretch, Tiny};

/// What a file may cost beyond twice its size.
const SLACK_BYTES: usize = 16 << 20;

/// The whole way from a path to a loaded model: everything that a file's bytes can reach.
fn exercise(path: &Path) -> Result<(), String> {
    let gguf = Gguf::open(path).map_err(|error| error.to_string())?;
    for (key, value) in gguf.metadata() {
        assert!(gguf.get(key).is_some(), "a key that is listed is found");
        walk(value);
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        let data = gguf.data(tensor);
        assert_eq!(data.len(), tensor.byte_len());
        // Touches every page, as a load would.
        std::hint::black_box(data.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)));
    }
    // Whether it is a model with a tokenizer is not the question here; it has to be an answer.
    std::hint::black_box(Tokenizer::from_gguf(&gguf).map_err(|error| error.to_string())).ok();
    let model = Model::load(Arc::new(gguf));
    std::hint::black_box(model.map_err(|error| error.to_string())).ok();
    Ok(())
}

fn walk(value: Value<'_>) {
    std::hint::black_box(value.summary());
    if let Value::Array(array) = value {
        assert_eq!(array.values().count(), array.len(), "every element decodes");
        array.values().for_each(walk);
        std::hint::black_box(array.strings().map(Iterator::count));
        std::hint::black_box(array.f32s().map(Iterator::count));
        std::hint::black_box(array.i32s().map(Iterator::count));
    }
}

#[test]
fn cut_at_every_byte() {
    let _lock = lock();
    let folder = Folder::new();
    let bytes = tiny().to_bytes().unwrap();
    let needed = last_data_byte(&folder, &bytes);
    for cut in 0..bytes.len() {
        let result = checked(&folder, &bytes[..cut], &format!("cut to {cut} bytes"));
        assert_eq!(result.is_ok(), cut >= needed, "cut to {cut} bytes: {result:?}");
    }
}

/// Where the padding of the last tensor starts: what is cut after that is not missed.
fn last_data_byte(folder: &Folder, bytes: &[u8]) -> usize {
    let gguf = Gguf::open(&folder.write("whole.gguf", bytes)).unwrap();
    gguf.tensors().iter().map(|tensor| tensor.offset() as usize + tensor.byte_len()).max().unwrap()
}

#[test]
fn ten_thousand_mutations() {
    const SEED: u64 = 0x6775_6766;
    let _lock = lock();
    let folder = Folder::new();
    let whole = tiny().to_bytes().unwrap();
    let header = Gguf::open(&folder.write("whole.gguf", &whole)).unwrap().tensors()[0].offset() as usize;
    let mut opened = 0;
    let mut reached = CHECKS.map(|_| 0);
    for index in 0..10_000 {
        let mut random = Random(SEED + index);
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(2) * random.below(3) {
            mutate(&mut bytes, header, &mut random);
        }
        match checked(&folder, &bytes, &format!("mutation {index} of seed {SEED:#x}")) {
            Ok(()) => opened += 1,
            Err(error) => {
                for (count, check) in reached.iter_mut().zip(CHECKS) {
                    *count += usize::from(error.contains(check));
                }
            }
        }
    }
    println!("seed {SEED:#x}: {opened} of 10000 mutated files still open; refusals:");
    for (count, check) in reached.iter().zip(CHECKS) {
        println!("{count:6} {check}");
    }
    // Mutations that all break on the first check would test little.
    assert!(opened > 100 && !reached.contains(&0), "the mutations do not reach every check");
}

/// A model that loads also runs, whatever its file says: without a panic, if not with sensible numbers.
#[test]
fn mutated_models_run_or_are_refused() {
    const SEED: u64 = 0x6d6f_6465;
    let _lock = lock();
    let folder = Folder::new();
    let llama = Spec {
        width: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        feed_forward: 32,
        vocab: 11,
        rope_dims: Some(8),
        rope_factors: true,
        stretch: Stretch::Yarn { factor: 4.0, original: 64 },
        ..Spec::LLAMA
    };
    let gemma = Spec {
        arch: "gemma3",
        qk_norm: true,
        post_norm: true,
        tied: true,
        window: Some(3),
        pattern: Some(2),
        attention_scale: Some(1.0),
        attention_softcap: Some(1.0),
        logit_softcap: Some(1.0),
        rope_factors: false,
        ..llama
    };
    let (mut ran, mut refused) = (0, 0);
    for (index, spec) in (0..4000).zip([llama, gemma].into_iter().cycle()) {
        let mut random = Random(SEED + index);
        let mut tiny = Tiny::new(spec);
        // One mutation of three kinds: of a value, of the header's bytes, of the weights.
        let kind = random.below(3);
        if kind == 0 {
            tiny.mutate_value(&mut random);
        }
        let mut bytes = tiny.file().to_bytes().unwrap();
        let path = folder.write("case.gguf", &bytes);
        let header = Gguf::open(&path).unwrap().tensors()[0].offset() as usize;
        match kind {
            1 => mutate(&mut bytes, header, &mut random),
            2 => {
                for _ in 0..1 + random.below(50) {
                    let at = header + random.below(bytes.len() - header);
                    bytes[at] = [0xff, 0x7f, 0x80, 0xfe, random.next() as u8][random.below(5)];
                }
            }
            _ => {}
        }
        let what = format!("mutation {index} of {}", spec.arch);
        _ = checked(&folder, &bytes, &what);
        match catch_unwind(AssertUnwindSafe(|| run(&path))) {
            Ok(Ok(())) => ran += 1,
            Ok(Err(_)) => refused += 1,
            Err(_) => panic!("{what}: panicked"),
        }
    }
    println!("seed {SEED:#x}: {ran} mutated models ran, {refused} were refused");
    assert!(ran > 1000 && refused > 1000, "the mutations do not reach both ends");
}

/// Evaluates a few tokens in both modes.
fn run(path: &Path) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let gguf = Gguf::open(path).map_err(|error| text(&error))?;
    let model = Arc::new(Model::load(Arc::new(gguf)).map_err(|error| text(&error))?);
    for exact in [true, false] {
        let backend = CpuBackend::new(
            Arc::clone(&model),
            CpuOptions { threads: 1, arithmetic: Arithmetic::exact_if(exact) },
        )
        .unwrap();
        let mut session = Session::new(Box::new(backend), 8).map_err(|error| text(&error))?;
        let last = session.config().vocab_size as u32 - 1;
        session.prefill(&[0, last, 0, last, 0], 3, &mut |_, _| ControlFlow::Continue(())).unwrap();
        session.decode(last).unwrap();
    }
    Ok(())
}

/// Words of the refusals that the mutations must have met.
const CHECKS: [&str; 15] = [
    "not a GGUF file",
    "is not supported",
    "is larger than the bytes left",
    "are left (is the file truncated?)",
    "unknown value type",
    "is not a bool",
    "is not UTF-8",
    "is empty",
    "dimensions; 1 to 4",
    "dimension of zero",
    "larger than any file",
    "do not divide into the blocks",
    "not a known format",
    "is no multiple of the alignment",
    "overlap",
];

/// Numbers that break arithmetic, alone or times a size.
const EXTREMES: [u64; 16] = [
    0,
    1,
    2,
    3,
    31,
    0x7f,
    0xff,
    0xffff,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 62,
    1 << 63,
    u64::MAX - 31,
    u64::MAX,
];

/// One change somewhere in the first `header` bytes.
fn mutate(bytes: &mut Vec<u8>, header: usize, random: &mut Random) {
    let header = header.min(bytes.len());
    let at = random.below(header);
    let len = (1 + random.below(16)).min(header - at);
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => overwrite(bytes, at, &EXTREMES[random.below(EXTREMES.len())].to_le_bytes()),
        3 => overwrite(bytes, at, &(EXTREMES[random.below(EXTREMES.len())] as u32).to_le_bytes()),
        // Two pieces change places.
        4 => {
            let other = random.below(header - len + 1);
            (0..len).for_each(|i| bytes.swap(at + i, other + i));
        }
        // What follows moves up or down.
        5 => _ = bytes.drain(at..at + len),
        6 => _ = bytes.splice(at..at, random.bytes(len)),
        _ => _ = bytes.splice(at..at, bytes[at..at + len].to_vec()),
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    let end = bytes.len().min(at + new.len());
    bytes[at..end].copy_from_slice(&new[..end - at]);
}

#[test]
fn lying_counts_cost_nothing() {
    let _lock = lock();
    let folder = Folder::new();
    // Large enough that a few bytes for each counted item would show.
    let mut bytes = vec![0; 64 << 20];
    bytes[..8].copy_from_slice(b"GGUF\x03\0\0\0");
    let left = bytes.len() as u64 - 24;
    for (tensors, entries) in
        [(left / 40, 0), (0, left / 14), (left / 80, left / 28), (left / 40 + 1, 0), (1 << 40, 1)]
    {
        bytes[8..16].copy_from_slice(&tensors.to_le_bytes());
        bytes[16..24].copy_from_slice(&entries.to_le_bytes());
        checked(&folder, &bytes, &format!("{tensors} tensors, {entries} entries")).unwrap_err();
    }
}

/// The bound holds without the slack: an entry costs at most twice its bytes in the file.
#[test]
fn many_small_entries_cost_twice_the_file() {
    let _lock = lock();
    let folder = Folder::new();
    let writer = (0..100_000).fold(GgufWriter::new(), |writer, i| writer.meta(&format!("{i:x}"), 1_u8));
    let bytes = writer.to_bytes().unwrap();
    let path = folder.write("entries.gguf", &bytes);
    let (result, peak) = measured(|| Gguf::open(&path));
    assert_eq!(result.unwrap().metadata().count(), 100_000);
    println!("{} bytes of file, {peak} bytes of memory", bytes.len());
    assert!(peak <= 2 * bytes.len() + 4096);
}

#[test]
fn a_vocabulary_stays_in_the_file() {
    let _lock = lock();
    let folder = Folder::new();
    let tokens = OwnedValue::array(ValueType::String, (0..262_144).map(|i| format!("token {i}")));
    let writer = GgufWriter::new().meta("tokenizer.ggml.tokens", tokens);
    let path = folder.write("vocabulary.gguf", &writer.to_bytes().unwrap());
    let (count, peak) = measured(|| {
        let gguf = Gguf::open(&path).unwrap();
        let tokens = gguf.require("tokenizer.ggml.tokens", Gguf::strings).unwrap();
        tokens.filter(|token| token.starts_with(b"token ")).count()
    });
    assert_eq!(count, 262_144);
    println!("{peak} bytes of memory for {count} strings");
    assert!(peak < 64 << 10, "{peak} bytes");
}

/// A tokenizer over texts that are far shorter than what is kept for each.
#[test]
fn many_tokens_of_one_byte() {
    const COUNT: usize = 100_000;
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    let _lock = lock();
    let folder = Folder::new();
    // Ordinary text, control tokens and user-defined ones, numbered as in the file.
    for (model, kind) in [("gpt2", 1_i32), ("gpt2", 3), ("gpt2", 4), ("llama", 1), ("llama", 4)] {
        let strings = |len: usize| {
            let texts = (0..COUNT).map(|i| &LETTERS[i % (LETTERS.len() - len)..][..len]);
            OwnedValue::array(ValueType::String, texts)
        };
        let writer = GgufWriter::new()
            .meta("tokenizer.ggml.model", model)
            .meta("tokenizer.ggml.pre", "smollm")
            .meta("tokenizer.ggml.tokens", strings(1))
            .meta("tokenizer.ggml.merges", strings(3))
            .meta("tokenizer.ggml.scores", OwnedValue::array(ValueType::F32, (0..COUNT).map(|i| i as f32)))
            .meta("tokenizer.ggml.token_type", OwnedValue::array(ValueType::I32, vec![kind; COUNT]))
            .meta("tokenizer.ggml.unknown_token_id", 0_u32);
        let bytes = writer.to_bytes().unwrap();
        let path = folder.write("tokens.gguf", &bytes);
        let (tokenizer, peak) = measured(|| Tokenizer::from_gguf(&Gguf::open(&path).unwrap()));
        assert_eq!(tokenizer.map(|tokenizer| tokenizer.vocab_size()).unwrap(), COUNT);
        println!("{model}, kind {kind}: {} bytes of file, {peak} bytes of memory", bytes.len());
        assert!(peak <= 2 * bytes.len() + SLACK_BYTES, "{model}, kind {kind}: {peak} bytes");
    }
}

/// Proves that [`checked`] bites: a reader that believes a count is found out.
#[test]
fn the_allocator_counts() {
    let _lock = lock();
    let (held, peak) = measured(|| {
        drop(Vec::<u8>::with_capacity(3 << 20));
        let mut grown = vec![1_u8; 1 << 20];
        grown.reserve_exact(1 << 20);
        grown
    });
    assert!((3 << 20..4 << 20).contains(&peak), "{peak}");
    drop(held);
}

/// The tensors' bytes of a large file are not copied either.
#[test]
fn weights_stay_in_the_file() {
    let _lock = lock();
    let folder = Folder::new();
    let dims = [4096, 2048];
    let writer = with_tensor(GgufWriter::new(), "w", &dims, Format::Q8_0);
    let path = folder.write("weights.gguf", &writer.to_bytes().unwrap());
    let (sum, peak) = measured(|| {
        let gguf = Gguf::open(&path).unwrap();
        gguf.data(&gguf.tensors()[0]).iter().map(|&byte| u64::from(byte)).sum::<u64>()
    });
    assert_eq!(sum, tensor_bytes(&dims, Format::Q8_0).iter().map(|&byte| u64::from(byte)).sum::<u64>());
    assert!(peak < 64 << 10, "{peak} bytes");
}

/// Runs [`exercise`] on bytes and holds it to the two promises; `what` names the case in a failure.
fn checked(folder: &Folder, bytes: &[u8], what: &str) -> Result<(), String> {
    let path = folder.write("case.gguf", bytes);
    let (result, peak) = measured(|| catch_unwind(AssertUnwindSafe(|| exercise(&path))));
    let bound = 2 * bytes.len() + SLACK_BYTES;
    assert!(
        peak <= bound,
        "{what}: {peak} bytes of memory for a file of {}; {bound} are allowed",
        bytes.len()
    );
    result.unwrap_or_else(|_| panic!("{what}: panicked"))
}

/// One measurement at a time. A test that fails while it holds the lock does not fail the others.
fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `work`, and the most bytes that were allocated meanwhile beyond those before.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed) - before)
}

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting the bytes that are live and their peak.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator can only be counted by being one")]
// SAFETY: every call is passed on to the system's allocator unchanged; the default `realloc` allocates,
// copies and frees through these two, so that both blocks count while both live.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the pointer came from `System` with this layout, by `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
