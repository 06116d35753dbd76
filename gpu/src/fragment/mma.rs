//! `mma.sync` m16n8k16 (f16, bf16) and m16n8k32 (s8): from sm_80 on.
//!
//! `mma` takes A by rows and B by columns (`.row.col`) and has no load of its own: fragments come
//! from [`ldmatrix`](super::ldmatrix) or are computed in place.
//!
//! The maps are those of the PTX ISA (version 9.0), sections "Matrix Fragments for mma.m16n8k16
//! with floating point type" and "Matrix Fragments for mma.m16n8k32". g and t: see
//! [`fragment`](super).

use super::proof::fragment;
use super::{WARP_LANES, group, place};

const FLOAT_SECTION: &str = "PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type";
const INTEGER_SECTION: &str = "PTX ISA, Matrix Fragments for mma.m16n8k32";

/// (row, k) of `a[i]` of A, 16 × 16, f16 or bf16: i in 0..8, two to a register.
///
/// ```text
///               k 0..8         k 8..16           in each 8 × 8 quarter:
/// row 0..8      a[0] a[1]      a[4] a[5]         row g, columns 2t and 2t + 1
/// row 8..16     a[2] a[3]      a[6] a[7]
/// ```
///
/// Down first, then right: bit 1 of i is bit 3 of the row, bit 2 of i is bit 3 of k.
#[inline(always)]
#[must_use]
pub const fn a_f16(lane: u32, i: u32) -> (u32, u32) {
    (group(lane) | (i & 2) << 2, (i & 4) << 1 | place(lane) << 1 | i & 1)
}

/// (lane, i) that holds element (row, k) of A: the inverse of [`a_f16`].
#[inline(always)]
#[must_use]
pub const fn a_f16_holder(row: u32, k: u32) -> (u32, u32) {
    ((row & 7) << 2 | (k & 7) >> 1, (k & 8) >> 1 | (row & 8) >> 2 | k & 1)
}

/// (k, column) of `b[i]` of B, 16 × 8, f16 or bf16: i in 0..4, two to a register.
///
/// ```text
///               n 0..8                           in each 8 × 8 half:
/// k 0..8        b[0] b[1]                        column g, rows 2t and 2t + 1
/// k 8..16       b[2] b[3]
/// ```
#[inline(always)]
#[must_use]
pub const fn b_f16(lane: u32, i: u32) -> (u32, u32) {
    ((i & 2) << 2 | place(lane) << 1 | i & 1, group(lane))
}

/// (lane, i) that holds element (k, column) of B: the inverse of [`b_f16`].
#[inline(always)]
#[must_use]
pub const fn b_f16_holder(k: u32, column: u32) -> (u32, u32) {
    ((column & 7) << 2 | (k & 7) >> 1, (k & 8) >> 2 | k & 1)
}

/// (row, column) of `c[i]` of C and D, 16 × 8, f32 or s32: i in 0..4, one to a register.
///
/// ```text
///               n 0..8                           in each 8 × 8 half:
/// row 0..8      c[0] c[1]                        row g, columns 2t and 2t + 1
/// row 8..16     c[2] c[3]
/// ```
///
/// The same for m16n8k16 and m16n8k32: the accumulators know nothing of k.
#[inline(always)]
#[must_use]
pub const fn c(lane: u32, i: u32) -> (u32, u32) {
    (group(lane) | (i & 2) << 2, place(lane) << 1 | i & 1)
}

/// (lane, i) that holds element (row, column) of C and D: the inverse of [`c`].
#[inline(always)]
#[must_use]
pub const fn c_holder(row: u32, column: u32) -> (u32, u32) {
    ((row & 7) << 2 | (column & 7) >> 1, (row & 8) >> 2 | column & 1)
}

/// (row, k) of `a[i]` of A, 16 × 32, s8: i in 0..16, four to a register.
///
/// ```text
///               k 0..16        k 16..32          in each 8 × 16 quarter:
/// row 0..8      a[0..4]        a[8..12]          row g, columns 4t to 4t + 3
/// row 8..16     a[4..8]        a[12..16]
/// ```
///
/// Register for register the map of [`a_f16`], with four bytes where that has two halves.
#[inline(always)]
#[must_use]
pub const fn a_s8(lane: u32, i: u32) -> (u32, u32) {
    (group(lane) | (i & 4) << 1, (i & 8) << 1 | place(lane) << 2 | i & 3)
}

/// (lane, i) that holds element (row, k) of A: the inverse of [`a_s8`].
#[inline(always)]
#[must_use]
pub const fn a_s8_holder(row: u32, k: u32) -> (u32, u32) {
    ((row & 7) << 2 | (k & 15) >> 2, (k & 16) >> 1 | (row & 8) >> 1 | k & 3)
}

/// (k, column) of `b[i]` of B, 32 × 8, s8: i in 0..8, four to a register.
///
/// ```text
///               n 0..8                           in each 16 × 8 half:
/// k 0..16       b[0..4]                          column g, rows 4t to 4t + 3
/// k 16..32      b[4..8]
/// ```
#[inline(always)]
#[must_use]
pub const fn b_s8(lane: u32, i: u32) -> (u32, u32) {
    ((i & 4) << 2 | place(lane) << 2 | i & 3, group(lane))
}

/// (lane, i) that holds element (k, column) of B: the inverse of [`b_s8`].
#[inline(always)]
#[must_use]
pub const fn b_s8_holder(k: u32, column: u32) -> (u32, u32) {
    ((column & 7) << 2 | (k & 15) >> 2, (k & 16) >> 2 | k & 3)
}

fragment! {
    /// A of m16n8k16: [`a_f16`].
    A_F16 = a_f16, a_f16_holder;
    name: "mma-f16-a",
    instruction: "mma.sync m16n8k16",
    operand: "A, f16 or bf16",
    source: FLOAT_SECTION,
    axes: ("m", "k"),
    rows: 16,
    columns: 16,
    lanes: WARP_LANES,
    elements: 8,
    copies: 1,
    bits: 16,
}

fragment! {
    /// B of m16n8k16: [`b_f16`].
    B_F16 = b_f16, b_f16_holder;
    name: "mma-f16-b",
    instruction: "mma.sync m16n8k16",
    operand: "B, f16 or bf16",
    source: FLOAT_SECTION,
    axes: ("k", "n"),
    rows: 16,
    columns: 8,
    lanes: WARP_LANES,
    elements: 4,
    copies: 1,
    bits: 16,
}

fragment! {
    /// C and D of m16n8k16: [`c`].
    C_F32 = c, c_holder;
    name: "mma-f16-c",
    instruction: "mma.sync m16n8k16",
    operand: "C and D, f32",
    source: FLOAT_SECTION,
    axes: ("m", "n"),
    rows: 16,
    columns: 8,
    lanes: WARP_LANES,
    elements: 4,
    copies: 1,
    bits: 32,
}

fragment! {
    /// A of m16n8k32: [`a_s8`].
    A_S8 = a_s8, a_s8_holder;
    name: "mma-s8-a",
    instruction: "mma.sync m16n8k32",
    operand: "A, s8",
    source: INTEGER_SECTION,
    axes: ("m", "k"),
    rows: 16,
    columns: 32,
    lanes: WARP_LANES,
    elements: 16,
    copies: 1,
    bits: 8,
}

fragment! {
    /// B of m16n8k32: [`b_s8`].
    B_S8 = b_s8, b_s8_holder;
    name: "mma-s8-b",
    instruction: "mma.sync m16n8k32",
    operand: "B, s8",
    source: INTEGER_SECTION,
    axes: ("k", "n"),
    rows: 32,
    columns: 8,
    lanes: WARP_LANES,
    elements: 8,
    copies: 1,
    bits: 8,
}

fragment! {
    /// C and D of m16n8k32: [`c`].
    C_S32 = c, c_holder;
    name: "mma-s8-c",
    instruction: "mma.sync m16n8k32",
    operand: "C and D, s32",
    source: INTEGER_SECTION,
    axes: ("m", "n"),
    rows: 16,
    columns: 8,
    lanes: WARP_LANES,
    elements: 4,
    copies: 1,
    bits: 32,
}
