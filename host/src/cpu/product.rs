//! Matrix products `out = input · weightsᵀ` on the file's blocks.
//!
//! One loop for every format. A tile of [`ROWS`] weight rows is unpacked a segment of
//! [`SEGMENT`] columns at a time and multiplied with every input row, so a block is unpacked
//! once however many rows there are, and a segment stays in the L1 cache. Two kinds of tile:
//! [`bytes`] (quantized blocks times 8-bit activations) and [`floats`] (float formats, and the
//! exact mode: dequantized weights, f32 activations, f64 sums).
//!
//! The sums of one output run over the columns in an order that depends on nothing else: not
//! on the number of input rows, on the threads, or on where a tile begins. So a token's
//! result has the same bits alone and beside others.

mod bytes;
mod floats;
#[cfg(test)]
mod tests;

use gpu::quant::{Block, Format, with_block};
use half::{bf16, f16};
use rayon::prelude::*;

use super::activation::Quantized;
use super::simd::{Kernel, Simd, dispatch};
use super::unpack::Quants;

/// Weight rows that are multiplied together.
const ROWS: usize = 4;

/// Columns of the weights that are unpacked together: a multiple of every format's block.
const SEGMENT: usize = 1024;

/// The input of a product: rows of f32, and their 8-bit form where a format asks for it.
pub(super) struct Input<'a> {
    values: &'a [f32],
    columns: usize,
    form: Form,
}

/// How an input is multiplied.
enum Form {
    /// As it is, with sums in f64.
    Exact,
    /// As it is, with sums in f32: no product with quantized weights will follow.
    Plain,
    /// In 8 bits with quantized weights, as it is with others.
    Quantized(Quantized),
}

impl<'a> Input<'a> {
    /// An input of rows of `columns`, for products with weights of `formats`.
    pub(super) fn new(
        values: &'a [f32],
        columns: usize,
        exact: bool,
        formats: impl IntoIterator<Item = Format>,
    ) -> Self {
        let form = if exact {
            Form::Exact
        } else if formats.into_iter().any(|format| format.block_elements() > 1) {
            Form::Quantized(Quantized::new(values, columns))
        } else {
            Form::Plain
        };
        Self { values, columns, form }
    }

    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }
}

/// One product: `weights` is `rows` rows of blocks, `out` is input rows × `rows`, row major.
pub(super) struct Product<'a> {
    pub(super) format: Format,
    pub(super) weights: &'a [u8],
    pub(super) rows: usize,
    pub(super) out: &'a mut [f32],
}

/// A range of weight rows and where their outputs go: for each input row a slice of as many.
struct Task<'a> {
    format: Format,
    weights: &'a [u8],
    out: Vec<&'a mut [f32]>,
}

/// Computes products of one input, in parallel over the weight rows of all of them.
pub(super) fn multiply<'a>(input: &Input<'_>, products: impl IntoIterator<Item = Product<'a>>) {
    let products: Vec<_> = products.into_iter().collect();
    let threads = rayon::current_num_threads();
    let total: usize = products.iter().map(|product| product.rows).sum();
    // One input row is over in microseconds: as few tasks as there are threads. More rows
    // are worth smaller tasks, for balance.
    let tasks = if input.rows() == 1 { threads } else { 4 * threads };
    let share = total.div_ceil(tasks).next_multiple_of(ROWS);
    let tasks: Vec<_> = products.into_iter().flat_map(|product| split(product, share)).collect();
    if threads == 1 {
        tasks.into_iter().for_each(|task| dispatch(RunTask { task, input }));
    } else {
        tasks.into_par_iter().with_max_len(1).for_each(|task| dispatch(RunTask { task, input }));
    }
}

/// Cuts a product into tasks of at most `share` weight rows.
fn split(product: Product<'_>, share: usize) -> Vec<Task<'_>> {
    let row_bytes = product.weights.len() / product.rows;
    let mut tasks: Vec<_> = product
        .weights
        .chunks(share * row_bytes)
        .map(|weights| Task { format: product.format, weights, out: Vec::new() })
        .collect();
    for out in product.out.chunks_mut(product.rows) {
        for (task, out) in tasks.iter_mut().zip(out.chunks_mut(share)) {
            task.out.push(out);
        }
    }
    tasks
}

struct RunTask<'a, 'b> {
    task: Task<'a>,
    input: &'b Input<'b>,
}

impl Kernel for RunTask<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Self { task: Task { format, weights, mut out }, input } = self;
        let narrow = with_block!(format, B => B::QUANTS_ARE_NARROW);
        match (&input.form, narrow) {
            (Form::Exact, _) => floats::multiply::<S, f64>(format, weights, input, &mut out),
            (Form::Quantized(input), Some(true)) => {
                bytes::multiply::<S, true>(format, weights, input, &mut out)
            }
            (Form::Quantized(input), Some(false)) => {
                bytes::multiply::<S, false>(format, weights, input, &mut out)
            }
            (Form::Plain | Form::Quantized(_), _) => {
                floats::multiply::<S, f32>(format, weights, input, &mut out)
            }
        }
    }
}

/// What a block brings to the products. Formats are matched to blocks where a tile is filled
/// and nowhere deeper, so that the loops are compiled once and not for every format.
trait Weights: Block {
    /// For quantized blocks, whether every quant is at most 127 (see [`Simd::dot`]).
    const QUANTS_ARE_NARROW: Option<bool>;

    /// Unpacks blocks into a tile's row; nothing for float formats, which have no quants.
    fn unpack<S: Simd>(blocks: &[Self], tile: &mut bytes::Tile, row: usize);
}

impl<B: Quants> Weights for B {
    const QUANTS_ARE_NARROW: Option<bool> = Some(B::NARROW);

    #[inline(always)]
    fn unpack<S: Simd>(blocks: &[Self], tile: &mut bytes::Tile, row: usize) {
        tile.unpack::<S, B>(blocks, row);
    }
}

macro_rules! float_weights {
    ($($block:ty),*) => {$(
        impl Weights for $block {
            const QUANTS_ARE_NARROW: Option<bool> = None;

            #[inline(always)]
            fn unpack<S: Simd>(_: &[Self], _: &mut bytes::Tile, _: usize) {}
        }
    )*};
}
float_weights!(f32, f16, bf16);
