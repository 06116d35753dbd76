//! `convert_f16`, `convert_f16_panels`, `convert_f16_slabs`, `convert_q8`: rows of f32 as the operands of products.
//!
//! `out[r]` is row `r` of input, `width` f32, as [`Activations`] stores it.
//!
//! # Who owns what
//!
//! ```text
//! grid: x = 1024 neighbouring values of a row, y = row; thread t the four at 4 t
//! ```
//!
//! # Numeric contract
//!
//! f16: rounded to nearest even. q8: see [`AsQ8`]; 32 values decide over their own
//! quants alone.

use core::marker::PhantomData;

use bytemuck::Zeroable;

use super::activations::{Activations, AsF16, AsF16Panels, AsF16Slabs, AsQ8, LANE_VALUES};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, Work, product,
};

/// Threads of a block.
const THREADS: u32 = 256;
/// Values that a block converts.
const TILE: u32 = THREADS * LANE_VALUES;

/// The arguments of a conversion.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Convert<A> {
    /// [`Activations::bytes`] of `rows` rows, aligned to 16; not overlapping the input.
    pub out: Global<u8>,
    /// `rows × width`, aligned to 16 bytes.
    pub input: Global<f32>,
    /// How many rows, at most 65,535: a grid's second axis has no more blocks.
    pub rows: u32,
    /// Values of a row: a multiple of [`Activations::COLUMNS`], at most
    /// [`MOST_COLUMNS`](super::activations::MOST_COLUMNS).
    pub width: u32,
    /// What the rows become.
    pub kind: PhantomData<A>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<A> Zeroable for Convert<A> {}

/// A kind of rows that there is a kernel for.
pub trait Converted: Activations {
    /// Its name.
    const KERNEL: &'static str;
    /// What its PTX must look like.
    const EXPECTATIONS: Expectations;
}

impl Converted for AsF16 {
    const KERNEL: &'static str = "convert_f16";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ld.global.nc.v4.b32", Count::Exactly(1)),
            Occurrence::new("st.global.v2.b32", Count::Exactly(1)),
        ],
        registers: 24,
        local_memory: false,
    };
}

impl Converted for AsF16Panels {
    const KERNEL: &'static str = "convert_f16_panels";
    const EXPECTATIONS: Expectations = AsF16::EXPECTATIONS;
}

impl Converted for AsF16Slabs {
    const KERNEL: &'static str = "convert_f16_slabs";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ld.global.nc.v4.b32", Count::Exactly(1)),
            Occurrence::new("st.global.b32", Count::Exactly(2)),
        ],
        registers: 24,
        local_memory: false,
    };
}

impl Converted for AsQ8 {
    const KERNEL: &'static str = "convert_q8";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ld.global.nc.v4.b32", Count::Exactly(1)),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(5)),
            Occurrence::new("st.global.b32", Count::Exactly(4)),
        ],
        registers: 32,
        local_memory: false,
    };
}

impl<A: Converted> Contract for Convert<A> {
    const NAME: &'static str = A::KERNEL;
    const EXPECTATIONS: Expectations = A::EXPECTATIONS;

    fn launch(&self) -> Launch {
        let grid = Dim3 { x: self.width.div_ceil(TILE), y: self.rows, z: 1 };
        Launch { grid, threads: THREADS, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let written = u64::from(self.rows) * A::value_bytes(self.width);
        Some(Work::moving(4 * product([self.rows, self.width]), written))
    }
}

impl<S: Simt, A: Converted> Kernel<S> for Convert<A> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: tile, y: row, .. } = s.block();
        let column = tile * TILE + s.thread() * LANE_VALUES;
        // SAFETY: the four values are inside the row, which is one of `rows`; each out byte has
        // one thread.
        unsafe {
            let values = if column < self.width {
                s.load_global_constant(self.input.row(row, self.width).at(u64::from(column)).cast())
            } else {
                [0.0; 4]
            };
            A::store(s, self.out, row, self.width, column, values);
        }
    }
}
