//! Matrix products `out = input · weightsᵀ` on the file's blocks.
//!
//! One loop for every format. A tile of [`ROWS`] weight rows is unpacked a segment of
//! [`SEGMENT`] columns at a time and multiplied with every input row, so a block is unpacked
//! once however many rows there are, and a segment stays in the L1 cache. Two kinds of tile:
//! [`bytes`] (quantized blocks times 8-bit activations) and [`floats`] (float formats, and the
//! exact mode: dequantized weights, f32 activations, f64 sums; and both rounded to f16).
//!
//! The sums of one output run over the columns in an order that depends on nothing else: not
//! on the number of input rows, on the threads, or on where a tile begins. So a token's
//! result has the same bits alone and beside others.

mod bytes;
mod floats;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use gpu::quant::{Format, with_block};
use rayon::prelude::*;

use super::Arithmetic;
use super::activation::Quantized;
use super::rounding::Grid;
use super::simd::{Kernel, Simd, dispatch};
use super::unpack::Quants;

/// Weight rows that are multiplied together.
const ROWS: usize = 4;

/// Columns of the weights that are unpacked together: a multiple of every format's block.
const SEGMENT: usize = 1024;

/// The input of a product: rows of f32, and their 8-bit form where a format asks for it.
pub(super) struct Input<'a> {
    values: Cow<'a, [f32]>,
    columns: usize,
    form: Form,
}

/// How an input is multiplied.
enum Form {
    /// As it is, with sums in f64.
    Exact,
    /// Rounded, with weights that are rounded too, and sums in f64.
    Rounded(Grid),
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
        arithmetic: Arithmetic,
        formats: impl IntoIterator<Item = Format>,
    ) -> Self {
        let is_quantized = |format: Format| format.block_elements() > 1;
        let form = match arithmetic.grid() {
            Some(grid) => Form::Rounded(grid),
            None if arithmetic.sums_in_f64() => Form::Exact,
            None if formats.into_iter().any(is_quantized) => Form::Quantized(Quantized::new(values, columns)),
            None => Form::Plain,
        };
        let values = match form {
            Form::Rounded(grid) => grid.rounded(values),
            _ => values.into(),
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
        let narrow = with_block!(format, quantized B => Some(B::NARROW), else None);
        match (&input.form, narrow) {
            (Form::Exact | Form::Rounded(_), _) => {
                floats::multiply::<S, f64>(format, weights, input, &mut out)
            }
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
