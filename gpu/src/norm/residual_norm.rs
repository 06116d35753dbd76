//! `residual_norm`: a layer's output joins the residual stream, and what it has become is
//! normalized for the next products.
//!
//! For each row, with `norm(x, w)[c] = x[c] · s(x) · w[c]`, `s(x) = 1 / √(Σ_c x[c]² / width + epsilon)`:
//!
//! ```text
//! d        = delta, or norm(delta, post) where there is a post weight
//! residual = residual + d                     where there is a delta
//! out      = norm(residual, weight)
//!
//! residual, delta   rows × width   f32, row major
//! out               rows × width   f32, f16 or q8
//! weight, post      width          f32
//! ```
//!
//! One kernel for the three places of a decoder: before the first layer (no delta), between blocks
//! (Llama, Qwen), and between blocks whose outputs are normalized too (Gemma 3).
//!
//! # Who owns what
//!
//! ```text
//! block r = row r, 512 threads; thread t owns columns 4t to 4t + 3 of every 2048
//!
//!   weight into registers, before the wait for the launch before; then
//!   delta, residual into registers: 16-byte loads, all on their way before the first is used
//!         |
//!   post: squares of own columns, in order -> block_sum -> d       one barrier
//!         |
//!   residual + d, written back
//!         |
//!   squares of own columns, in order -> block_sum                  one barrier
//!         |
//!   own columns scaled, rounded, written
//! ```
//!
//! The row stays in registers from the first load to the last store: 8 vectors of four, which is
//! what bounds the width. Vectors past the row are zeros and cost two tests.
//!
//! # Shared memory
//!
//! The partial sums of 16 warps, 64 bytes, for each of the two sums: the second does not wait for
//! the readers of the first.
//!
//! # Shape contract
//!
//! The width is a multiple of the output's [`COLUMNS`](Activations::COLUMNS), 4 at least, so that every
//! access is a vector; at most 16,384.
//!
//! # Numeric contract
//!
//! Squares are fused into f32 sums in the fixed order above, which depends on the width alone, not on
//! the number of rows; the scale is `rsqrt.approx`, 2^-22.9; then two roundings of products,
//! `(x · s) · w`, and one of the sum with the residual. What `out` is rounded to: [`Activations`].

use core::marker::PhantomData;

use crate::product::Activations;
use crate::product::activations::LANE_VALUES;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work, product,
};

use super::total::{block_sum, partial_bytes, scale};

/// Threads of a block.
const THREADS: u32 = 512;
/// Vectors of a row that a thread holds at most.
const VECTORS: usize = 8;
/// Columns from one of a thread's vectors to the next.
const STEP: u32 = THREADS * LANE_VALUES;

/// A thread's part of a row.
type Part = [[f32; 4]; VECTORS];

/// The arguments of `residual_norm`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ResidualNorm<A> {
    /// [`Activations::bytes`] of `rows` rows; overlaps nothing else.
    pub out: Global<u8>,
    /// `rows × width`, read and, if there is a delta, written. Aligned to 16 bytes, as all below.
    pub residual: Global<f32>,
    /// `rows × width`, or the address 0 for none.
    pub delta: Global<f32>,
    /// `width` factors, or the address 0 for none; used only with a delta.
    pub post: Global<f32>,
    /// `width` factors, which are read before the launches before this one are waited for.
    pub weight: Global<f32>,
    /// How many rows, at most 2^31 - 1: a grid has no more blocks.
    pub rows: u32,
    /// Elements of a row, at most [`MOST_WIDTH`](Self::MOST_WIDTH).
    pub width: u32,
    /// Added to the mean of squares.
    pub epsilon: f32,
    /// What the rows of `out` are.
    pub kind: PhantomData<A>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<A> bytemuck::Zeroable for ResidualNorm<A> {}

impl<A: Activations> Contract for ResidualNorm<A> {
    const NAME: &'static str = match A::NAME.as_bytes() {
        b"f32" => "residual_norm_f32",
        b"f16" => "residual_norm_f16",
        b"f16_panels" => "residual_norm_f16_panels",
        b"f16_slabs" => "residual_norm_f16_slabs",
        b"q8" => "residual_norm_q8",
        _ => panic!("rows without a kernel"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(2)),
            Occurrence::new("ld.shared.b32", Count::Exactly(2 * THREADS / WARP_LANES)),
            // The residual without a delta, and delta, post, residual, weight with one.
            Occurrence::new("ld.global", Count::Exactly(5 * VECTORS as u32)),
            Occurrence::new("rsqrt.approx.ftz.f32", Count::Exactly(2)),
        ],
        registers: 128,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(self.rows), threads: THREADS, shared_bytes: 2 * partial_bytes(THREADS) }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let (rows, width) = (4 * product([self.rows, self.width]), 4 * u64::from(self.width));
        let out = u64::from(self.rows) * A::value_bytes(self.width);
        Some(match (self.delta.address(), self.post.address()) {
            (0, _) => Work::moving(rows + width, out),
            (_, 0) => Work::moving(2 * rows + width, out + rows),
            _ => Work::moving(2 * rows + 2 * width, out + rows),
        })
    }
}

impl<A: Activations> ResidualNorm<A> {
    /// The widest row.
    pub const MOST_WIDTH: u32 = STEP * VECTORS as u32;

    /// This thread's part of a row, or of a weight, that nobody writes meanwhile.
    ///
    /// # Safety
    /// `row` is `width` elements, aligned to 16 bytes.
    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(&self, s: S, row: Global<f32>) -> Part {
        let mut part = [[0.0; 4]; VECTORS];
        let mut column = s.thread() * LANE_VALUES;
        for vector in &mut part {
            if column < self.width {
                // SAFETY: the caller's.
                *vector = unsafe { s.load_global(row.at(u64::from(column)).cast()) };
            }
            column += STEP;
        }
        part
    }

    /// The factor of a norm of the row, whose part of this thread is given.
    ///
    /// # Safety
    /// As [`block_sum`], for the `round`-th of the block's sums.
    #[inline(always)]
    #[track_caller]
    unsafe fn scale_of<S: Simt>(&self, s: S, part: &Part, round: u32) -> f32 {
        let mut squares = 0.0;
        for vector in part {
            for &x in vector {
                squares = s.fma(x, x, squares);
            }
        }
        let partial = s.shared().at(round * (THREADS / WARP_LANES));
        // SAFETY: the caller's; each round has partial sums of its own.
        let total = unsafe { block_sum::<THREADS, S>(s, partial, squares) };
        scale(s, total, self.width, self.epsilon)
    }
}

impl<S: Simt, A: Activations> Kernel<S> for ResidualNorm<A> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let row = s.block().x;
        let residual = self.residual.row(row, self.width);
        s.let_next_begin();
        // SAFETY: all factors, which no launch writes; an empty row has no block that would ask for them. On their way
        // before the wait: behind the residual's store they would be waited for by themselves.
        let weight = unsafe {
            if row == 0 && s.thread() == 0 && self.post.address() != 0 {
                s.prefetch(self.post, self.width * 4);
            }
            self.load(s, self.weight)
        };
        s.wait_for_previous();

        // SAFETY: columns below the width, in row `row` of a grid of `rows` blocks; each element has
        // one thread, which reads it before it writes it. Whether there is a delta or a post weight is
        // the same for all threads.
        unsafe {
            let mut x;
            if self.delta.address() == 0 {
                x = self.load(s, residual);
            } else {
                x = self.load(s, self.delta.row(row, self.width));
                if self.post.address() != 0 {
                    let post = self.load(s, self.post);
                    let scale = self.scale_of(s, &x, 0);
                    for (x, post) in x.iter_mut().zip(&post) {
                        for (x, post) in x.iter_mut().zip(post) {
                            *x = *x * scale * post;
                        }
                    }
                }
                let before = self.load(s, residual);
                let mut column = s.thread() * LANE_VALUES;
                for (x, before) in x.iter_mut().zip(&before) {
                    for (x, before) in x.iter_mut().zip(before) {
                        *x += before;
                    }
                    if column < self.width {
                        s.store_global(residual.at(u64::from(column)).cast(), *x);
                    }
                    column += STEP;
                }
            }

            let scale = self.scale_of(s, &x, 1);
            let mut column = s.thread() * LANE_VALUES;
            for (x, weight) in x.iter().zip(&weight) {
                // The whole warp, if one of its lanes.
                if column - s.lane() * LANE_VALUES < self.width {
                    let [a, b, c, d] = *x;
                    let [u, v, w, z] = *weight;
                    let values = [a * scale * u, b * scale * v, c * scale * w, d * scale * z];
                    A::store(s, self.out, row, self.width, column, values);
                }
                column += STEP;
            }
        }
    }
}
