//! What each barrier and each wait is there for: without it, the emulator reports a fault.

use super::*;
use crate::attention::{FaPrefillF16kv, FaPrefillF16kvShared, SharedGeometry};
use crate::simt::emulator::Fault;
use crate::simt::emulator::without::{LeftOut, Sabotaged, Without};

/// Schedules that each is played under.
const SEEDS: [u64; 4] = [0, 1, 2, u64::MAX];

/// A block of full rows that goes through at least three tiles.
fn full() -> Case {
    Case { start: 136, positions: 200, kv_heads: 1, ..Case::prompt(128, 64) }
}

/// The same with a row missing.
fn ragged() -> Case {
    Case { tokens: 63, ..full() }
}

/// What happens under every schedule when a word is left out.
fn without<K>(case: &Case, kernel: fn(Attention) -> K, left_out: LeftOut) -> Vec<Result<Counters, EmulatorError>>
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    let inputs = case.inputs(INPUTS);
    let play = |seed| {
        let (mut memory, problem) = prepare(case, &inputs);
        Emulator::new().seed(seed).launch(&mut memory, Sabotaged { kernel: kernel(problem), left_out })
    };
    SEEDS.into_iter().map(play).collect()
}

/// Barriers that a block passes when nothing is left out; it then has no fault.
fn barriers<K>(case: &Case, kernel: fn(Attention) -> K) -> u32
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    let passed = without(case, kernel, LeftOut::Nothing)
        .into_iter()
        .map(|result| result.unwrap_or_else(|error| panic!("{error}")).barriers as u32);
    passed.reduce(|a, b| if a == b { a } else { panic!("barriers depend on the schedule") }).unwrap()
}

/// Without this word there is a race, under every schedule. Where the missing order is that of a
/// copy, it may be seen before the copying lane has waited, as a copy that nobody waited for.
fn races<K>(case: &Case, kernel: fn(Attention) -> K, left_out: LeftOut)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    for (seed, result) in SEEDS.into_iter().zip(without(case, kernel, left_out)) {
        let Err(error) = result else { panic!("{} without {left_out:?}, seed {seed}: no fault", K::NAME) };
        let fault = &*error.fault;
        assert!(matches!(fault, Fault::Race { .. } | Fault::CopyNotWaitedFor { .. }), "{left_out:?}: {error}");
        let location = error.location.unwrap();
        assert!(location.file().contains("attention"), "{error}");
    }
}

/// Without this wait a copy's target is used while it is on its way, or written by another lane.
fn is_stale<K>(case: &Case, kernel: fn(Attention) -> K, left_out: LeftOut)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    for (seed, result) in SEEDS.into_iter().zip(without(case, kernel, left_out)) {
        let Err(error) = result else { panic!("{} without {left_out:?}, seed {seed}: no fault", K::NAME) };
        assert!(matches!(&*error.fault, Fault::CopyNotWaitedFor { .. }), "{left_out:?}: {error}");
    }
}

/// Every barrier of the second of several tiles, and every wait.
fn all_of_a_tile_are_needed<K>(kernel: fn(Attention) -> K, per_tile: u32, waits: u32)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    let passed = barriers(&full(), kernel);
    assert!(passed.is_multiple_of(per_tile) && passed >= 3 * per_tile, "{} of {per_tile}", passed);
    (per_tile..2 * per_tile).for_each(|n| races(&full(), kernel, LeftOut::Barrier(n)));
    (waits..2 * waits).for_each(|n| is_stale(&full(), kernel, LeftOut::CopyWait(n)));
    // The first tile's, before which there is nothing.
    is_stale(&full(), kernel, LeftOut::CopyWait(0));
}

/// The barriers around the rows of a tile that is not full.
fn all_of_the_tail_are_needed<K>(kernel: fn(Attention) -> K, tail: u32)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    let (passed, with_tail) = (barriers(&full(), kernel), barriers(&ragged(), kernel));
    assert_eq!(with_tail, passed + tail);
    (passed..with_tail).for_each(|n| races(&ragged(), kernel, LeftOut::Barrier(n)));
}

#[test]
fn fa_prefill_f16kv_needs_its_two_barriers_a_tile() {
    all_of_a_tile_are_needed(FaPrefillF16kv::<128>, 2, 2);
    all_of_the_tail_are_needed(FaPrefillF16kv::<128>, 2);
}

#[test]
fn with_two_stages_fa_prefill_f16kv_needs_its_one_barrier_a_tile() {
    all_of_a_tile_are_needed(FaPrefillF16kv::<128, 64, 32, 2>, 1, 1);
    all_of_the_tail_are_needed(FaPrefillF16kv::<128, 64, 32, 2>, 2);
    all_of_a_tile_are_needed(FaPrefillF16kv::<128, 48, 32, 2, 1>, 1, 1);
}

#[test]
fn fa_prefill_f16kv_shared_needs_its_four_barriers_a_tile() {
    let (tile, tail) = (SharedGeometry::BARRIERS, SharedGeometry::TAIL_BARRIERS);
    all_of_a_tile_are_needed(FaPrefillF16kvShared::<128>, tile, 1);
    all_of_the_tail_are_needed(FaPrefillF16kvShared::<128>, tail);
    all_of_a_tile_are_needed(FaPrefillF16kvShared::<128, 32, 8>, tile, 1);
    all_of_the_tail_are_needed(FaPrefillF16kvShared::<128, 32, 8>, tail);
}

/// P is laid over S while other lanes of the warp may still read it.
#[test]
fn fa_prefill_f16kv_shared_needs_its_warp_to_meet() {
    for n in [0, 1, 9, 23] {
        races(&full(), FaPrefillF16kvShared::<128>, LeftOut::WarpSync(n));
    }
}
