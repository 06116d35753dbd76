//! `matmul_f16_wgmma`, `matmul_f16_wgmma_n{240,128}`, and `matmul_f16_wgmma_f16`, `matmul_f16_wgmma_f16_n{240,128}`:
//! rows of f16 times rows of f16 on sm_90a, by the tensor cores' products of a whole warp group straight from
//! shared memory.
//!
//! `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`; input and weights f16 in
//! [panels](super::panels), as [`AsF16Panels`](super::AsF16Panels) and
//! [`UnpackF16`](super::UnpackF16) leave them; out `M × N` f32 or f16, row major.
//!
//! # Who owns what
//!
//! ```text
//! grid: as many blocks as the device runs at a time; block b has tiles b, b + blocks, ... in the order of
//! `Tiling::place`
//!
//!                    256 columns of out (rows of weights), or 240, or 128
//!                   +---------------------------------------------+
//!   64 rows of out  |  warp group 0: 64 × 256, 128 sums a thread  |
//!                   +---------------------------------------------+     warp 8 has none: one lane of it
//!   64 rows         |  warp group 1                               |     begins all the copies
//!                   +---------------------------------------------+
//! ```
//!
//! A round of all blocks' tiles takes as long as one tile, however few blocks have one: tiles of 240 columns
//! are for products that have 256 only just begun a last round with, or that fill one better so.
//!
//! # One slab
//!
//! K goes by in slabs of 64: a panel of the input, 16 KiB, and what each panel of the weights has of the tile's
//! rows are one bulk copy each. 240 rows lie in two panels or in three. A warp group multiplies a slab in four steps of 16 of k, and is never further
//! than one slab behind with waiting for that: while it multiplies a slab, it gives the one before back.
//!
//! ```text
//! producer    wait for the stage to be empty, say how many bytes, copy
//! warp group  wait for the stage to be full, 4 × wgmma, wait for the slab before, give its stage back
//! ```
//!
//! The producer goes on to the next tile while sums are stored, as far as there are stages. Of f16 a lane has
//! pairs of 4 bytes, 16 of a row beside each other: lanes exchange them and store 16 bytes each, 64 of a row.
//!
//! # Registers
//!
//! 128 sums and few besides; 288 threads could have 224 each.
//!
//! # Shared memory
//!
//! ```text
//! byte       0 stage 0: the input's panel, then the weights' rows  48 KiB, for 240 columns 46, for 128 32
//!        49152 stage 1 ...
//!       196608 full  [stages]  one arrival, and the bytes of the stage
//!              empty [stages]  an arrival of each of the 8 warps
//! ```
//!
//! # Who waits for whom
//!
//! One barrier of the block, after the barriers in memory have been initialized. From then on `full`
//! and `empty` alone: both sides go through the stages in one order, and change the parity whenever they
//! come round.
//!
//! # Shape contract
//!
//! Any M, N and K; rows of f16 are stored 16 bytes at a time where N is a multiple of 8. What panels have beyond K is zero in both operands; rows beyond M and N come into rows
//! and columns of out that are not stored.
//!
//! # Numeric contract
//!
//! As [`MatmulF16Quant`](super::MatmulF16Quant): sums are f32, k in order of steps of 16, within a step the
//! tensor core's order, which cuts off instead of rounding; then the bias is added. As f16 that is rounded once
//! more, to nearest even; more than 65,504 becomes infinite. Every element is summed
//! in the same order whatever M, N, the grid and the tiles are. The bits are not those of
//! `MatmulF16Quant`: `wgmma` adds the 16 products of a step otherwise than two `mma` do.

use super::output::{Element, Output};
use super::panels::{PANEL_BYTES, PANEL_COLUMNS, PANEL_ROWS, Panels, ROW_BYTES, ROWS, STEP_BYTES, operand};
use super::problem::Product;
use super::tiling::{FRAGMENT, Tiling};
use super::{Activations, AsF16Panels};
use crate::fragment::wgmma;
use crate::quant::Format;
use crate::simt::{
    ColMajor, Contract, Count, Dim3, Expectations, Global, Hopper, Kernel, Launch, Occurrence, Ring,
    RowMajor, WARP_LANES, Work,
};

/// Warps that multiply: two warp groups.
const CONSUMERS: u32 = 8;
/// Warps of a warp group, and its rows of a tile.
const GROUP_WARPS: u32 = 4;
const GROUP_ROWS: u32 = 64;
const TILE_M: u32 = CONSUMERS / GROUP_WARPS * GROUP_ROWS;
const _: () = assert!(TILE_M == PANEL_ROWS);
/// Steps of k in a slab.
const STEPS: u32 = PANEL_COLUMNS / FRAGMENT;
/// Bytes of all stages.
const STAGES_BYTES: u32 = 192 << 10;

/// The arguments of a product; `REGISTERS` is half of a tile's columns, what a lane holds of it, and `E` what is
/// written.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatmulF16Wgmma<const REGISTERS: usize = 128, E = f32> {
    /// `m × n`, row major, not overlapping the others; aligned to [`Element::ALIGN`].
    pub out: Global<E>,
    /// [`Panels`] of `m` rows of `k` columns, aligned to 16 bytes.
    pub input: Global<u8>,
    /// [`Panels`] of `n` rows of `k` columns, aligned to 16 bytes.
    pub weights: Global<u8>,
    /// `n`, or address 0 if there is none.
    pub bias: Global<f32>,
    /// Rows of input and out.
    pub m: u32,
    /// Rows of weights, columns of out.
    pub n: u32,
    /// Columns of input and weights.
    pub k: u32,
    /// Blocks that run at a time, at least 1. Any number will do; that of multiprocessors is best.
    pub blocks: u32,
}

impl<const REGISTERS: usize, E: Element> MatmulF16Wgmma<REGISTERS, E> {
    /// Columns of a tile.
    const TILE_N: u32 = 2 * REGISTERS as u32;
    /// The tiles. The second numbers are those of warp groups.
    const TILING: Tiling =
        Tiling { tile_m: TILE_M, tile_n: Self::TILE_N, warps_m: CONSUMERS / GROUP_WARPS, warps_n: 1 };
    /// Whether tiles begin where panels of the weights do.
    const WHOLE_PANELS: bool = Self::TILE_N.is_multiple_of(PANEL_ROWS);
    /// Panels of the weights that a tile has rows of, at most.
    const WEIGHT_PANELS: u32 = Self::TILE_N.div_ceil(PANEL_ROWS) + !Self::WHOLE_PANELS as u32;
    /// Bytes of a stage.
    const STAGE_BYTES: u32 = PANEL_BYTES + Self::TILE_N * ROW_BYTES;
    /// Stages.
    const STAGES: u32 = STAGES_BYTES / Self::STAGE_BYTES;
    /// Bytes of shared memory.
    pub const SHARED_BYTES: u32 = STAGES_BYTES + Ring::barrier_bytes(Self::STAGES);

    /// Tiles of an `m × n` output.
    #[must_use]
    pub const fn tiles(m: u32, n: u32) -> u32 {
        Self::TILING.grid(m, n).x
    }
}

impl<const REGISTERS: usize, E: Element> Contract for MatmulF16Wgmma<REGISTERS, E> {
    const NAME: &'static str = match (REGISTERS, size_of::<E>()) {
        (128, 4) => "matmul_f16_wgmma",
        (120, 4) => "matmul_f16_wgmma_n240",
        (64, 4) => "matmul_f16_wgmma_n128",
        (128, 2) => "matmul_f16_wgmma_f16",
        (120, 2) => "matmul_f16_wgmma_f16_n240",
        (64, 2) => "matmul_f16_wgmma_f16_n128",
        _ => panic!("tiles without a name"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wgmma.mma_async", Count::Exactly(STEPS)),
            Occurrence::new("cp.async.bulk.shared", Count::Exactly(1 + Self::WEIGHT_PANELS)),
            Occurrence::new("bar.sync", Count::Exactly(1)),
        ],
        registers: 224,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let tiles = Self::tiles(self.m, self.n);
        Launch {
            grid: Dim3::linear(tiles.min(self.blocks)),
            threads: (CONSUMERS + 1) * WARP_LANES,
            shared_bytes: Self::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let Self { out, input, weights, bias, m, n, k, .. } = *self;
        let product = Product { out: out.cast(), input, weights, bias, m, n, k };
        Some(product.work(Format::F16, AsF16Panels::value_bytes(k), size_of::<E>()))
    }
}

impl<S: Hopper, const REGISTERS: usize, E: Element> Kernel<S> for MatmulF16Wgmma<REGISTERS, E> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let shared = s.shared::<u8>();
        let stages = Ring::new(shared, shared.at(STAGES_BYTES).cast(), Self::STAGES, Self::STAGE_BYTES);
        // SAFETY: nobody uses the barriers before the block's; a warp group's parts of out are its own.
        unsafe {
            // Not by the lane that copies: rustc would join the two questions who that is, and copy the barrier
            // in between into both arms.
            if s.thread() == 0 {
                stages.initialize(s, 1, CONSUMERS);
                s.fence_mbarrier_init();
            }
            s.barrier();
            if s.warp() < CONSUMERS {
                self.consume(s, stages);
            } else if s.lane() == 0 {
                self.produce(s, stages);
            }
        }
    }
}

impl<const REGISTERS: usize, E: Element> MatmulF16Wgmma<REGISTERS, E> {
    /// Copies the slabs of the block's tiles into the stages.
    ///
    /// # Safety
    /// The barriers have been initialized; one lane of the block does so.
    #[inline(always)]
    #[track_caller]
    unsafe fn produce<S: Hopper>(&self, s: S, mut stages: Ring) {
        let panels = Panels::new(self.k);
        let mut tile = s.block().x;
        while tile < Self::tiles(self.m, self.n) {
            let (row, column) = Self::TILING.place(tile, self.m, self.n);
            for slab in 0..panels.across() {
                let (full, stage) = (stages.full_barrier(), stages.stage());
                // SAFETY: whole panels, the rows of a tile are among those that matrices are rounded up to;
                // the stage has been given back, in the first round nobody has had it.
                unsafe {
                    stages.wait_empty(s);
                    s.mbarrier_arrive_expect(full, Self::STAGE_BYTES);
                    s.bulk_load(stage, self.input.at(panels.panel(row, slab)), PANEL_BYTES, full);
                    for i in 0..Self::WEIGHT_PANELS {
                        let (to, rows, from) = self.part(column, i);
                        if rows > 0 {
                            let to = stage.at(PANEL_BYTES + to * ROW_BYTES);
                            let from = self.weights.at(panels.chunk(from, slab * PANEL_COLUMNS));
                            s.bulk_load(to, from, rows * ROW_BYTES, full);
                        }
                    }
                }
                stages.advance();
            }
            tile += s.grid().x;
        }
    }

    /// The `i`-th part of a tile's rows of weights that one panel holds: which of the tile's it begins with, how
    /// many there are, and which of the matrix' it begins with. In place of a part that does not exist comes
    /// another one, for columns that nobody stores.
    #[inline(always)]
    const fn part(&self, column: u32, i: u32) -> (u32, u32, u32) {
        let above = if Self::WHOLE_PANELS { 0 } else { column % PANEL_ROWS };
        if i == 0 {
            let rows = PANEL_ROWS - above;
            return (0, if rows < Self::TILE_N { rows } else { Self::TILE_N }, column);
        }
        let (first, end) = (i * PANEL_ROWS - above, (i + 1) * PANEL_ROWS - above);
        let end = if end < Self::TILE_N { end } else { Self::TILE_N };
        let exists = Self::WHOLE_PANELS || column + first < self.n.next_multiple_of(ROWS);
        (first, end.saturating_sub(first), if exists { column + first } else { 0 })
    }

    /// Multiplies the slabs in the stages, and stores each tile's sums.
    ///
    /// # Safety
    /// The barriers have been initialized; all warps of both warp groups do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn consume<S: Hopper>(&self, s: S, mut stages: Ring) {
        let (warp, lane) = (s.warp(), s.lane());
        let down = warp / GROUP_WARPS * GROUP_ROWS;
        let slabs = Panels::new(self.k).across();
        let mut tile = s.block().x;
        while tile < Self::tiles(self.m, self.n) {
            let mut sums = [0.0; REGISTERS];
            // Not a loop of no slabs: then sums would be set where products may be under way, and `ptxas` would
            // have every product waited for.
            if slabs > 0 {
                let (mut slab, mut before) = (0, stages);
                loop {
                    let panels = stages.stage();
                    let (a, b) = (operand(panels, down), operand(panels.at(PANEL_BYTES), 0));
                    // SAFETY: the stage is full, and stays so until this warp has given it back, which it
                    // does when its products are done.
                    unsafe {
                        stages.wait_full(s);
                        s.wgmma_fence();
                        for step in 0..STEPS {
                            let by = step * STEP_BYTES;
                            let (a, b) = (a.advance(by), b.advance(by));
                            s.wgmma_f16::<RowMajor, ColMajor, REGISTERS>(&mut sums, a, b, true);
                        }
                    }
                    s.wgmma_commit();
                    slab += 1;
                    if slab == slabs {
                        break;
                    }
                    s.wgmma_wait::<1>();
                    if slab > 1 && lane == 0 {
                        // SAFETY: the products of the slab before are done.
                        unsafe { s.mbarrier_arrive(before.empty_barrier()) };
                    }
                    before = stages;
                    stages.advance();
                }
                s.wgmma_wait::<0>();
                if lane == 0 {
                    // SAFETY: all products are done.
                    unsafe {
                        if slab > 1 {
                            s.mbarrier_arrive(before.empty_barrier());
                        }
                        s.mbarrier_arrive(stages.empty_barrier());
                    }
                }
                stages.advance();
            }
            // SAFETY: no other warp group has these rows.
            unsafe {
                let (row, column) = Self::TILING.place(tile, self.m, self.n);
                self.store(s, &sums, row + down, column);
            }
            tile += s.grid().x;
        }
    }

    /// Adds the bias and stores a warp group's sums, from `row` and `column` on, as far as there is an
    /// output.
    ///
    /// # Safety
    /// No other warp group has these elements.
    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Hopper>(&self, s: S, sums: &[f32; REGISTERS], row: u32, column: u32) {
        let (down, right) = wgmma::d(s.thread() % (GROUP_WARPS * WARP_LANES), 0);
        let Self { out, bias, m, n, .. } = *self;
        let pair = |i: usize, j: usize| [sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]];
        // SAFETY: the caller's.
        unsafe {
            let (output, place) = (Output { out, bias, m, n }, [row + down, column + right]);
            E::store_of_warp(s, output, place, [2, REGISTERS / 4], pair);
        }
    }
}
