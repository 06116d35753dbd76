//! The launch of `gpu::product::MatmulF16Wgmma`.

use gpu::product::{MatmulF16Wgmma, PanelF16, Panels};

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, of f16 in [panels](gpu::product::panels); `shape`
/// is `[m, n, k]`. On a GPU of compute capability 9.0 alone.
///
/// # Errors
/// [`Error::Contract`] unless input and weights have the [bytes](Panels::bytes) of their shape and are aligned
/// to 16 bytes, out is `m × n` and aligned to 8, and the bias has `n` elements; those of a launch, among them
/// [`Error::NotForDevice`].
pub fn matmul_f16_wgmma(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, PanelF16>,
    weights: View<'_, PanelF16>,
    bias: Option<View<'_, f32>>,
    shape: [usize; 3],
) -> Result<(), Error> {
    // Wide tiles take less from L2; narrow ones leave fewer multiprocessors idle where there are few.
    let [m, n, _] = shape.map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    if MatmulF16Wgmma::<128>::tiles(m, n) < queue.multiprocessors() {
        matmul_f16_wgmma_by::<64>(queue, out, input, weights, bias, shape)
    } else {
        matmul_f16_wgmma_by::<128>(queue, out, input, weights, bias, shape)
    }
}

/// As [`matmul_f16_wgmma`], by tiles of twice `REGISTERS` columns, which are 64 or 128: both give the same
/// bits.
///
/// # Errors
/// As [`matmul_f16_wgmma`].
pub fn matmul_f16_wgmma_by<const REGISTERS: usize>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, PanelF16>,
    weights: View<'_, PanelF16>,
    bias: Option<View<'_, f32>>,
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<MatmulF16Wgmma<REGISTERS>>::new(queue);
    let count = |len, name| check.count(len, name, Panels::MOST);
    let (m, n, k) = (count(m, "m")?, count(n, "n")?, count(k, "k")?);
    check.view(&out, "out", u64::from(m) * u64::from(n), 8)?;
    check.panels(&input, "input", [m, k])?;
    check.panels(&weights, "weights", [n, k])?;
    let bias = check.optional(bias, "bias", n.into(), 4)?;
    let (input, weights) = (input.start().cast(), weights.start().cast());
    let blocks = queue.multiprocessors();
    let product = MatmulF16Wgmma::<REGISTERS> { out: out.start(), input, weights, bias, m, n, k, blocks };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(product) }
}
