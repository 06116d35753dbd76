//! What is asked of every prefill kernel: which rows, which keys, who sees what.

use core::f32::consts::LOG2_E;

use half::f16;

use crate::simt::{Dim3, Global, Unit, Work, product};

/// A problem of attention: the arguments of every prefill kernel.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct Attention {
    /// `tokens × heads × head size`; overlaps no input. Aligned to 32 bytes. This and the other
    /// three have fewer than 2^32 elements.
    pub out: Global<f32>,
    /// `tokens × heads × head size`, aligned to 16 bytes.
    pub query: Global<f16>,
    /// `positions × KV heads × head size`, aligned to 16 bytes.
    pub keys: Global<f16>,
    /// As `keys`.
    pub values: Global<f16>,
    /// Query rows.
    pub tokens: u32,
    /// The position of the first query row: how much of the cache was there before the prompt.
    /// `start + tokens` is below 2^31.
    pub start: u32,
    /// Rows of keys and values that there are, below 2^31.
    pub positions: u32,
    /// KV heads; query head `h` reads KV head `h / group`.
    pub kv_heads: u32,
    /// Query heads that share a KV head, at least 1.
    pub group: u32,
    /// Which of the positions a row sees.
    pub sight: Sight,
    /// What becomes of the products of queries and keys.
    pub scaling: Scaling,
}

/// From a product of a query and a key to an exponent of 2.
///
/// The score is `scale · s`, or `softcap · tanh(scale · s / softcap)`; softmax is of powers of e.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Zeroable)]
#[repr(C)]
pub struct Scaling {
    /// With a cap `2 log2 e · scale / softcap`, of which `tanh` needs the power of 2; without, 0.
    pub cap: f32,
    /// What to multiply with for an exponent of 2: `scale · log2 e`, or `softcap · log2 e` after
    /// `tanh`. Above 0.
    pub log2: f32,
}

impl Scaling {
    /// `scale`, above 0, is usually `1 / √head size`; a `softcap` of 0 is none.
    #[must_use]
    pub const fn new(scale: f32, softcap: f32) -> Self {
        if softcap == 0.0 {
            Self { cap: 0.0, log2: scale * LOG2_E }
        } else {
            Self { cap: 2.0 * LOG2_E * scale / softcap, log2: softcap * LOG2_E }
        }
    }
}

/// Which positions a row sees, by their distance: how many positions they lie before its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable)]
#[repr(C)]
pub struct Sight {
    /// The least distance: 0 if a row sees itself and what came before, else below every other.
    nearest: i32,
    /// How much larger a distance may be, so that one unsigned comparison is enough.
    span: u32,
}

impl Sight {
    /// A `causal` row sees no position after its own; with a `window`, below 2^31, at most so many
    /// up to its own. A window of 0 is none.
    #[must_use]
    pub const fn new(causal: bool, window: u32) -> Self {
        let nearest = if causal { 0 } else { i32::MIN };
        let farthest = if window == 0 { i32::MAX } else { window.cast_signed() - 1 };
        Self { nearest, span: farthest.wrapping_sub(nearest).cast_unsigned() }
    }

    /// Whether a row sees what is so far before it.
    #[inline(always)]
    #[must_use]
    pub const fn reaches(self, distance: i32) -> bool {
        distance.wrapping_sub(self.nearest).cast_unsigned() <= self.span
    }

    /// The positions, of so many, that the rows at `first` to `last` see together: from the first,
    /// up to and without the second.
    #[inline(always)]
    #[must_use]
    pub const fn reach(self, first: u32, last: u32, positions: u32) -> (u32, u32) {
        let farthest = self.nearest.wrapping_add_unsigned(self.span).cast_unsigned();
        let end = if self.nearest == 0 && last < positions { last + 1 } else { positions };
        (first.saturating_sub(farthest), end)
    }
}

/// How many positions `column` lies before `row`; negative if it lies after it.
#[inline(always)]
pub(super) const fn distance(row: u32, column: u32) -> i32 {
    row.cast_signed().wrapping_sub(column.cast_signed())
}

impl Attention {
    /// Query heads.
    #[inline(always)]
    #[must_use]
    pub const fn heads(&self) -> u32 {
        self.kv_heads.wrapping_mul(self.group)
    }

    /// What its kernels have to do, with heads of so many elements in these units.
    #[must_use]
    pub fn work(&self, head_size: u32, unit: Unit) -> Work {
        let Self { tokens, start, positions, kv_heads, .. } = *self;
        let seen = |first: u32, last: u32| {
            let (begin, end) = self.sight.reach(first, last, positions);
            end.saturating_sub(begin)
        };
        let row = |token: u32| start.saturating_add(token);
        let pairs: u64 = (0..tokens).map(|token| u64::from(seen(row(token), row(token)))).sum();
        let of_all = seen(start, row(tokens.saturating_sub(1)));
        let (queries, width) =
            (product([tokens, self.heads(), head_size]), product([self.heads(), head_size]));
        // Keys and values.
        let cached = 2 * product([of_all, kv_heads, head_size]);
        Work::moving(2 * queries + 2 * cached, 4 * queries).multiplying(2 * pairs.saturating_mul(width), unit)
    }

    /// Blocks of `tile_q` rows: all heads of a tile of rows beside each other.
    #[must_use]
    pub const fn grid(&self, tile_q: u32) -> Dim3 {
        Dim3 { x: self.heads(), y: self.tokens.div_ceil(tile_q), z: 1 }
    }
}
