//! Kernels that are broken on purpose, each beside its correct twin: the twin is silent under
//! every schedule, the broken one is reported as what it is.

use std::string::String;
use std::vec::Vec;

use super::{SEEDS, one_block, play, reported, silent, text};
use crate::simt::emulator::{Fault, Gathering, Lane, Memory, Place};
use crate::simt::{Global, Launch, Shared, Simt, Word32};

/// A shared `f32`/`u32` array.
fn words<T: Word32>(s: Lane<'_>) -> Shared<T> {
    s.shared()
}

/// The offset of a fault in shared memory.
fn shared_offset(place: &Place) -> i64 {
    match place {
        Place::Shared { offset, .. } => *offset,
        other => panic!("not in shared memory: {other}"),
    }
}

/// Each thread writes its word, and after a barrier reads its neighbour's.
fn neighbours<const BARRIER: bool>(s: Lane<'_>) {
    let tile = words::<u32>(s);
    // SAFETY: the emulator's to judge, in this and in all bodies here.
    unsafe {
        s.store_shared(tile.at(s.thread()), s.thread());
        if BARRIER {
            s.barrier();
        }
        let next = (s.thread() + 1) % s.threads();
        assert_eq!(s.load_shared(tile.at(next)), next);
    }
}

#[test]
fn a_removed_barrier_is_a_race() {
    let launch = one_block(64, 256);
    silent(launch, neighbours::<true>);
    for error in reported(launch, neighbours::<false>) {
        // A race whichever comes first: the neighbour's write, or the read of what it will write.
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
        assert!(error.location.unwrap().file().ends_with("sabotage.rs"));
    }
}

#[test]
fn a_race_names_both_sides() {
    // In order: thread 0 has run to its end when thread 1 writes what it reads.
    let body = |s: Lane<'_>| {
        let word = words::<u32>(s);
        // SAFETY: see above.
        unsafe { s.store_shared(word, s.thread()) };
    };
    let error = play(&mut Memory::new(), 0, one_block(32, 4), body).unwrap_err();
    let Fault::Race { place, writes: true, other } = &*error.fault else { panic!("{error}") };
    assert_eq!((shared_offset(place), error.thread, other.warp, other.lane), (0, Some(1), 0, Some(0)));
    assert!(other.wrote && other.location == error.location.unwrap());
    let text = text(&error);
    for part in [
        "kernel fixture, block (0, 0, 0), thread 1 (warp 0, lane 1), at ",
        "race: writes shared byte 0 of 4, which thread 0 (warp 0, lane 0) wrote at ",
        "; seed 0",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// Two stages filled by asynchronous copies; the second is waited for or not.
fn staged<const WAIT: bool, const BARRIER: bool>(s: Lane<'_>, from: Global<u32>) {
    let stage = words::<u32>(s);
    // SAFETY: see above.
    unsafe {
        s.copy_async::<4, _>(stage.at(s.thread()), from.at(u64::from(s.thread())), 4);
        s.copy_async_commit();
        if WAIT {
            s.copy_async_wait::<0>();
        } else {
            s.copy_async_wait::<1>();
        }
        if BARRIER {
            s.barrier();
        }
        let next = (s.thread() + 1) % s.threads();
        assert_eq!(s.load_shared(stage.at(next)), 100 + next);
    }
}

#[test]
fn a_removed_wait_is_stale_data() {
    let source: Vec<u32> = (100..164).collect();
    for seed in SEEDS {
        let mut memory = Memory::new();
        let from = memory.input("from", &source);
        let launch = one_block(64, 256);
        play(&mut memory, seed, launch, move |s: Lane<'_>| staged::<true, true>(s, from)).unwrap();

        let error =
            play(&mut memory, seed, launch, move |s: Lane<'_>| staged::<false, true>(s, from)).unwrap_err();
        assert!(matches!(*error.fault, Fault::CopyNotWaitedFor { .. }), "{error}");
        assert!(text(&error).contains("copy not waited for"), "{error}");

        // Waited for, but only by the lane that began it.
        let error =
            play(&mut memory, seed, launch, move |s: Lane<'_>| staged::<true, false>(s, from)).unwrap_err();
        assert!(matches!(*error.fault, Fault::Race { .. } | Fault::CopyNotWaitedFor { .. }), "{error}");
    }
}

#[test]
fn a_stale_stage_of_an_older_copy_is_found_too() {
    let source: Vec<u32> = (0..64).collect();
    let mut memory = Memory::new();
    let from = memory.input("from", &source);
    // The stage holds the first copy's data when the second is on its way: nothing is
    // uninitialized, only old.
    let body = |pending: bool| {
        move |s: Lane<'_>| {
            let stage = words::<u32>(s).at(s.thread());
            // SAFETY: see above.
            unsafe {
                for step in 0..2_u64 {
                    s.copy_async::<4, _>(stage, from.at(32 * step + u64::from(s.thread())), 4);
                    s.copy_async_commit();
                    if step == 0 || !pending {
                        s.copy_async_wait::<0>();
                    }
                }
                assert_eq!(s.load_shared(stage), 32 + s.thread());
            }
        }
    };
    play(&mut memory, 1, one_block(32, 128), body(false)).unwrap();
    let error = play(&mut memory, 1, one_block(32, 128), body(true)).unwrap_err();
    assert!(matches!(*error.fault, Fault::CopyNotWaitedFor { .. }), "{error}");
    assert!(text(&error).contains("still stale"), "{error}");
}

/// Rows of a tile of 16 × 8 words, filled with a stride of `STRIDE` threads.
fn fill<const STRIDE: u32>(s: Lane<'_>) {
    let tile = words::<u32>(s);
    // SAFETY: see above.
    unsafe {
        // Two passes for 256 words and 128 threads; the second begins where 256 threads would be.
        let mut i = s.thread();
        while i < 256 {
            s.store_shared(tile.at(i), i);
            i += STRIDE;
        }
        s.barrier();
        if s.thread() == 0 {
            for i in 0..256 {
                s.load_shared(tile.at(i));
            }
        }
    }
}

#[test]
fn a_stride_for_256_threads_under_128_leaves_rows_uninitialized() {
    let launch = one_block(128, 1024);
    silent(launch, fill::<128>);
    for error in reported(launch, fill::<256>) {
        let Fault::Uninitialized { place } = &*error.fault else { panic!("{error}") };
        // Row 16 of 8 words is the first that nobody wrote.
        assert_eq!(shared_offset(place), 16 * 8 * 4);
        assert_eq!(error.thread, Some(0));
        assert!(text(&error).contains("reads shared byte 512 of 1024, which nobody wrote"), "{error}");
    }
}

#[test]
fn a_shared_allocation_one_byte_short_is_out_of_bounds() {
    silent(one_block(64, 256), neighbours::<true>);
    for error in reported(one_block(64, 255), neighbours::<true>) {
        let Fault::OutOfBounds { place, bytes: 4 } = &*error.fault else { panic!("{error}") };
        assert_eq!((shared_offset(place), error.thread), (252, Some(63)));
        assert!(text(&error).contains("out of bounds: 4 bytes at shared byte 252 of 255"), "{error}");
    }
    // Below the start, as well.
    for error in reported(one_block(32, 64), |s: Lane<'_>| {
        // SAFETY: see above.
        unsafe { s.store_shared(Shared::from_address(0), 1_u32) };
    }) {
        let Fault::OutOfBounds { place, .. } = &*error.fault else { panic!("{error}") };
        assert!(shared_offset(place) < 0);
    }
}

/// O25 (b): a barrier under a condition of the thread.
fn conditional<const INSIDE: bool>(s: Lane<'_>) {
    let word = words::<u32>(s).at(s.thread());
    // SAFETY: see above.
    unsafe { s.store_shared(word, 1) };
    if INSIDE && s.thread() < 40 {
        s.barrier();
    }
    if !INSIDE {
        s.barrier();
    }
}

#[test]
fn a_barrier_inside_a_divergent_branch_is_a_deadlock() {
    let launch = one_block(64, 256);
    silent(launch, conditional::<false>);
    for error in reported(launch, conditional::<true>) {
        let Fault::Deadlock { lanes } = &*error.fault else { panic!("{error}") };
        let found: Vec<_> = lanes.iter().map(|g| (g.warp, g.lanes, g.at.map(|(word, _)| word))).collect();
        assert_eq!(found, [(0, u32::MAX, Some("barrier")), (1, 0xff, Some("barrier")), (1, !0xff, None)]);
        let text = text(&error);
        for part in
            ["deadlock", "warp 1 lanes 0-7 wait in barrier at ", "warp 1 lanes 8-31 have left the kernel"]
        {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(text.contains("sabotage.rs:"), "{text}");
    }
}

#[test]
fn warps_at_different_barriers_are_a_deadlock() {
    let body = |s: Lane<'_>| {
        if s.warp() == 0 {
            s.barrier_named(1, 64);
        } else {
            s.barrier_named(2, 64);
        }
    };
    for error in reported(one_block(64, 0), body) {
        let Fault::Deadlock { lanes } = &*error.fault else { panic!("{error}") };
        assert_eq!(lanes.len(), 2);
        assert_ne!(lanes[0].at.unwrap().1.line(), lanes[1].at.unwrap().1.line());
    }
}

#[test]
fn a_misaligned_access_of_16_bytes_is_found() {
    let body = |offset: u32| {
        move |s: Lane<'_>| {
            let base = words::<u32>(s);
            let to = base.at(4 * s.thread() + offset).cast::<[u32; 4]>();
            // SAFETY: see above.
            unsafe { s.store_shared(to, [1; 4]) };
        }
    };
    silent(one_block(32, 1024), body(4));
    for error in reported(one_block(32, 1024), body(1)) {
        let Fault::Misaligned { place, align: 16 } = &*error.fault else { panic!("{error}") };
        assert_eq!(shared_offset(place) % 16, 4);
    }
    let mut memory = Memory::new();
    let from = memory.input("from", &[0_u32; 16]);
    let error = play(&mut memory, 0, one_block(32, 0), move |s: Lane<'_>| {
        // SAFETY: see above.
        unsafe { s.load_global(from.at(2).cast::<[f32; 4]>()) };
    });
    let error = error.unwrap_err();
    assert!(text(&error).contains("misaligned: byte 8 of 64 of buffer `from`"), "{error}");
}

/// O25 (a): a tile that the next step overwrites before all warps have read it.
fn overwritten<const BARRIER: bool>(s: Lane<'_>) {
    let tile = words::<u32>(s);
    for step in 0..3 {
        // SAFETY: see above.
        unsafe {
            s.store_shared(tile.at(s.thread()), step);
            s.barrier();
            assert_eq!(s.load_shared(tile.at((s.thread() + 32) % 64)), step);
            if BARRIER {
                s.barrier();
            }
        }
    }
}

#[test]
fn a_tile_overwritten_before_all_have_read_it_is_a_race() {
    let launch = one_block(64, 256);
    silent(launch, overwritten::<true>);
    for error in reported(launch, overwritten::<false>) {
        let Fault::Race { other, writes, .. } = &*error.fault else { panic!("{error}") };
        // Either the writer comes second, or the reader does, depending on the schedule.
        assert_ne!(other.wrote, *writes, "{error}");
        assert_ne!(other.location.line(), error.location.unwrap().line(), "{error}");
        assert_ne!(other.warp, error.thread.unwrap() / 32);
    }
}

/// O25 (c): the sum over a block, twice through one buffer.
fn two_sums<const BARRIER: bool>(s: Lane<'_>) {
    let partial = words::<f32>(s);
    for round in 1..3_u32 {
        let sum = s.warp_sum(round as f32);
        // SAFETY: see above.
        unsafe {
            if s.lane() == 0 {
                s.store_shared(partial.at(s.warp()), sum);
            }
            s.barrier();
            let total: f32 = (0..4).map(|warp| s.load_shared(partial.at(warp))).sum();
            assert_eq!(total, 128.0 * round as f32);
        }
        if BARRIER {
            s.barrier();
        }
    }
}

#[test]
fn a_reduction_buffer_reused_without_a_barrier_is_a_race() {
    silent(one_block(128, 16), two_sums::<true>);
    for error in reported(one_block(128, 16), two_sums::<false>) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
}

#[test]
fn a_shuffle_with_missing_lanes_is_a_divergence() {
    let body = |half: bool| {
        move |s: Lane<'_>| {
            if !half || s.lane() < 16 {
                s.shuffle_xor(s.thread(), 1);
            } else {
                s.warp_sync();
            }
        }
    };
    silent(one_block(64, 0), body(false));
    for error in reported(one_block(64, 0), body(true)) {
        let Fault::Divergence { lanes } = &*error.fault else { panic!("{error}") };
        let of_warp: Vec<&Gathering> = lanes.iter().filter(|g| g.warp == 1).collect();
        assert_eq!((of_warp[0].lanes, of_warp[0].at.unwrap().0), (0xffff, "shuffle_xor"));
        assert_eq!((of_warp[1].lanes, of_warp[1].at.unwrap().0), (0xffff_0000, "warp_sync"));
        assert!(text(&error).contains("warp 0 lanes 0-15 wait in shuffle_xor"), "{error}");
    }
    // Lanes that have left count as missing.
    for error in reported(one_block(32, 0), |s: Lane<'_>| {
        if s.lane() != 7 {
            s.ballot(true);
        }
    }) {
        assert!(text(&error).contains("lanes 7 have left the kernel"), "{error}");
    }
}

#[test]
fn the_same_word_at_two_calls_does_not_meet() {
    let body = |s: Lane<'_>| {
        if s.lane() < 16 { s.warp_sync() } else { s.warp_sync() }
    };
    for error in reported(one_block(32, 0), body) {
        assert!(matches!(*error.fault, Fault::Divergence { .. }), "{error}");
    }
}

#[test]
fn a_warp_sync_orders_its_warp_and_no_other() {
    let body = |distance: u32| {
        move |s: Lane<'_>| {
            let tile = words::<u32>(s);
            // SAFETY: see above.
            unsafe {
                s.store_shared(tile.at(s.thread()), s.thread());
                s.warp_sync();
                s.load_shared(tile.at(s.thread() ^ distance));
            }
        }
    };
    silent(one_block(64, 256), body(1));
    for error in reported(one_block(64, 256), body(32)) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
    // A shuffle joins the lanes and orders no memory.
    for error in reported(one_block(32, 128), |s: Lane<'_>| {
        let tile = words::<u32>(s);
        // SAFETY: see above.
        unsafe {
            s.store_shared(tile.at(s.thread()), 1);
            s.shuffle(0_u32, 0);
            s.load_shared(tile.at(s.thread() ^ 1));
        }
    }) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
}

/// A producer warp and two consumer warps, a third that has nothing to do with it.
fn producer<const ARRIVE: bool>(s: Lane<'_>) {
    let tile = words::<u32>(s);
    // SAFETY: see above.
    unsafe {
        match s.warp() {
            0 => {
                s.store_shared(tile.at(s.lane()), 7);
                if ARRIVE {
                    s.barrier_arrive(3, 96);
                }
            }
            1 | 2 => {
                s.barrier_named(3, if ARRIVE { 96 } else { 64 });
                assert_eq!(s.load_shared(tile.at(31 - s.lane())), 7);
            }
            _ => {}
        }
    }
}

#[test]
fn a_named_barrier_orders_those_who_come() {
    silent(one_block(128, 128), producer::<true>);
    for error in reported(one_block(128, 128), producer::<false>) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
    // What the producer writes after it has arrived is not ordered.
    let late = |s: Lane<'_>| {
        let word = words::<u32>(s).at(s.lane());
        // SAFETY: see above.
        unsafe {
            if s.warp() == 0 {
                s.store_shared(word, 1);
                s.barrier_arrive(1, 64);
                s.store_shared(word, 2);
            } else {
                s.barrier_named(1, 64);
                s.load_shared(word);
            }
        }
    };
    for error in reported(one_block(64, 128), late) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
}

#[test]
fn a_read_that_one_warp_was_told_of_races_with_a_write_that_was_not() {
    // Warps 0 and 1 read; warp 2 hears of warp 0's read only, and writes.
    let body = |threads: u32| {
        move |s: Lane<'_>| {
            let word = words::<u32>(s);
            // SAFETY: see above.
            unsafe {
                if s.thread() == 64 {
                    s.store_shared(word, 1);
                }
                s.barrier();
                if s.warp() < 2 {
                    s.load_shared(word);
                }
                if s.warp() != 1 || threads == 96 {
                    s.barrier_named(1, threads);
                }
                if s.thread() == 64 {
                    s.store_shared(word, 2);
                }
            }
        }
    };
    silent(one_block(96, 4), body(96));
    for error in reported(one_block(96, 4), body(64)) {
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
}

#[test]
fn barriers_that_disagree_or_do_not_exist_are_refused() {
    let disagree = |s: Lane<'_>| s.barrier_named(1, 64 + 32 * s.warp());
    let no_such = |s: Lane<'_>| s.barrier_named(16, 96);
    let ragged = |s: Lane<'_>| s.barrier_named(1, 48);
    for error in [
        reported(one_block(96, 0), disagree),
        reported(one_block(96, 0), no_such),
        reported(one_block(96, 0), ragged),
    ]
    .concat()
    {
        assert!(matches!(*error.fault, Fault::Argument { .. }), "{error}");
    }
}

#[test]
fn a_panic_is_an_error_with_block_and_thread() {
    let body = |s: Lane<'_>| {
        let zero = s.block().y;
        assert_ne!(s.thread() + 100 * s.block().x, 137 + zero, "thirty-seven");
    };
    for seed in SEEDS {
        let launch = Launch { grid: crate::simt::Dim3 { x: 3, y: 1, z: 1 }, threads: 64, shared_bytes: 0 };
        let error = play(&mut Memory::new(), seed, launch, body).unwrap_err();
        assert!(
            matches!(&*error.fault, Fault::Panic { message } if message.contains("thirty-seven")),
            "{error}"
        );
        assert_eq!((error.block.unwrap().x, error.thread), (1, Some(37)));
        assert!(text(&error).contains("sabotage.rs"), "{error}");
    }
}

#[test]
fn a_seed_replays() {
    for seed in SEEDS {
        let run = || -> String {
            text(&play(&mut Memory::new(), seed, one_block(64, 256), overwritten::<false>).unwrap_err())
        };
        let first = run();
        assert!((0..3).all(|_| run() == first), "{first}");
        assert!(first.ends_with(&std::format!("; seed {seed}")), "{first}");
    }
    let different: std::collections::HashSet<_> = (1..20_u64)
        .map(|seed| {
            play(&mut Memory::new(), seed, one_block(64, 256), overwritten::<false>).unwrap_err().thread
        })
        .collect();
    assert!(different.len() > 3, "seeds give different schedules");
}

#[test]
fn a_launch_that_no_gpu_grants_is_refused() {
    for (threads, shared_bytes) in [(0, 0), (33, 0), (1056, 0), (32, (227 << 10) + 1)] {
        let error =
            play(&mut Memory::new(), 0, one_block(threads, shared_bytes), |_: Lane<'_>| {}).unwrap_err();
        assert!(matches!(*error.fault, Fault::Launch { .. }) && error.block.is_none(), "{error}");
    }
    let empty = Launch { grid: crate::simt::Dim3::linear(0), threads: 32, shared_bytes: 0 };
    play(&mut Memory::new(), 0, empty, |_: Lane<'_>| panic!("nothing runs")).unwrap();
}
