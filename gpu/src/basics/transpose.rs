//! `transpose_conflicted`, `transpose_padded`: a transposed copy through shared memory, without
//! and with the one word of padding that makes it fast.
//!
//! `out[c][r] = input[r][c]`; input `rows × columns`, out `columns × rows`, both row major, f32.
//!
//! # Who owns what
//!
//! A block of 8 warps moves one tile of 32 × 32. Reading, warp `w` takes the tile's rows `w`,
//! `w + 8`, `w + 16`, `w + 24`, lane = column; writing, the same rows of the transposed tile.
//! Both ways a warp touches one contiguous run of global memory; only shared memory is walked
//! along columns.
//!
//! ```text
//!        input tile                 shared                      output tile
//!     lane = column c                                         lane = row r
//!     +--------------+       tile[r][c], a row is      +--------------+
//!   r | ------------>|  ->   32 + PAD words       ->  c | ------------>|
//!     |              |       written along rows,        |              |
//!     +--------------+       read along columns         +--------------+
//! ```
//!
//! # Banks
//!
//! Word `r * (32 + PAD) + c` lies in bank `(r * (32 + PAD) + c) % 32`. Reading a column, `c` is
//! fixed and `r` is the lane: with PAD 0 all 32 lanes meet in bank `c` and the access takes 32
//! passes; with PAD 1 lane `r` meets bank `(r + c) % 32`, one each.
//!
//! # Waiting
//!
//! One barrier, between the writes and the reads of the tile: a warp reads what all wrote.

use crate::simt::{Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt};

/// Tile and launch of the transposed copy with `PAD` words after each row of the tile.
#[derive(Clone, Copy, Debug)]
pub struct TransposeGeometry<const PAD: u32>;

impl<const PAD: u32> TransposeGeometry<PAD> {
    /// Rows and columns of a tile: a warp's lanes.
    pub const TILE: u32 = 32;
    /// Warps of a block.
    pub const WARPS: u32 = 8;
    /// Threads of a block.
    pub const THREADS: u32 = Self::WARPS * 32;
    /// f32 from one row of the tile in shared memory to the next.
    pub const STRIDE: u32 = Self::TILE + PAD;
    /// Bytes of the tile in shared memory. The last row needs its padding as little as any,
    /// but rows are kept alike.
    pub const SHARED_BYTES: u32 = Self::TILE * Self::STRIDE * 4;
    const CHECKED: () = assert!(Self::TILE.is_multiple_of(Self::WARPS), "warps share the rows evenly");
}

/// The arguments of the transposed copy.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Transpose<const PAD: u32> {
    /// `columns × rows`, not overlapping the input.
    pub out: Global<f32>,
    /// `rows × columns`.
    pub input: Global<f32>,
    /// Rows of the input, at most 32 · 65,535: a grid's second axis has no more blocks.
    pub rows: u32,
    /// Columns of the input, at most 2^32 - 32.
    pub columns: u32,
}

impl<const PAD: u32> Contract for Transpose<PAD> {
    const NAME: &'static str = match PAD {
        0 => "transpose_conflicted",
        1 => "transpose_padded",
        _ => "transpose",
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("st.shared.b32", Count::Exactly(4)),
            Occurrence::new("ld.shared.b32", Count::Exactly(4)),
        ],
        registers: 40,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let () = TransposeGeometry::<PAD>::CHECKED;
        Launch {
            grid: Dim3 {
                x: self.columns.div_ceil(TransposeGeometry::<PAD>::TILE),
                y: self.rows.div_ceil(TransposeGeometry::<PAD>::TILE),
                z: 1,
            },
            threads: TransposeGeometry::<PAD>::THREADS,
            shared_bytes: TransposeGeometry::<PAD>::SHARED_BYTES,
        }
    }
}

impl<S: Simt, const PAD: u32> Kernel<S> for Transpose<PAD> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        type Geometry<const PAD: u32> = TransposeGeometry<PAD>;
        let tile = s.shared::<f32>();
        let (lane, warp) = (s.lane(), s.warp());
        let first_row = s.block().y * Geometry::<PAD>::TILE;
        let first_column = s.block().x * Geometry::<PAD>::TILE;

        // SAFETY: global elements are inside both shapes by the two conditions; the tile is
        // TILE rows of STRIDE, written before the barrier and read after it, and what is read
        // was written: its row and column are in the input.
        unsafe {
            for step in 0..Geometry::<PAD>::TILE / Geometry::<PAD>::WARPS {
                let r = step * Geometry::<PAD>::WARPS + warp;
                let (row, column) = (first_row + r, first_column + lane);
                if row < self.rows && column < self.columns {
                    let element = self.input.row(row, self.columns).at(u64::from(column));
                    s.store_shared(
                        tile.row(r, Geometry::<PAD>::STRIDE).at(lane),
                        s.load_global_constant(element),
                    );
                }
            }
            s.barrier();
            for step in 0..Geometry::<PAD>::TILE / Geometry::<PAD>::WARPS {
                let c = step * Geometry::<PAD>::WARPS + warp;
                let (row, column) = (first_row + lane, first_column + c);
                if row < self.rows && column < self.columns {
                    let element = self.out.row(column, self.rows).at(u64::from(row));
                    s.store_global(element, s.load_shared(tile.row(lane, Geometry::<PAD>::STRIDE).at(c)));
                }
            }
        }
    }
}
