//! `matmul_f16_wgmma`, `matmul_f16_wgmma_n240`, `matmul_f16_wgmma_n128`, `matmul_f16_wgmma_gated`: rows of f16
//! times rows of f16 on sm_90a, by the tensor cores' products of a whole warp group straight from shared memory.
//!
//! `Σ_k input[m][k] · weights[n][k]`; input and weights f16 in [panels](super::panels), as
//! [`AsF16Panels`](super::AsF16Panels) and [`UnpackF16`](super::UnpackF16) leave them. What becomes of the sums is
//! the [epilogue](super::epilogue)'s: [`Plain`] adds a bias and writes `M × N` f32, row major;
//! [`GateUp`](super::GateUp) multiplies those of an activated gate with those of up, and writes f16 in panels, rows
//! for the next product.
//!
//! # Who owns what
//!
//! ```text
//! grid: as many blocks as the device runs at a time; block b has parts b, b + blocks, ... of `Rounds`, whose tiles
//! are in the order of `Tiling::place_in_groups`
//!
//!                    256 columns of out (rows of weights), or 240, or 128
//!                   +---------------------------------------------+
//!   64 rows of out  |  warp group 0: 64 × 256, 128 sums a thread  |
//!                   +---------------------------------------------+     warp 8 has none: one lane of it
//!   64 rows         |  warp group 1                               |     begins all the copies
//!                   +---------------------------------------------+
//! ```
//!
//! A round of all blocks' tiles takes as long as one tile, however few blocks have one. So the tiles of a last round
//! that at most half of the blocks have are cut into halves, one warp group's rows each; the other one only gives
//! the stages back. Tiles of 240 columns are for products whose rounds they fill better: about as many rounds as
//! with 256, and each is shorter.
//!
//! Sums are stored as they are, without a way through shared memory: rows of weights are
//! [interleaved](super::panels::interleaved), so that a lane has four neighbours, 16 bytes of f32. Two at a time took
//! up to a twentieth of the whole product longer (docs/results.md, "halves, stores, gate and up").
//!
//! # One slab
//!
//! K goes by in slabs of 64: a panel of the input, 16 KiB, and what each panel of the weights has of the tile's
//! rows are one bulk copy each; half a tile has half a panel of the input. 240 rows lie in two panels or in three.
//! A warp group multiplies a slab in four steps of 16 of k, and is never further than one slab behind with waiting
//! for that: while it multiplies a slab, it gives the one before back.
//!
//! ```text
//! producer    wait for the stage to be empty, say how many bytes, copy
//! warp group  wait for the stage to be full, 4 × wgmma, wait for the slab before, give its stage back
//! ```
//!
//! The producer goes on to the next tile while sums are stored, as far as there are stages.
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
//! Any M, N and K. What panels have beyond K is zero in both operands; rows beyond M and N come into rows
//! and columns of out that are not stored.
//!
//! # Numeric contract
//!
//! As [`MatmulF16Quant`](super::MatmulF16Quant): sums are f32, k in order of steps of 16, within a step the
//! tensor core's order, which cuts off instead of rounding; then comes the epilogue. Every element is summed
//! in the same order whatever M, N, the grid and the tiles are. The bits are not those of
//! `MatmulF16Quant`: `wgmma` adds the 16 products of a step otherwise than two `mma` do.

use super::epilogue::{Epilogue, Plain};
use super::panels::{PANEL_BYTES, PANEL_COLUMNS, PANEL_ROWS, Panels, ROW_BYTES, ROWS, STEP_BYTES, operand};
use super::rounds::Rounds;
use super::tiling::{FRAGMENT, Tiling};
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
/// Tiles along the rows that are worked on before the next ones along the columns: with 32 an output of 3328 ×
/// 37,888 takes a seventh more time.
const GROUP: u32 = 16;
/// Bytes of all stages.
const STAGES_BYTES: u32 = 192 << 10;

const NAMED: &str = "a kernel of such tiles and such an epilogue has a name";

/// The arguments of a product; `REGISTERS` is half of a tile's columns, what a lane holds of it.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatmulF16Wgmma<const REGISTERS: usize = 128, E = Plain> {
    /// What becomes of the sums.
    pub epilogue: E,
    /// [`Panels`] of `m` rows of `k` columns, aligned to 16 bytes.
    pub input: Global<u8>,
    /// [`Panels`] of `n` rows of `k` columns, [interleaved](super::panels::interleaved), aligned to 16 bytes.
    pub weights: Global<u8>,
    /// Rows of input and out.
    pub m: u32,
    /// Rows of weights.
    pub n: u32,
    /// Columns of input and weights.
    pub k: u32,
    /// Blocks that run at a time, at least 1. Any number will do; that of multiprocessors is best.
    pub blocks: u32,
}

impl<const REGISTERS: usize, E> MatmulF16Wgmma<REGISTERS, E> {
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

    /// The parts of an `m × n` output that so many blocks work on.
    #[inline(always)]
    #[must_use]
    pub const fn rounds([m, n]: [u32; 2], blocks: u32) -> Rounds {
        Rounds::new(Self::TILING.grid(m, n).x, blocks)
    }
}

impl<const REGISTERS: usize, E: Epilogue> Contract for MatmulF16Wgmma<REGISTERS, E> {
    const NAME: &'static str = match REGISTERS {
        128 => E::NAMES[0].expect(NAMED),
        120 => E::NAMES[1].expect(NAMED),
        64 => E::NAMES[2].expect(NAMED),
        _ => panic!("{}", NAMED),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("wgmma.mma_async", Count::Exactly(STEPS)),
            Occurrence::new("cp.async.bulk.shared", Count::Exactly(1 + Self::WEIGHT_PANELS)),
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new(E::STORE, Count::Exactly(REGISTERS as u32 / E::STORED)),
        ],
        registers: 224,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let parts = Self::rounds([self.m, self.n], self.blocks).parts();
        Launch {
            grid: Dim3::linear(parts.min(self.blocks)),
            threads: (CONSUMERS + 1) * WARP_LANES,
            shared_bytes: Self::SHARED_BYTES,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.epilogue.work([self.m, self.n, self.k]))
    }
}

impl<S: Hopper, const REGISTERS: usize, E: Epilogue> Kernel<S> for MatmulF16Wgmma<REGISTERS, E> {
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

impl<const REGISTERS: usize, E: Epilogue> MatmulF16Wgmma<REGISTERS, E> {
    /// Copies the slabs of the block's parts into the stages.
    ///
    /// # Safety
    /// The barriers have been initialized; one lane of the block does so.
    #[inline(always)]
    #[track_caller]
    unsafe fn produce<S: Hopper>(&self, s: S, mut stages: Ring) {
        let panels = Panels::new(self.k);
        let rounds = Self::rounds([self.m, self.n], self.blocks);
        let mut part = s.block().x;
        while part < rounds.parts() {
            let (tile, half) = rounds.part(part);
            let (row, column) = Self::TILING.place_in_groups(GROUP, tile, self.m, self.n);
            let (down, input_rows) = match half {
                None => (0, TILE_M),
                Some(half) => (half * GROUP_ROWS, GROUP_ROWS),
            };
            let (down, input_bytes) = (down * ROW_BYTES, input_rows * ROW_BYTES);
            for slab in 0..panels.across() {
                let (full, stage) = (stages.full_barrier(), stages.stage());
                // SAFETY: whole panels, the rows of a tile are among those that matrices are rounded up to;
                // the stage has been given back, in the first round nobody has had it.
                unsafe {
                    stages.wait_empty(s);
                    s.mbarrier_arrive_expect(full, Self::STAGE_BYTES - PANEL_BYTES + input_bytes);
                    let input = self.input.at(panels.panel(row, slab)).at(down.into());
                    s.bulk_load(stage.at(down), input, input_bytes, full);
                    for i in 0..Self::WEIGHT_PANELS {
                        let (to, rows, from) = self.rows_of_panel(column, i);
                        if rows > 0 {
                            let to = stage.at(PANEL_BYTES + to * ROW_BYTES);
                            let from = self.weights.at(panels.chunk(from, slab * PANEL_COLUMNS));
                            s.bulk_load(to, from, rows * ROW_BYTES, full);
                        }
                    }
                }
                stages.advance();
            }
            part += s.grid().x;
        }
    }

    /// Those of a tile's rows of weights that the `i`-th of its panels holds: which of the tile's is the first, how
    /// many there are, and which of the matrix' is the first. In place of rows that do not exist come
    /// other ones, for columns that nobody stores.
    #[inline(always)]
    const fn rows_of_panel(&self, column: u32, i: u32) -> (u32, u32, u32) {
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

    /// Multiplies the slabs in the stages, and stores each part's sums.
    ///
    /// # Safety
    /// The barriers have been initialized; all warps of both warp groups do so.
    #[inline(always)]
    #[track_caller]
    unsafe fn consume<S: Hopper>(&self, s: S, mut stages: Ring) {
        let group = s.warp() / GROUP_WARPS;
        let down = group * GROUP_ROWS;
        let slabs = Panels::new(self.k).across();
        let rounds = Self::rounds([self.m, self.n], self.blocks);
        let mut part = s.block().x;
        while part < rounds.parts() {
            let (tile, half) = rounds.part(part);
            // SAFETY: the caller's; no other warp group has these rows.
            unsafe {
                if half.is_none_or(|half| half == group) {
                    let sums = self.multiply(s, &mut stages, slabs, down);
                    let (row, column) = Self::TILING.place_in_groups(GROUP, tile, self.m, self.n);
                    self.epilogue.store(s, &sums, [self.m, self.n], [row + down, column]);
                } else {
                    self.give_back(s, &mut stages, slabs);
                }
            }
            part += s.grid().x;
        }
    }

    /// The sums of a warp group's rows, from `down` on in the stages' panels of the input, over so many slabs.
    ///
    /// # Safety
    /// As [`consume`](Self::consume), for the warps of one group.
    #[inline(always)]
    #[track_caller]
    unsafe fn multiply<S: Hopper>(self, s: S, stages: &mut Ring, slabs: u32, down: u32) -> [f32; REGISTERS] {
        let mut sums = [0.0; REGISTERS];
        // Not a loop of no slabs: then sums would be set where products may be under way, and `ptxas` would
        // have every product waited for.
        if slabs == 0 {
            return sums;
        }
        let lane = s.lane();
        let (mut slab, mut before) = (0, *stages);
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
            before = *stages;
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
        sums
    }

    /// Gives so many stages back, of which the warp group has no rows.
    ///
    /// # Safety
    /// As [`consume`](Self::consume), for the warps of one group.
    #[inline(always)]
    #[track_caller]
    unsafe fn give_back<S: Hopper>(&self, s: S, stages: &mut Ring, slabs: u32) {
        for _ in 0..slabs {
            // Not the others: nothing keeps a warp's lanes together here, and a lane that is two rounds behind would wait
            // for a phase that is over.
            if s.lane() == 0 {
                // SAFETY: the caller's. Not before the stage is full: its barrier would take this arrival for one of the
                // round before.
                unsafe {
                    stages.wait_full(s);
                    s.mbarrier_arrive(stages.empty_barrier());
                }
            }
            stages.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use bytemuck::Zeroable;

    use super::super::panels::interleaved;
    use super::*;
    use crate::quant::f16;
    use crate::simt::emulator::{Emulator, Lane, Memory};

    /// Rows of small integers, so that sums are exact.
    fn rows(rows: u32, columns: u32, seed: u32) -> Vec<i32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 25) as i32 - 40
        };
        (0..rows * columns).map(|_| next()).collect()
    }

    /// A matrix in panels, whose row `row` is their row `place(row)`; rows that it does not have are NaN.
    fn panels(values: &[i32], rows: u32, columns: u32, place: impl Fn(u32) -> u32) -> Vec<u8> {
        let layout = Panels::new(columns);
        let mut bytes = std::vec![0xff; layout.bytes(rows) as usize];
        for row in 0..rows {
            for column in 0..layout.padded_columns() {
                let value = if column < columns { values[(row * columns + column) as usize] } else { 0 };
                let at = layout.element(place(row), column) as usize;
                bytes[at..at + 2].copy_from_slice(&f16::from_f32(value as f32).to_le_bytes());
            }
        }
        bytes
    }

    fn check<const REGISTERS: usize>([m, n, k]: [u32; 3], biased: bool)
    where
        MatmulF16Wgmma<REGISTERS>: for<'b> Kernel<Lane<'b>>,
    {
        let (a, b) = (rows(m, k, 5), rows(n, k, 7));
        let bias: Vec<f32> = (0..n).map(|column| if biased { column as f32 } else { 0.0 }).collect();
        let exact = |i: u32| {
            let (row, column) = (i / n, i % n);
            let products = (0..k).map(|at| a[(row * k + at) as usize] * b[(column * k + at) as usize]);
            products.sum::<i32>() as f32 + bias[column as usize]
        };
        let expected: Vec<f32> = (0..m * n).map(exact).collect();
        let mut memory = Memory::new();
        let out = memory.output("out", (m * n) as usize);
        let bias = if biased { memory.input("bias", &bias) } else { Global::zeroed() };
        let kernel = MatmulF16Wgmma::<REGISTERS> {
            epilogue: Plain { out, bias },
            input: memory.input("input", &panels(&a, m, k, |row| row)),
            weights: memory.input("weights", &panels(&b, n, k, interleaved)),
            m,
            n,
            k,
            blocks: 2,
        };
        let what = || std::format!("{m} × {n} × {k} by {REGISTERS}");
        Emulator::new().launch(&mut memory, kernel).unwrap_or_else(|error| panic!("{}: {error}", what()));
        memory.check_written_once(out).unwrap_or_else(|fault| panic!("{}: {fault}", what()));
        assert_eq!(memory.values(out), expected, "{}", what());
    }

    #[test]
    fn tiles_of_every_width_are_the_product() {
        // More tiles than blocks; tiles of 240 that begin in the middle of panels, and end beyond the last one.
        for (shape, biased) in [
            ([9, 8, 100], true),
            ([130, 744, 72], true),
            ([70, 250, 64], false),
            ([3, 513, 136], true),
            ([1, 1024, 64], false),
            ([1, 3, 320], false),
            // One tile, which is two halves; a whole one for each block, and then halves.
            ([100, 116, 200], true),
            ([100, 700, 320], true),
        ] {
            check::<64>(shape, biased);
            check::<120>(shape, biased);
            check::<128>(shape, biased);
        }
    }
}
