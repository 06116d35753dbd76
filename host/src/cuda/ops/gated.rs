//! The launch of `gpu::activation::Gated`.

use std::marker::PhantomData;

use gpu::activation::{Gate, Gated};

use super::{Check, RowsMut};
use crate::cuda::{Error, Queue, View};

/// `out = activation(gate) · up`, row by row: `rows` rows of `width`, which in `gate` and `up` begin
/// `stride` elements apart. Neither has elements behind its last row, so that one product's output
/// `[gate | up]` is given as two views that overlap.
///
/// # Errors
/// [`Error::Contract`] unless `gate` and `up` have `(rows - 1) · stride + width` elements (none if there
/// are no rows), `stride` is at least the width and a multiple of 4, the width is a multiple of 4 (f16:
/// 8, f16 in slabs and q8: 32), all are aligned to 16 bytes and there are fewer than 2^31 rows; those of a launch.
pub fn gated<O: RowsMut>(
    queue: &impl Queue,
    out: O,
    gate: View<'_, f32>,
    up: View<'_, f32>,
    activation: Gate,
    [rows, width, stride]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<Gated<O::Kind>>::new(queue);
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let width = check.count(width, "the width", Gated::<O::Kind>::MOST_WIDTH)?;
    let elements = check.strided(rows, width, stride)?;
    check.that(stride.is_multiple_of(4), || format!("the stride is {stride}, not a multiple of 4"))?;
    let out = check.rows(&out, rows, width)?;
    check.view(&gate, "gate", elements, 16)?;
    check.view(&up, "up", elements, 16)?;
    let arguments = Gated {
        out,
        gate: gate.start(),
        up: up.start(),
        stride: stride as u64,
        rows,
        width,
        activation: activation as u32,
        kind: PhantomData::<O::Kind>,
    };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
