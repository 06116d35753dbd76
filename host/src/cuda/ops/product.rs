//! What the products with quantized weights check alike.

use gpu::product::Product;
use gpu::quant::Format;
use gpu::simt::{Contract, Global};

use super::{Check, PlaneMatrix};
use crate::cuda::{Error, View, ViewMut};

/// The product of `m` rows of input, checked but for the input, whose address it has.
pub(super) fn checked<K: Contract>(
    check: &Check<K>,
    out: &ViewMut<'_, f32>,
    input: Global<u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
) -> Result<Product, Error> {
    let m = check.count(m, "m", Product::MOST)?;
    let [n, k] = check.matrix(&weights, "weights", [Product::MOST; 2], 1)?;
    check.view(out, "out", u64::from(m) * u64::from(n), 8)?;
    let bias = check.optional(bias, "bias", n.into(), 4)?;
    Ok(Product { out: out.start(), input, weights: weights.bytes.start(), bias, m, n, k })
}

/// That there is no such kernel.
pub(super) fn not_quantized(kernel: &'static str, format: Format) -> Error {
    Error::Contract { kernel, what: format!("the weights are {format}, which is not quantized") }
}
