//! The identity: an f32 accumulator is, lane for lane and register for register, an f16 A operand.
//!
//! In attention, S = Q·Kᵀ leaves the tensor cores as an accumulator, and P = softmax(S) enters them
//! again as the A of P·V. The two fragments name the same element in the same lane at the same
//! index:
//!
//! ```text
//!               accumulator of S, f32              A of P·V, f16
//!               n 0..8         n 8..16             k 0..8         k 8..16
//! row 0..8      x[0] x[1]      x[4] x[5]           x[0] x[1]      x[4] x[5]
//! row 8..16     x[2] x[3]      x[6] x[7]           x[2] x[3]      x[6] x[7]
//! ```
//!
//! so a lane computes `p[i] = exp2(x[i] - m)`, rounds it to f16, and has its operand: P needs no
//! shared memory, no barrier and no shuffle. Two f32 registers become the halves of one
//! ([`Fragment::per_register`](super::Fragment::per_register)), low half first. Row maxima and sums
//! need the four lanes of a group only, two shuffles of distance 1 and 2, because a row lies in the
//! lanes with the same g: its `x[0]`, `x[1]`, `x[4]` and `x[5]` for row g, the other four for
//! row g + 8.
//!
//! It is no accident of `wmma`. An accumulator of [`mma`] m16n8 is 8 columns wide, and
//! an A is 16 wide in k: two accumulators side by side make one A, the left one its registers 0 and
//! 1, the right one 2 and 3. The same holds in the four warps of a [`wgmma`], for every 16 columns
//! of its accumulator. It does not hold for s8: A of m16n8k32 gives a lane four neighbours of a row,
//! the accumulator two.
//!
//! This module has nothing but the proofs: they are checked when the crate is compiled, for every
//! lane and register. [`assert_same_map`] shows what a wrong map does.

use super::{WARP_LANES, WARPGROUP_LANES, assert_same_map, mma, wgmma, wmma};

assert_same_map!(wmma::accumulator, wmma::a; lanes: WARP_LANES, elements: 8);
assert_same_map!(two_accumulators, mma::a_f16; lanes: WARP_LANES, elements: 8);
assert_same_map!(sixteen_columns, wgmma_a; lanes: WARPGROUP_LANES, elements: 128);

/// Two accumulators of m16n8 side by side, the left one in `x[0..4]`.
const fn two_accumulators(lane: u32, i: u32) -> (u32, u32) {
    let (row, column) = mma::c(lane, i & 3);
    (row, column + 8 * (i / 4))
}

/// `d[i]` of wgmma's accumulator as an element of the 16 columns around it.
const fn sixteen_columns(lane: u32, i: u32) -> (u32, u32) {
    let (row, column) = wgmma::d(lane, i);
    assert!(column / 16 == i / 8);
    (row, column % 16)
}

/// wgmma's A, once for every 16 columns.
const fn wgmma_a(lane: u32, i: u32) -> (u32, u32) {
    wgmma::a(lane, i % 8)
}
