//! Heads on their way from their products to attention: what is done to each, by one warp.
//!
//! What that is, and the numeric contract: [`RopeKv`](super::RopeKv), which does it to all heads of its
//! rows. [`AttnDecode`](crate::attention::AttnDecode) does it to the heads that a block of its needs.
//!
//! Lane `l` owns the pairs `l`, `l + 32`, `l + 64`, `l + 96` that there are. Both elements of a pair are
//! in one lane in either order, so nothing is exchanged but the sum of squares.

use crate::norm::scale;
use crate::simt::{Global, Simt, WARP_LANES, product};
use half::f16;

/// Pairs that a lane has at most.
const PAIRS: usize = 4;

/// A lane's pairs of a head, or of what there is for each of its elements.
pub(crate) type Pairs = [[f32; 2]; PAIRS];

/// Heads of f32, as a product leaves them, and what is done to them first.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct HeadRows {
    /// `rows` rows, each its heads of head size elements, one behind the other. Aligned to 4 bytes.
    pub start: Global<f32>,
    /// Elements from one row to the next: a product may leave all three side by side.
    pub stride: u64,
    /// One element for each of a row, or the address 0 for none. No launch writes them: they are read before a launch
    /// waits for the one that it follows.
    pub bias: Global<f32>,
    /// `head size` factors of a norm of each head, or the address 0 for none. Not for values. Likewise.
    pub norm: Global<f32>,
}

/// The heads of rows, and what becomes of them.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Turning {
    /// `heads` heads a row.
    pub query: HeadRows,
    /// `KV heads` heads a row.
    pub key: HeadRows,
    /// `KV heads` heads a row, without a norm.
    pub value: HeadRows,
    /// Cosine and sine, `positions × pairs`.
    pub angles: Global<[f32; 2]>,
    /// Query heads.
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

/// A head of every row.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// It and its neighbours.
    rows: HeadRows,
    /// Its first element in a row.
    first: u64,
    /// Whether it turns: values do not.
    pub(crate) turns: bool,
}

impl Turning {
    /// Elements of the largest head.
    pub const MOST_HEAD_SIZE: u32 = 2 * WARP_LANES * PAIRS as u32;
    /// A lane's pairs where there are none.
    pub(crate) const NO_PAIRS: Pairs = [[0.0; 2]; PAIRS];

    /// Heads of a row, of all three kinds together.
    pub(crate) const fn all_heads(&self) -> u32 {
        self.heads + 2 * self.kv_heads
    }

    /// Bytes that are read for so many rows, each once.
    pub(crate) fn bytes(&self, rows: u32) -> u64 {
        let of_all = |start: u64, heads: u32| if start == 0 { 0 } else { product([heads, self.head_size]) };
        let factors = of_all(self.query.bias.address(), self.heads)
            + of_all(self.key.bias.address(), self.kv_heads)
            + of_all(self.value.bias.address(), self.kv_heads)
            + of_all(self.query.norm.address(), 1)
            + of_all(self.key.norm.address(), 1);
        let elements = product([rows, self.all_heads(), self.head_size]);
        4 * (elements + factors) + 8 * product([rows, self.pairs])
    }

    /// Head `index` of a row's: queries, then keys, then values.
    #[inline(always)]
    pub(crate) const fn head(&self, index: u32) -> Head {
        if index < self.heads {
            self.query_head(index)
        } else if index < self.heads + self.kv_heads {
            self.key_head(index - self.heads)
        } else {
            self.value_head(index - self.heads - self.kv_heads)
        }
    }

    /// A query.
    #[inline(always)]
    pub(crate) const fn query_head(&self, index: u32) -> Head {
        Head { rows: self.query, first: (index * self.head_size) as u64, turns: true }
    }

    /// A key.
    #[inline(always)]
    pub(crate) const fn key_head(&self, index: u32) -> Head {
        Head { rows: self.key, first: (index * self.head_size) as u64, turns: true }
    }

    /// A value.
    #[inline(always)]
    pub(crate) const fn value_head(&self, index: u32) -> Head {
        let rows = HeadRows { norm: Global::from_address(0), ..self.value };
        Head { rows, first: (index * self.head_size) as u64, turns: false }
    }

    /// The elements of pair `pair`.
    #[inline(always)]
    const fn elements(&self, pair: u32) -> [u32; 2] {
        let turned_in_halves = self.halves != 0 && pair < self.pairs;
        if turned_in_halves { [pair, pair + self.pairs] } else { [2 * pair, 2 * pair + 1] }
    }

    /// This lane's pairs of a head, or of what there is for each of its elements.
    ///
    /// # Safety
    /// `head` is `head size` elements that nobody writes; `constant`: no launch does.
    #[inline(always)]
    #[track_caller]
    unsafe fn load<S: Simt>(&self, s: S, head: Global<f32>, constant: bool) -> Pairs {
        let mut pairs = Self::NO_PAIRS;
        let mut pair = s.lane();
        for both in &mut pairs {
            if pair < self.head_size / 2 {
                let [a, b] = self.elements(pair).map(|element| head.at(element.into()));
                // SAFETY: the caller's.
                *both = unsafe {
                    if constant {
                        [s.load_global_constant(a), s.load_global_constant(b)]
                    } else {
                        [s.load_global(a), s.load_global(b)]
                    }
                };
            }
            pair += WARP_LANES;
        }
        pairs
    }

    /// A row's head, as the product left it.
    ///
    /// # Safety
    /// `head` is one of these, whose rows keep their contract and have a row `row`.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn start<S: Simt>(&self, s: S, head: Head, row: u32) -> Pairs {
        let start = head.rows.start.at(u64::from(row).wrapping_mul(head.rows.stride));
        // SAFETY: the caller's.
        unsafe { self.load(s, start.at(head.first), false) }
    }

    /// What is added to a head, if there is such a thing. No launch writes it.
    ///
    /// # Safety
    /// `head` is one of these, whose rows keep their contract.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn bias<S: Simt>(&self, s: S, head: Head) -> Pairs {
        if head.rows.bias.address() == 0 {
            return Self::NO_PAIRS;
        }
        // SAFETY: the caller's.
        unsafe { self.load(s, head.rows.bias.at(head.first), true) }
    }

    /// The factors of a head's norm, if it has one; all of one kind have the same. No launch writes them.
    ///
    /// # Safety
    /// `head` is one of these, whose rows keep their contract.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn norm<S: Simt>(&self, s: S, head: Head) -> Pairs {
        if head.rows.norm.address() == 0 {
            return Self::NO_PAIRS;
        }
        // SAFETY: the caller's.
        unsafe { self.load(s, head.rows.norm, true) }
    }

    /// Cosine and sine of this lane's pairs that turn.
    ///
    /// # Safety
    /// There are angles for the position.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn angles<S: Simt>(&self, s: S, position: u32) -> Pairs {
        let angles = self.angles.row(position, self.pairs);
        let mut turn = Self::NO_PAIRS;
        let mut pair = s.lane();
        for turn in &mut turn {
            // The second is so anyway; said, it is known where the head size is.
            if pair < self.pairs && pair < self.head_size / 2 {
                // SAFETY: the caller's; below the pairs.
                *turn = unsafe { s.load_global_constant(angles.at(pair.into())) };
            }
            pair += WARP_LANES;
        }
        turn
    }

    /// A head with its bias, normalized if it has a norm, turned if it turns. The same `head` in all lanes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turned<S: Simt>(
        &self,
        s: S,
        head: Head,
        mut x: Pairs,
        [bias, norm]: [&Pairs; 2],
        angles: &Pairs,
    ) -> Pairs {
        if head.rows.bias.address() != 0 {
            for (x, bias) in x.iter_mut().zip(bias) {
                *x = [x[0] + bias[0], x[1] + bias[1]];
            }
        }
        if head.rows.norm.address() != 0 {
            let mut squares = 0.0;
            for [a, b] in x {
                squares = s.fma(b, b, s.fma(a, a, squares));
            }
            let scale = scale(s, s.warp_sum(squares), self.head_size, self.epsilon);
            for (x, norm) in x.iter_mut().zip(norm) {
                *x = [x[0] * scale * norm[0], x[1] * scale * norm[1]];
            }
        }
        let mut pair = s.lane();
        for (x, &[cos, sin]) in x.iter_mut().zip(angles) {
            if pair < self.pairs && head.turns {
                let [a, b] = *x;
                *x = [s.fma(a, cos, -(b * sin)), s.fma(a, sin, b * cos)];
            }
            pair += WARP_LANES;
        }
        x
    }

    /// Hands each element of this lane's pairs to `to`, rounded, with its index in the head.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn each<S: Simt>(&self, s: S, x: Pairs, mut to: impl FnMut(u32, f16)) {
        let mut pair = s.lane();
        for both in x {
            if pair < self.head_size / 2 {
                let [first, second] = self.elements(pair);
                to(first, s.f16_from_f32(both[0]));
                to(second, s.f16_from_f32(both[1]));
            }
            pair += WARP_LANES;
        }
    }
}
