//! The launch of `gpu::product::UnpackF16`.

use std::marker::PhantomData;

use gpu::product::{PanelF16, Panels, UnpackF16};
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
    out: ViewMut<'_, PanelF16>,
    weights: PlaneMatrix<'_>,
) -> Result<(), Error> {
    with_block!(weights.format, B => {
        let check = Check::<UnpackF16<B>>::new(queue);
        let most = [UnpackF16::<B>::MOST_ROWS, Panels::MOST];
        let [n, k] = check.matrix(&weights, "weights", most, 8)?;
        check.panels(&out, "out", [n, k])?;
        let weights = weights.bytes.start();
        let arguments = UnpackF16::<B> { out: out.start().cast(), weights, n, k, format: PhantomData };
        // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
        unsafe { queue.launch(arguments) }
    })
}
