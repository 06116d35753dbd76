//! The launch of `gpu::norm::ResidualNorm`.

use std::marker::PhantomData;

use gpu::norm::ResidualNorm;

use super::{Check, RowsMut};
use crate::cuda::{Error, Queue, View, ViewMut};

/// A layer's output on its way into the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// `rows × width`.
    pub rows: View<'a, f32>,
    /// The weight of the norm that it goes through first, `width`, if there is one.
    pub post: Option<View<'a, f32>>,
}

/// Adds `delta`, where there is one, to `residual`, `rows × weight.len()`, and writes each row of that
/// divided by its root mean square, times `weight`.
///
/// `weight` is read while launches before this one still run (see `gpu::simt`, "Launches that begin early"): an input
/// or an upload, never what a launch wrote. The emulator checks that.
///
/// # Errors
/// [`Error::Contract`] unless all have that many elements, the width is a multiple of 4 (f16: 8, f16 in slabs
/// and q8: 32) from 1 to 16,384, all are aligned to 16 bytes and there are fewer than 2^31 rows; those of a
/// launch.
pub fn residual_norm<O: RowsMut>(
    queue: &impl Queue,
    out: O,
    residual: ViewMut<'_, f32>,
    delta: Option<Delta<'_>>,
    weight: View<'_, f32>,
    rows: usize,
    epsilon: f32,
) -> Result<(), Error> {
    let check = Check::<ResidualNorm<O::Kind>>::new(queue);
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let width = check.count(weight.len(), "the width", ResidualNorm::<O::Kind>::MOST_WIDTH)?;
    check.that(width > 0, || "the width is 0".to_owned())?;
    let elements = u64::from(rows) * u64::from(width);
    let out = check.rows(&out, rows, width)?;
    check.view(&residual, "residual", elements, 16)?;
    check.view(&weight, "weight", width.into(), 16)?;
    let post = check.optional(delta.and_then(|delta| delta.post), "post", width.into(), 16)?;
    let delta = check.optional(delta.map(|delta| delta.rows), "delta", elements, 16)?;
    let arguments = ResidualNorm {
        out,
        residual: residual.start(),
        delta,
        post,
        weight: weight.start(),
        rows,
        width,
        epsilon,
        kind: PhantomData::<O::Kind>,
    };
    // SAFETY: lengths, alignment and limits were just checked; out and residual are borrowed alone.
    unsafe { queue.launch(arguments) }
}
