//! The launch of `gpu::product::MatmulF16`.

use gpu::product::MatmulF16;
use half::f16;

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[m][n] = Σ_k input[m][k] · weights[n][k]`, with the shape `[m, n, k]`.
///
/// # Errors
/// [`Error::Contract`] unless the lengths are those of the shape, `k` is a multiple of 8 and the
/// inputs are aligned to 16 bytes; those of a launch.
pub fn matmul_f16(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, f16>,
    weights: View<'_, f16>,
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<MatmulF16>::new(queue);
    let m = check.count(m, "m", 64 * 65_535)?;
    let n = check.count(n, "n", u32::MAX - 63)?;
    let k = check.count(k, "k", u32::MAX - 63)?;
    check.that(k.is_multiple_of(8), || format!("k is {k}, not a multiple of 8"))?;
    let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
    check.view(&out, "out", product(m, n), 4)?;
    check.view(&input, "input", product(m, k), 16)?;
    check.view(&weights, "weights", product(n, k), 16)?;
    let arguments = MatmulF16 { out: out.start(), input: input.start(), weights: weights.start(), m, n, k };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
