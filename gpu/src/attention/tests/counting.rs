//! What a tile costs: barriers, products, and bytes and passes of shared memory.

use super::*;
use crate::attention::{AttnNaive, FaPrefillF16kv, FaPrefillF16kvShared, SharedGeometry};
use crate::simt::emulator::SharedTraffic;

/// Full tiles of rows, of which each sees all of so many positions: too many to count as few.
fn full(tokens: usize, positions: usize) -> Case {
    let one_head = Case { kv_heads: 1, ..Case::prompt(128, tokens) };
    Case { causal: false, positions, ..one_head }
}

/// Both counters of a launch over 64 positions more.
struct PerTile {
    barriers: u64,
    products: u64,
    loads: SharedTraffic,
    stores: SharedTraffic,
}

/// What one block does for 64 positions.
fn per_64<K: for<'b> Kernel<Lane<'b>>>(kernel: fn(Attention) -> K) -> PerTile {
    let [less, more] = [128, 192].map(|positions| {
        let case = full(64, positions);
        play(&case, &case.inputs(INPUTS), 0, kernel).1
    });
    let between = |less: SharedTraffic, more: SharedTraffic| SharedTraffic {
        instructions: more.instructions - less.instructions,
        wavefronts: more.wavefronts - less.wavefronts,
        conflicts: more.conflicts - less.conflicts,
        bytes: more.bytes - less.bytes,
    };
    PerTile {
        barriers: more.barriers - less.barriers,
        products: more.wmma_mma - less.wmma_mma,
        loads: between(less.shared_loads, more.shared_loads),
        stores: between(less.shared_stores, more.shared_stores),
    }
}

/// Bytes that one load of a fragment of f16 moves.
const OPERAND: u64 = 16 * 16 * 2;
/// Bytes that the statistics of 64 rows take. Each is one f32.
const STATISTIC: u64 = 64 * 4;

#[test]
fn barriers_of_a_tile_are_four_and_two() {
    assert_eq!(per_64(FaPrefillF16kvShared::<128>).barriers, 4);
    assert_eq!(per_64(FaPrefillF16kvShared::<128, 64, 8>).barriers, 4);
    // Two tiles of 32.
    assert_eq!(per_64(FaPrefillF16kvShared::<128, 32, 8>).barriers, 2 * 4);
    assert_eq!(per_64(FaPrefillF16kv::<128>).barriers, 2 * 2);
    assert_eq!(per_64(FaPrefillF16kv::<128, 64, 32, 2>).barriers, 2);
}

#[test]
fn the_round_trip_of_s_and_p_is_56_kib_a_tile_and_nothing() {
    let (old, new) = (per_64(FaPrefillF16kvShared::<128>), per_64(FaPrefillF16kv::<128>));
    // In the registers: nothing is stored, and operands of Q (eight along d, for each tile of 32), K
    // and V (one for each two of the products' 8 · 4 fragments of a warp) are all that is loaded.
    assert_eq!(new.stores, SharedTraffic::default());
    let operands = 4 * (2 * 8 + 8 * 4 + 4 * 8) * OPERAND;
    assert_eq!(new.loads.bytes, operands);

    // By way of shared memory: twice the warps with half of the K and V each, and tiles of 64, so
    // the same operands; beyond them statistics, and S and P.
    let statistics_stored = 3 * STATISTIC;
    // m and l of its row by every lane of a warp, and factors for its two rows by every thread.
    let statistics_loaded = 2 * 32 * STATISTIC + 256 * 2 * 4;
    let stored = old.stores.bytes - statistics_stored;
    let loaded = old.loads.bytes - operands - statistics_loaded;
    assert_eq!(stored, (16 + 8) << 10, "S and P are written");
    assert_eq!(loaded, (16 + 16) << 10, "S and P are read");
    assert_eq!(stored + loaded, 57_344);
    assert_eq!(stored + loaded, u64::from(FaPrefillF16kvShared::<128>::GEOMETRY.round_trip_bytes()));
}

#[test]
fn rows_without_padding_conflict_eightfold_and_padded_ones_never() {
    let geometry = FaPrefillF16kvShared::<128>::GEOMETRY;
    // Rows of S are a multiple of 32 banks apart.
    assert!(geometry.score_stride().is_multiple_of(32));
    let bare = per_64(FaPrefillF16kvShared::<128>);
    // Four stores of two neighbours for each of two fragments of eight warps: 8 passes, not 2.
    let stores_of_s = 8 * 2 * 4;
    assert_eq!(bare.stores.conflicts, stores_of_s * (8 - 2));
    // Rows of P are stored in one pass, and so are a row's three statistics.
    let others = 64 + 3 * 64;
    assert_eq!(bare.stores.instructions, stores_of_s + others);
    assert_eq!(bare.stores.wavefronts, stores_of_s * 8 + others);
    // Operands of P, four along the positions for each of eight warps: each quarter of the load
    // takes 8 passes, not 1.
    assert_eq!(bare.loads.conflicts, 8 * 4 * 4 * (8 - 1));

    for padded in [per_64(FaPrefillF16kvShared::<128, 64, 8>), per_64(FaPrefillF16kvShared::<128, 32, 8>)] {
        assert_eq!((padded.stores.conflicts, padded.loads.conflicts), (0, 0));
    }
    let new = per_64(FaPrefillF16kv::<128>);
    assert_eq!((new.stores.conflicts, new.loads.conflicts), (0, 0));
}

/// In blocks whose rows see few positions, P is there in two parts. They lie beside each other, so
/// that this takes no more barriers, and conflicts no more than one.
#[test]
fn two_parts_of_p_take_products_and_no_barriers() {
    let case = Case { kv_heads: 1, ..Case::prompt(128, 64) };
    let (_, counters) = play(&case, &case.inputs(INPUTS), 0, FaPrefillF16kvShared::<128, 64, 8>);
    let products = u64::from(FaPrefillF16kvShared::<128>::GEOMETRY.products());
    assert_eq!(counters.wmma_mma, products + products / 2);
    assert_eq!(counters.barriers, u64::from(SharedGeometry::BARRIERS));
    assert_eq!((counters.shared_stores.conflicts, counters.shared_loads.conflicts), (0, 0));
}

#[test]
fn every_variant_multiplies_as_often() {
    fn products<K: for<'b> Kernel<Lane<'b>>>(kernel: fn(Attention) -> K) -> u64 {
        // A multiple of every tile, both ways.
        let case = full(384, 64);
        play(&case, &case.inputs(INPUTS), 0, kernel).1.wmma_mma
    }
    let once = 2 * (384 / 16) * (128 / 16) * (64 / 16);
    assert_eq!(products(FaPrefillF16kv::<128>), once);
    assert_eq!(products(FaPrefillF16kv::<128, 64, 16>), once);
    assert_eq!(products(FaPrefillF16kv::<128, 64, 64>), once);
    assert_eq!(products(FaPrefillF16kv::<128, 128, 32>), once);
    assert_eq!(products(FaPrefillF16kv::<128, 48, 32, 2, 1>), once);
    assert_eq!(products(FaPrefillF16kv::<128, 64, 32, 2>), once);
    assert_eq!(products(FaPrefillF16kvShared::<128>), once);
    assert_eq!(products(FaPrefillF16kvShared::<128, 64, 8>), once);
    assert_eq!(products(FaPrefillF16kvShared::<128, 32, 8>), once);
    let tile = per_64(FaPrefillF16kvShared::<128>).products;
    assert_eq!(tile, u64::from(FaPrefillF16kvShared::<128>::GEOMETRY.products()));
}

/// The naive kernel reads three rows a thread and writes one element, and that is all.
#[test]
fn the_first_rung_uses_global_memory_alone() {
    let case = full(3, 2);
    let kernel = |problem| AttnNaive { problem, head_size: 128 };
    let (_, counters) = play(&case, &case.inputs(INPUTS), 0, kernel);
    let elements = 3 * 128;
    assert_eq!(counters.global_stores.bytes, elements * 4);
    assert_eq!(counters.global_loads.bytes, elements * 2 * (2 * 128 + 1) * 2);
    let rest = Counters { global_loads: Default::default(), global_stores: Default::default(), ..counters };
    assert_eq!(rest, Counters::default());
}
