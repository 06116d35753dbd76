//! The launches of `gpu::product::MatmulF16Quant` and `MatmulQ8Quant`.

use bytemuck::Zeroable;
use gpu::product::{MatmulF16Quant, MatmulQ8Quant, Product, Q8Row};
use gpu::quant::planes::plane_row_bytes;
use gpu::quant::{Format, with_block};
use gpu::simt::emulator::Lane;
use gpu::simt::{Contract, Global, Kernel};
use half::f16;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// Weights for a product: `n` rows of `k` elements in planes, and a bias.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The format.
    pub format: Format,
    /// Rows as [`pack_row`](gpu::quant::planes::pack_row) makes them, one after another.
    pub rows: View<'a, u8>,
    /// What is added to each row of out.
    pub bias: Option<View<'a, f32>>,
}

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, weights rounded to f16, with the shape
/// `[m, n, k]`.
///
/// # Errors
/// [`Error::Contract`] unless the weights are of a quantized format, `k` is a multiple of its block,
/// lengths are those of the shape, input and weights are aligned to 16 bytes and out to 8; those of a
/// launch.
pub fn matmul_f16_quant(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: Weights<'_>,
    shape: [usize; 3],
) -> Result<(), Error> {
    with_block!(weights.format, quantized B => matmul_f16_as(queue, out, input, weights, shape, {
        |product| MatmulF16Quant::<B>::new(product)
    }), else Err(not_quantized("matmul_f16", weights.format)))
}

/// As [`matmul_f16_quant`], with tiles of choice: all give the same bits.
///
/// # Errors
/// As [`matmul_f16_quant`].
pub fn matmul_f16_as<K: for<'a> Kernel<Lane<'a>>>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: Weights<'_>,
    shape: [usize; 3],
    kernel: impl FnOnce(Product) -> K,
) -> Result<(), Error> {
    let check = Check::<K>::new(queue);
    let [m, _, k] = shape;
    check.view(&input, "input", m as u64 * k as u64, 16)?;
    let product = product(&check, &out, weights, shape)?;
    let kernel = kernel(Product { out: out.start(), input: input.start().cast(), ..product });
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(kernel) }
}

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, input as rows of q8
/// ([`gpu::product::activations`]), with the shape `[m, n, k]`.
///
/// # Errors
/// As [`matmul_f16_quant`].
pub fn matmul_q8_quant(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: Weights<'_>,
    shape: [usize; 3],
) -> Result<(), Error> {
    with_block!(weights.format, quantized B => matmul_q8_as(queue, out, input, weights, shape, {
        |product| MatmulQ8Quant::<B>::new(product)
    }), else Err(not_quantized("matmul_q8", weights.format)))
}

/// As [`matmul_q8_quant`], with tiles of choice: all give the same bits.
///
/// # Errors
/// As [`matmul_f16_quant`].
pub fn matmul_q8_as<K: for<'a> Kernel<Lane<'a>>>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, u8>,
    weights: Weights<'_>,
    shape: [usize; 3],
    kernel: impl FnOnce(Product) -> K,
) -> Result<(), Error> {
    let check = Check::<K>::new(queue);
    let product = product(&check, &out, weights, shape)?;
    let row = u64::from(Q8Row::new(product.k).bytes());
    check.view(&input, "input", u64::from(product.m) * row, 16)?;
    let kernel = kernel(Product { out: out.start(), input: input.start(), ..product });
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(kernel) }
}

/// The product, checked but for its input and without it.
fn product<K: Contract>(
    check: &Check<K>,
    out: &ViewMut<'_, f32>,
    weights: Weights<'_>,
    [m, n, k]: [usize; 3],
) -> Result<Product, Error> {
    let row = plane_row_bytes(weights.format, k);
    check.that(row.is_some(), || {
        let block = weights.format.block_elements();
        format!("k is {k}, not a multiple of {block}, the block of {}, or a row is too long", weights.format)
    })?;
    let m = check.count(m, "m", Product::MOST)?;
    let n = check.count(n, "n", Product::MOST)?;
    let k = check.count(k, "k", Product::MOST)?;
    check.view(out, "out", u64::from(m) * u64::from(n), 8)?;
    check.view(&weights.rows, "weights", u64::from(n) * u64::from(row.unwrap_or(0)), 16)?;
    if let Some(bias) = &weights.bias {
        check.view(bias, "bias", n.into(), 4)?;
    }
    let bias = weights.bias.map_or(Global::from_address(0), |bias| bias.start());
    Ok(Product { weights: weights.rows.start(), bias, m, n, k, ..Product::zeroed() })
}

fn not_quantized(kernel: &'static str, format: Format) -> Error {
    Error::Contract { kernel, what: format!("the weights are {format}, which is not quantized") }
}
