//! What the products with quantized weights check alike.

use gpu::product::Product;
use gpu::quant::Format;
use gpu::quant::planes::plane_row_bytes;
use gpu::simt::{Contract, Global};

use super::{Check, Weights};
use crate::cuda::{Error, ViewMut};

/// The product of the shape `[m, n, k]`, checked but for its input, whose address it has.
pub(super) fn checked<K: Contract>(
    check: &Check<K>,
    out: &ViewMut<'_, f32>,
    input: Global<u8>,
    weights: Weights<'_>,
    [m, n, k]: [usize; 3],
) -> Result<Product, Error> {
    let row = plane_row_bytes(weights.format, k);
    let m = check.count(m, "m", Product::MOST)?;
    let n = check.count(n, "n", Product::MOST)?;
    check.that(row.is_some(), || {
        let (format, block) = (weights.format, weights.format.block_elements());
        format!(
            "k is {k}, not a multiple of the {block} elements of a {format} block, or the rows are too long"
        )
    })?;
    let k = check.count(k, "k", Product::MOST)?;
    check.view(out, "out", u64::from(m) * u64::from(n), 8)?;
    check.view(&weights.rows, "weights", u64::from(n) * u64::from(row.unwrap_or(0)), 16)?;
    if let Some(bias) = &weights.bias {
        check.view(bias, "bias", n.into(), 4)?;
    }
    let bias = weights.bias.map_or(Global::from_address(0), |bias| bias.start());
    Ok(Product { out: out.start(), input, weights: weights.rows.start(), bias, m, n, k })
}

/// That there is no such kernel.
pub(super) fn not_quantized(kernel: &'static str, format: Format) -> Error {
    Error::Contract { kernel, what: format!("the weights are {format}, which is not quantized") }
}
