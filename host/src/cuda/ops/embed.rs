//! The launch of `gpu::embedding::Embed`.

use std::marker::PhantomData;

use gpu::embedding::{Embed, Table};
use gpu::quant::with_block;

use super::{Check, PlaneMatrix};
use crate::cuda::{Error, Queue, View, ViewMut};

/// Row `tokens[r]` of `table`, dequantized, times `scale`, for each `r`. A token that the table does not
/// have gives a row of NaN.
///
/// # Errors
/// [`Error::Contract`] unless `out` has a row of `table.columns` for each token, `table` has the bytes of
/// its shape, its columns are a multiple of 8 and of a block, `out` and `table` are aligned to 16 bytes
/// and there are fewer than 2^31 tokens; those of a launch.
pub fn embed(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    table: PlaneMatrix<'_>,
    tokens: View<'_, u32>,
    scale: f32,
) -> Result<(), Error> {
    with_block!(table.format, B => embed_from::<B>(queue, out, table, tokens, scale))
}

fn embed_from<B: Table>(
    queue: &impl Queue,
    out: ViewMut<'_, f32>,
    table: PlaneMatrix<'_>,
    tokens: View<'_, u32>,
    scale: f32,
) -> Result<(), Error> {
    let check = Check::<Embed<B>>::new(queue);
    let rows = check.count(tokens.len(), "tokens", i32::MAX.unsigned_abs())?;
    let most = [u32::MAX, Embed::<B>::MOST_WIDTH];
    let [vocabulary, width] = check.matrix(&table, "the table", most, B::LOT)?;
    check.view(&out, "out", u64::from(rows) * u64::from(width), 16)?;
    check.view(&tokens, "tokens", rows.into(), 4)?;
    let arguments = Embed::<B> {
        out: out.start(),
        table: table.bytes.start(),
        tokens: tokens.start(),
        rows,
        vocabulary,
        blocks: width / B::FORMAT.block_elements() as u32,
        scale,
        format: PhantomData,
    };
    // SAFETY: lengths, alignment and limits were just checked; out is borrowed alone.
    unsafe { queue.launch(arguments) }
}
