//! The launch of `gpu::product::MatmulF16Wgmma`.

use gpu::product::{Element, MatmulF16Wgmma, PanelF16, Panels};

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, of f16 in [panels](gpu::product::panels); `shape`
/// is `[m, n, k]`. Out is f32, or f16 that the same sums are rounded to. On a GPU of compute capability 9.0 alone.
///
/// # Errors
/// [`Error::Contract`] unless input and weights have the [bytes](Panels::bytes) of their shape and are aligned
/// to 16 bytes, out is `m × n` and aligned to [`Element::ALIGN`], and the bias has `n` elements; those of a launch, among them
/// [`Error::NotForDevice`].
pub fn matmul_f16_wgmma<E: Element>(
    queue: &impl Queue,
    out: ViewMut<'_, E>,
    input: View<'_, PanelF16>,
    weights: View<'_, PanelF16>,
    bias: Option<View<'_, f32>>,
    shape: [usize; 3],
) -> Result<(), Error> {
    let [m, n, _] = shape.map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    match registers(m, n, queue.multiprocessors()) {
        64 => matmul_f16_wgmma_by::<64, E>(queue, out, input, weights, bias, shape),
        120 => matmul_f16_wgmma_by::<120, E>(queue, out, input, weights, bias, shape),
        _ => matmul_f16_wgmma_by::<128, E>(queue, out, input, weights, bias, shape),
    }
}

/// Half the columns of the tiles that are done first: a multiprocessor's tiles, each with what it costs besides
/// its columns. Of equals the widest, which take least from L2.
fn registers(m: u32, n: u32, multiprocessors: u32) -> u32 {
    /// What a tile costs besides, in columns: measured, 128 columns are 1.06 times as dear as half of 256.
    const BESIDES: u64 = 16;
    let tiles = [
        (128, MatmulF16Wgmma::<128>::tiles(m, n)),
        (120, MatmulF16Wgmma::<120>::tiles(m, n)),
        (64, MatmulF16Wgmma::<64>::tiles(m, n)),
    ];
    let cost = |(registers, tiles): (u32, u32)| {
        u64::from(tiles.div_ceil(multiprocessors.max(1))) * (2 * u64::from(registers) + BESIDES)
    };
    tiles.into_iter().min_by_key(|&tiles| cost(tiles)).map_or(128, |(registers, _)| registers)
}

/// As [`matmul_f16_wgmma`], by tiles of twice `REGISTERS` columns, which are 64, 120 or 128: all give the same
/// bits.
///
/// # Errors
/// As [`matmul_f16_wgmma`].
pub fn matmul_f16_wgmma_by<const REGISTERS: usize, E: Element>(
    queue: &impl Queue,
    out: ViewMut<'_, E>,
    input: View<'_, PanelF16>,
    weights: View<'_, PanelF16>,
    bias: Option<View<'_, f32>>,
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<MatmulF16Wgmma<REGISTERS, E>>::new(queue);
    let count = |len, name| check.count(len, name, Panels::MOST);
    let (m, n, k) = (count(m, "m")?, count(n, "n")?, count(k, "k")?);
    check.view(&out, "out", u64::from(m) * u64::from(n), E::ALIGN as u64)?;
    check.panels(&input, "input", [m, k])?;
    check.panels(&weights, "weights", [n, k])?;
    let bias = check.optional(bias, "bias", n.into(), 4)?;
    let (input, weights) = (input.start().cast(), weights.start().cast());
    let blocks = queue.multiprocessors();
    let out = out.start();
    let product = MatmulF16Wgmma::<REGISTERS, E> { out, input, weights, bias, m, n, k, blocks };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(product) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_those_that_are_done_first() {
        // A model with 7 billion weights on an H200: rounds are full but for the last one's part.
        for ([m, n], expected) in [
            ([8192, 8192], 128),
            ([3328, 37_888], 128),
            // Three rounds of 240 for three of 256.
            ([3328, 3584], 120),
            ([512, 37_888], 120),
            // One round of half as wide tiles.
            ([512, 3584], 64),
            ([0, 3584], 128),
        ] {
            assert_eq!(registers(m, n, 132), expected, "{m} × {n}");
        }
    }
}
