//! The launches of `gpu::product::Matvec`.

use std::marker::PhantomData;

use bytemuck::Zeroable;
use gpu::product::matvec::{HalfNumbers, HalfPieces, Job, Pair, Quantized};
use gpu::product::{Matvec, MatvecGeometry};
use gpu::quant::planes::plane_row_bytes;
use gpu::quant::{Format, bf16, with_block};
use gpu::simt::Global;
use half::f16;

use super::{Check, Checked};
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

/// One of the products in a launch.
#[derive(Debug)]
pub struct Output<'a> {
    /// `rows × n`.
    pub out: ViewMut<'a, f32>,
    /// `n × k`.
    pub weights: Weights<'a>,
    /// Rows of weights, columns of out.
    pub n: usize,
}

/// `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]` for up to three matrices of weights of one
/// format, input as rows of q8 ([`gpu::product::activations`]), with the shape `[rows, k]`. Each
/// row has the same bits whatever the other rows are.
///
/// # Errors
/// [`Error::Contract`] unless there are one to three outputs with weights of one quantized format, `k`
/// is a multiple of its block and not 0, lengths are those of the shape and input and weights are
/// aligned to 16 bytes; those of a launch.
pub fn matvec_q8<const JOBS: usize>(
    queue: &impl Queue,
    outputs: [Output<'_>; JOBS],
    input: View<'_, u8>,
    shape: [usize; 2],
) -> Result<(), Error> {
    let format = outputs.first().map_or(Format::F32, |output| output.weights.format);
    with_block!(format, quantized B => {
        type P = Quantized<B>;
        match shape[0] {
            0 | 1 => launch::<P, _, 1>(queue, &outputs, &input, shape),
            2 => launch::<P, _, 2>(queue, &outputs, &input, shape),
            3 | 4 => launch::<P, _, 4>(queue, &outputs, &input, shape),
            _ => launch::<P, _, 8>(queue, &outputs, &input, shape),
        }
    }, else Err(Error::Contract {
        kernel: "matvec_q8",
        what: format!("weights of {format} are not quantized, multiply them with f16"),
    }))
}

/// As [`matvec_q8`] with rows of f16, for weights of every format. `k` is also a multiple of 8.
///
/// # Errors
/// As [`matvec_q8`].
pub fn matvec_f16<const JOBS: usize>(
    queue: &impl Queue,
    outputs: [Output<'_>; JOBS],
    input: View<'_, f16>,
    shape: [usize; 2],
) -> Result<(), Error> {
    fn few<P: Pair, const JOBS: usize>(
        queue: &impl Queue,
        outputs: &[Output<'_>; JOBS],
        input: &View<'_, f16>,
        shape: [usize; 2],
    ) -> Result<(), Error> {
        match shape[0] {
            0 | 1 => launch::<P, _, 1>(queue, outputs, input, shape),
            _ => launch::<P, _, 4>(queue, outputs, input, shape),
        }
    }
    let format = outputs.first().map_or(Format::F32, |output| output.weights.format);
    match format {
        Format::F32 => few::<HalfNumbers<f32>, JOBS>(queue, &outputs, &input, shape),
        Format::F16 => few::<HalfNumbers<f16>, JOBS>(queue, &outputs, &input, shape),
        Format::BF16 => few::<HalfNumbers<bf16>, JOBS>(queue, &outputs, &input, shape),
        _ => with_block!(format, quantized B => few::<HalfPieces<B>, JOBS>(queue, &outputs, &input, shape),
            else unreachable!("the formats that are not quantized are above")),
    }
}

/// Checks and launches the kernel that takes `ROWS` rows in a pass. An element of `input` is an
/// `E`.
fn launch<P: Pair, E, const ROWS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: &View<'_, E>,
    [rows, k]: [usize; 2],
) -> Result<(), Error> {
    let check = Check::<Matvec<P, ROWS>>::new(queue);
    check.that((1..=MatvecGeometry::JOBS).contains(&outputs.len()), || {
        format!("{} outputs, there can be 1 to {}", outputs.len(), MatvecGeometry::JOBS)
    })?;
    let format = outputs[0].weights.format;
    // A piece is no larger than a block or, of numbers, what a row is aligned to.
    let multiple = (P::ELEMENTS as usize).max(format.block_elements());
    check.that(k > 0 && k.is_multiple_of(multiple), || {
        format!("k is {k}, not a multiple of {multiple}, or 0")
    })?;
    let row_bytes = plane_row_bytes(format, k);
    check.that(row_bytes.is_some(), || format!("k is {k}: a row of weights is too long"))?;
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let k = check.count(k, "k", i32::MAX.unsigned_abs())?;
    let input_bytes = u64::from(rows) * u64::from(P::input_row_bytes(k));
    check.view(input, "input", input_bytes / size_of::<E>() as u64, 16)?;

    let mut jobs = [Job::zeroed(); MatvecGeometry::JOBS];
    let mut all = 0;
    for (job, Output { out, weights, n }) in jobs.iter_mut().zip(outputs) {
        check.that(weights.format == format, || {
            format!("weights are {format} and {}, a launch takes one format", weights.format)
        })?;
        let n = check.count(*n, "n", MatvecGeometry::MOST_OUTPUTS)?;
        all += u64::from(n.next_multiple_of(MatvecGeometry::BLOCK_OUTPUTS));
        check.view(out, "out", u64::from(rows) * u64::from(n), 4)?;
        check.view(&weights.rows, "weights", u64::from(n) * u64::from(row_bytes.unwrap_or(0)), 16)?;
        let mut bias = Global::from_address(0);
        if let Some(view) = &weights.bias {
            check.view(view, "bias", n.into(), 4)?;
            bias = view.start();
        }
        *job = Job { out: Global::from_address(out.address()), weights: weights.rows.start(), bias, n };
    }
    check.that(all <= u64::from(MatvecGeometry::MOST_OUTPUTS), || {
        format!("{all} outputs together, the most is {}", MatvecGeometry::MOST_OUTPUTS)
    })?;
    let input = Global::from_address(input.start().address());
    let arguments = Matvec::<P, ROWS> { jobs, input, rows, k, pair: PhantomData };
    // SAFETY: lengths, alignment and limits were just checked; the outputs are borrowed alone.
    unsafe { queue.launch(arguments) }
}
