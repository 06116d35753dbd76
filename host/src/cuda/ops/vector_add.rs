//! The launch of `gpu::basics::VectorAdd`.

use gpu::basics::VectorAdd;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[i] = a[i] + b[i]`.
///
/// # Errors
/// [`Error::Contract`] unless all three have the same length, below 2^32; those of a launch.
pub fn vector_add(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    a: View<'_, f32>,
    b: View<'_, f32>,
) -> Result<(), Error> {
    let check = Check::<VectorAdd>::new(queue);
    let n = check.count(out.len(), "the length", u32::MAX)?;
    check.view(&out, "out", n.into(), 4)?;
    check.view(&a, "a", n.into(), 4)?;
    check.view(&b, "b", n.into(), 4)?;
    let arguments = VectorAdd { out: out.start(), a: a.start(), b: b.start(), n };
    // SAFETY: all three have n elements; out is borrowed alone, so it overlaps nothing.
    unsafe { queue.launch(arguments) }
}
