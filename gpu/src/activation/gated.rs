//! `gated_f32`, `gated_f16`, `gated_f16_panels`, `gated_f16_slabs`, `gated_q8`: the middle of a gated layer,
//! `activation(gate) · up`.
//!
//! ```text
//! out = a(gate) · up,    a(x) = x / (1 + e^-z)
//!
//! SiLU          z = x
//! GELU (tanh)   z = 2 √(2/π) · (x + 0.044715 x³), because (1 + tanh y) / 2 = 1 / (1 + e^-2y)
//!
//! gate, up   rows × width   f32, row major, rows any distance apart: one product may leave both
//! out        rows × width   f32, f16 or q8
//! ```
//!
//! Prompts on sm_90a have both sums in one product, [`GateUp`](crate::product::GateUp), which does the same
//! arithmetic: `gated_f16_panels` behind two products is what it is compared with.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = row, y = 1024 of its columns; thread t the four at 4 t
//! ```
//!
//! # Numeric contract
//!
//! f32: `x · (1 / (1 + 2^(-z · log2 e))) · up` with `ex2.approx` (2 ULP) and `rcp.approx` (1 ULP). The
//! exponent is off by the roundings of z and of its product, so the relative error grows with |z|:
//! at most `(8 + 6 |z|) · 2^-24` ([`Gate::error`]), until at -z · log2 e > 126, where the
//! function itself is below 2^-119 in magnitude, the result is zero. Each element depends on itself
//! alone, in q8 on the 32 of its block. What `out` is rounded to:
//! [`Activations`].
//!
//! Sources: Hendrycks and Gimpel, GELU (2016); Shazeer, GLU Variants Improve Transformer (2020).

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use core::f32::consts::LOG2_E;
use core::marker::PhantomData;

use crate::product::Activations;
use crate::product::activations::LANE_VALUES;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Work, product,
};

/// Threads of a block.
const THREADS: u32 = 256;
/// Columns of a block.
const TILE: u32 = THREADS * LANE_VALUES;

/// 2·√(2/π), to the nearest f32.
const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769_2;

/// The activation of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Gate {
    /// SiLU, also called swish.
    Silu = 0,
    /// GELU in its approximation by tanh.
    GeluTanh = 1,
}

impl Gate {
    /// The largest relative error of `out` as f32 for this `z`, where it is not flushed to zero.
    #[must_use]
    pub fn error(z: f64) -> f64 {
        (8.0 + 6.0 * z.abs()) / f64::from(1 << 24)
    }
}

/// `activation(gate) · up` in f32, of a [`Gate`].
#[inline(always)]
#[track_caller]
pub(crate) fn gated<S: Simt>(s: S, activation: u32, gate: f32, up: f32) -> f32 {
    let z = if activation == Gate::GeluTanh as u32 {
        TWICE_SQRT_2_OVER_PI * gate * s.fma(0.044_715 * gate, gate, 1.0)
    } else {
        gate
    };
    gate * s.reciprocal_approx(1.0 + s.exp2_approx(-LOG2_E * z)) * up
}

/// The arguments of a gate.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gated<A> {
    /// [`Activations::bytes`] of `rows` rows, aligned to 16; overlaps no input.
    pub out: Global<u8>,
    /// `rows` rows of `width` elements, aligned to 16 bytes.
    pub gate: Global<f32>,
    /// As `gate`.
    pub up: Global<f32>,
    /// Elements from one row of `gate` to the next, and of `up`: a multiple of 4.
    pub stride: u64,
    /// How many rows, at most 2^31 - 1.
    pub rows: u32,
    /// Elements of a row: a multiple of [`Activations::COLUMNS`], at most
    /// [`MOST_WIDTH`](Self::MOST_WIDTH).
    pub width: u32,
    /// Which [`Gate`].
    pub activation: u32,
    /// What the rows of `out` are.
    pub kind: PhantomData<A>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<A> bytemuck::Zeroable for Gated<A> {}

impl<A> Gated<A> {
    /// The widest row: a grid's second axis has no more blocks.
    pub const MOST_WIDTH: u32 = 65_535 * TILE;
}

impl<A: Activations> Contract for Gated<A> {
    const NAME: &'static str = match A::NAME.as_bytes() {
        b"f32" => "gated_f32",
        b"f16" => "gated_f16",
        b"f16_panels" => "gated_f16_panels",
        b"f16_slabs" => "gated_f16_slabs",
        b"q8" => "gated_q8",
        _ => panic!("rows without a kernel"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ld.global.v4.b32", Count::Exactly(2)),
            Occurrence::new("ex2.approx.ftz.f32", Count::Exactly(LANE_VALUES)),
            Occurrence::new("rcp.approx.ftz.f32", Count::Exactly(LANE_VALUES)),
        ],
        registers: 40,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let grid = Dim3 { x: self.rows, y: self.width.div_ceil(TILE), z: 1 };
        Launch { grid, threads: THREADS, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let written = u64::from(self.rows) * A::value_bytes(self.width);
        Some(Work::moving(8 * product([self.rows, self.width]), written))
    }
}

impl<S: Simt, A: Activations> Kernel<S> for Gated<A> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let row = s.block().x;
        let column = s.block().y * TILE + s.thread() * LANE_VALUES;
        let (mut gate, mut up) = ([0.0_f32; 4], [0.0_f32; 4]);
        s.let_next_begin();
        s.wait_for_previous();
        // SAFETY: columns below the width, in a row of the grid's; each byte of out has one thread, or
        // in q8 one that writes for its neighbours.
        unsafe {
            if column < self.width {
                let at = u64::from(row).wrapping_mul(self.stride).wrapping_add(u64::from(column));
                gate = s.load_global(self.gate.at(at).cast());
                up = s.load_global(self.up.at(at).cast());
            }
            let mut values = [0.0; 4];
            for i in 0..LANE_VALUES as usize {
                values[i] = gated(s, self.activation, gate[i], up[i]);
            }
            A::store(s, self.out, row, self.width, column, values);
        }
    }
}
