//! The launch of `gpu::product::MatmulF16Quant`.

use gpu::product::{MatmulF16Quant, Product};
use gpu::quant::with_block;
use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;
use half::f16;

use super::product::checked;
use super::{Check, PlaneMatrix};
use crate::cuda::{Error, Queue, View, ViewMut};

/// Rows that tiles of 32 are faster for: larger ones would mostly be empty.
const FEW: usize = 64;

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, weights rounded to f16, for `m` rows.
///
/// # Errors
/// [`Error::Contract`] unless the weights' columns are whole blocks and a multiple of 8, lengths are those
/// of the shape (`n` and `k` are the weights' rows and columns), input and weights are aligned to 16 bytes
/// and out to 8; those of a launch.
pub fn matmul_f16_quant(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    with_block!(weights.format, B => {
        if m <= FEW {
            matmul_f16_quant_by(queue, out, input, weights, bias, m, MatmulF16Quant::<B, 32>::new)
        } else {
            matmul_f16_quant_by(queue, out, input, weights, bias, m, MatmulF16Quant::<B>::new)
        }
    })
}

/// As [`matmul_f16_quant`], by a kernel for the weights' format with tiles of choice: all give the
/// same bits.
///
/// # Errors
/// As [`matmul_f16_quant`].
pub fn matmul_f16_quant_by<K: for<'a> Kernel<Lane<'a>>>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
    kernel: impl FnOnce(Product) -> K,
) -> Result<(), Error> {
    let check = Check::<K>::new(queue);
    let product = checked(&check, &out, input.start().cast(), weights, bias, m, 8)?;
    check.view(&input, "input", u64::from(product.m) * u64::from(product.k), 16)?;
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(kernel(product)) }
}
