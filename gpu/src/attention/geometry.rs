//! The tiles of `fa_prefill_f16kv`, and everything that is counted from them.

use core::ops::Range;

use super::fa_prefill_f16kv::{FRAGMENT, MOST_OUT, MOST_SCORES};
use crate::simt::WARP_LANES;

/// Threads that a block can have on every architecture.
const MOST_THREADS: u32 = 1024;

/// The tiles of a prefill kernel, and all that follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Elements of a row of one head.
    pub head_size: u32,
    /// Query rows of a block, 16 to a warp.
    pub tile_q: u32,
    /// Positions of a tile of keys and values.
    pub tile_kv: u32,
    /// Tiles of keys and values that are in shared memory at a time.
    pub stages: u32,
    /// Warps that do nothing but copy. With none, all warps copy.
    pub staging_warps: u32,
}

impl Geometry {
    /// Warps that own query rows.
    #[must_use]
    pub const fn row_warps(self) -> u32 {
        self.tile_q / FRAGMENT
    }

    /// Threads of a block.
    #[must_use]
    pub const fn threads(self) -> u32 {
        (self.row_warps() + self.staging_warps) * WARP_LANES
    }

    /// Threads that copy, the last ones of the block.
    #[must_use]
    pub const fn staging_threads(self) -> u32 {
        if self.staging_warps == 0 { self.threads() } else { self.staging_warps * WARP_LANES }
    }

    /// Which threads these are.
    #[must_use]
    pub const fn staging(self) -> Range<u32> {
        self.threads() - self.staging_threads()..self.threads()
    }

    /// f16 from one staged row to the next. The padding keeps operand loads free of conflicts.
    #[must_use]
    pub const fn stride(self) -> u32 {
        self.head_size + 8
    }

    /// Bytes of Q, K and V in shared memory.
    #[must_use]
    pub const fn staging_bytes(self) -> u32 {
        (self.tile_q + 2 * self.stages * self.tile_kv) * self.stride() * 2
    }

    /// Bytes of O where it is laid over them, for a tile that has fewer rows than it could.
    #[must_use]
    pub const fn out_bytes(self) -> u32 {
        self.tile_q * self.head_size * 4
    }

    /// Bytes of shared memory: two users at different times, so the larger of both.
    #[must_use]
    pub const fn shared_bytes(self) -> u32 {
        let (staging, out) = (self.staging_bytes(), self.out_bytes());
        if staging > out { staging } else { out }
    }

    /// Accumulators of O in a warp.
    #[must_use]
    pub const fn out_fragments(self) -> usize {
        (self.head_size / FRAGMENT) as usize
    }

    /// Accumulators of S in a warp, and operands of P.
    #[must_use]
    pub const fn score_fragments(self) -> usize {
        (self.tile_kv / FRAGMENT) as usize
    }

    /// `wmma.mma` of a warp in one tile, both products together.
    #[must_use]
    pub const fn products(self) -> u32 {
        2 * (self.head_size / FRAGMENT) * (self.tile_kv / FRAGMENT)
    }

    /// Barriers of one tile.
    #[must_use]
    pub const fn barriers(self) -> u32 {
        if self.stages == 1 { 2 } else { 1 }
    }

    /// Registers of a lane that hold O, 8 to an accumulator.
    #[must_use]
    pub const fn out_registers(self) -> u32 {
        self.out_fragments() as u32 * 8
    }

    /// Registers of a lane that hold S of a tile and later P, 8 to an accumulator.
    #[must_use]
    pub const fn score_registers(self) -> u32 {
        self.score_fragments() as u32 * 8
    }

    /// Registers of a lane for the one operand of P that is multiplied with.
    #[must_use]
    pub const fn weight_registers(self) -> u32 {
        4
    }

    /// Registers of a lane for operands of Q, K and V, at most: two in use and the next two on
    /// their way, 4 each.
    #[must_use]
    pub const fn operand_registers(self) -> u32 {
        4 * 4
    }

    /// Registers of a lane for its two rows: their maxima and sums.
    #[must_use]
    pub const fn row_registers(self) -> u32 {
        2 * 2
    }

    /// Registers of a lane for addresses and counters: an estimate, the one number of the ledger
    /// that does not follow from the tiles.
    #[must_use]
    pub const fn address_registers(self) -> u32 {
        16
    }

    /// The sum of the ledger, in registers of a lane.
    #[must_use]
    pub const fn registers(self) -> u32 {
        self.out_registers()
            + self.score_registers()
            + self.weight_registers()
            + self.operand_registers()
            + self.row_registers()
            + self.address_registers()
    }

    /// Bytes of S and P that a block moves through shared memory in one tile, there and back. The
    /// kernel keeps both in registers, whatever the tiles.
    #[must_use]
    pub const fn round_trip_bytes(self) -> u32 {
        0
    }

    /// Bytes of keys and values that a block copies to shared memory for one tile.
    #[must_use]
    pub const fn copied_bytes(self) -> u32 {
        2 * self.tile_kv * self.head_size * 2
    }

    /// `ldmatrix` of a block in one tile: of Q once for each step along a row, of K and V once for
    /// each fragment of theirs; in every warp that owns rows.
    #[must_use]
    pub const fn operand_loads(self) -> u32 {
        self.row_warps() * (self.head_size / FRAGMENT) * (1 + 2 * (self.tile_kv / FRAGMENT))
    }

    /// Bytes that those loads read from shared memory, 16 to a lane.
    #[must_use]
    pub const fn operand_bytes(self) -> u32 {
        self.operand_loads() * WARP_LANES * 16
    }

    /// Shuffles of a block in one tile: two steps for the maximum of each of a lane's two rows.
    #[must_use]
    pub const fn shuffles(self) -> u32 {
        self.row_warps() * 4
    }

    /// Where keys are staged, in f16 from the beginning of shared memory; queries are at 0.
    #[must_use]
    pub const fn keys(self, stage: u32) -> u32 {
        (self.tile_q + stage * self.tile_kv) * self.stride()
    }

    /// Where values are staged, in f16 from the beginning of shared memory.
    #[must_use]
    pub const fn values(self, stage: u32) -> u32 {
        self.keys(self.stages + stage)
    }

    /// Whether a kernel can have this geometry: whole fragments, head sizes up to 256, tiles of
    /// keys up to 64, at most 3 stages and 1024 threads.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.head_size.is_multiple_of(FRAGMENT)
            && self.tile_q.is_multiple_of(FRAGMENT)
            && self.tile_kv.is_multiple_of(FRAGMENT)
            && self.out_fragments() >= 1
            && self.out_fragments() <= MOST_OUT
            && self.score_fragments() >= 1
            && self.score_fragments() <= MOST_SCORES
            && self.row_warps() >= 1
            && self.stages >= 1
            && self.stages <= 2
            && self.threads() <= MOST_THREADS
            // A row at a time at least, see `stage_rows`.
            && self.staging_threads() * 8 >= self.head_size
    }
}
