//! What the products with weights in planes check alike.

use gpu::product::Product;
use gpu::simt::{Contract, Global};

use super::{Check, PlaneMatrix};
use crate::cuda::{Error, View, ViewMut};

/// The product of `m` rows of input, checked but for the input, whose address it has. K is a multiple
/// of `lot`.
pub(super) fn checked<K: Contract>(
    check: &Check<K>,
    out: &ViewMut<'_, f32>,
    input: Global<u8>,
    weights: PlaneMatrix<'_>,
    bias: Option<View<'_, f32>>,
    m: usize,
    lot: u32,
) -> Result<Product, Error> {
    let m = check.count(m, "m", Product::MOST)?;
    let [n, k] = check.matrix(&weights, "weights", [Product::MOST; 2], lot)?;
    check.view(out, "out", u64::from(m) * u64::from(n), 8)?;
    let bias = check.optional(bias, "bias", n.into(), 4)?;
    Ok(Product { out: out.start(), input, weights: weights.bytes.start(), bias, m, n, k })
}
