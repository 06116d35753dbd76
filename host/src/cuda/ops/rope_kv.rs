//! The launch of `gpu::position::RopeKv`.

use gpu::position::{HeadRows, RopeKv, Turning};
use gpu::simt::Contract;
use half::f16;

use super::{Cache, Check};
use crate::cuda::{Error, Queue, View, ViewMut};
use crate::model::RopeOrder;

/// Heads as a product leaves them: `rows` rows that begin `stride` elements apart. There are no elements
/// behind the last row, so that one product's output is given as views that overlap.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The rows.
    pub rows: View<'a, f32>,
    /// Elements from one row to the next, at least those of a row.
    pub stride: usize,
    /// What is added to each row first.
    pub bias: Option<View<'a, f32>>,
    /// The weight of the norm that each head goes through then, `head size`. Values have none.
    pub norm: Option<View<'a, f32>>,
}

/// The sizes of [`rope_kv`].
#[derive(Clone, Copy, Debug)]
pub struct RopeShape {
    /// Rows.
    pub rows: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Pairs that turn.
    pub pairs: usize,
    /// Which elements are a pair.
    pub order: RopeOrder,
    /// Added to the mean of squares in norms.
    pub epsilon: f32,
}

/// Adds biases, normalizes heads, turns queries and keys by the angles of their positions; writes
/// queries to `out`, keys and values into the caches that `places` names.
///
/// # Errors
/// [`Error::Contract`] unless `out` has `rows · heads · head size` elements, `places` has `rows`, `angles`
/// (cosine and sine) is whole rows of `pairs`, the rest fits the shape, the head size is even and at
/// most 256, the pairs are at most half of it, and there are fewer than 2^31 rows; those of a launch.
///
/// A row that does not stand in its context, or stands behind the angles, is left alone. Rows that stand
/// at one place leave there one of them, or a mixture.
pub fn rope_kv(
    queue: &impl Queue,
    out: ViewMut<'_, f16>,
    heads: [Heads<'_>; 3],
    cache: Cache<'_, ViewMut<'_, f16>>,
    angles: View<'_, [f32; 2]>,
    shape: RopeShape,
) -> Result<(), Error> {
    let check = Check::<RopeKv>::new(queue);
    let rows = check.count(shape.rows, "rows", i32::MAX.unsigned_abs())?;
    let (turning, positions) = check.turning(&heads, angles, &shape)?;
    let width = u64::from(turning.heads * turning.head_size);
    check.view(&out, "out", u64::from(rows) * width, 2)?;
    let cache = check.cache(&cache, rows, u64::from(turning.kv_heads) * u64::from(turning.head_size))?;
    let arguments = RopeKv { out: out.start(), turning, cache, positions, rows };
    // SAFETY: lengths, alignment and limits were just checked; out and the cache are borrowed alone; the
    // kernel checks what places say.
    unsafe { queue.launch(arguments) }
}

impl<K: Contract> Check<K> {
    /// Heads to be turned, queries, keys and values, and how many positions there are angles for.
    pub(super) fn turning(
        &self,
        heads: &[Heads<'_>; 3],
        angles: View<'_, [f32; 2]>,
        shape: &RopeShape,
    ) -> Result<(Turning, u32), Error> {
        let [query, key, value] = heads;
        let rows = self.count(shape.rows, "rows", i32::MAX.unsigned_abs())?;
        let heads = self.count(shape.heads, "query heads", RopeKv::MOST_SLOTS)?;
        let kv_heads = self.count(shape.kv_heads, "KV heads", RopeKv::MOST_SLOTS)?;
        let slots = u64::from(heads) + 2 * u64::from(kv_heads);
        self.that(slots <= u64::from(RopeKv::MOST_SLOTS), || {
            format!("a row has {slots} heads, the most is {}", RopeKv::MOST_SLOTS)
        })?;
        let head_size = self.count(shape.head_size, "the head size", Turning::MOST_HEAD_SIZE)?;
        self.that(head_size.is_multiple_of(2), || format!("the head size is {head_size}, which is odd"))?;
        let pairs = self.count(shape.pairs, "pairs", head_size / 2)?;
        // Without pairs there is nothing to look up.
        let positions = angles.len().checked_div(shape.pairs).unwrap_or(u32::MAX as usize);
        let positions = self.count(positions, "positions", u32::MAX)?;
        self.view(&angles, "angles", u64::from(positions) * u64::from(pairs), 8)?;
        let head_rows = |part: &Heads<'_>, name: &str, heads: u32| -> Result<HeadRows, Error> {
            let width = heads * head_size;
            let optional = |view: Option<View<'_, f32>>, what, elements: u32| {
                self.optional(view, &format!("{name}'s {what}"), elements.into(), 4)
            };
            self.view(&part.rows, name, self.strided(rows, width, part.stride)?, 4)?;
            Ok(HeadRows {
                start: part.rows.start(),
                stride: part.stride as u64,
                bias: optional(part.bias, "bias", width)?,
                norm: optional(part.norm, "norm", head_size)?,
            })
        };
        self.that(value.norm.is_none(), || "values have no norm".to_owned())?;
        let turning = Turning {
            query: head_rows(query, "query", heads)?,
            key: head_rows(key, "key", kv_heads)?,
            value: head_rows(value, "value", kv_heads)?,
            angles: angles.start(),
            heads,
            kv_heads,
            head_size,
            pairs,
            halves: u32::from(shape.order == RopeOrder::Halves),
            epsilon: shape.epsilon,
        };
        Ok((turning, positions))
    }
}
