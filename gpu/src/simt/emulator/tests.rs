#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::if_same_then_else, reason = "the same word at two places is two calls")]

mod counting;
mod early;
mod hopper;
mod memory;
mod sabotage;
mod speed;
mod words;

use std::string::{String, ToString};
use std::vec::Vec;

use super::{Counters, Emulator, EmulatorError, Lane, Memory};
use crate::simt::{Contract, Dim3, Expectations, Global, Kernel, Launch, Simt, Word};

/// A kernel made of a closure.
#[derive(Clone, Copy)]
struct Fixture<F> {
    launch: Launch,
    body: F,
}

impl<F: Copy + Send + Sync + 'static> Contract for Fixture<F> {
    const NAME: &'static str = "fixture";
    const EXPECTATIONS: Expectations =
        Expectations { instructions: &[], registers: 255, local_memory: false };
    const REGISTER_LIMIT: Option<u32> = Some(168);

    fn launch(&self) -> Launch {
        self.launch
    }
}

impl<'b, F: Fn(Lane<'b>) + Copy + Send + Sync + 'static> Kernel<Lane<'b>> for Fixture<F> {
    unsafe fn run(self, s: Lane<'b>) {
        (self.body)(s);
    }
}

/// One block of so many threads with so many bytes of shared memory.
fn one_block(threads: u32, shared_bytes: u32) -> Launch {
    Launch { grid: Dim3::linear(1), threads, shared_bytes }
}

/// Plays a body under a seed.
fn play<F>(memory: &mut Memory, seed: u64, launch: Launch, body: F) -> Result<Counters, EmulatorError>
where
    F: for<'b> Fn(Lane<'b>) + Copy + Send + Sync + 'static,
{
    Emulator::new().seed(seed).launch(memory, Fixture { launch, body })
}

/// Schedules that every fixture is played under.
const SEEDS: [u64; 6] = [0, 1, 2, 3, 0xdead_beef, u64::MAX];

/// A body that must run without fault under every seed.
fn silent<F>(launch: Launch, body: F)
where
    F: for<'b> Fn(Lane<'b>) + Copy + Send + Sync + 'static,
{
    for seed in SEEDS {
        play(&mut Memory::new(), seed, launch, body).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A body that must fail under every seed; the errors' texts.
fn reported<F>(launch: Launch, body: F) -> Vec<EmulatorError>
where
    F: for<'b> Fn(Lane<'b>) + Copy + Send + Sync + 'static,
{
    SEEDS
        .map(|seed| play(&mut Memory::new(), seed, launch, body).expect_err("a fault that is not found"))
        .into()
}

/// What each lane of one block stores when its body gives one value.
fn per_lane<T: Word, F>(threads: u32, body: F) -> Vec<T>
where
    F: for<'b> Fn(Lane<'b>) -> T + Copy + Send + Sync + 'static,
{
    let mut memory = Memory::new();
    let out: Global<T> = memory.output("out", threads as usize);
    play(&mut memory, 1, one_block(threads, 0), move |s: Lane<'_>| {
        let value = body(s);
        // SAFETY: each thread has an element of its own.
        unsafe { s.store_global(out.at(u64::from(s.thread())), value) }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    memory.check_written_once(out).unwrap();
    memory.values(out)
}

/// The text of an error; it is one line.
fn text(error: &EmulatorError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// Numbers without a pattern, from a seed: splitmix64.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
