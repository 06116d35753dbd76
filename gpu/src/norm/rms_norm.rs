//! `rms_norm`: a row divided by its root mean square, times a weight per column.
//!
//! `out[r][c] = input[r][c] · s_r · weight[c]`, `s_r = 1 / √(Σ_c input[r][c]² / width + epsilon)`;
//! input and out `rows × width`, row major, f32.
//!
//! # Who owns what
//!
//! ```text
//! block r = row r; thread t owns columns t, t + 256, t + 512, ...
//!
//!   square and add own columns, in order
//!         |
//!   warp 0 .. 7: butterfly over 32 lanes, lane 0 writes partial[warp]
//!         |                                        shared: partial[8], 32 bytes
//!      barrier                                     the only one
//!         |
//!   every thread adds partial[0 .. 8], in order: all threads have the same bits
//!         |
//!   scale own columns (the row is read again, from the cache)
//! ```
//!
//! # Numeric contract
//!
//! Squares are fused into f32 sums in the fixed order above, which depends on the width alone;
//! the scale is `rsqrt.approx`, 2^-22.9; then two roundings of products, `(x · s) · w`.

use super::total::{block_sum, partial_bytes, scale};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work, product,
};

/// Threads of a block.
const THREADS: u32 = 256;
/// Warps of a block, and partial sums in shared memory.
const WARPS: u32 = THREADS / WARP_LANES;

/// The arguments of `rms_norm`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct RmsNorm {
    /// `rows × width`; may not overlap an input.
    pub out: Global<f32>,
    /// `rows × width`.
    pub input: Global<f32>,
    /// `width` factors.
    pub weight: Global<f32>,
    /// How many rows, at most 2^31 - 1: a grid has no more blocks.
    pub rows: u32,
    /// Elements of a row, at most 2^32 - 256: so no index overflows.
    pub width: u32,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

impl Contract for RmsNorm {
    const NAME: &'static str = "rms_norm";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(5)),
            Occurrence::new("ld.shared.b32", Count::Exactly(WARPS)),
            Occurrence::new("rsqrt.approx.ftz.f32", Count::Exactly(1)),
        ],
        registers: 40,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(self.rows), threads: THREADS, shared_bytes: partial_bytes(THREADS) }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let rows = 4 * product([self.rows, self.width]);
        Some(Work::moving(rows + 4 * u64::from(self.width), rows))
    }
}

impl<S: Simt> Kernel<S> for RmsNorm {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let thread = s.thread();
        let row = s.block().x;
        let (input, out) = (self.input.row(row, self.width), self.out.row(row, self.width));

        // SAFETY: columns below the width, in row `row` of a grid of `rows` blocks; each out
        // element has one thread; shared memory is the sum's.
        unsafe {
            let mut sum = 0.0;
            let mut column = thread;
            while column < self.width {
                let x = s.load_global_constant(input.at(u64::from(column)));
                sum = s.fma(x, x, sum);
                column += THREADS;
            }

            let total = block_sum::<THREADS, S>(s, s.shared(), sum);
            let scale = scale(s, total, self.width, self.epsilon);
            let mut column = thread;
            while column < self.width {
                let x = s.load_global_constant(input.at(u64::from(column)));
                let weight = s.load_global_constant(self.weight.at(u64::from(column)));
                s.store_global(out.at(u64::from(column)), x * scale * weight);
                column += THREADS;
            }
        }
    }
}
