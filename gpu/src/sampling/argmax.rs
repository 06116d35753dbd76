//! `argmax_parts`, `argmax`: the token of the largest logit of each row.
//!
//! Of equal logits the lowest token. A row with a logit that is NaN or +∞ has none, and gives [`NO_TOKEN`].
//! A soft cap changes no order, so there is none here.
//!
//! ```text
//! logits   rows × vocabulary   f32
//! parts    rows × parts        u64: the best of each 4096 logits, see `key`
//! tokens   rows                u32, in device memory, where `embed` finds them
//! ```
//!
//! # Who owns what
//!
//! ```text
//! argmax_parts   grid: x = 4096 logits, y = row     thread t: logits t, t + 256, t + 512, ...
//! argmax         grid: x = row                      thread t: parts  t, t + 256, t + 512, ...
//!
//!   the best of own ones
//!         |
//!   warp 0 .. 7: butterfly over 32 lanes, lane 0 writes best[warp]     shared: 8 × u64, 64 bytes
//!      barrier
//!   thread 0: the best of eight
//! ```
//!
//! Where the caller says so, `argmax` also moves each row's place one position on: then the next pass
//! can begin without the host.

use super::key::{NONE, UNUSABLE, logit_and_token, usable_key};
use crate::attention::KvPlace;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work, product,
};

/// What stands for the token of a row whose logits are not usable.
pub const NO_TOKEN: u32 = u32::MAX;

/// Threads of a block.
const THREADS: u32 = 256;
/// Warps of a block.
const WARPS: u32 = THREADS / WARP_LANES;
/// Logits that a thread of the first kernel has.
const LOGITS: u32 = 16;
/// Logits of a part.
const PART: u32 = THREADS * LOGITS;

/// The arguments of `argmax_parts`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct ArgmaxParts {
    /// `rows ×` [`parts`](Self::parts), aligned to 8 bytes; overlaps no input.
    pub parts: Global<u64>,
    /// `rows × vocabulary`.
    pub logits: Global<f32>,
    /// Rows, at most 65,535: a grid's second axis has no more blocks.
    pub rows: u32,
    /// Logits of a row, below 2^31.
    pub vocabulary: u32,
}

/// The arguments of `argmax`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Argmax {
    /// `rows`; overlaps no input.
    pub tokens: Global<u32>,
    /// `rows × parts`, aligned to 8 bytes.
    pub best: Global<u64>,
    /// Each row's place, of which the position becomes one more; or the address 0 for none.
    pub places: Global<KvPlace>,
    /// Rows, at most 2^31 - 1.
    pub rows: u32,
    /// Parts of a row, at least 1.
    pub parts: u32,
}

impl ArgmaxParts {
    /// Parts of a row.
    #[must_use]
    pub const fn parts(vocabulary: u32) -> u32 {
        vocabulary.div_ceil(PART)
    }
}

/// What both kernels' PTX has.
const EXPECTATIONS: Expectations = Expectations {
    instructions: &[
        Occurrence::new("bar.sync", Count::Exactly(1)),
        // Two words, five steps.
        Occurrence::new("shfl.sync.bfly", Count::Exactly(10)),
    ],
    registers: 40,
    local_memory: false,
};

impl Contract for ArgmaxParts {
    const NAME: &'static str = "argmax_parts";
    const EXPECTATIONS: Expectations = EXPECTATIONS;
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let grid = Dim3 { x: Self::parts(self.vocabulary), y: self.rows, z: 1 };
        Launch { grid, threads: THREADS, shared_bytes: WARPS * 8 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let parts = product([self.rows, Self::parts(self.vocabulary)]);
        Some(Work::moving(4 * product([self.rows, self.vocabulary]), 8 * parts))
    }
}

impl Contract for Argmax {
    const NAME: &'static str = "argmax";
    const EXPECTATIONS: Expectations = EXPECTATIONS;
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(self.rows), threads: THREADS, shared_bytes: WARPS * 8 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let rows = u64::from(self.rows);
        let positions = if self.places.address() == 0 { 0 } else { 4 * rows };
        Some(Work::moving(8 * product([self.rows, self.parts]) + positions, 4 * rows + positions))
    }
}

/// The largest key of the block, in thread 0.
///
/// # Safety
/// All threads of the block call it alike, once.
#[inline(always)]
#[track_caller]
unsafe fn best_of_block<S: Simt>(s: S, mut best: u64) -> u64 {
    for distance in [16, 8, 4, 2, 1] {
        let high = s.shuffle_xor((best >> 32) as u32, distance);
        let low = s.shuffle_xor(best as u32, distance);
        best = best.max(u64::from(high) << 32 | u64::from(low));
    }
    let shared = s.shared::<u64>();
    // SAFETY: a word for each warp, written by one lane and read after the barrier.
    unsafe {
        if s.lane() == 0 {
            s.store_shared(shared.at(s.warp()), best);
        }
        s.barrier();
        if s.thread() == 0 {
            for warp in 0..WARPS {
                best = best.max(s.load_shared(shared.at(warp)));
            }
        }
    }
    best
}

impl<S: Simt> Kernel<S> for ArgmaxParts {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: part, y: row, .. } = s.block();
        let logits = self.logits.row(row, self.vocabulary);
        let mut best = NONE;
        let mut token = part * PART + s.thread();
        s.let_next_begin();
        s.wait_for_previous();
        // SAFETY: tokens below the vocabulary, in a row of the grid's; one thread writes the part.
        unsafe {
            for _ in 0..LOGITS {
                if token < self.vocabulary {
                    best = best.max(usable_key(s.load_global(logits.at(u64::from(token))), token));
                }
                token += THREADS;
            }
            let best = best_of_block(s, best);
            if s.thread() == 0 {
                let parts = Self::parts(self.vocabulary);
                s.store_global(self.parts.row(row, parts).at(u64::from(part)), best);
            }
        }
    }
}

impl<S: Simt> Kernel<S> for Argmax {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let row = s.block().x;
        let parts = self.best.row(row, self.parts);
        let mut best = NONE;
        s.let_next_begin();
        s.wait_for_previous();
        // SAFETY: parts of a row of the grid's; one thread writes its token and its position.
        unsafe {
            let mut part = s.thread();
            while part < self.parts {
                best = best.max(s.load_global(parts.at(u64::from(part))));
                part += THREADS;
            }
            let best = best_of_block(s, best);
            if s.thread() == 0 {
                let token = if best == UNUSABLE { NO_TOKEN } else { logit_and_token(best).1 };
                s.store_global(self.tokens.at(u64::from(row)), token);
                if self.places.address() != 0 {
                    let position = self.places.at(u64::from(row)).cast::<u32>().at(KvPlace::POSITION);
                    let next = s.load_global(position).wrapping_add(1);
                    s.store_global(position, next);
                }
            }
        }
    }
}
