//! `attn_naive`: attention as the formula reads, one thread for each element of the output.
//!
//! ```text
//! out[q][h][d] = Σ_p P[q][p] · V[p][h / group][d],   P = softmax(scale · Q·Kᵀ)
//! ```
//!
//! Arguments and layouts are those of [`fa_prefill_f16kv`](super::FaPrefillF16kv). This is the first
//! rung, for reading and as an oracle: it works for every head size, and it computes every score
//! anew for every element of a row.
//!
//! # Who owns what
//!
//! ```text
//! block (q, j): row q of the query; thread t: element 128 j + t of that row's heads × head size
//! ```
//!
//! No shared memory, and nobody waits for anybody.
//!
//! # Numeric contract
//!
//! Everything is f32, in the order of the positions; P is not rounded. Sums of products are fused.
//! The online softmax is that of the other kernels with a tile of one position: the sum and the
//! output so far are relative to the largest score so far. A row that sees nothing is zero.

use super::fa_prefill_f16kv::capped;
use super::problem::{Attention, distance};
use crate::simt::{Contract, Count, Dim3, Expectations, Kernel, Launch, Occurrence, Simt, Unit, Work};

/// Threads of a block.
const THREADS: u32 = 128;

/// The arguments of `attn_naive`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct AttnNaive {
    /// The problem.
    pub problem: Attention,
    /// Elements of a row of one head, any number. A row of all heads has at most 128 · 65,535: a
    /// grid's second axis has no more blocks.
    pub head_size: u32,
}

impl Contract for AttnNaive {
    const NAME: &'static str = "attn_naive";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Never),
            Occurrence::new("ld.shared", Count::Never),
            Occurrence::new("ld.global.nc", Count::Exactly(3)),
        ],
        registers: 40,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        let width = self.problem.heads().wrapping_mul(self.head_size);
        Launch {
            grid: Dim3 { x: self.problem.tokens, y: width.div_ceil(THREADS), z: 1 },
            threads: THREADS,
            shared_bytes: 0,
        }
    }

    fn work(&self, _: u32) -> Option<Work> {
        Some(self.problem.work(self.head_size, Unit::Plain))
    }
}

impl<S: Simt> Kernel<S> for AttnNaive {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Self { problem, head_size } = self;
        let width = problem.heads().wrapping_mul(head_size);
        let (token, column) = (s.block().x, s.block().y * THREADS + s.thread());
        if column >= width {
            return;
        }
        // At least 1, which is what keeps the divisions from failing.
        let head = column / head_size.max(1);
        let kv_head = head / problem.group.max(1);
        let kv_stride = problem.kv_heads.wrapping_mul(head_size);
        let query = problem.query.row(token, width).row(head, head_size);
        let keys = problem.keys.row(kv_head, head_size);
        let values = problem.values.row(kv_head, head_size).at(u64::from(column % head_size.max(1)));

        let row = problem.start + token;
        let (mut max, mut sum, mut out) = (f32::NEG_INFINITY, 0.0, 0.0);
        // SAFETY: a row of the grid is a row of query and out, and positions are rows of keys and
        // values; the head and the column are inside the row, because the column is below its width.
        unsafe {
            for position in 0..problem.positions {
                if !problem.sight.reaches(distance(row, position)) {
                    continue;
                }
                let key = keys.row(position, kv_stride);
                let mut score = 0.0;
                for d in 0..u64::from(head_size) {
                    let q = s.f32_from_f16(s.load_global_constant(query.at(d)));
                    let k = s.f32_from_f16(s.load_global_constant(key.at(d)));
                    score = s.fma(q, k, score);
                }
                if problem.scaling.cap != 0.0 {
                    score = capped(s, score, problem.scaling.cap);
                }
                let score = score * problem.scaling.log2;

                // The first time the maximum is -∞, and the factor 0.
                let new_max = s.max(max, score);
                let factor = s.exp2_approx(max - new_max);
                let weight = s.exp2_approx(score - new_max);
                let value = s.f32_from_f16(s.load_global_constant(values.row(position, kv_stride)));
                max = new_max;
                sum = s.fma(sum, factor, weight);
                out = s.fma(weight, value, out * factor);
            }
            let inverse = if sum > 0.0 { s.reciprocal_approx(sum) } else { 0.0 };
            s.store_global(problem.out.row(token, width).at(u64::from(column)), out * inverse);
        }
    }
}
