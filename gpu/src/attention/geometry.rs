//! The tiles of `fa_prefill_f16kv`, and everything that is counted from them.

use core::ops::Range;

use super::fa_prefill_f16kv::{FRAGMENT, MOST_OUT, MOST_SCORES};
use crate::simt::WARP_LANES;

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

    /// Where keys are staged, in f16 from the beginning of shared memory; queries are at 0.
    pub(super) const fn keys(self, stage: u32) -> u32 {
        (self.tile_q + stage * self.tile_kv) * self.stride()
    }

    /// Where values are staged.
    pub(super) const fn values(self, stage: u32) -> u32 {
        self.keys(self.stages + stage)
    }

    /// Whether a kernel can have this geometry.
    pub(super) const fn is_valid(self) -> bool {
        self.head_size.is_multiple_of(FRAGMENT)
            && self.tile_q.is_multiple_of(FRAGMENT)
            && self.tile_kv.is_multiple_of(FRAGMENT)
            && self.out_fragments() >= 1
            && self.out_fragments() <= MOST_OUT
            && self.score_fragments() >= 1
            && self.score_fragments() <= MOST_SCORES
            && self.row_warps() >= 1
            && self.stages >= 1
            && self.stages <= 3
            // A row at a time at least, see `stage_rows`.
            && self.staging_threads() * 8 >= self.head_size
    }
}
