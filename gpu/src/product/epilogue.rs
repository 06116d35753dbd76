//! What becomes of a tile's sums in [`MatmulF16Wgmma`](super::MatmulF16Wgmma): [`Plain`], [`GateUp`].
//!
//! Rows of weights are [`interleaved`] in their panels, so that a lane has four neighbours of each 16 columns:
//!
//! ```text
//! columns of out          16 j + 0..4    4..8        8..12       12..16
//! lane l, l modulo 4      0              1           2           3
//! row l / 4 of the warp   registers 8 j + 0, 1, 4, 5 of the accumulator
//! 8 rows below            registers 8 j + 2, 3, 6, 7
//! ```

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use super::panels::{PANEL_ROWS, interleaved};
use super::tiling::Output;
use super::{Activations, AsF16Panels, problem};
use crate::activation::gated;
use crate::fragment::{WARPGROUP_LANES, wgmma};
use crate::simt::{Global, Hopper, Unit, Work, product};

/// Columns of a group, of which a lane has four.
const COLUMNS: usize = 16;

/// A lane's four neighbours of the `j`-th group of columns, and the `i`-th of its two rows.
#[inline(always)]
fn run<const REGISTERS: usize>(sums: &[f32; REGISTERS], i: usize, j: usize) -> [f32; 4] {
    let first = COLUMNS / 2 * j + 2 * i;
    [sums[first], sums[first + 1], sums[first + 4], sums[first + 5]]
}

/// The row and the column of the first of these, in the part of a warp group.
#[inline(always)]
const fn place(lane: u32) -> [u32; 2] {
    [wgmma::d(lane, 0).0, 4 * (lane % 4)]
}

// That these are neighbours: a column of the accumulator is a row of the weights' panels.
const _: () = {
    let mut lane = 0;
    while lane < WARPGROUP_LANES {
        let [row, column] = place(lane);
        let mut at = 0;
        while at < 8 {
            let (i, of_four) = (at / 4, at % 4);
            let (found, panel_row) = wgmma::d(lane, 2 * i + [0, 1, 4, 5][of_four as usize]);
            assert!(found == row + 8 * i && panel_row == interleaved(column + of_four));
            at += 1;
        }
        lane += 1;
    }
};

/// What is done with a warp group's sums, and the addresses for that.
pub trait Epilogue: Copy + bytemuck::Zeroable + Send + Sync + 'static {
    /// The kernel's name with tiles of 256, 240 and 128 columns, where there is one.
    const NAMES: [Option<&'static str>; 3];
    /// The instruction that stores whole runs, and how many accumulators go into one.
    const STORE: &'static str;
    /// See [`STORE`](Self::STORE).
    const STORED: u32;

    /// What a product of `m × n × k` reads, writes and multiplies; `n` rows of weights lie in panels.
    fn work(&self, shape: [u32; 3]) -> Work;

    /// Stores a warp group's sums of 64 rows from `row` on and of rows of weights from `column` on, as far as
    /// there is an output; there are `m` and `n`.
    ///
    /// # Safety
    /// No other warp group has these; the addresses are as the fields say.
    #[track_caller]
    unsafe fn store<S: Hopper, const REGISTERS: usize>(
        self,
        s: S,
        sums: &[f32; REGISTERS],
        shape: [u32; 2],
        from: [u32; 2],
    );
}

/// `out = sums + bias`, f32.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Plain {
    /// `m × n`, row major, overlapping nothing that is read; aligned to 16 bytes if `n` is a multiple of 4.
    pub out: Global<f32>,
    /// `n`, or address 0 if there is none.
    pub bias: Global<f32>,
}

impl Epilogue for Plain {
    const NAMES: [Option<&'static str>; 3] =
        [Some("matmul_f16_wgmma"), Some("matmul_f16_wgmma_n240"), Some("matmul_f16_wgmma_n128")];
    const STORE: &'static str = "st.global.v4.b32";
    const STORED: u32 = 4;

    fn work(&self, shape @ [.., k]: [u32; 3]) -> Work {
        problem::work(shape, self.bias, [AsF16Panels::value_bytes(k); 2])
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Hopper, const REGISTERS: usize>(
        self,
        s: S,
        sums: &[f32; REGISTERS],
        [m, n]: [u32; 2],
        [row, column]: [u32; 2],
    ) {
        let Self { out, bias } = self;
        let [down, right] = place(s.thread() % WARPGROUP_LANES);
        // SAFETY: the caller's.
        unsafe {
            let output = Output { out, bias, m, n };
            let groups = [2, REGISTERS * 2 / COLUMNS];
            output.store_runs(s, [row + down, column + right], groups, |i, j| run(sums, i, j));
        }
    }
}

/// `out = activation(gate) · up`, rounded to f16: panels of the weights are those of gate and of up in turns, so
/// that a tile of 256 of their rows has 128 columns of both, and a lane the same ones.
///
/// The bits are those of [`Plain`] twice and [`Gated`](crate::activation::Gated) behind it.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct GateUp {
    /// [`Panels`](super::Panels) of `m` rows of `width` columns, overlapping nothing that is read; aligned to 16
    /// bytes.
    pub out: Global<u8>,
    /// Rows of gate and of up, columns of out: a multiple of 8. `n` is what they are [paired](super::panels::paired).
    pub width: u32,
    /// Which [`Gate`](crate::activation::Gate).
    pub activation: u32,
}

impl Epilogue for GateUp {
    const NAMES: [Option<&'static str>; 3] = [Some("matmul_f16_wgmma_gated"), None, None];
    const STORE: &'static str = "st.global.v2.b32";
    const STORED: u32 = 8;

    fn work(&self, [m, _, k]: [u32; 3]) -> Work {
        let read = (u64::from(m) + 2 * u64::from(self.width)) * AsF16Panels::value_bytes(k);
        let written = u64::from(m) * AsF16Panels::value_bytes(self.width);
        Work::moving(read, written).multiplying(product([2, m, self.width, k]), Unit::TensorF16)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<S: Hopper, const REGISTERS: usize>(
        self,
        s: S,
        sums: &[f32; REGISTERS],
        [m, _]: [u32; 2],
        [row, column]: [u32; 2],
    ) {
        const { assert!(REGISTERS == PANEL_ROWS as usize, "a panel of gate and one of up") };
        let Self { out, width, activation } = self;
        let [down, right] = place(s.thread() % WARPGROUP_LANES);
        let groups = PANEL_ROWS as usize / COLUMNS;
        for j in 0..groups {
            let column = column / 2 + right + (COLUMNS * j) as u32;
            for i in 0..2 {
                let row = row + down + 8 * i as u32;
                if row < m {
                    let (gate, up) = (run(sums, i, j), run(sums, i, groups + j));
                    let mut values = [0.0; 4];
                    for k in 0..4 {
                        values[k] = gated(s, activation, gate[k], up[k]);
                    }
                    // SAFETY: the caller's: a row of the `m`, and four values that are this lane's alone.
                    unsafe { AsF16Panels::store_four(s, out, row, width, column, values) };
                }
            }
        }
    }
}
