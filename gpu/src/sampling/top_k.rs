//! `top_k`, `top_k_keys`: the largest logits of each row and their tokens, in order.
//!
//! Largest first; of equal logits the lower token first; NaN after every number. With a soft cap the
//! logits that are given out are `cap · tanh(logit / cap)`; the order is that of the logits themselves,
//! which the cap's rounding may make equal.
//!
//! ```text
//! logits   rows × vocabulary   f32
//! keys     rows × parts × k    u64: the best of each 2048 logits, or of 2048 keys of the round before
//! tokens   rows × k            u32
//! values   rows × k            f32
//! ```
//!
//! A round leaves k of each 2048. `top_k` is the first, from logits, `top_k_keys` every further one; the
//! one with a single part for each row is the last, and writes tokens and values.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = part of 2048, y = row. 1024 threads, two keys each.
//!
//!   keys to shared memory, what the part lacks as less than any        shared: 2048 × u64, 16 KiB
//!      barrier
//!   bitonic sort: 66 steps, in each of which a thread puts two keys in order; a barrier after each
//!         |
//!   thread t < k writes key t
//! ```
//!
//! Source: Batcher, Sorting networks and their applications (1968).

use super::key::{NONE, key, logit_and_token};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Work, product,
};
use core::f32::consts::LOG2_E;

/// Threads of a block.
const THREADS: u32 = 1024;
/// Keys of a part.
const PART: u32 = 2 * THREADS;
/// Steps that sort them: i after the i-th doubling of the sorted runs.
const STEPS: u32 = PART.ilog2() * (PART.ilog2() + 1) / 2;

/// The arguments of a round; `LOGITS`: whether its input are logits.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct TopK<const LOGITS: bool> {
    /// `rows ×` [`parts`](Self::parts) `× k`, aligned to 8 bytes, if this is not the last round.
    /// Outputs overlap nothing.
    pub keys: Global<u64>,
    /// `rows × k`, if it is.
    pub tokens: Global<u32>,
    /// `rows × k`, if it is.
    pub values: Global<f32>,
    /// `rows × count`: f32, or u64 aligned to 8 bytes. Zeros among the keys are no logits.
    pub input: Global<u8>,
    /// Rows, at most 65,535: a grid's second axis has no more blocks.
    pub rows: u32,
    /// Logits or keys of a row, below 2^31; `k` of them logits at least.
    pub count: u32,
    /// How many are wanted, at most [`MOST`](Self::MOST).
    pub k: u32,
    /// The soft cap, or 0 for none.
    pub softcap: f32,
}

impl<const LOGITS: bool> TopK<LOGITS> {
    /// How many can be had.
    pub const MOST: u32 = 128;

    /// Parts of a row of so many logits or keys. With one, the round is the last.
    #[must_use]
    pub const fn parts(count: u32) -> u32 {
        count.div_ceil(PART)
    }
}

impl<const LOGITS: bool> Contract for TopK<LOGITS> {
    const NAME: &'static str = if LOGITS { "top_k" } else { "top_k_keys" };
    const EXPECTATIONS: Expectations = Expectations {
        // The steps are unrolled, which makes their distances constants.
        instructions: &[Occurrence::new("bar.sync", Count::Exactly(1 + STEPS))],
        registers: 40,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let grid = Dim3 { x: Self::parts(self.count), y: self.rows, z: 1 };
        Launch { grid, threads: THREADS, shared_bytes: PART * 8 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let of_input = if LOGITS { 4 } else { 8 };
        // A key, or a token and a value.
        let written = 8 * product([self.rows, Self::parts(self.count), self.k]);
        Some(Work::moving(of_input * product([self.rows, self.count]), written))
    }
}

impl<S: Simt, const LOGITS: bool> Kernel<S> for TopK<LOGITS> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: part, y: row, .. } = s.block();
        let (thread, keys) = (s.thread(), s.shared::<u64>());
        // SAFETY: inputs below the count, in a row of the grid's. In each step a thread has two keys of
        // its own, and a barrier lies between steps; each output has one thread.
        unsafe {
            for i in [thread, thread + THREADS] {
                let index = part * PART + i;
                let own = if index >= self.count {
                    NONE
                } else if LOGITS {
                    let logits = self.input.cast::<f32>().row(row, self.count);
                    key(s.load_global_constant(logits.at(u64::from(index))), index)
                } else {
                    let given = self.input.cast::<u64>().row(row, self.count);
                    s.load_global_constant(given.at(u64::from(index)))
                };
                s.store_shared(keys.at(i), own);
            }
            s.barrier();
            let mut run = 2;
            while run <= PART {
                let mut distance = run / 2;
                while distance > 0 {
                    // The thread's pair: the index without the distance's bit, and with it.
                    let first = 2 * thread - thread % distance;
                    let (a, b) = (keys.at(first), keys.at(first + distance));
                    let (x, y) = (s.load_shared(a), s.load_shared(b));
                    let falls = first & run == 0;
                    if (x < y) == falls {
                        s.store_shared(a, y);
                        s.store_shared(b, x);
                    }
                    s.barrier();
                    distance /= 2;
                }
                run *= 2;
            }
            if thread < self.k {
                let best = s.load_shared(keys.at(thread));
                let parts = Self::parts(self.count);
                if parts > 1 {
                    let of_part = self.keys.row(row, parts * self.k).at(u64::from(part * self.k));
                    s.store_global(of_part.at(u64::from(thread)), best);
                } else {
                    let (logit, token) = logit_and_token(best);
                    let index = u64::from(thread);
                    s.store_global(self.tokens.row(row, self.k).at(index), token);
                    s.store_global(self.values.row(row, self.k).at(index), self.capped(s, logit));
                }
            }
        }
    }
}

impl<const LOGITS: bool> TopK<LOGITS> {
    /// A logit with the soft cap, if there is one.
    #[inline(always)]
    fn capped<S: Simt>(&self, s: S, logit: f32) -> f32 {
        if self.softcap == 0.0 {
            return logit;
        }
        // tanh x = 1 - 2 / (e^2x + 1)
        let power = s.exp2_approx(logit / self.softcap * (2.0 * LOG2_E));
        self.softcap * s.fma(-2.0, s.reciprocal_approx(power + 1.0), 1.0)
    }
}
