//! What each barrier and each wait is there for: without it, the emulator reports a fault.

use super::*;
use crate::attention::{FaPrefillF16kv, FaPrefillF16kvShared, FaPrefillF16kvWgmma, SharedGeometry};
use crate::simt::emulator::Fault;
use crate::simt::emulator::without::{LeftOut, Sabotaged, Without};

/// Schedules that each is played under.
const SEEDS: [u64; 3] = [0, 1, u64::MAX];

/// A block of so many rows that goes through so many positions.
fn block(tokens: usize, positions: usize) -> Case {
    Case { causal: false, positions, kv_heads: 1, ..Case::prompt(128, tokens) }
}

/// What happens under every schedule when a word is left out.
fn without<K>(
    case: &Case,
    kernel: fn(Attention) -> K,
    left_out: LeftOut,
) -> Vec<Result<Counters, EmulatorError>>
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

/// Without this word there is a race, under every schedule. What a copy writes is reported as one
/// after its lane has waited, and before that as a copy that has not been waited for.
fn races<K>(case: &Case, kernel: fn(Attention) -> K, left_out: LeftOut)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    for (seed, result) in SEEDS.into_iter().zip(without(case, kernel, left_out)) {
        let Err(error) = result else { panic!("{} without {left_out:?}, seed {seed}: no fault", K::NAME) };
        let fault = &*error.fault;
        assert!(
            matches!(fault, Fault::Race { .. } | Fault::CopyNotWaitedFor { .. }),
            "{left_out:?}: {error}"
        );
        let location = error.location.unwrap();
        assert!(location.file().contains("attention"), "{error}");
    }
}

/// What a kernel waits for: how often in a tile of so many positions, and how often at the end if
/// rows are missing.
struct Waits {
    tile_q: usize,
    tile_kv: usize,
    barriers: u32,
    copies: u32,
    tail: u32,
}

/// Every barrier and every wait of the second of three tiles is needed, the first wait, and the
/// barriers around the rows of a tile that is not full.
fn needs<K>(kernel: fn(Attention) -> K, waits: Waits)
where
    K: for<'a, 'b> Kernel<Without<'a, 'b>>,
{
    let three_tiles = block(waits.tile_q, 3 * waits.tile_kv);
    assert_eq!(barriers(&three_tiles, kernel), 3 * waits.barriers);
    let second = |of_a_tile| of_a_tile..2 * of_a_tile;
    second(waits.barriers).for_each(|n| races(&three_tiles, kernel, LeftOut::Barrier(n)));
    second(waits.copies).for_each(|n| races(&three_tiles, kernel, LeftOut::CopyWait(n)));
    races(&three_tiles, kernel, LeftOut::CopyWait(0));

    let row_missing = block(waits.tile_q - 1, waits.tile_kv);
    assert_eq!(barriers(&row_missing, kernel), waits.barriers + waits.tail);
    (0..waits.tail).for_each(|n| races(&row_missing, kernel, LeftOut::Barrier(waits.barriers + n)));
}

#[test]
fn fa_prefill_f16kv_needs_its_two_barriers_a_tile() {
    needs(FaPrefillF16kv::<128>, Waits { tile_q: 64, tile_kv: 32, barriers: 2, copies: 2, tail: 2 });
}

#[test]
fn with_two_stages_fa_prefill_f16kv_needs_its_one_barrier_a_tile() {
    let waits = |tile_q| Waits { tile_q, tile_kv: 32, barriers: 1, copies: 1, tail: 2 };
    needs(FaPrefillF16kv::<128, 64, 32, 2>, waits(64));
    needs(FaPrefillF16kv::<128, 48, 32, 2, 1>, waits(48));
}

#[test]
fn fa_prefill_f16kv_shared_needs_its_four_barriers_a_tile() {
    let (barriers, tail) = (SharedGeometry::BARRIERS, SharedGeometry::TAIL_BARRIERS);
    let waits = |tile_kv| Waits { tile_q: 64, tile_kv, barriers, copies: 1, tail };
    needs(FaPrefillF16kvShared::<128>, waits(64));
    needs(FaPrefillF16kvShared::<128, 32, 8>, waits(32));
}

/// P is laid over S while other lanes of the warp may still read it.
#[test]
fn fa_prefill_f16kv_shared_needs_its_warp_to_meet() {
    // Eight rows a tile.
    for n in [0, 7, 9] {
        races(&block(64, 128), FaPrefillF16kvShared::<128>, LeftOut::WarpSync(n));
    }
}

/// Three tiles of rows in one block, of two tiles of positions each: stages are used again, and queries too.
#[test]
fn fa_prefill_f16kv_wgmma_needs_its_waits() {
    fn kernel(problem: Attention) -> FaPrefillF16kvWgmma<64, 128, 32, 64> {
        FaPrefillF16kvWgmma { problem, blocks: 1 }
    }
    let case = Case { causal: false, positions: 256, kv_heads: 1, ..Case::prompt(64, 384) };
    assert_eq!(barriers(&case, kernel), 1);
    races(&case, kernel, LeftOut::Barrier(0));
    // Of those who multiply: for the first Q and K, the other Ks, which Q and V are before, and the last V. Of a warp
    // that copies, in the second tile of rows: for stages that have been in use.
    (0..7).chain(8..10).for_each(|n| races(&case, kernel, LeftOut::MBarrierWait(n)));
    // The first product, O, and O where other rows begin.
    [0, 2, 4].into_iter().for_each(|n| races(&case, kernel, LeftOut::WgmmaWait(n)));
    // Copies of Q and K, of the next K, which V is before, and of the last V; that all lanes' have ended.
    for n in [0, 2, 11] {
        races(&case, kernel, LeftOut::CopyWait(n));
        races(&case, kernel, LeftOut::WarpSync(n));
    }
}
