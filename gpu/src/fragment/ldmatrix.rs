//! `ldmatrix` m8n8, 16-bit elements: from sm_75 on. And what to point the lanes at.
//!
//! Every lane of the warp gives the address of eight contiguous elements, 16 bytes at a multiple of
//! 16: lane 8j + r those of row r of matrix j. With `.x1` lanes 0 to 7 count, with `.x2` lanes 0 to
//! 15. The instruction deals each matrix out to all lanes, matrix j into register j: two elements a
//! lane.
//!
//! The maps stack the matrices: row 8j + r of the tile is row r of matrix j, so it is the eight
//! elements that lane 8j + r points at. They are those of the PTX ISA (version 9.0), section
//! "Warp-level matrix load instruction: ldmatrix"; the address rules below were tried on an H200,
//! all but that of a column-major A, which follows from the maps. g and t: see
//! [`fragment`](super).

use super::proof::fragment;
use super::{Layout, WARP_LANES, group, mma, place, wmma};

const SECTION: &str = "PTX ISA, Warp-level matrix load instruction: ldmatrix";

/// (pointing lane, element of its eight) that lands in `x[i]`: two to a register, i in 0..2, 0..4
/// or 0..8 for `.x1`, `.x2` or `.x4`.
///
/// ```text
///                        columns 0..8
/// row  0..8   matrix 0   x[0] x[1]               in each matrix: row g, columns 2t and 2t + 1
/// row  8..16  matrix 1   x[2] x[3]
/// row 16..24  matrix 2   x[4] x[5]
/// row 24..32  matrix 3   x[6] x[7]
/// ```
#[inline(always)]
#[must_use]
pub const fn straight(lane: u32, i: u32) -> (u32, u32) {
    ((i & 6) << 2 | group(lane), place(lane) << 1 | i & 1)
}

/// (lane, i) that receives an element: the inverse of [`straight`].
#[inline(always)]
#[must_use]
pub const fn straight_holder(row: u32, column: u32) -> (u32, u32) {
    ((row & 7) << 2 | (column & 7) >> 1, (row & 24) >> 2 | column & 1)
}

/// The same with `.trans`, which deals out each matrix transposed.
///
/// ```text
///                        columns 0..8
/// row  0..8   matrix 0   x[0] x[1]               in each matrix: rows 2t and 2t + 1, column g
/// row  8..16  matrix 1   x[2] x[3]
/// row 16..24  matrix 2   x[4] x[5]
/// row 24..32  matrix 3   x[6] x[7]
/// ```
#[inline(always)]
#[must_use]
pub const fn transposed(lane: u32, i: u32) -> (u32, u32) {
    ((i & 6) << 2 | place(lane) << 1 | i & 1, group(lane))
}

/// (lane, i) that receives an element: the inverse of [`transposed`].
#[inline(always)]
#[must_use]
pub const fn transposed_holder(row: u32, column: u32) -> (u32, u32) {
    ((column & 7) << 2 | (row & 7) >> 1, (row & 24) >> 2 | row & 1)
}

/// Where a lane points to load A, 16 × 16, with one `.x4`: (row, column) of the first of its eight
/// elements *in memory*, so that its address is `base + (row * stride + column) * 2` bytes.
///
/// ```text
/// row major: memory is (m, k)             column major: memory is (k, m), load with .trans
///            k 0        k 8                          m 0        m 8
/// m 0     lanes  0..8  lanes 16..24       k 0     lanes  0..8  lanes  8..16
/// m 8     lanes  8..16 lanes 24..32       k 8     lanes 16..24 lanes 24..32
/// ```
///
/// Matrix j has to fill register j of A ([`wmma::a`], which is [`mma::a_f16`]); use `.trans` where
/// [`a_trans`] says so.
#[inline(always)]
#[must_use]
pub const fn a_address<L: Layout>(lane: u32) -> (u32, u32) {
    if L::ROW_MAJOR { down_first(lane) } else { right_first(lane) }
}

/// Whether A is loaded with `.trans`.
#[inline(always)]
#[must_use]
pub const fn a_trans<L: Layout>() -> bool {
    !L::ROW_MAJOR
}

/// Where a lane points to load B, 16 × 16, with one `.x4`, as [`a_address`] for A. Its halves are
/// two B of m16n8k16: registers 0 and 1 for columns 0..8, registers 2 and 3 for columns 8..16.
///
/// ```text
/// row major: memory is (k, n), .trans     column major: memory is (n, k)
///            n 0        n 8                          k 0        k 8
/// k 0     lanes  0..8  lanes 16..24       n 0     lanes  0..8  lanes  8..16
/// k 8     lanes  8..16 lanes 24..32       n 8     lanes 16..24 lanes 24..32
/// ```
///
/// Use `.trans` where [`b_trans`] says so.
#[inline(always)]
#[must_use]
pub const fn b_address<L: Layout>(lane: u32) -> (u32, u32) {
    if L::ROW_MAJOR { down_first(lane) } else { right_first(lane) }
}

/// Whether B is loaded with `.trans`.
#[inline(always)]
#[must_use]
pub const fn b_trans<L: Layout>() -> bool {
    L::ROW_MAJOR
}

/// Matrices 0 and 1 below each other, 2 and 3 to the right of them: (lane % 16, 8 · (lane / 16)).
#[inline(always)]
const fn down_first(lane: u32) -> (u32, u32) {
    (lane & 15, (lane & 16) >> 1)
}

/// Matrices 0 and 1 beside each other, 2 and 3 below them.
#[inline(always)]
const fn right_first(lane: u32) -> (u32, u32) {
    ((lane & 16) >> 1 | lane & 7, lane & 8)
}

/// What `x[i]` holds after a load: the element of its operand, where the lanes point as `address`
/// says and the operand's rows are memory's rows (`by_rows`) or its columns.
macro_rules! loaded {
    ($name:ident, $map:path, $address:expr, by_rows: $by_rows:literal) => {
        const fn $name(lane: u32, i: u32) -> (u32, u32) {
            let (pointing, nth) = $map(lane, i);
            let (row, column) = $address(pointing);
            if $by_rows { (row, column + nth) } else { (column + nth, row) }
        }
    };
}

// The address rules follow from the maps: a rule that loads another fragment does not compile.
const _: () = {
    use super::{ColMajor, RowMajor, assert_same_map};

    loaded!(a_row, straight, a_address::<RowMajor>, by_rows: true);
    loaded!(a_col, transposed, a_address::<ColMajor>, by_rows: false);
    loaded!(b_row, transposed, b_address::<RowMajor>, by_rows: true);
    loaded!(b_col, straight, b_address::<ColMajor>, by_rows: false);

    assert_same_map!(a_row, wmma::a; lanes: WARP_LANES, elements: 8);
    assert_same_map!(a_col, wmma::a; lanes: WARP_LANES, elements: 8);
    assert_same_map!(b_row, wmma::b; lanes: WARP_LANES, elements: 8);
    assert_same_map!(b_col, wmma::b; lanes: WARP_LANES, elements: 8);
    assert_same_map!(a_row, mma::a_f16; lanes: WARP_LANES, elements: 8);
    assert_same_map!(b_col, mma::b_f16; lanes: WARP_LANES, elements: 4);

    assert!(!a_trans::<RowMajor>() && a_trans::<ColMajor>());
    assert!(b_trans::<RowMajor>() && !b_trans::<ColMajor>());
};

fragment! {
    /// One matrix: [`straight`].
    X1 = straight, straight_holder;
    name: "ldmatrix-x1",
    instruction: "ldmatrix m8n8.x1",
    operand: "one b16 matrix, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 8,
    columns: 8,
    lanes: WARP_LANES,
    elements: 2,
    copies: 1,
    bits: 16,
}

fragment! {
    /// One matrix, transposed: [`transposed`].
    X1_TRANS = transposed, transposed_holder;
    name: "ldmatrix-x1-trans",
    instruction: "ldmatrix m8n8.x1.trans",
    operand: "one b16 matrix, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 8,
    columns: 8,
    lanes: WARP_LANES,
    elements: 2,
    copies: 1,
    bits: 16,
}

fragment! {
    /// Two matrices: [`straight`].
    X2 = straight, straight_holder;
    name: "ldmatrix-x2",
    instruction: "ldmatrix m8n8.x2",
    operand: "two b16 matrices, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 16,
    columns: 8,
    lanes: WARP_LANES,
    elements: 4,
    copies: 1,
    bits: 16,
}

fragment! {
    /// Two matrices, each transposed: [`transposed`].
    X2_TRANS = transposed, transposed_holder;
    name: "ldmatrix-x2-trans",
    instruction: "ldmatrix m8n8.x2.trans",
    operand: "two b16 matrices, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 16,
    columns: 8,
    lanes: WARP_LANES,
    elements: 4,
    copies: 1,
    bits: 16,
}

fragment! {
    /// Four matrices: [`straight`].
    X4 = straight, straight_holder;
    name: "ldmatrix-x4",
    instruction: "ldmatrix m8n8.x4",
    operand: "four b16 matrices, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 32,
    columns: 8,
    lanes: WARP_LANES,
    elements: 8,
    copies: 1,
    bits: 16,
}

fragment! {
    /// Four matrices, each transposed: [`transposed`].
    X4_TRANS = transposed, transposed_holder;
    name: "ldmatrix-x4-trans",
    instruction: "ldmatrix m8n8.x4.trans",
    operand: "four b16 matrices, lane r points at row r",
    source: SECTION,
    axes: ("row", "col"),
    rows: 32,
    columns: 8,
    lanes: WARP_LANES,
    elements: 8,
    copies: 1,
    bits: 16,
}
