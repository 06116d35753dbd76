//! Kernels that begin before earlier launches are done: what they touch, and when.

use std::vec;

use super::{SEEDS, one_block, text};
use crate::simt::emulator::{Counters, Emulator, EmulatorError, Fault, Lane, Memory};
use crate::simt::{Contract, Expectations, Global, Kernel, Launch, Simt};

/// Adds 1 to each element of `to` after it has read the weight; `early` is done before the wait.
#[derive(Clone, Copy)]
struct Adds {
    to: Global<u32>,
    weight: Global<u32>,
    early: Early,
}

/// What is wrong with the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    Nothing,
    Reads,
    Writes,
    NeverWaits,
    OneLaneLeaves,
    ReadsConstant,
}

impl Contract for Adds {
    const NAME: &'static str = "adds";
    const EXPECTATIONS: Expectations =
        Expectations { instructions: &[], registers: 255, local_memory: false };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        one_block(64, 0)
    }
}

impl<'b> Kernel<Lane<'b>> for Adds {
    unsafe fn run(self, s: Lane<'b>) {
        let Self { early, .. } = self;
        let own = self.to.at(u64::from(s.thread()));
        s.let_next_begin();
        // SAFETY: the emulator's to judge.
        unsafe {
            s.prefetch(self.to, 256);
            let weight = s.load_global_constant(self.weight.at(u64::from(s.thread())));
            match early {
                Early::Reads => drop(s.load_global(own)),
                Early::Writes => s.store_global(own, 1),
                Early::OneLaneLeaves if s.thread() == 40 => return,
                _ => {}
            }
            if early == Early::NeverWaits {
                return;
            }
            s.wait_for_previous();
            let before =
                if early == Early::ReadsConstant { s.load_global_constant(own) } else { s.load_global(own) };
            s.store_global(own, before + weight);
        }
    }
}

fn play(early: Early, seed: u64) -> (Memory, Global<u32>, Result<Counters, EmulatorError>) {
    let mut memory = Memory::new();
    let (to, weight) = (memory.in_out("to", &[5_u32; 64]), memory.input("weight", &[1_u32; 64]));
    let result = Emulator::new().seed(seed).launch(&mut memory, Adds { to, weight, early });
    (memory, to, result)
}

#[test]
fn who_waits_may_read_weights_before_and_write_after() {
    for seed in SEEDS {
        let (memory, to, result) = play(Early::Nothing, seed);
        result.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(memory.values(to), vec![6; 64], "seed {seed}");
    }
}

#[test]
fn what_another_launch_writes_is_touched_after_the_wait() {
    for seed in SEEDS {
        for (early, verb) in [(Early::Reads, "reads"), (Early::Writes, "writes")] {
            let error = play(early, seed).2.expect_err("touched too early");
            assert!(matches!(*error.fault, Fault::Early { .. }), "{error}");
            let text = text(&error);
            assert!(text.contains(&std::format!("too early: {verb} byte")), "{text}");
            assert!(text.contains("of buffer `to`"), "{text}");
        }
    }
}

/// Adds 1 to each element of `to`, which it reads before the wait: as what launches write, or as `misuse` says.
#[derive(Clone, Copy)]
struct AddsToSettled<const EARLY: bool> {
    to: Global<u32>,
    misuse: Early,
}

impl<const EARLY: bool> AddsToSettled<EARLY> {
    fn rightly(to: Global<u32>) -> Self {
        Self { to, misuse: Early::Nothing }
    }
}

impl<const EARLY: bool> Contract for AddsToSettled<EARLY> {
    const NAME: &'static str = "adds_to_settled";
    const EXPECTATIONS: Expectations =
        Expectations { instructions: &[], registers: 255, local_memory: false };
    const STARTS_EARLY: bool = EARLY;
    const READS_SETTLED: bool = true;

    fn launch(&self) -> Launch {
        one_block(64, 0)
    }
}

impl<'b, const EARLY: bool> Kernel<Lane<'b>> for AddsToSettled<EARLY> {
    unsafe fn run(self, s: Lane<'b>) {
        let own = self.to.at(u64::from(s.thread()));
        s.let_next_begin();
        // SAFETY: the emulator's to judge.
        unsafe {
            match self.misuse {
                Early::Writes => s.store_global(own, 1),
                Early::ReadsConstant => drop(s.load_global_constant(own)),
                _ => {}
            }
            let before = s.load_global(own);
            s.wait_for_previous();
            s.store_global(own, before + 1);
        }
    }
}

#[test]
fn what_is_settled_may_be_read_before_the_wait() {
    for seed in SEEDS {
        let (emulator, mut memory) = (Emulator::new().seed(seed), Memory::new());
        let to = memory.in_out("to", &[5_u32; 64]);
        let early =
            |memory: &mut Memory| emulator.launch(memory, AddsToSettled::<true>::rightly(to)).map(drop);
        let late =
            |memory: &mut Memory, to| emulator.launch(memory, AddsToSettled::<false>::rightly(to)).map(drop);
        let other = memory.in_out("other", &[0_u32; 64]);
        let fine = |result: Result<(), EmulatorError>| result.unwrap_or_else(|error| panic!("{error}"));
        // The host's own values are settled.
        fine(early(&mut memory));
        // What an early launch wrote is not, also not for the one behind the next.
        let error = early(&mut memory).expect_err("the launch before may still write");
        assert!(matches!(*error.fault, Fault::Early { writes: false, settled: true, .. }), "{error}");
        assert!(text(&error).contains("may still write"), "{error}");
        fine(emulator.launch(&mut memory, AddsToSettled::<true>::rightly(other)).map(drop));
        assert!(early(&mut memory).is_err(), "the launch before the last may still write");
        // It is when the host has waited, and when a launch has that does not begin early.
        memory.settle();
        fine(early(&mut memory));
        fine(late(&mut memory, other));
        fine(early(&mut memory));
        // What that launch itself wrote is not.
        fine(late(&mut memory, to));
        assert!(early(&mut memory).is_err(), "a launch need not begin early to be still running");
        assert_eq!(memory.values(to), vec![9; 64], "seed {seed}");
    }
}

#[test]
fn what_is_settled_is_neither_written_before_the_wait_nor_a_constant() {
    for misuse in [Early::Writes, Early::ReadsConstant] {
        let mut memory = Memory::new();
        let to = memory.in_out("to", &[5_u32; 64]);
        let kernel = AddsToSettled::<true> { to, misuse };
        let error = Emulator::new().launch(&mut memory, kernel).expect_err("misuse");
        match *error.fault {
            Fault::Early { writes: true, .. } => assert!(misuse == Early::Writes),
            Fault::EarlyConstant { .. } => assert!(misuse == Early::ReadsConstant),
            _ => panic!("{error}"),
        }
    }
}

#[test]
fn every_thread_waits_before_it_ends() {
    for seed in SEEDS {
        let error = play(Early::NeverWaits, seed).2.expect_err("nobody waits");
        assert!(matches!(*error.fault, Fault::NotWaited), "{error}");
        let error = play(Early::OneLaneLeaves, seed).2.expect_err("one does not wait");
        assert!(matches!(*error.fault, Fault::NotWaited), "{error}");
        assert_eq!(error.thread, Some(40));
        assert!(text(&error).contains("without wait_for_previous"), "{error}");
    }
}

#[test]
fn what_another_launch_writes_is_no_constant() {
    for seed in SEEDS {
        let error = play(Early::ReadsConstant, seed).2.expect_err("not constant");
        assert!(matches!(*error.fault, Fault::EarlyConstant { .. }), "{error}");
        assert!(text(&error).contains("through the read-only path"), "{error}");
    }
}

#[test]
fn what_is_prefetched_is_there() {
    let mut memory = Memory::new();
    let input = memory.input("input", &[0_u32; 8]);
    let mut fault = |first: u64, bytes: u32| {
        // SAFETY: the emulator's to judge.
        let body = move |s: Lane<'_>| unsafe { s.prefetch(input.at(first), bytes) };
        super::play(&mut memory, 0, one_block(32, 0), body).err().map(|error| error.fault)
    };
    assert!(fault(0, 32).is_none() && fault(4, 16).is_none());
    assert!(matches!(fault(4, 32).as_deref(), Some(Fault::OutOfBounds { .. })));
    assert!(matches!(fault(1, 16).as_deref(), Some(Fault::Misaligned { .. })));
    assert!(matches!(fault(0, 0).as_deref(), Some(Fault::Argument { .. })));
    assert!(matches!(fault(0, 20).as_deref(), Some(Fault::Argument { .. })));
}
