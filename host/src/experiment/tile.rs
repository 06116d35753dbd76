//! What one tile of keys and values costs a block: computed from its geometry, and counted.

use gpu::attention::Geometry;
use gpu::simt::emulator::Counters;
use serde::Serialize;

use super::kernel::Kernel;
use super::problem::Problem;
use crate::cuda::ops::AttentionShape;
use crate::cuda::{Emulated, Error, Queue};

/// What one tile costs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TileCost {
    /// Bytes of S and P through shared memory, there and back.
    pub round_trip_bytes: u64,
    /// Bytes of K and V that are copied into shared memory.
    pub copied_bytes: u64,
    /// Loads of operands from shared memory, a warp's instruction each.
    pub operand_loads: u64,
    /// Bytes that they read.
    pub operand_bytes: u64,
    /// Passes through the banks of shared memory beyond the least number.
    pub conflicts: u64,
    /// `wmma.mma`, a warp's instruction each.
    pub products: u64,
    /// Shuffles, a warp's instruction each.
    pub shuffles: u64,
    /// Barriers of the block.
    pub barriers: u64,
}

/// Positions in the shorter of the two runs that are counted, at least: so many that no row gets
/// the exacter product of rows that see few.
const POSITIONS: u32 = 256;

impl TileCost {
    /// The names of its numbers, and the numbers, in the order of the fields.
    #[must_use]
    pub const fn lines(&self) -> [(&'static str, u64); 8] {
        [
            ("S and P through shared memory, bytes", self.round_trip_bytes),
            ("K and V copied, bytes", self.copied_bytes),
            ("operand loads", self.operand_loads),
            ("operand loads, bytes", self.operand_bytes),
            ("bank conflicts", self.conflicts),
            ("products", self.products),
            ("shuffles", self.shuffles),
            ("barriers", self.barriers),
        ]
    }

    /// From the tiles alone.
    #[must_use]
    pub const fn computed(geometry: Geometry) -> Self {
        Self {
            round_trip_bytes: geometry.round_trip_bytes() as u64,
            copied_bytes: geometry.copied_bytes() as u64,
            operand_loads: geometry.operand_loads() as u64,
            operand_bytes: geometry.operand_bytes() as u64,
            conflicts: 0,
            products: geometry.products() as u64 * geometry.row_warps() as u64,
            shuffles: geometry.shuffles() as u64,
            barriers: geometry.barriers() as u64,
        }
    }

    /// By the emulator: what a block does beyond another one that goes through one tile less.
    ///
    /// # Errors
    /// Those of the kernel's launch.
    pub fn counted(kernel: Kernel) -> Result<Self, Error> {
        let tiles = POSITIONS.div_ceil(kernel.geometry().tile_kv);
        let (fewer, more) = (count(kernel, tiles)?, count(kernel, tiles + 1)?);
        let of = |number: fn(&Counters) -> u64| number(&more) - number(&fewer);
        let operand_loads = of(|c| c.ldmatrix);
        // 8 × 8 matrices of f16, four to a load.
        let operand_bytes = operand_loads * 4 * 128;
        Ok(Self {
            round_trip_bytes: of(|c| c.shared_stores.bytes + c.shared_loads.bytes) - operand_bytes,
            copied_bytes: of(|c| c.copies.bytes),
            operand_loads,
            operand_bytes,
            conflicts: of(|c| c.shared_loads.conflicts + c.shared_stores.conflicts),
            products: of(|c| c.wmma_mma),
            shuffles: of(|c| c.shuffles),
            barriers: of(|c| c.barriers),
        })
    }
}

/// What one block does whose rows all see so many whole tiles.
fn count(kernel: Kernel, tiles: u32) -> Result<Counters, Error> {
    let geometry = kernel.geometry();
    let shape = AttentionShape {
        positions: (tiles * geometry.tile_kv) as usize,
        causal: false,
        ..AttentionShape::prompt(geometry.tile_q as usize, 0, [1, 1, geometry.head_size as usize])
    };
    let queue = Emulated::new();
    let inputs = Problem::random(shape, 0).upload(&queue)?;
    inputs.run(&queue, kernel)?;
    queue.synchronize()?;
    Ok(queue.counters())
}
