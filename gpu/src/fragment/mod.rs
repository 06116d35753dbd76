//! Lane maps: which lane holds which element of a matrix, and in which of its registers.
//!
//! A tensor-core instruction takes its matrices spread over a warp's 32 lanes. The share of one
//! lane is its *fragment*, an array `x[0..n]`; the map from `(lane, i)` to `(row, column)` is wired
//! into the hardware. Every map here is a `const fn` with its inverse beside it, made of bit
//! operations that cannot fail, and written once for kernels, emulator, tests and `lanemap show`.
//!
//! Almost all of them are built from two numbers:
//!
//! ```text
//! lane            0  1  2  3    4  5  6  7    8  9 10 11   ..   28 29 30 31
//! g = lane >> 2        0             1             2        ..        7        the lane's group
//! t = lane & 3    0  1  2  3    0  1  2  3    0  1  2  3   ..    0  1  2  3   its place in it
//! ```
//!
//! and one picture, 8 × 8 elements of which each lane holds two neighbours, `x[0]` and `x[1]`
//! (lane numbers in the cells):
//!
//! ```text
//!             column                                 column
//!             0  1  2  3  4  5  6  7                 0  1  2  3  4  5  6  7
//!    row 0    0  0  1  1  2  2  3  3        row 0    0  4  8 12 16 20 24 28
//!        1    4  4  5  5  6  6  7  7            1    0  4  8 12 16 20 24 28
//!        2    8  8  9  9 10 10 11 11            2    1  5  9 13 17 21 25 29
//!        :                                      :
//!        7   28 28 29 29 30 30 31 31            7    3  7 11 15 19 23 27 31
//!
//!    (g, 2t), (g, 2t + 1): A, C and D       (2t, g), (2t + 1, g): B
//! ```
//!
//! Larger tiles are several of these side by side; the maps differ in the order in which a lane's
//! registers take them up.
//!
//! Each map is proved when the crate is compiled: it takes its lanes and registers one to one onto
//! its tile, and the inverse undoes it. So is the identity that attention rests on,
//! [`identity`].
//!
//! Rows and columns are those of the operand: of A (m, k), of B (k, n), of the accumulators C and D
//! (m, n), whichever way it lies in memory.

#![cfg_attr(
    target_arch = "nvptx64",
    allow(dead_code, unused_imports, reason = "what only the proofs use; they are not compiled there")
)]

pub mod identity;
mod layout;
pub mod ldmatrix;
pub mod mma;
mod proof;
#[cfg(test)]
mod tests;
pub mod wgmma;
pub mod wmma;

pub use layout::{ColMajor, Layout, RowMajor};
pub use proof::assert_same_map;

/// Lanes of a warp.
pub const WARP_LANES: u32 = 32;
/// Lanes of a warpgroup, the four warps that execute a `wgmma` together.
pub const WARPGROUP_LANES: u32 = 128;

/// g: which group of four lanes the lane is in, 0 to 7.
#[inline(always)]
#[must_use]
pub const fn group(lane: u32) -> u32 {
    lane >> 2 & 7
}

/// t: the lane's place in its group, 0 to 3.
#[inline(always)]
#[must_use]
pub const fn place(lane: u32) -> u32 {
    lane & 3
}

/// A lane map as data: what the emulator, the tests and `lanemap show` go through.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// The name that `lanemap show` takes.
    pub name: &'static str,
    /// The instruction and its shape, as PTX spells them.
    pub instruction: &'static str,
    /// Which operand of it, and the types it comes in.
    pub operand: &'static str,
    /// Where the map comes from: a section of the PTX ISA, or a measurement.
    pub source: &'static str,
    /// What rows and columns count: `m`, `n` or `k`; in `ldmatrix` plain rows and columns.
    pub axes: (&'static str, &'static str),
    /// Rows of the tile.
    pub rows: u32,
    /// Columns of the tile.
    pub columns: u32,
    /// Lanes that the tile is spread over.
    pub lanes: u32,
    /// Elements that a lane holds, each of them once.
    pub elements: u32,
    /// How many times the lane's registers hold them: `x[elements..]` is the second copy.
    pub copies: u32,
    /// Bits of an element.
    pub bits: u32,
    element: fn(u32, u32) -> (u32, u32),
    holder: fn(u32, u32) -> (u32, u32),
}

impl Fragment {
    /// Every fragment that kernels use.
    pub const ALL: [Self; 21] = [
        wmma::ACCUMULATOR,
        wmma::A_ROW,
        wmma::A_COL,
        wmma::B_ROW,
        wmma::B_COL,
        mma::A_F16,
        mma::B_F16,
        mma::C_F32,
        mma::A_S8,
        mma::B_S8,
        mma::C_S32,
        ldmatrix::X1,
        ldmatrix::X1_TRANS,
        ldmatrix::X2,
        ldmatrix::X2_TRANS,
        ldmatrix::X4,
        ldmatrix::X4_TRANS,
        wgmma::A,
        wgmma::D_N8,
        wgmma::D_N128,
        wgmma::D_N256,
    ];

    /// The fragment of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|fragment| fragment.name == name)
    }

    /// (row, column) of the lane's `x[i]`.
    #[inline(always)]
    #[must_use]
    pub fn element(&self, lane: u32, i: u32) -> (u32, u32) {
        (self.element)(lane, i)
    }

    /// (lane, i) that holds the element; of several copies, the first.
    #[inline(always)]
    #[must_use]
    pub fn holder(&self, row: u32, column: u32) -> (u32, u32) {
        (self.holder)(row, column)
    }

    /// Elements in a 32-bit register: 1, 2 or 4, the first in its lowest bits.
    #[must_use]
    pub const fn per_register(&self) -> u32 {
        32 / self.bits
    }

    /// 32-bit registers that a lane's share takes, copies included.
    #[must_use]
    pub const fn registers(&self) -> u32 {
        self.elements * self.copies / self.per_register()
    }
}
