//! What is counted, against numbers worked out by hand.

use super::{one_block, play};
use crate::simt::emulator::{Counters, Lane, Memory};
use crate::simt::{Dim3, Launch, Shared, Simt};

/// Writes all of 32 KiB of shared memory, then does `body`; the counters of `body` alone.
fn shared_loads(body: impl for<'b> Fn(Lane<'b>, Shared<u32>) + Copy + Send + Sync + 'static) -> Counters {
    let count = |with: bool| {
        play(&mut Memory::new(), 4, one_block(32, 32 << 10), move |s: Lane<'_>| {
            let words = s.shared::<u32>();
            let mut i = s.lane();
            while i < 8 << 10 {
                // SAFETY: each lane its own words.
                unsafe { s.store_shared(words.at(i), i) };
                i += 32;
            }
            s.warp_sync();
            if with {
                body(s, words);
            }
        })
        .unwrap()
    };
    let (with, without) = (count(true), count(false));
    assert_eq!(without.shared_stores.wavefronts, 256);
    assert_eq!(without.shared_stores.conflicts, 0);
    assert_eq!(without.shared_loads, Default::default());
    with
}

/// (instructions, wavefronts, conflicts, bytes) of one load of a `T` at `index(lane)` words.
macro_rules! one_load {
    ($word:ty, $index:expr) => {{
        let index: fn(u32) -> u32 = $index;
        // SAFETY: inside, and written.
        let traffic = shared_loads(move |s, words| unsafe {
            s.load_shared(words.at(index(s.lane())).cast::<$word>());
        })
        .shared_loads;
        (traffic.instructions, traffic.wavefronts, traffic.conflicts, traffic.bytes)
    }};
}

#[test]
fn banks_serve_one_word_a_wavefront() {
    assert_eq!(one_load!(u32, |lane| lane), (1, 1, 0, 128));
    assert_eq!(one_load!(u32, |lane| 31 - lane), (1, 1, 0, 128));
    assert_eq!(one_load!(u32, |lane| 33 * lane), (1, 1, 0, 128));
    assert_eq!(one_load!(u32, |lane| 32 * lane), (1, 32, 31, 128));
    assert_eq!(one_load!(u32, |lane| 2 * lane), (1, 2, 1, 128));
    assert_eq!(one_load!(u32, |lane| 8 * lane), (1, 8, 7, 128));
    // A broadcast is free, also of several words.
    assert_eq!(one_load!(u32, |_| 5), (1, 1, 0, 128));
    assert_eq!(one_load!(u32, |lane| lane / 4 * 33), (1, 1, 0, 128));
    // Two words of one bank, each wanted by many: two.
    assert_eq!(one_load!(u32, |lane| 32 * (lane % 2)), (1, 2, 1, 128));
    // Bytes of one word are one word.
    assert_eq!(one_load!(u8, |lane| lane / 4), (1, 1, 0, 32));
}

#[test]
fn wide_loads_are_served_in_halves_and_quarters() {
    assert_eq!(one_load!([u32; 2], |lane| 2 * lane), (1, 2, 0, 256));
    assert_eq!(one_load!([u32; 4], |lane| 4 * lane), (1, 4, 0, 512));
    // Rows of 128 bytes: the 8 lanes of a quarter meet in the same 4 banks.
    assert_eq!(one_load!([u32; 4], |lane| 32 * lane), (1, 32, 28, 512));
    // 80 bytes: no conflict. 144 bytes: none either.
    assert_eq!(one_load!([u32; 4], |lane| 20 * lane), (1, 4, 0, 512));
    assert_eq!(one_load!([u32; 4], |lane| 36 * lane), (1, 4, 0, 512));
    assert_eq!(one_load!([u32; 4], |_| 0), (1, 4, 0, 512));
}

#[test]
fn ldmatrix_takes_one_wavefront_a_matrix_without_conflicts() {
    for (stride, conflicts) in [(4, 0), (20, 0), (32, 28), (64, 28), (16, 12)] {
        // SAFETY: inside, aligned, and written.
        let counters = shared_loads(move |s, words| unsafe {
            s.ldmatrix::<4, _>(words.at(stride * s.lane()));
        });
        assert_eq!(counters.ldmatrix, 1);
        let traffic = counters.shared_loads;
        assert_eq!((traffic.wavefronts, traffic.conflicts), (4 + conflicts, conflicts), "{stride}");
    }
}

#[test]
fn an_instruction_is_the_same_execution_of_one_call() {
    // Lane l goes round l + 1 times, so the n-th instruction has lanes n.. : 32 instructions. In
    // each all lanes read the same word.
    // SAFETY: inside, and written.
    let counters = shared_loads(|s, words| unsafe {
        for round in 0..=s.lane() {
            if round % 2 == 0 {
                s.load_shared(words.at(round));
            } else {
                s.load_shared(words.at(round));
            }
        }
    });
    let traffic = counters.shared_loads;
    assert_eq!((traffic.instructions, traffic.wavefronts), (32, 32));
    assert_eq!(traffic.bytes, 4 * (32 * 33 / 2));

    // Two arms are two instructions of half a warp each.
    // SAFETY: inside, and written.
    let counters = shared_loads(|s, words| unsafe {
        if s.lane() % 2 == 0 {
            s.load_shared(words.at(s.lane()));
        } else {
            s.load_shared(words.at(s.lane()));
        }
    });
    assert_eq!(counters.shared_loads.instructions, 2);
}

#[test]
fn counters_do_not_depend_on_the_schedule() {
    // Odd lanes skip the first execution, so their first is counted with the others' first.
    let count = |seed| {
        play(&mut Memory::new(), seed, one_block(32, 260), |s: Lane<'_>| {
            let words = s.shared::<u32>();
            // SAFETY: inside, and written.
            unsafe {
                s.store_shared(words.at(s.lane()), 0);
                if s.lane() == 0 {
                    s.store_shared(words.at(64), 0);
                }
                s.warp_sync();
                for round in 0..2 {
                    if round == 1 || s.lane().is_multiple_of(2) {
                        s.load_shared(words.at(if round == 0 { s.lane() } else { 64 }));
                    }
                    s.load_shared(words.at(0));
                }
            }
        })
        .unwrap()
    };
    let loads = count(0).shared_loads;
    assert_eq!((loads.instructions, loads.wavefronts, loads.conflicts), (4, 5, 1));
    assert!((1..8).all(|seed| count(seed) == count(0)));
}

#[test]
fn sectors_are_runs_of_32_bytes() {
    let mut memory = Memory::new();
    let from = memory.input("from", &[0_u32; 32 * 32]);
    let out = memory.output::<u32>("out", 64);
    let counters = play(&mut memory, 2, one_block(32, 0), move |s: Lane<'_>| {
        let lane = u64::from(s.lane());
        // SAFETY: inside; each lane its own output.
        unsafe {
            s.load_global(from.at(lane));
            s.load_global_constant(from.at(lane + 1));
            s.load_global(from.at(32 * lane));
            s.load_global(from.at(0));
            s.load_global(from.at(4 * lane).cast::<[f32; 4]>());
            s.store_global(out.at(2 * lane), 1);
        }
    })
    .unwrap();
    let loads = counters.global_loads;
    assert_eq!((loads.instructions, loads.sectors, loads.bytes), (5, 4 + 5 + 32 + 1 + 16, 4 * 128 + 512));
    let stores = counters.global_stores;
    assert_eq!((stores.instructions, stores.sectors, stores.bytes), (1, 8, 128));
}

#[test]
fn a_launch_adds_its_blocks_up_whatever_the_schedule() {
    let launch = Launch { grid: Dim3 { x: 5, y: 3, z: 1 }, threads: 96, shared_bytes: 0 };
    let count = |seed| {
        play(&mut Memory::new(), seed, launch, |s: Lane<'_>| {
            s.barrier();
            s.shuffle(0_u32, 0);
            s.all(true);
            if s.warp() < 2 {
                s.barrier_named(4, 64);
            }
            s.warp_sync();
            s.mma_m16n8k16_f16([0; 4], [0; 2], [0.0; 4]);
            s.barrier();
        })
        .unwrap()
    };
    let counters = count(0);
    assert_eq!((counters.barriers, counters.named_barriers), (2 * 15, 15));
    assert_eq!([counters.warp_syncs, counters.shuffles, counters.votes, counters.mma], [3 * 15; 4]);
    assert!((1..6).all(|seed| count(seed) == counters));
}
