//! What a block of [`AttnDecode`] is to do, and the keys and values that it loads.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use half::f16;

use super::attn_decode::{AttnDecode, KEY_LOT, KEY_LOTS_AT_ONCE, TILE, VALUE_LOT, VALUE_LOTS};
use super::cache::LayerPlace;
use super::chunked::CHUNK;
use crate::fragment::{group, place};
use crate::simt::{Dim3, Global, Simt};

/// A lane's keys of sixteen positions: some lots, halves.
pub(super) type Keys = [[[u32; 4]; 2]; KEY_LOTS_AT_ONCE];
/// A lane's values of sixteen positions: lots, positions.
pub(super) type Values = [[[u32; 4]; 4]; VALUE_LOTS];

/// What a block is to do. Positions are counted from the chunk's first.
#[derive(Clone, Copy)]
pub(super) struct Task {
    /// The KV head's keys at the chunk's first position.
    pub(super) keys: Global<f16>,
    /// The KV head's values there.
    pub(super) values: Global<f16>,
    /// How far the row's own position lies behind the chunk's first: it is in the chunk if that is below
    /// [`CHUNK`].
    pub(super) own: u32,
    /// The first position that the row sees.
    pub(super) first: u32,
}

impl Task {
    /// The position behind the last that the row sees: none lies behind its own.
    #[inline(always)]
    pub(super) const fn end(&self) -> u32 {
        if self.own < CHUNK { self.own + 1 } else { CHUNK }
    }

    /// Whether a position's key and value are read from the cache.
    #[inline(always)]
    const fn is_cached(&self, position: u32) -> bool {
        position < CHUNK && position < self.own
    }
}

impl<const HEAD_SIZE: u32> AttnDecode<HEAD_SIZE> {
    /// What the block is to do, and the row's position; `None` if the row sees nothing of its chunk.
    ///
    /// # Safety
    /// The cache's places keep their contract.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn task<S: Simt>(&self, s: S) -> Option<(Task, u32)> {
        let Dim3 { x: kv_head, y: row, z: chunk } = s.block();
        // SAFETY: the caller's; a row of the grid's.
        let LayerPlace { keys, values, position } = unsafe { self.chunked.cache.place(s, row) }?;
        let (first, end) = self.chunked.reach(position)?;
        let start = chunk * CHUNK;
        if start >= end || start + CHUNK <= first {
            return None;
        }
        let offset = u64::from(start) * u64::from(self.chunked.cache.width);
        let offset = offset + u64::from(kv_head * HEAD_SIZE);
        let task = Task {
            keys: keys.at(offset),
            values: values.at(offset),
            own: position - start,
            first: first.saturating_sub(start),
        };
        Some((task, position))
    }

    /// Asks for the keys and values of sixteen positions, `base` and on, as far as the cache has them.
    ///
    /// # Safety
    /// The task's memory is as it says.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn ask_for<S: Simt>(&self, s: S, task: Task, base: u32) {
        let position = base + s.lane() % TILE;
        if s.warp().is_multiple_of(Self::PARTS) && task.is_cached(position) {
            let of_lane = if s.lane() < TILE { task.keys } else { task.values };
            // SAFETY: the caller's; a row of one head, a multiple of 16 bytes.
            unsafe { s.prefetch(of_lane.row(position, self.chunked.cache.width), HEAD_SIZE * 2) };
        }
    }

    /// The eight elements at `d` of row `row`, or zeros if they are none of the head's, or the row does
    /// not count.
    ///
    /// # Safety
    /// Rows begin `stride` elements apart, a multiple of 8; one that counts has `HEAD_SIZE` elements, which
    /// nobody writes, and lies less than 2^32 elements behind `rows`.
    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(
        s: S,
        rows: Global<f16>,
        (row, stride): (u32, u32),
        d: u32,
        counts: bool,
    ) -> [u32; 4] {
        if counts && d < HEAD_SIZE {
            // In 32 bits: a row's address takes one register, not two.
            let offset = row.wrapping_mul(stride).wrapping_add(d);
            // SAFETY: the caller's; `d` and the head size are multiples of 8.
            unsafe { s.load_global(rows.at(u64::from(offset)).cast()) }
        } else {
            [0; 4]
        }
    }

    /// Sixteen keys, positions `base` and on: of each lot from `first` on a lane's part of the first eight
    /// and of the others. Zeros for those that the cache does not have.
    ///
    /// # Safety
    /// The task's memory is as it says.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn keys<S: Simt>(&self, s: S, task: Task, base: u32, first: usize) -> Keys {
        let (g, t) = (group(s.lane()), place(s.lane()));
        let stride = self.chunked.cache.width;
        let mut keys = [[[0; 4]; 2]; KEY_LOTS_AT_ONCE];
        for lot in 0..Self::KEY_LOTS_OF_A_PASS {
            let d = (first + lot) as u32 * KEY_LOT + 8 * t;
            for half in 0..2 {
                let position = base + 8 * half as u32 + g;
                let counts = task.is_cached(position);
                // SAFETY: the caller's.
                keys[lot][half] = unsafe { Self::load(s, task.keys, (position, stride), d, counts) };
            }
        }
        keys
    }

    /// Sixteen values, positions `base` and on: of each of the warp's lots a lane's four positions. Zeros for
    /// those that the cache does not have.
    ///
    /// # Safety
    /// The task's memory is as it says.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn values<S: Simt>(&self, s: S, task: Task, base: u32) -> Values {
        let g = group(s.lane());
        let stride = self.chunked.cache.width;
        let first = Self::first_lot(s.warp());
        let mut values = [[[0; 4]; 4]; VALUE_LOTS];
        for lot in 0..Self::VALUE_LOTS {
            let d = (first + lot as u32) * VALUE_LOT + 8 * g;
            for i in 0..4 {
                let position = Self::value_position(s, base, i);
                let counts = task.is_cached(position);
                // SAFETY: the caller's.
                values[lot][i] = unsafe { Self::load(s, task.values, (position, stride), d, counts) };
            }
        }
        values
    }
}
