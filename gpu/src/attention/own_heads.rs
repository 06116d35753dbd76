//! The heads of its row that a block of [`AttnDecode`] turns itself, and where they are then.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use half::f16;

use super::attn_decode::{AttnDecode, MOST_GROUP, TILES};
use super::chunked::{CHUNK, Chunked};
use super::decode_task::Task;
use crate::position::{Head, Pairs, Turning};
use crate::simt::{Shared, Simt};

/// Queries that a warp turns at most.
const WARP_QUERIES: usize = MOST_GROUP.div_ceil(TILES) as usize;

/// What goes into the heads that a warp turns.
pub(super) struct Additions {
    /// Biases of queries.
    biases: [Pairs; WARP_QUERIES],
    /// The norm of all queries.
    norm: Pairs,
    /// Bias and norm of the new key or value.
    of_new: [Pairs; 2],
}

impl<const HEAD_SIZE: u32> AttnDecode<HEAD_SIZE> {
    /// The row's heads, of a size that the compiler knows.
    #[inline(always)]
    pub(super) const fn own_heads(&self) -> Turning {
        Turning { head_size: HEAD_SIZE, ..self.turning }
    }

    /// Query `i` of those that a warp turns, as one of the block's, if there is one.
    #[inline(always)]
    #[track_caller]
    fn query_of_warp<S: Simt>(&self, s: S, i: usize) -> Option<u32> {
        let head = s.warp() + i as u32 * Self::WARPS;
        // The first is so anyway; said, it is known while compiling.
        (head < MOST_GROUP && head < self.chunked.group).then_some(head)
    }

    /// Whether the warp turns the new key or the new value, and which of the block's heads that is.
    #[inline(always)]
    #[track_caller]
    fn new_of_warp<S: Simt>(&self, s: S) -> Option<u32> {
        let group = self.chunked.group;
        let behind = s.warp().wrapping_sub(group) % Self::WARPS;
        (behind < 2).then_some(group + behind)
    }

    /// A query of the block as one of the row.
    #[inline(always)]
    #[track_caller]
    fn query_head<S: Simt>(&self, s: S, turning: Turning, head: u32) -> Head {
        turning.query_head(s.block().x * self.chunked.group + head)
    }

    /// The new key or value of the block as one of the row.
    #[inline(always)]
    #[track_caller]
    fn new_head<S: Simt>(&self, s: S, turning: Turning, head: u32) -> Head {
        let kv_head = s.block().x;
        if head == self.chunked.group { turning.key_head(kv_head) } else { turning.value_head(kv_head) }
    }

    /// What goes into the warp's heads besides, as far as no launch writes it.
    ///
    /// # Safety
    /// The heads' rows keep their contract.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn additions<S: Simt>(&self, s: S, turning: Turning) -> Additions {
        let mut all = Additions {
            biases: [Turning::NO_PAIRS; WARP_QUERIES],
            norm: Turning::NO_PAIRS,
            of_new: [Turning::NO_PAIRS; 2],
        };
        // SAFETY: the caller's.
        unsafe {
            for i in 0..WARP_QUERIES {
                if let Some(head) = self.query_of_warp(s, i) {
                    all.biases[i] = turning.bias(s, self.query_head(s, turning, head));
                }
            }
            all.norm = turning.norm(s, turning.query_head(0));
            if let Some(head) = self.new_of_warp(s) {
                let head = self.new_head(s, turning, head);
                all.of_new = [turning.bias(s, head), turning.norm(s, head)];
            }
        }
        all
    }

    /// Turns the warp's heads into shared memory, the new key and value also into the cache.
    ///
    /// # Safety
    /// The task's memory is as it says, and the heads' rows keep their contract; there are angles for the
    /// position.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn turn<S: Simt>(
        &self,
        s: S,
        task: Task,
        turning: Turning,
        besides: &Additions,
        position: u32,
    ) {
        let (Chunked { cache, group, .. }, row) = (self.chunked, s.block().y);
        let new = if task.own < CHUNK { self.new_of_warp(s) } else { None };
        let mut starts = [Turning::NO_PAIRS; WARP_QUERIES];
        let mut of_new = Turning::NO_PAIRS;
        // SAFETY: the caller's; each element of a head has one lane.
        unsafe {
            for i in 0..WARP_QUERIES {
                if let Some(head) = self.query_of_warp(s, i) {
                    starts[i] = turning.start(s, self.query_head(s, turning, head), row);
                }
            }
            if let Some(head) = new {
                of_new = turning.start(s, self.new_head(s, turning, head), row);
            }
            let angles = turning.angles(s, position);
            for i in 0..WARP_QUERIES {
                if let Some(own) = self.query_of_warp(s, i) {
                    let head = self.query_head(s, turning, own);
                    let x = turning.turned(s, head, starts[i], [&besides.biases[i], &besides.norm], &angles);
                    let to = self.own_head(s, own);
                    turning.each(s, x, |element, x| s.store_shared(to.at(element), x));
                }
            }
            if let Some(own) = new {
                let head = self.new_head(s, turning, own);
                let x = turning.turned(s, head, of_new, besides.of_new.each_ref(), &angles);
                let cached = if own == group { task.keys } else { task.values };
                let (to, cached) = (self.own_head(s, own), cached.row(task.own, cache.width));
                turning.each(s, x, |element, x| {
                    s.store_shared(to.at(element), x);
                    s.store_global(cached.at(element.into()), x);
                });
            }
        }
    }

    /// The eight elements at `d` of one of the row's own heads, or zeros if they are none of the head's, or
    /// the head does not count.
    ///
    /// # Safety
    /// A head that counts has been turned, and a barrier lies between.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn load_own<S: Simt>(&self, s: S, head: u32, d: u32, counts: bool) -> [u32; 4] {
        if counts && d < HEAD_SIZE {
            // SAFETY: the caller's; rows of heads and `d` are multiples of 8.
            unsafe { s.load_shared(self.own_head(s, head).at(d).cast()) }
        } else {
            [0; 4]
        }
    }

    /// One of the row's own heads in shared memory.
    #[inline(always)]
    fn own_head<S: Simt>(&self, s: S, head: u32) -> Shared<f16> {
        s.shared::<f32>().at(Self::before_heads(self.chunked.group)).cast().row(head, Self::HEAD_ROW)
    }
}
