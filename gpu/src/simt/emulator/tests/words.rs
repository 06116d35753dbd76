//! Every word against a plain reference that shares no code with it.

mod arithmetic;
mod matrices;

use super::{Lane, noise, one_block, per_lane, play};
use crate::simt::emulator::Memory;
use crate::simt::{Dim3, Launch, Simt};

/// What lane `l` of warp `w` brings to shuffles.
fn brought(thread: u32) -> u32 {
    thread.wrapping_mul(0x9e37_79b9) ^ 0x55
}

#[test]
fn shuffles_take_from_the_lane_they_say() {
    let mut next = noise(1);
    for by in [0, 1, 5, 16, 31, next() as u32 % 32] {
        let source = move |lane: u32| [(lane * 7 + by) % 32, lane.saturating_sub(by), lane + by, lane ^ by];
        let got: std::vec::Vec<[u32; 4]> = per_lane(64, move |s: Lane<'_>| {
            let mine = brought(s.thread());
            [
                // Past 31 it wraps.
                s.shuffle(mine, s.lane() * 7 + by),
                s.shuffle_up(mine, by),
                s.shuffle_down(mine, by),
                s.shuffle_xor(mine, by),
            ]
        });
        for (thread, got) in (0..).zip(got) {
            let (warp, lane) = (thread / 32, thread % 32);
            let mut from = source(lane);
            if lane < by {
                from[1] = lane;
            }
            if lane + by > 31 {
                from[2] = lane;
            }
            assert_eq!(got, from.map(|lane| brought(32 * warp + lane)), "thread {thread} by {by}");
        }
    }
}

#[test]
fn shuffles_move_bits_of_every_type() {
    let got: std::vec::Vec<[u32; 2]> = per_lane(32, |s: Lane<'_>| {
        let nan = f32::from_bits(0x7fc0_0000 | s.lane());
        [s.shuffle_xor(nan, 1).to_bits(), s.shuffle_xor(-(s.lane() as i32), 1).cast_unsigned()]
    });
    for (lane, got) in (0..32_u32).zip(got) {
        assert_eq!(got, [0x7fc0_0000 | (lane ^ 1), 0_u32.wrapping_sub(lane ^ 1)]);
    }
}

#[test]
fn votes_see_all_lanes_of_their_warp() {
    for pattern in [0, 1, 0x8000_0000, 0xffff_fffe, u32::MAX, 0x1234_5678] {
        let got: std::vec::Vec<[u32; 4]> = per_lane(64, move |s: Lane<'_>| {
            // The second warp says the opposite.
            let yes = (pattern >> s.lane() & 1 == 1) != (s.warp() == 1);
            [s.ballot(yes), u32::from(s.any(yes)), u32::from(s.all(yes)), 0]
        });
        for (thread, got) in got.into_iter().enumerate() {
            let expected = if thread < 32 { pattern } else { !pattern };
            assert_eq!(got, [expected, u32::from(expected != 0), u32::from(expected == u32::MAX), 0]);
        }
    }
}

#[test]
fn warp_reductions_agree_in_all_lanes() {
    let got: std::vec::Vec<[f32; 2]> = per_lane(32, |s: Lane<'_>| {
        let x = 1.0 / (1.0 + s.lane() as f32);
        [s.warp_sum(x), s.warp_max(if s.lane() == 3 { f32::NAN } else { x - 0.5 })]
    });
    // The butterfly, as a tree: halves, then quarters, ...
    let mut sums: std::vec::Vec<f32> = (0..32).map(|lane| 1.0 / (1.0 + lane as f32)).collect();
    while sums.len() > 1 {
        let half = sums.len() / 2;
        sums = (0..half).map(|i| sums[i] + sums[i + half]).collect();
    }
    assert!(got.iter().all(|&[sum, max]| sum == sums[0] && max == 0.5), "{got:?}");
}

#[test]
fn threads_know_where_they_are() {
    let mut memory = Memory::new();
    let (x, y, z, threads) = (3, 2, 2, 96);
    let out = memory.output::<[u32; 4]>("out", 2 * (x * y * z * threads) as usize);
    let launch = Launch { grid: Dim3 { x, y, z }, threads, shared_bytes: 0 };
    play(&mut memory, 7, launch, move |s: Lane<'_>| {
        let (block, grid) = (s.block(), s.grid());
        let i = u64::from(((block.z * grid.y + block.y) * grid.x + block.x) * s.threads() + s.thread());
        // SAFETY: two elements a thread.
        unsafe {
            s.store_global(out.at(2 * i), [block.x, block.y, block.z, s.thread()]);
            s.store_global(out.at(2 * i + 1), [grid.x, grid.y, grid.z, 32 * s.warp() + s.lane()]);
        }
    })
    .unwrap();
    memory.check_written_once(out).unwrap();
    for (i, pair) in (0..).zip(memory.values(out).chunks(2)) {
        let (block, thread) = (i / threads, i % threads);
        assert_eq!(pair[0], [block % x, block / x % y, block / x / y, thread]);
        assert_eq!(pair[1], [x, y, z, thread]);
    }
}

#[test]
fn words_of_every_size_keep_their_bytes() {
    let mut memory = Memory::new();
    let source: std::vec::Vec<u8> = (0..128).map(|i| (i as u8).wrapping_mul(37)).collect();
    let from = memory.input("from", &source);
    let out = memory.output::<u8>("out", 128);
    play(&mut memory, 3, one_block(32, 128), move |s: Lane<'_>| {
        // SAFETY: bytes 0 to 15 by one lane each, and so on: nobody shares a byte.
        unsafe {
            macro_rules! through {
                ($word:ty, $lanes:expr, $first:expr) => {
                    if $lanes.contains(&s.lane()) {
                        let byte: u32 = $first + (s.lane() - $lanes.start) * size_of::<$word>() as u32;
                        let value: $word = s.load_global_constant(from.at(u64::from(byte)).cast());
                        let place = s.shared::<u8>().at(byte).cast::<$word>();
                        s.store_shared(place, value);
                        s.store_global(out.at(u64::from(byte)).cast(), s.load_shared(place));
                    }
                };
            }
            through!(u8, (0..8), 0);
            through!(half::f16, (8..12), 8);
            through!(u32, (12..16), 16);
            through!([f32; 2], (16..20), 32);
            through!(u64, (20..24), 64);
            through!([u32; 4], (24..26), 96);
        }
    })
    .unwrap();
    assert_eq!(memory.values(out), source);
}
