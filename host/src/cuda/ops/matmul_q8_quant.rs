//! The launch of `gpu::product::MatmulQ8Quant`.

use gpu::product::{MatmulQ8Quant, Product, Q8Row};
use gpu::quant::with_block;
use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;

use super::product::checked;
use super::{Check, PlaneMatrix};
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, the input as rows of q8
/// ([`gpu::product::activations`]), for `m` rows.
///
/// # Errors
/// [`Error::Contract`] unless the weights are quantized and their columns whole blocks, lengths are those of
/// the shape (`n` and `k` are the weights' rows and columns), input and weights are aligned to 16 bytes and
/// out to 8; those of a launch.
pub fn matmul_q8_quant(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<(), Error> {
    with_block!(weights.format, quantized B => {
        matmul_q8_quant_by(queue, out, input, weights, bias, m, MatmulQ8Quant::<B>::new)
    }, else Err(Error::Contract {
        kernel: "matmul_q8",
        what: format!("weights of {} are not quantized, multiply them with f16", weights.format),
    }))
}

/// As [`matmul_q8_quant`], by a kernel for the weights' format with tiles of choice: all give the
/// same bits.
///
/// # Errors
/// As [`matmul_q8_quant`].
pub fn matmul_q8_quant_by<K: for<'a> Kernel<Lane<'a>>>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
    kernel: impl FnOnce(Product) -> K,
) -> Result<(), Error> {
    let check = Check::<K>::new(queue);
    let product = checked(&check, &out, input.start(), weights, bias, m, 1)?;
    check.view(&input, "input", u64::from(product.m) * u64::from(Q8Row::new(product.k).bytes()), 16)?;
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(kernel(product)) }
}
