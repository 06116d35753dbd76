//! What one tile costs a block, counted by the emulator.

use gpu::simt::emulator::Counters;

use super::kernel::Kernel;
use super::problem::Problem;
use super::tiles::{OPERAND_BYTES, TileCost};
use crate::cuda::ops::AttentionShape;
use crate::cuda::{Emulated, Error, Queue};

/// Positions in the shorter of the two runs that are counted, at least: so many that no row gets
/// the exacter product of rows that see few.
const POSITIONS: u32 = 256;

/// What a block does beyond another one that goes through one tile less. Loads of P and statistics
/// look like any other in the counters: what they are said to take is taken off, so that a wrong
/// number shows in what is left.
///
/// # Errors
/// Those of the kernel's launch.
pub(super) fn counted(kernel: Kernel) -> Result<TileCost, Error> {
    let tiles = kernel.tiles();
    let number = POSITIONS.div_ceil(tiles.tile_kv());
    let (fewer, more) = (count(kernel, number)?, count(kernel, number + 1)?);
    let of = |number: fn(&Counters) -> u64| number(&more) - number(&fewer);
    let operand_loads = of(|c| c.ldmatrix).saturating_sub(tiles.weight_loads());
    let operand_bytes = operand_loads * OPERAND_BYTES;
    let statistics_bytes = tiles.cost().statistics_bytes;
    let shared = of(|c| c.shared_stores.bytes + c.shared_loads.bytes);
    Ok(TileCost {
        round_trip_bytes: shared.saturating_sub(operand_bytes + statistics_bytes),
        statistics_bytes,
        copied_bytes: of(|c| c.copies.bytes),
        operand_loads,
        operand_bytes,
        conflicts: of(|c| c.shared_loads.conflicts + c.shared_stores.conflicts),
        products: of(|c| c.wmma_mma),
        shuffles: of(|c| c.shuffles),
        barriers: of(|c| c.barriers),
    })
}

/// What one block does whose rows all see so many whole tiles.
fn count(kernel: Kernel, number: u32) -> Result<Counters, Error> {
    let tiles = kernel.tiles();
    let shape = AttentionShape {
        positions: (number * tiles.tile_kv()) as usize,
        causal: false,
        ..AttentionShape::prompt(tiles.tile_q() as usize, 0, [1, 1, tiles.head_size() as usize])
    };
    let queue = Emulated::new();
    let inputs = Problem::random(shape, 0).upload(&queue)?;
    inputs.run(&queue, kernel)?;
    queue.synchronize()?;
    Ok(queue.counters())
}
