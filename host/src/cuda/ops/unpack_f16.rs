//! The launch of `gpu::product::UnpackF16`.

use std::marker::PhantomData;

use gpu::product::panels::{PANEL_ROWS, TURNS, paired};
use gpu::product::{Panels, UnpackF16, WeightPanelF16};
use gpu::quant::with_block;

use super::{Check, PlaneMatrix};
use crate::cuda::{Error, Queue, ViewMut};

/// Weights of any format as f16 in [panels](gpu::product::panels), each rounded once.
///
/// # Errors
/// [`Error::Contract`] unless the weights' columns are whole blocks and a multiple of 8, there are at most
/// 2,097,120 rows, out has the [bytes](Panels::bytes) of the weights' shape, and both are aligned to 16 bytes;
/// those of a launch.
pub fn unpack_f16(
    queue: &impl Queue,
    mut out: ViewMut<'_, WeightPanelF16>,
    weights: PlaneMatrix<'_>,
) -> Result<(), Error> {
    unpack(queue, &mut out, weights, |n| n, [0, PANEL_ROWS])
}

/// Two matrices of the same shape, whose panels take turns, see [`paired`].
///
/// # Errors
/// As [`unpack_f16`], where out has the bytes of [`paired`] rows; the first one may be there then.
pub fn unpack_f16_pair(
    queue: &impl Queue,
    mut out: ViewMut<'_, WeightPanelF16>,
    matrices: [PlaneMatrix<'_>; 2],
) -> Result<(), Error> {
    let [first, second] = matrices.map(|matrix| [matrix.rows, matrix.columns]);
    for (weights, turn) in matrices.into_iter().zip(TURNS) {
        with_block!(weights.format, B => Check::<UnpackF16<B>>::new(queue).that(first == second, || {
            format!("a pair of {} × {} and {} × {}", first[0], first[1], second[0], second[1])
        })?);
        unpack(queue, &mut out, weights, paired, turn)?;
    }
    Ok(())
}

/// Into panels of so many rows for a matrix' number, from the `first` row on; panels begin `apart` rows apart.
fn unpack(
    queue: &impl Queue,
    out: &mut ViewMut<'_, WeightPanelF16>,
    weights: PlaneMatrix<'_>,
    rows: impl Fn(u32) -> u32,
    [first, apart]: [u32; 2],
) -> Result<(), Error> {
    with_block!(weights.format, B => {
        let check = Check::<UnpackF16<B>>::new(queue);
        let most = [UnpackF16::<B>::MOST_ROWS, Panels::MOST];
        let [n, k] = check.matrix(&weights, "weights", most, 8)?;
        check.panels(out, "out", [rows(n), k])?;
        let (out, weights) = (out.start().cast(), weights.bytes.start());
        let arguments = UnpackF16::<B> { out, weights, n, k, first, apart, format: PhantomData };
        // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
        unsafe { queue.launch(arguments) }
    })
}
