//! The tiles of `fa_prefill_f16kv_shared`, and everything that is counted from them.

use super::fa_prefill_f16kv::FRAGMENT;
use crate::simt::WARP_LANES;

/// The tiles of the prefill kernel whose S and P go through shared memory, and all that follows
/// from them. Eight warps, two for each 16 of the 64 query rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedGeometry {
    /// Elements of a row of one head.
    pub head_size: u32,
    /// Positions of a tile of keys and values.
    pub tile_kv: u32,
    /// f32 after each row of S: 0, or 8 more than a multiple of 16 with `tile_kv` counted in.
    pub padding: u32,
}

impl SharedGeometry {
    /// Query rows of a block.
    pub const TILE_Q: u32 = 64;
    /// Warps that share a block of 16 rows: each has half of the columns, of S and then of O.
    pub const COLUMN_WARPS: u32 = 2;
    /// Warps of a block.
    pub const WARPS: u32 = Self::TILE_Q / FRAGMENT * Self::COLUMN_WARPS;
    /// Threads of a block.
    pub const THREADS: u32 = Self::WARPS * WARP_LANES;
    /// Barriers of one tile.
    pub const BARRIERS: u32 = 4;
    /// Barriers around the rows of a tile that is not full.
    pub const TAIL_BARRIERS: u32 = 1;
    /// Numbers that are kept of a row from tile to tile: m, l and the factor for O, in this order.
    pub const STATISTICS: u32 = 3;

    /// f16 from one staged row to the next. The padding keeps operand loads free of conflicts.
    #[must_use]
    pub const fn stride(self) -> u32 {
        self.head_size + 8
    }

    /// f32 from one row of S to the next; P has twice as many f16.
    #[must_use]
    pub const fn score_stride(self) -> u32 {
        self.tile_kv + self.padding
    }

    /// Where in its row P begins, in f16. With padding, rows are 8 banks apart, and the 16 bytes
    /// that four of them give to an operand's load lie every other 16 bytes; the next four rows fill
    /// the gaps.
    #[must_use]
    pub const fn weight_column(self, row: u32) -> u32 {
        if self.padding == 0 { 0 } else { row / 4 % 2 * 8 }
    }

    /// Bytes of Q, K and V in shared memory.
    #[must_use]
    pub const fn staging_bytes(self) -> u32 {
        (Self::TILE_Q + 2 * self.tile_kv) * self.stride() * 2
    }

    /// Bytes of S, which P overlays.
    #[must_use]
    pub const fn score_bytes(self) -> u32 {
        Self::TILE_Q * self.score_stride() * 4
    }

    /// Bytes of the rows' statistics.
    #[must_use]
    pub const fn statistics_bytes(self) -> u32 {
        Self::STATISTICS * Self::TILE_Q * 4
    }

    /// Bytes of O where it is laid over Q, K and V, for a tile that has fewer rows than it could.
    #[must_use]
    pub const fn out_bytes(self) -> u32 {
        Self::TILE_Q * self.head_size * 4
    }

    /// Bytes of shared memory.
    #[must_use]
    pub const fn shared_bytes(self) -> u32 {
        self.staging_bytes() + self.score_bytes() + self.statistics_bytes()
    }

    /// Bytes that S and P move through shared memory in one tile: S is written and read as f32, P
    /// is written as f16 and read by both warps of its rows.
    #[must_use]
    pub const fn round_trip_bytes(self) -> u32 {
        let elements = Self::TILE_Q * self.tile_kv;
        elements * 4 + elements * 4 + elements * 2 + Self::COLUMN_WARPS * elements * 2
    }

    /// Accumulators of O in a warp. If the head has an odd number, the second warp has one less.
    #[must_use]
    pub const fn out_fragments(self) -> usize {
        (self.head_size / FRAGMENT).div_ceil(Self::COLUMN_WARPS) as usize
    }

    /// Accumulators of S in a warp.
    #[must_use]
    pub const fn score_fragments(self) -> usize {
        (self.tile_kv / FRAGMENT / Self::COLUMN_WARPS) as usize
    }

    /// `wmma.mma` of a block in one tile, both products together.
    #[must_use]
    pub const fn products(self) -> u32 {
        2 * (Self::TILE_Q / FRAGMENT) * (self.head_size / FRAGMENT) * (self.tile_kv / FRAGMENT)
    }

    /// Where keys are staged, in f16 from the beginning of shared memory; queries are at 0.
    pub(super) const fn keys(self) -> u32 {
        Self::TILE_Q * self.stride()
    }

    /// Where values are staged.
    pub(super) const fn values(self) -> u32 {
        self.keys() + self.tile_kv * self.stride()
    }

    /// Where S lies, in f32.
    pub(super) const fn scores(self) -> u32 {
        self.staging_bytes() / 4
    }

    /// Where the rows' statistics lie, in f32: all m, all l, all factors.
    pub(super) const fn statistics(self) -> u32 {
        self.scores() + self.score_bytes() / 4
    }

    /// Whether a kernel can have this geometry.
    pub(super) const fn is_valid(self) -> bool {
        self.head_size.is_multiple_of(FRAGMENT)
            && self.head_size > 0
            && self.out_fragments() <= super::fa_prefill_f16kv_shared::MOST_OUT
            // A lane has one column of a row of S, or two.
            && (self.tile_kv == 32 || self.tile_kv == 64)
            && (self.padding == 0 || self.score_stride() % 16 == 8)
            // After the last tile O fits over Q, K and V, so that nobody need wait for P.
            && self.out_bytes() <= self.staging_bytes()
    }
}
