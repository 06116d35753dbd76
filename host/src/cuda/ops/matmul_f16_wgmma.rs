//! The launches of `gpu::product::MatmulF16Wgmma`.

use gpu::activation::Gate;
use gpu::product::panels::paired;
use gpu::product::{GateUp, MatmulF16Wgmma, PanelF16, Panels, Plain, Rounds, WeightPanelF16};

use super::Check;
use crate::cuda::{Error, Queue, View, ViewMut};

/// `out[m][n] = Σ_k input[m][k] · weights[n][k] + bias[n]`, of f16 in [panels](gpu::product::panels); `shape`
/// is `[m, n, k]`. On a GPU of compute capability 9.0 alone.
///
/// # Errors
/// [`Error::Contract`] unless input and weights have the [bytes](Panels::bytes) of their shape and are aligned
/// to 16 bytes, out is `m × n` and, if `n` is a multiple of 4, aligned to 16, and the bias has `n` elements; those
/// of a launch, among them [`Error::NotForDevice`].
pub fn matmul_f16_wgmma(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, PanelF16>,
    weights: View<'_, WeightPanelF16>,
    bias: Option<View<'_, f32>>,
    shape: [usize; 3],
) -> Result<(), Error> {
    let [m, n, _] = shape.map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    match registers([m, n], queue.multiprocessors()) {
        64 => matmul_f16_wgmma_by::<64>(queue, out, input, weights, bias, shape),
        120 => matmul_f16_wgmma_by::<120>(queue, out, input, weights, bias, shape),
        _ => matmul_f16_wgmma_by::<128>(queue, out, input, weights, bias, shape),
    }
}

/// Half the columns of the tiles that are done first: a multiprocessor's tiles and halves, each with what it costs
/// besides its columns. Of equals the widest.
fn registers([m, n]: [u32; 2], multiprocessors: u32) -> u32 {
    /// What a tile and half a tile cost besides, in columns. 512 × 3584 × 3584 by tiles of 256 columns takes 0.0397 ms
    /// whole and 0.0256 ms by halves, 0.645 times as long: 178 of 276 columns, 50 more than half of 256. From 21 to
    /// 67 the tests' shapes choose the same.
    const BESIDES: [u32; 2] = [20, 50];
    let rounds = [
        (128, MatmulF16Wgmma::<128>::rounds([m, n], multiprocessors)),
        (120, MatmulF16Wgmma::<120>::rounds([m, n], multiprocessors)),
        (64, MatmulF16Wgmma::<64>::rounds([m, n], multiprocessors)),
    ];
    let cost = |(registers, rounds): (u32, Rounds)| {
        let [whole, halves] = rounds.rounds(multiprocessors).map(u64::from);
        let [besides, besides_half] = BESIDES.map(u64::from);
        let half = u64::from(registers);
        whole * (2 * half + besides) + halves * (half + besides_half)
    };
    rounds.into_iter().min_by_key(|&rounds| cost(rounds)).map_or(128, |(registers, _)| registers)
}

/// As [`matmul_f16_wgmma`], by tiles of twice `REGISTERS` columns, which are 64, 120 or 128: all give the same
/// bits.
///
/// # Errors
/// As [`matmul_f16_wgmma`].
pub fn matmul_f16_wgmma_by<const REGISTERS: usize>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    input: View<'_, PanelF16>,
    weights: View<'_, WeightPanelF16>,
    bias: Option<View<'_, f32>>,
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<MatmulF16Wgmma<REGISTERS>>::new(queue);
    let count = |len, name| check.count(len, name, Panels::MOST);
    let (m, n, k) = (count(m, "m")?, count(n, "n")?, count(k, "k")?);
    check.view(&out, "out", u64::from(m) * u64::from(n), if n.is_multiple_of(4) { 16 } else { 4 })?;
    check.panels(&input, "input", [m, k])?;
    check.panels(&weights, "weights", [n, k])?;
    let bias = check.optional(bias, "bias", n.into(), 4)?;
    let product = MatmulF16Wgmma::<REGISTERS> {
        epilogue: Plain { out: out.start(), bias },
        input: input.start().cast(),
        weights: weights.start().cast(),
        m,
        n,
        k,
        blocks: queue.multiprocessors(),
    };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(product) }
}

/// `out = activation(input · gateᵀ) · (input · upᵀ)`, rounded to f16 once: the bits of two products and
/// [`gated`](super::gated). The weights are what [`unpack_f16_pair`](super::unpack_f16_pair) leaves of gate and up;
/// `shape` is `[m, width, k]`, and gate and up are `width × k`.
///
/// # Errors
/// [`Error::Contract`] unless input, weights and out have the [bytes](Panels::bytes) of their shapes, the weights
/// those of [`paired`] rows, all are aligned to 16 bytes, and the width is a multiple of 8; those of a launch, among
/// them [`Error::NotForDevice`].
pub fn matmul_f16_wgmma_gated(
    queue: &impl Queue,
    out: ViewMut<'_, PanelF16>,
    input: View<'_, PanelF16>,
    weights: View<'_, WeightPanelF16>,
    activation: Gate,
    [m, width, k]: [usize; 3],
) -> Result<(), Error> {
    let check = Check::<MatmulF16Wgmma<128, GateUp>>::new(queue);
    let m = check.count(m, "m", Panels::MOST)?;
    let width = check.count(width, "the width", Panels::MOST / 2)?;
    let k = check.count(k, "k", Panels::MOST)?;
    check.that(width.is_multiple_of(8), || format!("the width is {width}, not a multiple of 8"))?;
    check.panels(&out, "out", [m, width])?;
    check.panels(&input, "input", [m, k])?;
    check.panels(&weights, "weights", [paired(width), k])?;
    let product = MatmulF16Wgmma::<128, GateUp> {
        epilogue: GateUp { out: out.start().cast(), width, activation: activation as u32 },
        input: input.start().cast(),
        weights: weights.start().cast(),
        m,
        n: paired(width),
        k,
        blocks: queue.multiprocessors(),
    };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(product) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_those_that_are_done_first() {
        // m × n × k, and milliseconds on an H200 by tiles of 256, 240 and 128 columns: docs/results.md, "every floor
        // held".
        for ([m, n, k], measured) in [
            ([3328, 3584, 3584], [0.1267, 0.1222, 0.1326]),
            ([512, 37_888, 3584], [0.2048, 0.2053, 0.2086]),
            ([3328, 3584, 18_944], [0.6629, 0.6383, 0.7401]),
            ([3328, 37_888, 3584], [1.4146, 1.4260, 1.4972]),
            ([8192, 8192, 8192], [1.6862, 1.7639, 1.8137]),
        ] {
            let best = [128, 120, 64].into_iter().zip(measured).min_by(|(_, a), (_, b)| f64::total_cmp(a, b));
            assert_eq!(Some(registers([m, n], 132)), best.map(|(best, _)| best), "{m} × {n} × {k}");
        }
    }

    #[test]
    fn few_rows_have_narrow_tiles() {
        // One round of either; half as many columns in it.
        assert_eq!(registers([512, 3584], 132), 64);
        // Halves: 28 tiles of 256 columns take as long as 56 of 128, but for what a tile costs besides.
        assert_eq!(registers([128, 3584], 132), 64);
        // Four rounds and a half by 256 columns, five by 240.
        assert_eq!(registers([512, 37_888], 132), 128);
        assert_eq!(registers([0, 3584], 132), 128);
    }
}
