//! `attn_combine_f32`, `attn_combine_f16`, `attn_combine_f16_panels`, `attn_combine_f16_slabs`, `attn_combine_q8`: the
//! chunks of [`AttnDecode`] put together.
//!
//! For every row and head, over the chunks `c` that the row sees some position of:
//!
//! ```text
//! M = max m_c,    out[d] = Σ_c 2^(m_c - M) · partial_c[d]  /  Σ_c 2^(m_c - M) · sum_c
//!
//! partial, scales   as attn_decode leaves them
//! out               rows × heads · head size   f32, f16 or q8: the input of the product that follows
//! ```
//!
//! # Who owns what
//!
//! ```text
//! grid: x = 128 columns of a row of out, y = row. 8 warps.
//!
//! lane = four columns, all of one head      warp w = chunks w, w + 8, w + 16, ...
//!
//!   a running maximum, sum and four columns, chunk by chunk
//!         |                                 shared: 8 warps × 32 lanes × (4 + 2) f32, 6144 bytes
//!      barrier                              the only one
//!         |
//!   warp 0: the eight parts in order, divided, rounded, stored
//! ```
//!
//! # Numeric contract
//!
//! f32; which chunk is added when depends on its number alone. A row that sees nothing is zero; one
//! that stands nowhere ([`KvPlace`](super::KvPlace)) is left as it was. What `out` is rounded to:
//! [`Activations`].

#![allow(clippy::needless_range_loop, reason = "loops over registers are plain, so that they are unrolled")]

use core::marker::PhantomData;

use super::chunked::{CHUNK, Chunked};
use crate::product::Activations;
use crate::product::activations::LANE_VALUES;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work,
};

#[cfg(doc)]
use super::AttnDecode;

/// Warps of a block.
const WARPS: u32 = 8;
/// Columns of a block.
const TILE: u32 = WARP_LANES * LANE_VALUES;
/// Bytes of the warps' columns in shared memory, and behind them of their maximums and sums.
const COLUMN_BYTES: u32 = WARPS * TILE * 4;
const SCALE_BYTES: u32 = WARPS * WARP_LANES * 8;

/// The arguments of an `attn_combine`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AttnCombine<A> {
    /// What both kernels know.
    pub chunked: Chunked,
    /// [`Activations::bytes`] of `rows` rows of `heads · head size` values, which are a multiple of
    /// [`Activations::COLUMNS`]; aligned to 16 bytes.
    pub out: Global<u8>,
    /// Elements of a head, a multiple of 4.
    pub head_size: u32,
    /// What the rows of `out` are.
    pub kind: PhantomData<A>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<A> bytemuck::Zeroable for AttnCombine<A> {}

impl<A> AttnCombine<A> {
    /// Values of a row.
    const fn width(&self) -> u32 {
        self.chunked.heads().wrapping_mul(self.head_size)
    }
}

impl<A: Activations> Contract for AttnCombine<A> {
    const NAME: &'static str = match A::NAME.as_bytes() {
        b"f32" => "attn_combine_f32",
        b"f16" => "attn_combine_f16",
        b"f16_panels" => "attn_combine_f16_panels",
        b"f16_slabs" => "attn_combine_f16_slabs",
        b"q8" => "attn_combine_q8",
        _ => panic!("rows without a kernel"),
    };
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("ld.global.v4.b32", Count::Exactly(1)),
            Occurrence::new("rcp.approx.ftz.f32", Count::Exactly(1)),
        ],
        registers: 56,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;
    /// The rows' places.
    const READS_SETTLED: bool = true;

    fn launch(&self) -> Launch {
        Launch {
            grid: Dim3 { x: self.width().div_ceil(TILE), y: self.chunked.rows, z: 1 },
            threads: WARPS * WARP_LANES,
            shared_bytes: COLUMN_BYTES + SCALE_BYTES,
        }
    }

    fn work(&self, position: u32) -> Option<Work> {
        let read = self.chunked.part_bytes(position, self.head_size) + self.chunked.place_bytes();
        Some(Work::moving(read, u64::from(self.chunked.rows) * A::value_bytes(self.width())))
    }
}

/// Some chunks put together: four columns of them.
#[derive(Clone, Copy)]
struct Part {
    max: f32,
    sum: f32,
    columns: [f32; 4],
}

impl Part {
    /// No chunk.
    const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0, columns: [0.0; 4] };

    /// Both together.
    #[inline(always)]
    fn with<S: Simt>(self, s: S, other: Self) -> Self {
        let max = s.max(self.max, other.max);
        // -∞ minus -∞ is NaN; nothing and nothing are nothing.
        let finite = if max == f32::NEG_INFINITY { 0.0 } else { max };
        let (own, others) = (s.exp2_approx(self.max - finite), s.exp2_approx(other.max - finite));
        let mut columns = [0.0; 4];
        for i in 0..4 {
            columns[i] = s.fma(other.columns[i], others, self.columns[i] * own);
        }
        Self { max, sum: s.fma(other.sum, others, self.sum * own), columns }
    }
}

impl<S: Simt, A: Activations> Kernel<S> for AttnCombine<A> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: tile, y: row, .. } = s.block();
        let (lane, warp) = (s.lane(), s.warp());
        let column = tile * TILE + lane * LANE_VALUES;
        let width = self.width();
        s.let_next_begin();
        // SAFETY: a row of the grid's, columns below the width; chunks that attn_decode has written, because it goes
        // by the same reach; launches that write places are done; shared memory is written by one lane each and
        // read after the barrier. Whether a block leaves, all of its threads decide alike.
        unsafe {
            let place = self.chunked.cache.place(s, row);
            s.wait_for_previous();
            let Some((first, end)) = place.and_then(|place| self.chunked.reach(place.position)) else {
                return;
            };
            let mut part = Part::NONE;
            if column < width && first < end {
                // Never 0; said so, because a division by 0 would bring a panic along.
                let head_size = self.head_size.max(1);
                let (head, d) = (column / head_size, column % head_size);
                // The warp's first chunk that is not before the first one seen.
                let seen = first / CHUNK;
                let mut chunk = seen + (warp.wrapping_sub(seen) % WARPS);
                while chunk * CHUNK < end {
                    let index = self.chunked.index(row, head, chunk);
                    let from = self.chunked.partial.at(index * u64::from(self.head_size) + u64::from(d));
                    let [max, sum] = s.load_global(self.chunked.scales.at(index));
                    let columns = s.load_global(from.cast());
                    part = part.with(s, Part { max, sum, columns });
                    chunk += WARPS;
                }
            }
            let columns = s.shared::<[f32; 4]>();
            let scales = s.shared::<u8>().at(COLUMN_BYTES).cast::<[f32; 2]>();
            s.store_shared(columns.at(s.thread()), part.columns);
            s.store_shared(scales.at(s.thread()), [part.max, part.sum]);
            s.barrier();
            if warp > 0 {
                return;
            }
            let mut all = Part::NONE;
            for w in 0..WARPS {
                let [max, sum] = s.load_shared(scales.at(w * WARP_LANES + lane));
                let columns = s.load_shared(columns.at(w * WARP_LANES + lane));
                all = all.with(s, Part { max, sum, columns });
            }
            let inverse = if all.sum > 0.0 { s.reciprocal_approx(all.sum) } else { 0.0 };
            let mut values = [0.0; 4];
            for i in 0..4 {
                values[i] = all.columns[i] * inverse;
            }
            A::store(s, self.out, row, width, column, values);
        }
    }
}
