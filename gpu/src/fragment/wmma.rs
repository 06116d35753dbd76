//! `wmma` m16n16k16, f16 in, f32 accumulators: from sm_75 on.
//!
//! PTX leaves these maps unspecified; they were read off an H200 (sm_90) by loading matrices of
//! indices and dumping every register ([`ProbeLoads`](crate::probe::ProbeLoads)). What came out is two
//! [`mma`] m16n8k16 side by side: A is its A, and the left and right half of B and of the accumulator
//! are its B and C. The layout in memory changes the load only, never the registers. Published
//! readings of sm_75 and sm_80 agree.
//!
//! A and B fragments have 16 halves, of which `x[8..16]` repeats `x[0..8]`. The hardware does not
//! read the second copy: with NaN in it the product has the same bits. An operand that is built in
//! place passes its four registers twice.

use super::proof::fragment;
use super::{WARP_LANES, mma};

const MEASURED: &str = "every register dumped from an NVIDIA H200";

/// (row, column) of `x[i]` of the f32 accumulator, 16 × 16: i in 0..8, one to a register.
///
/// ```text
///               n 0..8         n 8..16           in each 8 × 8 quarter:
/// row 0..8      x[0] x[1]      x[4] x[5]         row g, columns 2t and 2t + 1
/// row 8..16     x[2] x[3]      x[6] x[7]
/// ```
///
/// Two accumulators of [`mma`] m16n8 ([`mma::c`]) side by side, four registers each.
#[inline(always)]
#[must_use]
pub const fn accumulator(lane: u32, i: u32) -> (u32, u32) {
    let (row, column) = mma::c(lane, i & 3);
    (row, (i & 4) << 1 | column)
}

/// (lane, i) that holds element (row, column) of the accumulator: the inverse of [`accumulator`].
#[inline(always)]
#[must_use]
pub const fn accumulator_holder(row: u32, column: u32) -> (u32, u32) {
    let (lane, i) = mma::c_holder(row, column & 7);
    (lane, (column & 8) >> 1 | i)
}

/// (row, k) of `x[i]` of A (`matrix_a`), 16 × 16, f16: i in 0..16, two to a register, the second
/// eight a copy of the first.
///
/// ```text
///               k 0..8                       k 8..16
/// row 0..8      x[0] x[1] = x[8] x[9]        x[4] x[5] = x[12] x[13]
/// row 8..16     x[2] x[3] = x[10] x[11]      x[6] x[7] = x[14] x[15]
/// ```
///
/// The A of [`mma`] m16n8k16 ([`mma::a_f16`]), whichever way A lies in memory.
#[inline(always)]
#[must_use]
pub const fn a(lane: u32, i: u32) -> (u32, u32) {
    mma::a_f16(lane, i & 7)
}

/// (lane, i) that holds element (row, k) of A in the first copy: the inverse of [`a`].
#[inline(always)]
#[must_use]
pub const fn a_holder(row: u32, k: u32) -> (u32, u32) {
    mma::a_f16_holder(row, k)
}

/// (k, column) of `x[i]` of B (`matrix_b`), 16 × 16, f16: i in 0..16, two to a register, the
/// second eight a copy of the first.
///
/// ```text
///               n 0..8                       n 8..16
/// k 0..8        x[0] x[1] = x[8] x[9]        x[4] x[5] = x[12] x[13]
/// k 8..16       x[2] x[3] = x[10] x[11]      x[6] x[7] = x[14] x[15]
/// ```
///
/// In each 8 × 8 quarter column g, rows 2t and 2t + 1: two of the B of [`mma`] m16n8k16
/// ([`mma::b_f16`]) side by side, whichever way B lies in memory.
#[inline(always)]
#[must_use]
pub const fn b(lane: u32, i: u32) -> (u32, u32) {
    let (k, column) = mma::b_f16(lane, i & 3);
    (k, (i & 4) << 1 | column)
}

/// (lane, i) that holds element (k, column) of B in the first copy: the inverse of [`b`].
#[inline(always)]
#[must_use]
pub const fn b_holder(k: u32, column: u32) -> (u32, u32) {
    let (lane, i) = mma::b_f16_holder(k, column & 7);
    (lane, (column & 8) >> 1 | i)
}

fragment! {
    /// The accumulator, C and D: [`accumulator`].
    ACCUMULATOR = accumulator, accumulator_holder;
    name: "wmma-accumulator",
    instruction: "wmma.mma m16n16k16",
    operand: "accumulator, f32",
    source: MEASURED,
    axes: ("m", "n"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 1,
    bits: 32,
}

fragment! {
    /// A, loaded by rows: [`a`].
    A_ROW = a, a_holder;
    name: "wmma-a-row",
    instruction: "wmma.mma m16n16k16",
    operand: "matrix_a row_major, f16",
    source: MEASURED,
    axes: ("m", "k"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 2,
    bits: 16,
}

fragment! {
    /// A, loaded by columns: [`a`].
    A_COL = a, a_holder;
    name: "wmma-a-col",
    instruction: "wmma.mma m16n16k16",
    operand: "matrix_a col_major, f16",
    source: MEASURED,
    axes: ("m", "k"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 2,
    bits: 16,
}

fragment! {
    /// B, loaded by rows: [`b`].
    B_ROW = b, b_holder;
    name: "wmma-b-row",
    instruction: "wmma.mma m16n16k16",
    operand: "matrix_b row_major, f16",
    source: MEASURED,
    axes: ("k", "n"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 2,
    bits: 16,
}

fragment! {
    /// B, loaded by columns: [`b`].
    B_COL = b, b_holder;
    name: "wmma-b-col",
    instruction: "wmma.mma m16n16k16",
    operand: "matrix_b col_major, f16",
    source: MEASURED,
    axes: ("k", "n"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 2,
    bits: 16,
}
