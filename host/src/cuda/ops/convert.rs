//! The launches of `gpu::product::Convert`.

use std::marker::PhantomData;

use gpu::product::activations::MOST_COLUMNS;
use gpu::product::convert::Converted;
use gpu::product::{AsF16, AsF16Panels, AsF16Slabs, AsQ8, Convert, PanelF16, SlabF16};
use gpu::simt::Global;
use half::f16;

use super::{Check, Checked};
use crate::cuda::{Error, Queue, View, ViewMut};

/// Rounds `rows × width` f32 to f16.
///
/// # Errors
/// [`Error::Contract`] unless the lengths are those of the shape, the width is a multiple of 8, both
/// are aligned to 16 bytes and there are at most 65,535 rows; those of a launch.
pub fn convert_f16(
    queue: &impl Queue,
    out: ViewMut<'_, f16>,
    input: View<'_, f32>,
    shape: [usize; 2],
) -> Result<(), Error> {
    launch::<AsF16>(queue, &out, size_of::<f16>(), &input, shape)
}

/// Rounds `rows × width` f32 to f16 in [panels](gpu::product::panels).
///
/// # Errors
/// As [`convert_f16`].
pub fn convert_f16_panels(
    queue: &impl Queue,
    out: ViewMut<'_, PanelF16>,
    input: View<'_, f32>,
    shape: [usize; 2],
) -> Result<(), Error> {
    launch::<AsF16Panels>(queue, &out, size_of::<PanelF16>(), &input, shape)
}

/// Rounds `rows × width` f32 to f16 in [slabs](gpu::product::slabs).
///
/// # Errors
/// As [`convert_f16`], with a multiple of 32.
pub fn convert_f16_slabs(
    queue: &impl Queue,
    out: ViewMut<'_, SlabF16>,
    input: View<'_, f32>,
    shape: [usize; 2],
) -> Result<(), Error> {
    launch::<AsF16Slabs>(queue, &out, size_of::<SlabF16>(), &input, shape)
}

/// Quantizes `rows × width` f32 to rows of q8 ([`gpu::product::activations`]).
///
/// # Errors
/// As [`convert_f16`], with a multiple of 32.
pub fn convert_q8(
    queue: &impl Queue,
    out: ViewMut<'_, u8>,
    input: View<'_, f32>,
    shape: [usize; 2],
) -> Result<(), Error> {
    launch::<AsQ8>(queue, &out, size_of::<u8>(), &input, shape)
}

fn launch<A: Converted>(
    queue: &impl Queue,
    out: &impl Checked,
    element_bytes: usize,
    input: &View<'_, f32>,
    [rows, width]: [usize; 2],
) -> Result<(), Error> {
    let check = Check::<Convert<A>>::new(queue);
    let rows = check.count(rows, "rows", 65_535)?;
    let width = check.count(width, "the width", MOST_COLUMNS)?;
    check.that(width.is_multiple_of(A::COLUMNS), || {
        format!("the width is {width}, not a multiple of {}", A::COLUMNS)
    })?;
    let bytes = A::bytes(rows, width);
    check.view(out, "out", bytes / element_bytes as u64, 16)?;
    check.view(input, "input", u64::from(rows) * u64::from(width), 16)?;
    let out = Global::from_address(out.address());
    let arguments = Convert::<A> { out, input: input.start(), rows, width, kind: PhantomData };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone by the callers.
    unsafe { queue.launch(arguments) }
}
