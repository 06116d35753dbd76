//! The launches of `gpu::attention::AttnDecode` and `gpu::attention::AttnCombine`.

use std::marker::PhantomData;

use gpu::attention::{AttnCombine, AttnDecode, CHUNK, Chunked, MOST_GROUP, Scaling, Sight};
use half::f16;

use super::{Cache, Check, Heads, RopeShape, RowsMut};
use crate::cuda::{Error, Queue, View, ViewMut};
use crate::model::RopeOrder;

/// The sizes of [`attn_decode`].
#[derive(Clone, Copy, Debug)]
pub struct AttnShape {
    /// Rows, each of a sequence of its own.
    pub rows: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Query heads that share a KV head.
    pub group: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Positions that the launch is for: rows that stand behind them are left alone. A graph that is
    /// replayed while sequences grow is captured with the longest that they may become; the grid
    /// grows with it, and the work does not.
    pub context: usize,
    /// Which of the positions up to its own a row sees.
    pub sight: Sight,
    /// What becomes of the products of queries and keys.
    pub scaling: Scaling,
    /// Pairs of a head that turn.
    pub pairs: usize,
    /// Which elements are a pair.
    pub order: RopeOrder,
    /// Added to the mean of squares in norms of heads.
    pub epsilon: f32,
}

impl AttnShape {
    /// Chunks of the context.
    const fn chunks(&self) -> usize {
        self.context.div_ceil(CHUNK as usize)
    }

    /// Elements of the workspace: each chunk's part of each head, and two numbers besides.
    #[must_use]
    pub const fn workspace(&self) -> usize {
        let parts = self.rows.saturating_mul(self.kv_heads * self.group).saturating_mul(self.chunks());
        parts.saturating_mul(self.head_size + 2)
    }

    /// The sizes of a [`rope_kv`](super::rope_kv) of the same rows.
    #[must_use]
    pub const fn rope(&self) -> RopeShape {
        let Self { rows, kv_heads, group, head_size, pairs, order, epsilon, .. } = *self;
        RopeShape { rows, heads: kv_heads.saturating_mul(group), kv_heads, head_size, pairs, order, epsilon }
    }
}

/// Attention of rows, each over the positions of its sequence up to its own. Their heads, queries, keys and
/// values, come as products leave them, and become first what [`rope_kv`](super::rope_kv) makes of them; keys
/// and values go into the cache, which has all earlier positions. `out` is `rows` rows of
/// `heads × head size`.
///
/// A row that does not stand in its context, or stands behind the shape's or behind the angles, is left as it
/// was. Of rows of one sequence what they see of each other is not defined.
///
/// Biases and norms are read while launches before this one still run (see `gpu::simt`, "Launches that begin early"):
/// they have to be inputs or uploads, never what a launch wrote. So are places, and keys and values of earlier
/// positions: what launches wrote of those has to be settled, by a copy, a wait, or the start of a graph. The emulator
/// checks both.
///
/// # Errors
/// [`Error::Contract`] unless `out` has the elements of the shape, `workspace` has those of
/// [`AttnShape::workspace`], the head size is 64, 80, 96, 128 or 256, at most 16 query heads share a KV head, a
/// row's values are a multiple of 4 (f16: 8, f16 in slabs and q8: 32), out, workspace and cache are aligned to
/// 16 bytes, there are at most 65,535 rows and as many chunks of [`CHUNK`] positions, and the rest is as `rope_kv`
/// wants it; those of a launch.
pub fn attn_decode<O: RowsMut>(
    queue: &impl Queue,
    out: O,
    heads: [Heads<'_>; 3],
    cache: Cache<'_, ViewMut<'_, f16>>,
    angles: View<'_, [f32; 2]>,
    workspace: ViewMut<'_, f32>,
    shape: AttnShape,
) -> Result<(), Error> {
    let check = Check::<AttnCombine<O::Kind>>::new(queue);
    let rows = check.count(shape.rows, "rows", 65_535)?;
    let kv_heads = check.count(shape.kv_heads, "KV heads", 65_535)?;
    let group = check.count(shape.group, "query heads of a KV head", MOST_GROUP)?;
    check.that(group > 0, || "no query head has a KV head".to_owned())?;
    let head_size = check.count(shape.head_size, "the head size", 256)?;
    check.count(shape.context, "the context", i32::MAX.unsigned_abs())?;
    let chunks = check.count(shape.chunks(), &format!("chunks of {CHUNK} positions"), 65_535)?;
    let (turning, positions) = check.turning(&heads, angles, &shape.rope())?;
    let heads = u64::from(kv_heads) * u64::from(group);
    let cache = check.cache(&cache, rows, u64::from(kv_heads) * u64::from(head_size))?;
    let width = check.count(shape.kv_heads * shape.group * shape.head_size, "a row", u32::MAX)?;
    let out = check.rows(&out, rows, width)?;
    check.view(&workspace, "the workspace", shape.workspace() as u64, 16)?;
    let parts = u64::from(rows) * heads * u64::from(chunks);
    let chunked = Chunked {
        partial: workspace.start(),
        scales: workspace.start().at(parts * u64::from(head_size)).cast(),
        cache,
        rows,
        chunks,
        positions,
        kv_heads,
        group,
        sight: shape.sight,
        scaling: shape.scaling,
    };
    // SAFETY: lengths, alignment and limits were just checked; out, the cache and the workspace are borrowed
    // alone; the kernels check what places say, also one that is not settled, and the second reads of the workspace what
    // the first has written. That places and earlier positions are settled is for the caller to see to, as is said
    // above; if they are not, numbers are wrong, and no other memory is touched.
    unsafe {
        match head_size {
            64 => queue.launch(AttnDecode::<64> { chunked, turning }),
            80 => queue.launch(AttnDecode::<80> { chunked, turning }),
            96 => queue.launch(AttnDecode::<96> { chunked, turning }),
            128 => queue.launch(AttnDecode::<128> { chunked, turning }),
            256 => queue.launch(AttnDecode::<256> { chunked, turning }),
            _ => check.that(false, || format!("the head size is {head_size}, not 64, 80, 96, 128 or 256")),
        }?;
        queue.launch(AttnCombine::<O::Kind> { chunked, out, head_size, kind: PhantomData })
    }
}
