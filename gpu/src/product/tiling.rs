//! How a product is cut into tiles: what a block and a warp own, in which order the tiles are worked
//! on, and how they are stored.

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use crate::fragment::wmma;
use crate::simt::{Accumulator, Dim3, Global, Simt, WARP_LANES, Word};

/// Rows and columns of an accumulator.
pub(super) const FRAGMENT: u32 = 16;
/// Accumulators along each side of the largest part of a tile that a warp can own, 64 × 64. Those
/// that a smaller part lacks are never touched, and take no registers.
pub(super) const MOST: usize = 4;
/// A warp's accumulators, by rows and columns of its part of the tile.
pub(super) type Sums = [[Accumulator; MOST]; MOST];

/// Tiles of the output and the warps that share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Rows of the output in a tile.
    pub tile_m: u32,
    /// Columns of the output in a tile.
    pub tile_n: u32,
    /// Warps along the rows.
    pub warps_m: u32,
    /// Warps along the columns.
    pub warps_n: u32,
}

/// Tiles along the rows that are worked on before the next ones along the columns, see
/// [`Tiling::place`].
const GROUP: u32 = 32;

impl Tiling {
    /// Threads of a block.
    #[must_use]
    pub const fn threads(self) -> u32 {
        self.warps_m * self.warps_n * WARP_LANES
    }

    /// Rows of a warp's part of a tile.
    #[must_use]
    pub const fn warp_m(self) -> u32 {
        self.tile_m / self.warps_m
    }

    /// Columns of a warp's part of a tile.
    #[must_use]
    pub const fn warp_n(self) -> u32 {
        self.tile_n / self.warps_n
    }

    /// Accumulators of a warp along the rows.
    #[must_use]
    pub const fn fragments_m(self) -> usize {
        (self.warp_m() / FRAGMENT) as usize
    }

    /// Accumulators of a warp along the columns.
    #[must_use]
    pub const fn fragments_n(self) -> usize {
        (self.warp_n() / FRAGMENT) as usize
    }

    /// Blocks for an `m × n` output, along one axis: the others are too short for a large one.
    #[must_use]
    pub const fn grid(self, m: u32, n: u32) -> Dim3 {
        Dim3::linear(m.div_ceil(self.tile_m).saturating_mul(n.div_ceil(self.tile_n)))
    }

    /// The first row and the first column of a warp's part of a tile.
    #[inline(always)]
    pub(super) const fn place_of_warp(self, warp: u32) -> (u32, u32) {
        // Never 0, which is what keeps the divisions from failing.
        (warp / self.warps_n * self.warp_m(), warp % self.warps_n * self.warp_n())
    }

    /// Whether a kernel can have these tiles.
    pub(super) const fn is_valid(self) -> bool {
        self.tile_m.is_multiple_of(self.warps_m * FRAGMENT)
            && self.tile_n.is_multiple_of(self.warps_n * FRAGMENT)
            && self.fragments_m() >= 1
            && self.fragments_m() <= MOST
            && self.fragments_n() >= 1
            && self.fragments_n() <= MOST
    }

    /// The first row and the first column of a block's tile.
    ///
    /// ```text
    /// tile of     columns 0   1   2             blocks that run at the same time have few tiles of
    /// rows 0           0     32  64  ...        weights, which come from memory, and meet them in
    /// rows 1           1     33  65             L2; the rows of input that a group of tiles has
    /// :                                         stay there all along
    /// rows 31         31     63  95
    /// rows 32          all of the group before, then the same again
    /// ```
    #[inline(always)]
    pub(super) const fn place(self, block: u32, m: u32, n: u32) -> (u32, u32) {
        self.place_in_groups(GROUP, block, m, n)
    }

    /// As [`place`](Self::place), with so many tiles along the rows in a group, at least 1.
    #[inline(always)]
    pub(super) const fn place_in_groups(self, group_rows: u32, block: u32, m: u32, n: u32) -> (u32, u32) {
        let (rows, columns) = (m.div_ceil(self.tile_m), n.div_ceil(self.tile_n));
        // At least 1 wherever a block exists, which is what keeps the divisions from failing.
        let of_a_group = at_least_one(columns.wrapping_mul(group_rows));
        let (group, within) = (block / of_a_group, block % of_a_group);
        let first = group * group_rows;
        let left = rows.wrapping_sub(first);
        let rows_of_group = if left < group_rows { at_least_one(left) } else { group_rows };
        let row = first.wrapping_add(within % rows_of_group);
        (row.wrapping_mul(self.tile_m), (within / rows_of_group).wrapping_mul(self.tile_n))
    }
}

const fn at_least_one(x: u32) -> u32 {
    if x == 0 { 1 } else { x }
}

/// A tile's results on their way out.
#[derive(Clone, Copy)]
pub(super) struct Output {
    /// `m × n`.
    pub out: Global<f32>,
    /// `n`, or address 0 for none.
    pub bias: Global<f32>,
    pub m: u32,
    pub n: u32,
}

impl Output {
    /// Adds the bias and stores a warp's sums, from `row` and `column` on, as far as there is an
    /// output. A lane has pairs of neighbours, which are one store where pairs are aligned.
    ///
    /// # Safety
    /// No other warp has these elements.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store<S: Simt>(self, s: S, tiling: Tiling, sums: &Sums, row: u32, column: u32) {
        let (down, right) = wmma::accumulator(s.lane(), 0);
        let eighths = [2 * tiling.fragments_m(), 2 * tiling.fragments_n()];
        let pair = |i: usize, j: usize| {
            let first = 4 * (j % 2) + 2 * (i % 2);
            [sums[i / 2][j / 2][first], sums[i / 2][j / 2][first + 1]]
        };
        // SAFETY: the caller's.
        unsafe { self.store_runs(s, [row + down, column + right], eighths, pair) }
    }

    /// Adds the bias and stores a lane's sums as far as there is an output: `run(i, j)` are neighbours, and stand
    /// 8 `i` rows below and as many columns as four lanes have beside the place given, `j` times; that is a column
    /// that is a multiple of their number. Runs are one store where all are aligned.
    ///
    /// # Safety
    /// No other lane has these elements; out is aligned to a run's bytes if `n` is a multiple of its elements.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store_runs<S: Simt, const WIDTH: usize>(
        self,
        s: S,
        [row, column]: [u32; 2],
        [rows, columns]: [usize; 2],
        run: impl Fn(usize, usize) -> [f32; WIDTH],
    ) where
        [f32; WIDTH]: Word,
    {
        let width = WIDTH as u32;
        let whole = self.n.is_multiple_of(width);
        for j in 0..columns {
            let column = column + 4 * width * j as u32;
            if column >= self.n {
                continue;
            }
            let mut bias = [0.0; WIDTH];
            // SAFETY: columns of the output, as far as they exist; the caller's for the stores.
            unsafe {
                if self.bias.address() != 0 {
                    for k in 0..WIDTH {
                        if column + (k as u32) < self.n {
                            bias[k] = s.load_global_constant(self.bias.at(u64::from(column) + k as u64));
                        }
                    }
                }
                for i in 0..rows {
                    let row = row + 8 * i as u32;
                    if row >= self.m {
                        continue;
                    }
                    let mut values = run(i, j);
                    for k in 0..WIDTH {
                        values[k] += bias[k];
                    }
                    let to = self.out.row(row, self.n).at(u64::from(column));
                    if whole {
                        s.store_global(to.cast(), values);
                    } else {
                        for k in 0..WIDTH {
                            if column + (k as u32) < self.n {
                                s.store_global(to.at(k as u64), values[k]);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    const TILING: Tiling = Tiling { tile_m: 128, tile_n: 64, warps_m: 2, warps_n: 2 };

    #[test]
    fn blocks_have_one_tile_each_and_leave_none() {
        tiles_are_shared_out(GROUP);
        tiles_are_shared_out(16);
        tiles_are_shared_out(1);
    }

    fn tiles_are_shared_out(group_rows: u32) {
        for (m, n) in
            [(1_u32, 1_u32), (128, 64), (129, 65), (32 * 128, 640), (33 * 128 + 1, 200), (70 * 128, 63)]
        {
            let (rows, columns) = (m.div_ceil(TILING.tile_m), n.div_ceil(TILING.tile_n));
            let blocks = TILING.grid(m, n);
            assert_eq!(blocks, Dim3::linear(rows * columns));
            let mut seen = vec![false; blocks.x as usize];
            for block in 0..blocks.x {
                let (row, column) = TILING.place_in_groups(group_rows, block, m, n);
                assert!(row.is_multiple_of(TILING.tile_m) && row < m, "{m} × {n}, block {block}");
                assert!(column.is_multiple_of(TILING.tile_n) && column < n, "{m} × {n}, block {block}");
                let tile = row / TILING.tile_m * columns + column / TILING.tile_n;
                assert!(!seen[tile as usize], "{m} × {n}: block {block} has another one's tile");
                seen[tile as usize] = true;
            }
        }
    }

    #[test]
    fn blocks_that_follow_each_other_share_weights() {
        let places = |blocks: core::ops::Range<u32>| blocks.map(|block| TILING.place(block, 70 * 128, 640));
        assert!(places(0..GROUP).enumerate().all(|(i, place)| place == (128 * i as u32, 0)));
        assert!(places(GROUP..2 * GROUP).all(|(row, column)| row < GROUP * 128 && column == 64));
    }

    #[test]
    fn nothing_to_do_is_no_block() {
        assert_eq!((TILING.grid(0, 5).count(), TILING.grid(5, 0).count()), (0, 0));
    }
}
