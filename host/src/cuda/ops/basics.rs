//! Launches of `gpu::basics`.

use gpu::basics::{BlockSum, Transpose, VectorAdd};
use gpu::simt::Contract;

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

/// `out[c][r] = input[r][c]` of a `rows × columns` input, with `PAD` words after each row of the tile
/// in shared memory: 0 or 1.
///
/// # Errors
/// [`Error::Contract`] unless both have `rows · columns` elements and the shape is what the kernel
/// takes; those of a launch.
pub fn transpose<const PAD: u32>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f32>,
    rows: usize,
    columns: usize,
) -> Result<(), Error> {
    const { assert!(PAD <= 1, "these two are compiled") };
    let check = Check::<Transpose<PAD>>::new(queue);
    let rows = check.count(rows, "rows", 32 * 65_535)?;
    let columns = check.count(columns, "columns", u32::MAX - 31)?;
    let elements = u64::from(rows) * u64::from(columns);
    check.view(&out, "out", elements, 4)?;
    check.view(&input, "input", elements, 4)?;
    let arguments = Transpose::<PAD> { out: out.start(), input: input.start(), rows, columns };
    debug_assert!(arguments.launch().grid.y <= 65_535);
    // SAFETY: both have rows · columns elements, each side in its limit; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
