//! The sum over a block's threads, and the scale of a norm.

use crate::simt::{Shared, Simt, WARP_LANES};

/// Shared memory of one [`block_sum`] of so many threads, in bytes: one f32 for every warp.
pub(super) const fn partial_bytes(threads: u32) -> u32 {
    threads / WARP_LANES * 4
}

/// The sum over a block of `THREADS`, the same bits in every thread: a butterfly in each warp, then
/// the warps' sums in order. One barrier.
///
/// Every thread adds the partial sums itself: so many broadcast reads cost less than a second
/// barrier to hand the total around.
///
/// # Safety
/// All threads of the block call it alike. `partial` is [`partial_bytes`] of shared memory that
/// nobody else uses from the barrier before until the barrier after.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn block_sum<const THREADS: u32, S: Simt>(s: S, partial: Shared<f32>, value: f32) -> f32 {
    let (lane, warp) = (s.lane(), s.warp());
    let sum = s.warp_sum(value);
    // SAFETY: partial[warp] with warp < THREADS / 32, written by one lane and read after the barrier.
    unsafe {
        if lane == 0 {
            s.store_shared(partial.at(warp), sum);
        }
        s.barrier();
        let mut total = 0.0;
        for w in 0..const { THREADS / WARP_LANES } {
            total += s.load_shared(partial.at(w));
        }
        total
    }
}

/// `1 / √(squares / width + epsilon)`: what a norm multiplies a row with. The root is
/// `rsqrt.approx`, 2^-22.9.
#[inline(always)]
#[track_caller]
pub(crate) fn scale<S: Simt>(s: S, squares: f32, width: u32, epsilon: f32) -> f32 {
    s.rsqrt_approx(squares / width as f32 + epsilon)
}
