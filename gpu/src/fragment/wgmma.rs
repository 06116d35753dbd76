//! `wgmma.mma_async` m64nNk16 (f16, bf16), f32 accumulators: sm_90a.
//!
//! Four warps, the *warpgroup*, hold 64 rows: warp w of the four has rows 16w to 16w + 15, laid out
//! as [`mma`] m16n8k16 has them. `lane` here is the thread's number in the warpgroup, 0 to 127. B is
//! always in shared memory.
//!
//! The maps are those of the PTX ISA (version 9.0), section "Matrix Fragments for
//! wgmma.mma_async.m64nNk16".

use super::proof::fragment;
use super::{WARPGROUP_LANES, mma};

const SECTION: &str = "PTX ISA, Matrix Fragments for wgmma.mma_async.m64nNk16";

/// (row, k) of `a[i]` of A in registers, 64 × 16: i in 0..8, two to a register.
///
/// ```text
///                  k 0..8         k 8..16
/// row 16w + 0..8   a[0] a[1]      a[4] a[5]      w = lane >> 5
/// row 16w + 8..16  a[2] a[3]      a[6] a[7]
/// ```
#[inline(always)]
#[must_use]
pub const fn a(lane: u32, i: u32) -> (u32, u32) {
    let (row, k) = mma::a_f16(lane, i);
    (first_row(lane) | row, k)
}

/// (lane, i) that holds element (row, k) of A: the inverse of [`a`].
#[inline(always)]
#[must_use]
pub const fn a_holder(row: u32, k: u32) -> (u32, u32) {
    let (lane, i) = mma::a_f16_holder(row, k);
    (first_lane(row) | lane, i)
}

/// (row, column) of `d[i]` of the accumulator, 64 × N: i in 0..N / 2, one to a register.
///
/// ```text
///                  n 0..8         n 8..16        n 16..24         ...
/// row 16w + 0..8   d[0] d[1]      d[4] d[5]      d[8]  d[9]
/// row 16w + 8..16  d[2] d[3]      d[6] d[7]      d[10] d[11]
/// ```
///
/// N / 8 accumulators of [`mma`] m16n8 ([`mma::c`]) side by side; N is a multiple of 8, up to 256.
#[inline(always)]
#[must_use]
pub const fn d(lane: u32, i: u32) -> (u32, u32) {
    let (row, column) = mma::c(lane, i & 3);
    (first_row(lane) | row, (i & !3) << 1 | column)
}

/// (lane, i) that holds element (row, column) of the accumulator: the inverse of [`d`].
#[inline(always)]
#[must_use]
pub const fn d_holder(row: u32, column: u32) -> (u32, u32) {
    let (lane, i) = mma::c_holder(row, column & 7);
    (first_lane(row) | lane, (column & !7) >> 1 | i)
}

/// The first of the 16 rows that the lane's warp holds.
#[inline(always)]
const fn first_row(lane: u32) -> u32 {
    (lane & 0x60) >> 1
}

/// The first lane of the warp that holds the row.
#[inline(always)]
const fn first_lane(row: u32) -> u32 {
    (row & 0x30) << 1
}

fragment! {
    /// A, in registers: [`a`].
    A = a, a_holder;
    name: "wgmma-a",
    instruction: "wgmma.mma_async m64nNk16",
    operand: "A in registers, f16 or bf16",
    source: SECTION,
    axes: ("m", "k"),
    rows: 64,
    columns: 16,
    lanes: WARPGROUP_LANES,
    elements: 8,
    copies: 1,
    bits: 16,
}

/// The accumulator for one N.
macro_rules! accumulator {
    ($NAME:ident, $n:literal, $name:literal, $instruction:literal) => {
        fragment! {
            #[doc = concat!("The accumulator, N = ", $n, ": [`d`].")]
            $NAME = d, d_holder;
            name: $name,
            instruction: $instruction,
            operand: "accumulator, f32",
            source: SECTION,
            axes: ("m", "n"),
            rows: 64,
            columns: $n,
            lanes: WARPGROUP_LANES,
            elements: $n / 2,
            copies: 1,
            bits: 32,
        }
    };
}

accumulator!(D_N8, 8, "wgmma-n8", "wgmma.mma_async m64n8k16");
accumulator!(D_N128, 128, "wgmma-n128", "wgmma.mma_async m64n128k16");
accumulator!(D_N256, 256, "wgmma-n256", "wgmma.mma_async m64n256k16");
