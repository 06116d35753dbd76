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
    /// f32 after each row of S: none, or 8 more than a multiple of 16.
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

    /// Bytes of statistics that a block's lanes store and load in one tile. Each of a row's numbers
    /// is stored once; m and l are loaded by all lanes of the row's warp, the factors of its two rows
    /// by every thread.
    #[must_use]
    pub const fn statistics_traffic_bytes(self) -> u32 {
        let stored = self.statistics_bytes();
        stored + 2 * Self::TILE_Q * 4 * WARP_LANES + Self::THREADS * 2 * 4
    }

    /// Bytes of keys and values that a block copies to shared memory for one tile.
    #[must_use]
    pub const fn copied_bytes(self) -> u32 {
        2 * self.tile_kv * self.head_size * 2
    }

    /// `ldmatrix` of Q, K and V of a block in one tile: of Q once for each step along a row in every
    /// warp, of K and V once for each fragment of theirs and 16 rows.
    #[must_use]
    pub const fn operand_loads(self) -> u32 {
        let along = self.head_size / FRAGMENT;
        Self::WARPS * along + 2 * (Self::TILE_Q / FRAGMENT) * along * (self.tile_kv / FRAGMENT)
    }

    /// `ldmatrix` of P of a block in one tile, by both warps of its rows. Their bytes are a part of
    /// [`round_trip_bytes`](Self::round_trip_bytes).
    #[must_use]
    pub const fn weight_loads(self) -> u32 {
        Self::WARPS * (self.tile_kv / FRAGMENT)
    }

    /// Shuffles of a block in one tile: five steps for a row's maximum and five for its sum.
    #[must_use]
    pub const fn shuffles(self) -> u32 {
        Self::TILE_Q * 2 * WARP_LANES.ilog2()
    }

    /// Bank conflicts of a block in one tile. Without padding a store of an accumulator, four of
    /// two neighbours each, takes 8 passes and not 2, and each quarter of a load of P 8 and not 1.
    #[must_use]
    pub const fn conflicts(self) -> u32 {
        if self.padding != 0 || !self.score_stride().is_multiple_of(32) {
            return 0;
        }
        Self::WARPS * self.score_fragments() as u32 * 4 * (8 - 2) + self.weight_loads() * 4 * (8 - 1)
    }

    /// Registers of a lane that hold O, 8 to an accumulator.
    #[must_use]
    pub const fn out_registers(self) -> u32 {
        self.out_fragments() as u32 * 8
    }

    /// Registers of a lane that hold S of a tile until it is stored, 8 to an accumulator.
    #[must_use]
    pub const fn score_registers(self) -> u32 {
        self.score_fragments() as u32 * 8
    }

    /// Registers of a lane for operands on their way: three, 4 each.
    #[must_use]
    pub const fn operand_registers(self) -> u32 {
        3 * 4
    }

    /// Registers of a lane for softmax of one row: an estimate.
    #[must_use]
    pub const fn row_registers(self) -> u32 {
        8
    }

    /// Registers of a lane for addresses and counters: an estimate.
    #[must_use]
    pub const fn address_registers(self) -> u32 {
        20
    }

    /// The sum of the ledger, in registers of a lane.
    #[must_use]
    pub const fn registers(self) -> u32 {
        self.out_registers()
            + self.score_registers()
            + self.operand_registers()
            + self.row_registers()
            + self.address_registers()
    }

    /// Where keys are staged, in f16 from the beginning of shared memory; queries are at 0.
    #[must_use]
    pub const fn keys(self) -> u32 {
        Self::TILE_Q * self.stride()
    }

    /// Where values are staged, in f16.
    #[must_use]
    pub const fn values(self) -> u32 {
        self.keys() + self.tile_kv * self.stride()
    }

    /// Where S lies, in f32.
    #[must_use]
    pub const fn scores(self) -> u32 {
        self.staging_bytes() / 4
    }

    /// Where the rows' statistics lie, in f32: all m, all l, all factors.
    #[must_use]
    pub const fn statistics(self) -> u32 {
        self.scores() + self.score_bytes() / 4
    }

    /// Whether a kernel can have this geometry: whole fragments, head sizes up to 256, tiles of 32 or 64
    /// positions, a padding that keeps operand loads free of conflicts or none.
    #[must_use]
    pub const fn is_valid(self) -> bool {
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
