//! Global memory: bounds, first reads, and who may write what.

use std::vec;
use std::vec::Vec;

use super::{SEEDS, one_block, play, text};
use crate::simt::emulator::{Fault, Lane, Memory};
use crate::simt::{Dim3, Global, Launch, Simt};

fn blocks(n: u32, threads: u32) -> Launch {
    Launch { grid: Dim3::linear(n), threads, shared_bytes: 0 }
}

#[test]
fn accesses_outside_of_a_buffer_name_it() {
    let mut memory = Memory::new();
    let before = memory.output::<u32>("before", 8);
    let out = memory.output::<u32>("out", 31);
    // SAFETY: the emulator's to judge, here and below.
    let body = move |s: Lane<'_>| unsafe { s.store_global(out.at(u64::from(s.thread())), 1) };
    let error = play(&mut memory, 0, one_block(32, 0), body).unwrap_err();
    assert!(text(&error).contains("4 bytes at byte 124 of 124 of buffer `out`"), "{error}");
    assert_eq!(error.thread, Some(31));

    for wild in [0, 0x1000, before.address() - 4, before.address() + 32, out.at(1 << 35).address(), u64::MAX]
    {
        // SAFETY: see above.
        let body = move |s: Lane<'_>| unsafe {
            s.load_global(Global::<u8>::from_address(wild));
        };
        let error = play(&mut memory, 0, one_block(32, 0), body).unwrap_err();
        assert!(matches!(*error.fault, Fault::OutOfBounds { .. }), "{wild:#x}: {error}");
    }
}

#[test]
fn an_output_is_not_read_before_it_is_written() {
    let mut memory = Memory::new();
    let out = memory.output::<u32>("out", 32);
    let own = move |s: Lane<'_>| {
        let mine = out.at(u64::from(s.thread()));
        // SAFETY: see above.
        unsafe {
            if s.thread() != 5 {
                s.store_global(mine, 1);
            }
            s.load_global(mine);
        }
    };
    let error = play(&mut memory, 0, one_block(32, 0), own).unwrap_err();
    assert!(text(&error).contains("reads byte 20 of 128 of buffer `out`, which nobody wrote"), "{error}");
    // Values that were given count as written; a next launch reads what an earlier one wrote.
    let given = memory.in_out("given", &[3_u32; 32]);
    let copy = memory.output::<u32>("copy", 32);
    for (from, to) in [(given, copy), (copy, given)] {
        // SAFETY: see above.
        let body = move |s: Lane<'_>| unsafe {
            let i = u64::from(s.thread());
            s.store_global(to.at(i), s.load_global(from.at(i)) + 1);
        };
        play(&mut memory, 1, one_block(32, 0), body).unwrap();
    }
    assert_eq!(memory.values(given), vec![5; 32]);
    assert_eq!(memory.values(copy), vec![4; 32]);
}

#[test]
fn an_input_is_not_written() {
    let mut memory = Memory::new();
    let input = memory.input("input", &[0_u32; 32]);
    // SAFETY: see above.
    let body = move |s: Lane<'_>| unsafe { s.store_global(input.at(u64::from(s.thread())), 1) };
    let error = play(&mut memory, 0, one_block(32, 0), body).unwrap_err();
    assert!(matches!(*error.fault, Fault::ReadOnly { .. }), "{error}");
}

#[test]
fn lanes_of_a_block_race_in_global_memory_too() {
    let body = |out: Global<u32>, barrier: bool| {
        move |s: Lane<'_>| {
            // SAFETY: see above.
            unsafe {
                s.store_global(out.at(u64::from(s.thread())), s.thread());
                if barrier {
                    s.barrier();
                }
                s.load_global(out.at(u64::from(63 - s.thread())));
            }
        }
    };
    for seed in SEEDS {
        let mut memory = Memory::new();
        let out = memory.output("out", 64);
        play(&mut memory, seed, one_block(64, 0), body(out, true)).unwrap();
        let error = play(&mut memory, seed, one_block(64, 0), body(out, false)).unwrap_err();
        assert!(matches!(*error.fault, Fault::Race { .. }), "{error}");
    }
}

#[test]
fn two_blocks_that_write_one_byte_are_reported_alike_every_time() {
    let mut texts = Vec::new();
    for _ in 0..8 {
        let mut memory = Memory::new();
        let out = memory.output::<u32>("out", 65 * 4);
        // Block b writes elements 32 b to 32 b + 32, and one more.
        let body = move |s: Lane<'_>| {
            let first = u64::from(32 * s.block().x);
            // SAFETY: see above.
            unsafe {
                s.store_global(out.at(first + u64::from(s.thread())), 1);
                if s.thread() == 0 {
                    s.store_global(out.at(first + 32), 1);
                }
            }
        };
        let error = play(&mut memory, 0, blocks(8, 32), body).unwrap_err();
        let Fault::BlockRace { writes: true, other: Some(0), .. } = *error.fault else { panic!("{error}") };
        texts.push(text(&error));
    }
    assert!(texts[0].contains("byte 128 of 1040 of buffer `out`, which block 0 touched"), "{}", texts[0]);
    texts.dedup();
    assert_eq!(texts.len(), 1);
}

#[test]
fn a_block_does_not_read_what_another_writes_in_the_same_launch() {
    for write_first in [true, false] {
        let mut memory = Memory::new();
        let word = memory.in_out("word", &[1_u32]);
        let body = move |s: Lane<'_>| {
            let writes = (s.block().x == 0) == write_first;
            // SAFETY: see above.
            unsafe {
                if s.thread() == 0 && writes {
                    s.store_global(word, 2);
                } else if s.thread() == 0 {
                    s.load_global(word);
                }
            }
        };
        let error = play(&mut memory, 0, blocks(2, 32), body).unwrap_err();
        let Fault::BlockRace { writes, other: Some(0), .. } = *error.fault else { panic!("{error}") };
        assert_eq!((writes, error.block.unwrap().x), (!write_first, 1));
    }
}

#[test]
fn a_constant_is_not_written_by_anybody() {
    for read_first in [true, false] {
        let mut memory = Memory::new();
        let out = memory.in_out("out", &[1_u32; 32]);
        let body = move |s: Lane<'_>| {
            let mine = out.at(u64::from(s.thread()));
            // SAFETY: see above.
            unsafe {
                if read_first {
                    s.load_global_constant(mine);
                    s.store_global(mine, 2);
                } else {
                    s.store_global(mine, 2);
                    s.load_global_constant(mine);
                }
            }
        };
        let error = play(&mut memory, 0, one_block(32, 0), body).unwrap_err();
        assert!(matches!(*error.fault, Fault::NotConstant { .. }), "{error}");
    }
}

#[test]
fn written_once_is_neither_never_nor_twice() {
    let mut memory = Memory::new();
    let (gap, twice) = (memory.output::<u8>("gap", 33), memory.output::<u32>("twice", 32));
    // SAFETY: see above.
    let body = move |s: Lane<'_>| unsafe {
        let i = u64::from(s.thread());
        s.store_global(gap.at(i), 1);
        s.store_global(twice.at(i), 1);
        if i == 9 {
            s.store_global(twice.at(i), 1);
        }
    };
    play(&mut memory, 0, one_block(32, 0), body).unwrap();
    let of = |fault| match fault {
        Err(Fault::NotWrittenOnce { place, times }) => (std::format!("{place}"), times),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(memory.check_written_once(gap)), ("byte 32 of 33 of buffer `gap`".into(), 0));
    assert_eq!(of(memory.check_written_once(twice)), ("byte 36 of 128 of buffer `twice`".into(), 2));
}

#[test]
fn a_copy_reads_its_valid_bytes_only_and_fills_with_zeros() {
    let mut memory = Memory::new();
    // 21 bytes: the second chunk of 16 has 5.
    let from = memory.input("from", &(1..=21).collect::<Vec<u8>>());
    let out = memory.output::<[u32; 4]>("out", 3);
    let body = move |s: Lane<'_>| {
        let to = s.shared::<[u32; 4]>().at(s.thread());
        // SAFETY: see above.
        unsafe {
            if s.thread() < 3 {
                let valid = [16, 5, 0][s.thread() as usize];
                // The third may come from anywhere: nothing is read.
                let source = if valid > 0 { from.at(16 * u64::from(s.thread())) } else { from.at(1 << 50) };
                s.copy_async::<16, _>(to, source.cast(), valid);
            }
            s.copy_async_commit();
            s.copy_async_wait::<0>();
            if s.thread() < 3 {
                s.store_global(out.at(u64::from(s.thread())), s.load_shared(to));
            }
        }
    };
    let counters = play(&mut memory, 1, one_block(32, 48), body).unwrap();
    let bytes: Vec<u8> = bytemuck::cast_slice(&memory.values(out)).to_vec();
    let expected: Vec<u8> = (1..=21).chain([0; 27]).collect();
    assert_eq!(bytes, expected);
    assert_eq!((counters.copies.instructions, counters.copies.bytes, counters.copies.sectors), (1, 21, 1));
}

#[test]
fn values_are_replaced_and_buffers_are_freed() {
    let mut memory = Memory::new();
    let input = memory.input("input", &[1_u32; 32]);
    let out = memory.output::<u32>("out", 33);
    // SAFETY: see above.
    let copy = move |s: Lane<'_>| unsafe {
        let i = u64::from(s.thread());
        s.store_global(out.at(i + 1), s.load_global_constant(input.at(i)));
    };
    play(&mut memory, 0, one_block(32, 0), copy).unwrap();
    memory.check_part_written_once(out.at(1), 32).unwrap();
    for (start, len) in [(out, 33), (out, 1), (out.at(0), 2)] {
        let fault = memory.check_part_written_once(start, len).unwrap_err();
        assert!(matches!(fault, Fault::NotWrittenOnce { times: 0, .. }), "{fault}");
    }
    memory.write(input, &[2; 32]);
    play(&mut memory, 0, one_block(32, 0), copy).unwrap();
    assert_eq!(memory.values(out)[1..], [2; 32]);
    assert!(memory.check_part_written_once(out.at(32), 1).is_err(), "written twice");
    memory.write(out, &[7; 33]);
    assert_eq!(memory.values(out), [7; 33]);

    memory.free(input);
    let after = memory.input("after", &[3_u32; 32]);
    assert!(after.address() != input.address(), "an address is given once");
    let error = play(&mut memory, 0, one_block(32, 0), copy).unwrap_err();
    assert!(text(&error).contains("4 bytes at byte 0 of 0 of buffer `input, freed`"), "{error}");
}
