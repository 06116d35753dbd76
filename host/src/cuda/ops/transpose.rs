//! The launches of `gpu::basics::Transpose`.

use gpu::basics::Transpose;
use gpu::simt::Contract;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

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
