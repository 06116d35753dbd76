//! The launch of `gpu::norm::RmsNorm`.

use gpu::norm::RmsNorm;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// Each row of `input`, `rows × weight.len()`, divided by its root mean square, times `weight`.
///
/// # Errors
/// [`Error::Contract`] unless `out` and `input` have that many elements and there are fewer than
/// 2^31 rows; those of a launch.
pub fn rms_norm(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f32>,
    weight: View<'_, f32>,
    rows: usize,
    epsilon: f32,
) -> Result<(), Error> {
    let check = Check::<RmsNorm>::new(queue);
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let width = check.count(weight.len(), "the width", u32::MAX - 255)?;
    let elements = u64::from(rows) * u64::from(width);
    check.view(&out, "out", elements, 4)?;
    check.view(&input, "input", elements, 4)?;
    check.view(&weight, "weight", width.into(), 4)?;
    let arguments =
        RmsNorm { out: out.start(), input: input.start(), weight: weight.start(), rows, width, epsilon };
    // SAFETY: out and input have rows · width elements, weight has width; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
