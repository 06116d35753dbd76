//! The launches of `gpu::product::Matvec`.

use std::marker::PhantomData;

use bytemuck::Zeroable;
use gpu::product::activations::MOST_COLUMNS;
use gpu::product::matvec::{HalfNumbers, HalfPieces, Job, Pair, Quantized};
use gpu::product::{Matvec, MatvecGeometry};
use gpu::quant::{Format, bf16, with_block};
use gpu::simt::Global;
use half::f16;

use super::{Check, Checked, PlaneMatrix};
use crate::cuda::{Error, Queue, View, ViewMut};

/// One of the products in a launch.
#[derive(Debug)]
pub struct Output<'a> {
    /// `rows × weights.rows`.
    pub out: ViewMut<'a, f32>,
    /// `n × k`.
    pub weights: PlaneMatrix<'a>,
    /// What is added to each row of out, `n`.
    pub bias: Option<View<'a, f32>>,
}

/// `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]` for up to three matrices of weights of one
/// format, `rows` rows of input as q8 ([`gpu::product::activations`]). Each row has the same bits
/// whatever the other rows are.
///
/// Weights are read while launches before this one still run (see `gpu::simt`, "Launches that begin early"):
/// they have to be inputs or uploads, never what a launch wrote. The emulator checks that.
///
/// # Errors
/// [`Error::Contract`] unless there are one to three outputs whose weights have one quantized format
/// and as many columns, at least 1, lengths are those of the shape and input and weights are aligned to
/// 16 bytes; those of a launch.
pub fn matvec_q8(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: View<'_, u8>,
    rows: usize,
) -> Result<(), Error> {
    let format = outputs.first().map_or(Format::F32, |output| output.weights.format);
    with_block!(format, quantized B => {
        type P = Quantized<B>;
        match rows {
            0 | 1 => launch::<P, _, 1>(queue, outputs, &input, rows),
            2 => launch::<P, _, 2>(queue, outputs, &input, rows),
            3 | 4 => launch::<P, _, 4>(queue, outputs, &input, rows),
            _ => launch::<P, _, 8>(queue, outputs, &input, rows),
        }
    }, else Err(Error::Contract {
        kernel: "matvec_q8",
        what: format!("weights of {format} are not quantized, multiply them with f16"),
    }))
}

/// As [`matvec_q8`] with rows of f16, for weights of every format. Columns are also a multiple
/// of 8.
///
/// # Errors
/// As [`matvec_q8`].
pub fn matvec_f16(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: View<'_, f16>,
    rows: usize,
) -> Result<(), Error> {
    fn few<P: Pair>(
        queue: &impl Queue,
        outputs: &[Output<'_>],
        input: &View<'_, f16>,
        rows: usize,
    ) -> Result<(), Error> {
        match rows {
            0 | 1 => launch::<P, _, 1>(queue, outputs, input, rows),
            _ => launch::<P, _, 4>(queue, outputs, input, rows),
        }
    }
    let format = outputs.first().map_or(Format::F32, |output| output.weights.format);
    match format {
        Format::F32 => few::<HalfNumbers<f32>>(queue, outputs, &input, rows),
        Format::F16 => few::<HalfNumbers<f16>>(queue, outputs, &input, rows),
        Format::BF16 => few::<HalfNumbers<bf16>>(queue, outputs, &input, rows),
        _ => with_block!(format, quantized B => few::<HalfPieces<B>>(queue, outputs, &input, rows),
            else unreachable!("the formats that are not quantized are above")),
    }
}

/// Checks and launches the kernel that takes `ROWS` rows in a pass. An element of `input` is an
/// `E`.
fn launch<P: Pair, E, const ROWS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: &View<'_, E>,
    rows: usize,
) -> Result<(), Error> {
    let check = Check::<Matvec<P, ROWS>>::new(queue);
    check.that((1..=MatvecGeometry::JOBS).contains(&outputs.len()), || {
        format!("{} outputs, there can be 1 to {}", outputs.len(), MatvecGeometry::JOBS)
    })?;
    let PlaneMatrix { format, columns, .. } = outputs[0].weights;
    check.that(columns > 0, || "weights have no columns".to_owned())?;
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let k = check.count(columns, "columns", MOST_COLUMNS)?;
    let mut jobs = [Job::zeroed(); MatvecGeometry::JOBS];
    let mut all = 0;
    for (job, Output { out, weights, bias }) in jobs.iter_mut().zip(outputs) {
        check.that((weights.format, weights.columns) == (format, columns), || {
            format!(
                "weights have {columns} columns of {format} and {} of {}, a launch takes one kind",
                weights.columns, weights.format
            )
        })?;
        // A piece is no larger than a block or, of numbers, what a row is aligned to.
        let [n, _] = check.matrix(weights, "weights", [MatvecGeometry::MOST_OUTPUTS, k], P::ELEMENTS)?;
        all += u64::from(n.next_multiple_of(MatvecGeometry::BLOCK_OUTPUTS));
        check.view(out, "out", u64::from(rows) * u64::from(n), 4)?;
        let bias = check.optional(*bias, "bias", n.into(), 4)?;
        *job = Job { out: Global::from_address(out.address()), weights: weights.bytes.start(), bias, n };
    }
    check.that(all <= u64::from(MatvecGeometry::MOST_OUTPUTS), || {
        format!("{all} outputs together, the most is {}", MatvecGeometry::MOST_OUTPUTS)
    })?;
    let input_bytes = u64::from(rows) * u64::from(P::input_row_bytes(k));
    check.view(input, "input", input_bytes / size_of::<E>() as u64, 16)?;
    let input = Global::from_address(input.start().address());
    let arguments = Matvec::<P, ROWS> { jobs, input, rows, k, pair: PhantomData };
    // SAFETY: lengths, alignment and limits were just checked; the outputs are borrowed alone.
    unsafe { queue.launch(arguments) }
}
