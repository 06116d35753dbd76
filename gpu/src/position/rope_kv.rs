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
//! Both elements of a pair are in one lane in either order, so nothing is exchanged but the sum of
//! squares. No shared memory, no barrier.
//!
//! # Numeric contract
//!
//! f32 up to the last rounding, to f16. The squares' sum has a fixed order, which depends on head size
//! and order of pairs alone; the root is `rsqrt.approx`, 2^-22.9. A turn is `fma(a, cos, −(b·sin))`.
//! Every head is computed by itself: its bits depend on nothing beside it.
//!
//! Source: Su et al., RoFormer (2021).

use half::f16;

use crate::attention::{KvCache, KvPlace};
use crate::norm::scale;
use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES, Work, product,
};

/// Heads of a block, one a warp.
const WARPS: u32 = 4;
/// Pairs that a lane has at most.
const PAIRS: usize = 4;

/// A lane's pairs.
type Pairs = [[f32; 2]; PAIRS];

/// Heads of f32, as a product leaves them, and what is done to them first.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct HeadRows {
    /// `rows` rows, each its heads of head size elements, one behind the other. Aligned to 4 bytes.
    pub start: Global<f32>,
    /// Elements from one row to the next: a product may leave all three side by side.
    pub stride: u64,
    /// One element for each of a row, or the address 0 for none.
    pub bias: Global<f32>,
    /// `head size` factors of a norm of each head, or the address 0 for none. Not for values.
    pub norm: Global<f32>,
}

/// The arguments of `rope_kv`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct RopeKv {
    /// `rows × heads × head size`; overlaps no input.
    pub out: Global<f16>,
    /// `heads` heads a row.
    pub query: HeadRows,
    /// `KV heads` heads a row.
    pub key: HeadRows,
    /// `KV heads` heads a row, without a norm.
    pub value: HeadRows,
    /// The cache; its width is that of `KV heads` heads. No two rows stand at one place. A row that does
    /// not stand in its context, or stands behind the angles, is left alone.
    pub cache: KvCache,
    /// Cosine and sine, `positions × pairs`.
    pub angles: Global<[f32; 2]>,
    /// Positions that there are angles for.
    pub positions: u32,
    /// Rows, at most 2^31 - 1.
    pub rows: u32,
    /// Query heads. With the KV heads, at most 65,535 · 4 in all.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Elements of a head, even, at most [`MOST_HEAD_SIZE`](Self::MOST_HEAD_SIZE).
    pub head_size: u32,
    /// Pairs that turn, at most half the head size.
    pub pairs: u32,
    /// Whether the order is that of halves: 0 or 1.
    pub halves: u32,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

impl Contract for RopeKv {
    const NAME: &'static str = "rope_kv";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Never),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(5)),
            Occurrence::new("rsqrt.approx.ftz.f32", Count::Exactly(1)),
        ],
        registers: 48,
        local_memory: false,
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let y = self.slots().div_ceil(WARPS);
        Launch { grid: Dim3 { x: self.rows, y, z: 1 }, threads: WARPS * WARP_LANES, shared_bytes: 0 }
    }

    fn work(&self, _: u32) -> Option<Work> {
        let elements = product([self.rows, self.slots(), self.head_size]);
        let of_all = |start: u64, heads: u32| if start == 0 { 0 } else { product([heads, self.head_size]) };
        let factors = of_all(self.query.bias.address(), self.heads)
            + of_all(self.key.bias.address(), self.kv_heads)
            + of_all(self.value.bias.address(), self.kv_heads)
            + of_all(self.query.norm.address(), 1)
            + of_all(self.key.norm.address(), 1);
        let angles = 8 * product([self.rows, self.pairs]);
        let places = u64::from(self.rows) * size_of::<KvPlace>() as u64;
        Some(Work::moving(4 * (elements + factors) + angles + places, 2 * elements))
    }
}

impl RopeKv {
    /// Elements of the largest head.
    pub const MOST_HEAD_SIZE: u32 = 2 * WARP_LANES * PAIRS as u32;
    /// Heads of a row at most, of all three kinds together: a grid's second axis has no more blocks.
    pub const MOST_SLOTS: u32 = 65_535 * WARPS;

    /// Heads of a row, of all three kinds together.
    const fn slots(&self) -> u32 {
        self.heads + 2 * self.kv_heads
    }

    /// The elements of pair `pair`.
    #[inline(always)]
    const fn elements(&self, pair: u32) -> [u64; 2] {
        let turned_in_halves = self.halves != 0 && pair < self.pairs;
        if turned_in_halves {
            [pair as u64, (pair + self.pairs) as u64]
        } else {
            [2 * pair as u64, 2 * pair as u64 + 1]
        }
    }

    /// This lane's pairs of a head, or of what there is for each of its elements.
    ///
    /// # Safety
    /// `head` is `head size` elements that nobody writes; `constant`: no launch does.
    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(&self, s: S, head: Global<f32>, constant: bool) -> Pairs {
        let mut pairs = [[0.0; 2]; PAIRS];
        let mut pair = s.lane();
        for both in &mut pairs {
            if pair < self.head_size / 2 {
                let [a, b] = self.elements(pair);
                // SAFETY: the caller's.
                *both = unsafe {
                    if constant {
                        [s.load_global_constant(head.at(a)), s.load_global_constant(head.at(b))]
                    } else {
                        [s.load_global(head.at(a)), s.load_global(head.at(b))]
                    }
                };
            }
            pair += WARP_LANES;
        }
        pairs
    }

    /// A head with its bias, normalized if it has a norm. The same `rows` in all lanes.
    ///
    /// # Safety
    /// `row` and `head` are those of a head of `rows`, which keep their contract.
    #[inline(always)]
    #[track_caller]
    unsafe fn head<S: Simt>(&self, s: S, rows: HeadRows, row: u32, head: u32) -> Pairs {
        let first = u64::from(head * self.head_size);
        // SAFETY: the caller's.
        unsafe {
            let mut x =
                self.load(s, rows.start.at(u64::from(row).wrapping_mul(rows.stride)).at(first), false);
            if rows.bias.address() != 0 {
                let bias = self.load(s, rows.bias.at(first), true);
                for (x, bias) in x.iter_mut().zip(&bias) {
                    *x = [x[0] + bias[0], x[1] + bias[1]];
                }
            }
            if rows.norm.address() != 0 {
                let norm = self.load(s, rows.norm, true);
                let mut squares = 0.0;
                for [a, b] in x {
                    squares = s.fma(b, b, s.fma(a, a, squares));
                }
                let scale = scale(s, s.warp_sum(squares), self.head_size, self.epsilon);
                for (x, norm) in x.iter_mut().zip(&norm) {
                    *x = [x[0] * scale * norm[0], x[1] * scale * norm[1]];
                }
            }
            x
        }
    }
}

impl<S: Simt> Kernel<S> for RopeKv {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let row = s.block().x;
        let slot = s.block().y * WARPS + s.warp();
        s.let_next_begin();
        s.wait_for_previous();
        // The same for all lanes of a warp, and there is no barrier.
        if slot >= self.slots() {
            return;
        }
        // SAFETY: a row of the grid's, a head below their number, elements below the head size; each
        // output element has one lane, and no two rows stand at one place.
        unsafe {
            let Some(place) = self.cache.place(s, row) else { return };
            if place.position >= self.positions {
                return;
            }
            let is_query = slot < self.heads;
            let is_value = slot >= self.heads + self.kv_heads;
            let (rows, head, to) = if is_query {
                (self.query, slot, self.out.row(row, self.heads * self.head_size))
            } else if is_value {
                let none = HeadRows { norm: Global::from_address(0), ..self.value };
                (none, slot - self.heads - self.kv_heads, place.values.row(place.position, self.cache.width))
            } else {
                (self.key, slot - self.heads, place.keys.row(place.position, self.cache.width))
            };
            let to = to.at(u64::from(head * self.head_size));
            let x = self.head(s, rows, row, head);

            let angles = self.angles.row(place.position, self.pairs);
            let mut pair = s.lane();
            for [a, b] in x {
                if pair < self.head_size / 2 {
                    let mut turned = [a, b];
                    if pair < self.pairs && !is_value {
                        let [cos, sin]: [f32; 2] = s.load_global_constant(angles.at(u64::from(pair)));
                        turned = [s.fma(a, cos, -(b * sin)), s.fma(a, sin, b * cos)];
                    }
                    let [first, second] = self.elements(pair);
                    // A value's pairs are nothing but where they are stored.
                    s.store_global(to.at(first), s.f16_from_f32(turned[0]));
                    s.store_global(to.at(second), s.f16_from_f32(turned[1]));
                }
                pair += WARP_LANES;
            }
        }
    }
}
