//! `rope_kv`: queries, keys and values on their way from their products to attention.
//!
//! For each row and each head of it:
//!
//! ```text
//! x = head + bias                                 where there is a bias
//! x = x / √(Σ x² / head size + epsilon) · norm    queries and keys, where there is a norm
//! x = turned by the angles of the position        queries and keys
//!
//! query out   rows × heads × head size   f16, row major
//! keys        to the cache, at the row's position
//! values      to the cache, at the row's position
//! ```
//!
//! Pair `(a, b)` of a head turns to `(a·cos − b·sin, a·sin + b·cos)`. Pair `p` of `pairs` is
//! `(2p, 2p + 1)`, or `(p, p + pairs)` where the order is that of halves; elements from `2 · pairs` on
//! pass unchanged. Which cosines and sines, the table says: its making (base, factors, YaRN) is not the
//! kernel's concern.
//!
//! # Who owns what
//!
//! ```text
//! block (x, y): row x; 4 of its heads from 4y on: queries, then keys, then values
//! warp = one head; lane l owns the pairs l, l + 32, l + 64, l + 96 that there are
//!
//!   both elements of own pairs into registers
//!         |
//!   + bias, squares of own elements in order, butterfly over the warp
//!         |
//!   · norm, turned, rounded, stored
//! ```
//!
//! Nothing is exchanged but the sum of squares. No shared memory, no barrier. What becomes of a head is
//! [`Turning`]'s: a step's [`AttnDecode`](crate::attention::AttnDecode) does the same to its own.
//!
//! # Numeric contract
//!
//! f32 up to the last rounding, to f16. The squares' sum has a fixed order, which depends on head size
//! and order of pairs alone; the root is `rsqrt.approx`, 2^-22.9. A turn is `fma(a, cos, −(b·sin))`.
//! Every head is computed by itself: its bits depend on nothing beside it.
//!
//! Source: Su et al., RoFormer (2021).

use half::f16;

use super::Turning;
use crate::attention::{KvCache, KvPlace};
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work, product,
};

/// Heads of a block, one a warp.
const WARPS: u32 = 4;

/// The arguments of `rope_kv`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct RopeKv {
    /// `rows × heads × head size`; overlaps no input.
    pub out: Global<f16>,
    /// The heads; at most [`MOST_SLOTS`](Self::MOST_SLOTS) a row.
    pub turning: Turning,
    /// The cache; its width is that of `KV heads` heads. No two rows stand at one place. A row that does
    /// not stand in its context, or stands behind the angles, is left alone.
    pub cache: KvCache,
    /// Positions that there are angles for.
    pub positions: u32,
    /// Rows, at most 2^31 - 1.
    pub rows: u32,
}

impl Contract for RopeKv {
    const NAME: &'static str = "rope_kv";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Never),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(5)),
            Occurrence::new("rsqrt.approx.ftz.f32", Count::Exactly(1)),
        ],
        // 48 from sm_80 on.
        registers: 56,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let y = self.turning.all_heads().div_ceil(WARPS);
        Launch { grid: Dim3 { x: self.rows, y, z: 1 }, threads: WARPS * WARP_LANES, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let elements = product([self.rows, self.turning.all_heads(), self.turning.head_size]);
        let places = u64::from(self.rows) * size_of::<KvPlace>() as u64;
        Some(Work::moving(self.turning.bytes(self.rows) + places, 2 * elements))
    }
}

impl RopeKv {
    /// Elements of the largest head.
    pub const MOST_HEAD_SIZE: u32 = Turning::MOST_HEAD_SIZE;
    /// Heads of a row at most, of all three kinds together: a grid's second axis has no more blocks.
    pub const MOST_SLOTS: u32 = 65_535 * WARPS;
}

impl<S: Simt> Kernel<S> for RopeKv {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Self { out, turning, cache, positions, .. } = self;
        let row = s.block().x;
        let slot = s.block().y * WARPS + s.warp();
        s.let_next_begin();
        s.wait_for_previous();
        // The same for all lanes of a warp, and there is no barrier.
        if slot >= turning.all_heads() {
            return;
        }
        // SAFETY: a row of the grid's, a head below their number, elements below the head size; each
        // output element has one lane, and no two rows stand at one place.
        unsafe {
            let Some(place) = cache.place(s, row) else { return };
            if place.position >= positions {
                return;
            }
            let Turning { heads, kv_heads, head_size, .. } = turning;
            let (index, to) = if slot < heads {
                (slot, out.row(row, heads * head_size))
            } else if slot < heads + kv_heads {
                (slot - heads, place.keys.row(place.position, cache.width))
            } else {
                (slot - heads - kv_heads, place.values.row(place.position, cache.width))
            };
            let to = to.at(u64::from(index * head_size));
            let head = turning.head(slot);
            let x = turning.start(s, head, row);
            let (bias, norm) = (turning.bias(s, head), turning.norm(s, head));
            let angles = if head.turns { turning.angles(s, place.position) } else { Turning::NO_PAIRS };
            let x = turning.turned(s, head, x, [&bias, &norm], &angles);
            // A value's pairs are nothing but where they are stored.
            turning.each(s, x, |element, x| s.store_global(to.at(element.into()), x));
        }
    }
}
