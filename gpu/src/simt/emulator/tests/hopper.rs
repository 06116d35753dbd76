//! The words of sm_90a: a pipeline of bulk copies and products that is right, and each way to break it.

use std::vec;

use half::f16;

use super::{SEEDS, one_block, play, silent, text};
use crate::fragment::wgmma;
use crate::probe::ProbeMapWgmma;
use crate::simt::emulator::{Emulator, EmulatorError, Fault, Lane, Memory};
use crate::simt::{ColMajor, Global, Hopper, MatrixDescriptor, RowMajor, Shared, Simt, Swizzle};

/// What is wrong with the pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Products do not wait for their operands.
    NoWaitForFull,
    /// Copies do not wait for the products before.
    NoWaitForEmpty,
    /// A stage is given back while it is multiplied.
    GivenBackEarly,
    /// More bytes are expected than copied.
    TooManyBytes,
    /// Barriers are used before they are known to all.
    NoBarrierAfterInit,
    /// One warp arrives twice.
    ArrivesTwice,
    /// The last products are not waited for.
    NeverWaited,
}

/// A warp group, and a warp whose first lane copies.
const CONSUMERS: u32 = 128;
/// Bytes of A, 64 × 16, and of B, 8 × 16, in core matrices.
const A_BYTES: u32 = 2048;
const STAGE_BYTES: u32 = A_BYTES + 256;
const ROUNDS: u32 = 3;

/// One stage, filled and multiplied three times.
fn pipeline(s: Lane<'_>, from: Global<u8>, broken: Broken) {
    let stage = s.shared::<u8>();
    let full: Shared<u64> = stage.at(STAGE_BYTES).cast();
    let empty = full.at(1);
    // SAFETY: the emulator's to judge.
    unsafe {
        if s.thread() == CONSUMERS {
            s.mbarrier_init(full, 1);
            s.mbarrier_init(empty, CONSUMERS / 32);
            s.fence_mbarrier_init();
        }
        if broken != Broken::NoBarrierAfterInit {
            s.barrier();
        }
        if s.thread() == CONSUMERS {
            for round in 0..ROUNDS {
                if broken != Broken::NoWaitForEmpty {
                    s.mbarrier_wait(empty, (round % 2) ^ 1);
                }
                let more = if broken == Broken::TooManyBytes { 16 } else { 0 };
                s.mbarrier_arrive_expect(full, STAGE_BYTES + more);
                s.bulk_load(stage, from, STAGE_BYTES, full);
            }
        } else if s.thread() < CONSUMERS {
            let operand = |at| MatrixDescriptor::new(stage.at(at), 128, 256, Swizzle::None);
            let mut d = [0.0; 4];
            for round in 0..ROUNDS {
                if broken != Broken::NoWaitForFull {
                    s.mbarrier_wait(full, round % 2);
                }
                s.wgmma_fence();
                s.wgmma_f16::<RowMajor, ColMajor, 4>(&mut d, operand(0), operand(A_BYTES), true);
                s.wgmma_commit();
                let give_back = || {
                    if s.lane() == 0 {
                        s.mbarrier_arrive(empty);
                        if broken == Broken::ArrivesTwice {
                            s.mbarrier_arrive(empty);
                        }
                    }
                };
                if broken == Broken::GivenBackEarly {
                    give_back();
                }
                if broken != Broken::NeverWaited || round + 1 < ROUNDS {
                    s.wgmma_wait::<0>();
                }
                if broken != Broken::GivenBackEarly {
                    give_back();
                }
            }
            assert_eq!(d, [16.0 * ROUNDS as f32; 4]);
        }
    }
}

fn run(seed: u64, broken: Broken) -> Result<(), EmulatorError> {
    let mut memory = Memory::new();
    let ones = vec![f16::ONE; STAGE_BYTES as usize / 2];
    let from: Global<u8> = memory.input("from", &ones).cast();
    let launch = one_block(CONSUMERS + 32, STAGE_BYTES + 16);
    play(&mut memory, seed, launch, move |s: Lane<'_>| pipeline(s, from, broken)).map(|counters| {
        assert_eq!((counters.wgmma, counters.bulk_copies), (u64::from(4 * ROUNDS), u64::from(ROUNDS)));
        assert_eq!(counters.bytes_read(), u64::from(ROUNDS * STAGE_BYTES));
    })
}

#[test]
fn a_pipeline_is_silent_until_it_is_broken() {
    for seed in SEEDS {
        run(seed, Broken::Nothing).unwrap_or_else(|error| panic!("{error}"));
        let fault = |broken| *run(seed, broken).expect_err("a fault that is not found").fault;
        let races = |fault: &Fault| matches!(fault, Fault::Race { .. } | Fault::CopyNotWaitedFor { .. });
        assert!(races(&fault(Broken::NoWaitForFull)), "{}", fault(Broken::NoWaitForFull));
        assert!(races(&fault(Broken::GivenBackEarly)), "{}", fault(Broken::GivenBackEarly));
        // Phases go by unseen, and products wait for one that never comes; or they are seen, and overwritten.
        let found = fault(Broken::NoWaitForEmpty);
        assert!(races(&found) || matches!(found, Fault::Deadlock { .. }), "{found}");
        let found = fault(Broken::TooManyBytes);
        assert!(matches!(found, Fault::Deadlock { .. }), "{found}");
        let found = fault(Broken::NoBarrierAfterInit);
        assert!(races(&found) || matches!(found, Fault::Uninitialized { .. }), "{found}");
        // An arrival too many, or a phase that ends too early with all that comes of it.
        let _ = fault(Broken::ArrivesTwice);
        let found = fault(Broken::NeverWaited);
        assert!(matches!(found, Fault::Argument { .. }), "{found}");
    }
    let error = run(0, Broken::TooManyBytes).expect_err("a deadlock");
    assert!(text(&error).contains("wait in mbarrier_wait at"), "{error}");
    let error = run(0, Broken::NeverWaited).expect_err("products that are not waited for");
    assert!(text(&error).contains("1 wgmma are never waited for"), "{error}");
}

#[test]
fn what_is_no_barrier_and_what_is_no_bulk_copy_are_refused() {
    let problem = |body: fn(Lane<'_>)| {
        let error = play(&mut Memory::new(), 0, one_block(32, 1024), body).expect_err("a bad argument");
        let Fault::Argument { problem } = *error.fault else { panic!("{error}") };
        problem
    };
    // SAFETY: as above, in each.
    let problems = unsafe {
        [
            problem(|s| s.mbarrier_init(s.shared(), 0)),
            problem(|s| {
                s.store_shared(s.shared::<u64>().at(s.thread()), 7_u64);
                s.mbarrier_arrive(s.shared::<u64>().at(s.thread()));
            }),
            problem(|s| s.bulk_load(s.shared::<u8>(), Global::from_address(0), 8, s.shared())),
        ]
    };
    for (problem, part) in
        problems.iter().zip(["0 arrivals", "is no barrier: nobody has made it one", "a bulk copy of 8 bytes"])
    {
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn registers_that_no_warp_can_have_are_refused_where_they_are_asked_for() {
    let error = |body: fn(Lane<'_>)| {
        let error = play(&mut Memory::new(), 0, one_block(128, 0), body).expect_err("a bad word");
        assert!(error.location.is_some_and(|location| location.file() == file!()), "{error}");
        error
    };
    // SAFETY: as above, in each.
    let errors = unsafe {
        [
            error(|s| s.take_registers::<236>()),
            error(|s| s.give_registers::<16>()),
            error(|s| s.take_registers::<264>()),
            // They begin with 168.
            error(|s| s.take_registers::<160>()),
            error(|s| s.give_registers::<176>()),
            error(|s| {
                s.take_registers::<232>();
                s.take_registers::<224>();
            }),
        ]
    };
    for (error, part) in errors.iter().zip([
        "236 registers: a lane has a multiple of 8, 24 to 256",
        "16 registers: ",
        "264 registers: ",
        "take_registers to 160 by lanes that have 168",
        "give_registers to 176 by lanes that have 168",
        "take_registers to 224 by lanes that have 232",
    ]) {
        assert!(matches!(*error.fault, Fault::Argument { .. }) && text(error).contains(part), "{error}");
    }
    let of_some = play(&mut Memory::new(), 0, one_block(128, 0), |s: Lane<'_>| {
        if s.lane() < 16 {
            // SAFETY: as above.
            unsafe { s.give_registers::<40>() };
        }
    });
    let error = of_some.expect_err("half a warp");
    assert!(matches!(*error.fault, Fault::Divergence { .. }), "{error}");
    assert!(text(&error).contains("wait in give_registers at"), "{error}");
    silent(one_block(256, 0), |s: Lane<'_>| {
        // SAFETY: as above.
        unsafe {
            if s.warp() < 4 {
                s.take_registers::<232>();
            } else {
                s.give_registers::<40>();
            }
        }
    });
}

/// The probe that a device answers with the ISA's lane maps: there they are read from the hardware, here
/// they are what goes in.
#[test]
fn probes_find_the_maps_and_the_layout_without_swizzle() {
    type Probe = ProbeMapWgmma<4>;
    let mut memory = Memory::new();
    let d = memory.output("d", Probe::D_ANSWERS as usize);
    let a = memory.output("a", Probe::A_ANSWERS as usize);
    Emulator::new().launch(&mut memory, Probe { d, a }).unwrap();
    let (d, a): (std::vec::Vec<f32>, std::vec::Vec<f32>) = (memory.values(d), memory.values(a));
    for lane in 0..128_u32 {
        for i in 0..4 {
            let answer = |question: u32| d[(128 * (4 * question + i) + lane) as usize];
            let (row, column) = wgmma::d(lane, i);
            assert_eq!(answer(Probe::ROWS), (16 * (row + 1)) as f32);
            assert_eq!(answer(Probe::COLUMNS), (16 * (column + 1)) as f32);
            assert_eq!(answer(Probe::KEPT), (4 * lane + i + 1) as f32);
        }
        for i in 0..8 {
            let (row, k) = wgmma::a(lane, i);
            for (other, j) in (0..128).flat_map(|other| [(other, 0), (other, 2)]) {
                let answer = a[(128 * (4 * Probe::place(lane, i) + j) + other) as usize];
                let expected = if wgmma::d(other, j).0 == row { k + 1 } else { 0 };
                assert_eq!(answer, expected as f32);
            }
        }
    }
}

/// An operand in each swizzle, by the ISA's rule for the address: bits 4 to 6 are mixed with bits 7 to 9, as
/// many as the pattern has.
#[test]
fn swizzled_operands_are_read_where_they_lie() {
    for (swizzle, row_bytes, bits) in
        [(Swizzle::Bytes128, 128, 7), (Swizzle::Bytes64, 64, 3), (Swizzle::Bytes32, 32, 1)]
    {
        let mut memory = Memory::new();
        let out: Global<f32> = memory.output("out", 128 * 4);
        let body = move |s: Lane<'_>| {
            let tile = s.shared::<u8>();
            let b_from = 64 * row_bytes;
            // SAFETY: the emulator's to judge; each thread writes its own rows.
            unsafe {
                let mut row = s.thread();
                while row < 72 {
                    for k in 0..row_bytes / 2 {
                        let plain = row * row_bytes + 2 * k;
                        let at = plain ^ (plain >> 7 & bits) << 4;
                        // A is m + 1 in the second step of k alone, or the first of the narrow pattern; B is 1.
                        let own = k / 16 == (row_bytes / 32 - 1).min(1);
                        let value = if row >= 64 { 1 } else { (row + 1) * u32::from(own) };
                        s.store_shared(tile.at(at).cast(), f16::from_f32(value as f32));
                    }
                    row += s.threads();
                }
                s.fence_proxy_async();
                s.barrier();
                let by = 32 * (row_bytes / 32 - 1).min(1);
                let operand = |at| MatrixDescriptor::new(tile.at(at), 16, 8 * row_bytes, swizzle).advance(by);
                let mut d = [f32::NAN; 4];
                s.wgmma_fence();
                s.wgmma_f16::<RowMajor, ColMajor, 4>(&mut d, operand(0), operand(b_from), false);
                s.wgmma_commit();
                s.wgmma_wait::<0>();
                for (i, d) in d.into_iter().enumerate() {
                    s.store_global(out.at(u64::from(4 * s.thread()) + i as u64), d);
                }
            }
        };
        play(&mut memory, 0, one_block(128, 72 * row_bytes), body).unwrap_or_else(|error| panic!("{error}"));
        for (at, d) in (0..).zip(memory.values(out)) {
            assert_eq!(d, (16 * (wgmma::d(at / 4, at % 4).0 + 1)) as f32, "{swizzle:?}, {at}");
        }
    }
}

/// A B whose rows are contiguous, in each swizzle: sixteen rows of a run of columns, then the next run.
#[test]
fn rows_of_b_are_read_where_they_lie() {
    const N: u32 = 128;
    for (swizzle, row_bytes, bits) in
        [(Swizzle::Bytes128, 128, 7), (Swizzle::Bytes64, 64, 3), (Swizzle::Bytes32, 32, 1)]
    {
        let (run, stride, leading) = (row_bytes / 2, 8 * row_bytes, 16 * row_bytes);
        let mut memory = Memory::new();
        let out: Global<f32> = memory.output("out", 128 * 64);
        let body = move |s: Lane<'_>| {
            let tile = s.shared::<u8>();
            // SAFETY: the emulator's to judge; each thread writes its own column.
            unsafe {
                let n = s.thread();
                for k in 0..16 {
                    let row = n / run * leading + k / 8 * stride + k % 8 * row_bytes;
                    let plain = row + n % run * 2;
                    let at = plain ^ (plain >> 7 & bits) << 4;
                    s.store_shared(tile.at(at).cast(), f16::from_f32((N * k + n) as f32));
                }
                s.fence_proxy_async();
                s.barrier();
                // Row m of A is 1 at k = m % 16.
                let a = core::array::from_fn(|register| {
                    let one = |half| {
                        let (row, k) = wgmma::a(s.thread(), 2 * register as u32 + half);
                        u32::from(if row % 16 == k { f16::ONE } else { f16::ZERO }.to_bits())
                    };
                    one(0) | one(1) << 16
                });
                let b = MatrixDescriptor::new(tile, leading, stride, swizzle);
                let mut d = [f32::NAN; 64];
                s.wgmma_fence();
                s.wgmma_f16_register_a::<RowMajor, 64>(&mut d, a, b, false);
                s.wgmma_commit();
                s.wgmma_wait::<0>();
                for (i, d) in d.into_iter().enumerate() {
                    s.store_global(out.at(u64::from(64 * s.thread()) + i as u64), d);
                }
            }
        };
        play(&mut memory, 0, one_block(128, N * 32), body).unwrap_or_else(|error| panic!("{error}"));
        for (at, d) in (0..).zip(memory.values(out)) {
            let (row, column) = wgmma::d(at / 64, at % 64);
            assert_eq!(d, (N * (row % 16) + column) as f32, "{swizzle:?}, {at}");
        }
    }
}
