//! The launch of `gpu::basics::BlockSum`.

use gpu::basics::BlockSum;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// The sum of every 1024 elements begun.
///
/// # Errors
/// [`Error::Contract`] unless `out` has [`BlockSum::sums`] elements and `input` at most
/// 2^32 - 1024; those of a launch.
pub fn block_sum(queue: &impl Queue, out: ViewMut<'_, f32>, input: View<'_, f32>) -> Result<(), Error> {
    let check = Check::<BlockSum>::new(queue);
    let n = check.count(input.len(), "the length", u32::MAX - 1023)?;
    check.view(&out, "out", BlockSum::sums(n).into(), 4)?;
    check.view(&input, "input", n.into(), 4)?;
    let arguments = BlockSum { out: out.start(), input: input.start(), n };
    // SAFETY: input has n elements and out the sums of n; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
