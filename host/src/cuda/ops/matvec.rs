//! The launches of `gpu::product::matvec`.

use std::marker::PhantomData;

use bytemuck::Zeroable;
use gpu::product::activations::MOST_COLUMNS;
use gpu::product::matvec::{
    Beside, HalfNumbers, HalfPieces, Job, MatvecRows, MatvecTwo, Named, Pair, Quantized, RowsGeometry,
    TWO_FORMATS,
};
use gpu::product::{Matvec, MatvecGeometry};
use gpu::quant::planes::Pieces;
use gpu::quant::{BlockQ4_K, BlockQ5_0, BlockQ5_K, BlockQ6_K, BlockQ8_0, Format, bf16, with_block};
use gpu::simt::{Contract, Global};
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
    let format = format_of(outputs);
    with_block!(format, quantized B => match rows {
        1 if splits_k(outputs, queue.multiprocessors(), Quantized::<B>::RESIDENT) => {
            launch_rows::<B, 1>(queue, outputs, &input, rows)
        }
        0 | 1 => launch::<Quantized<B>, _, 1>(queue, outputs, &input, rows),
        2 => launch_rows::<B, 2>(queue, outputs, &input, rows),
        3 | 4 => launch_rows::<B, 4>(queue, outputs, &input, rows),
        _ => launch_rows::<B, 8>(queue, outputs, &input, rows),
    }, else Err(not_quantized("matvec_q8", format)))
}

/// [`matvec_q8`] of one row by the kernel whose warps share K, whatever the number of outputs: the same bits.
///
/// # Errors
/// As [`matvec_q8`].
pub fn matvec_q8_split_k(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: View<'_, u8>,
) -> Result<(), Error> {
    let format = format_of(outputs);
    with_block!(format, quantized B => launch_rows::<B, 1>(queue, outputs, &input, 1),
        else Err(not_quantized("matvec_q8", format)))
}

/// [`matvec_q8`] of one row and weights of two formats in one launch, whatever the number of outputs: the same bits.
/// Those of each have one format, and the formats are two of [`TWO_FORMATS`], in that order.
///
/// # Errors
/// As [`matvec_q8`], and [`Error::Contract`] for other formats.
pub fn matvec_q8_two(
    queue: &impl Queue,
    outputs: [&[Output<'_>]; 2],
    input: View<'_, u8>,
) -> Result<(), Error> {
    match outputs.map(format_of) {
        [Format::Q4_K, Format::Q6_K] => launch_two::<BlockQ4_K, BlockQ6_K>(queue, outputs, &input),
        [Format::Q5_K, Format::Q6_K] => launch_two::<BlockQ5_K, BlockQ6_K>(queue, outputs, &input),
        [Format::Q5_0, Format::Q8_0] => launch_two::<BlockQ5_0, BlockQ8_0>(queue, outputs, &input),
        [first, second] => Err(Error::Contract {
            kernel: "matvec_q8",
            what: format!("no kernel takes {first} and {second} in one launch, multiply them apart"),
        }),
    }
}

/// [`matvec_q8`] of weights of several formats: a launch for each, or one of [`matvec_q8_two`] where that kernel's
/// blocks all run at a time. The same bits.
///
/// # Errors
/// As [`matvec_q8`].
pub fn matvec_q8_by_format(
    queue: &impl Queue,
    mut outputs: Vec<Output<'_>>,
    input: View<'_, u8>,
    rows: usize,
) -> Result<(), Error> {
    const OUTPUTS: u32 = RowsGeometry::OUTPUTS;
    let fit = at_a_time(queue.multiprocessors(), RowsGeometry::RESIDENT) as usize;
    let formats: Vec<&[Output<'_>]> = by_format(&mut outputs).collect();
    if let ([first, second], 1) = (&formats[..], rows)
        && TWO_FORMATS.contains(&[first, second].map(|outputs| format_of(outputs)))
        && groups(first, OUTPUTS).saturating_add(groups(second, OUTPUTS)) <= fit
    {
        return matvec_q8_two(queue, [first, second], input);
    }
    formats.into_iter().try_for_each(|outputs| matvec_q8(queue, outputs, input, rows))
}

/// [`matvec_f16`] of weights of several formats: a launch for each.
///
/// # Errors
/// As [`matvec_f16`].
pub fn matvec_f16_by_format(
    queue: &impl Queue,
    mut outputs: Vec<Output<'_>>,
    input: View<'_, f16>,
    rows: usize,
) -> Result<(), Error> {
    by_format(&mut outputs).try_for_each(|outputs| matvec_f16(queue, outputs, input, rows))
}

/// The outputs of one format, and those of the next.
pub(super) fn by_format<'o, 'a>(outputs: &'o mut [Output<'a>]) -> impl Iterator<Item = &'o [Output<'a>]> {
    outputs.sort_by_key(|output| output.weights.format as u32);
    outputs.chunk_by(|a, b| a.weights.format == b.weights.format)
}

/// The format of the first one's weights.
pub(super) fn format_of(outputs: &[Output<'_>]) -> Format {
    outputs.first().map_or(Format::F32, |output| output.weights.format)
}

/// What `kernel` says of weights that are not quantized.
pub(super) fn not_quantized(kernel: &'static str, format: Format) -> Error {
    Error::Contract { kernel, what: format!("weights of {format} are not quantized, multiply them with f16") }
}

/// Whether the products of one row are those of the kernel whose warps share K: where a multiprocessor has room for
/// `resident` blocks of [`Matvec`], and there are more groups of outputs than that, but not one more for each.
///
/// Some blocks have two groups then, and the others wait: query, key and value of qwen2-7b in Q4_K are 576 groups,
/// and an H200 has room for 528 blocks: 4.65 µs. The other kernel has half as many, all at a time: 4.24 µs.
/// It loses where `Matvec` has 448 groups (4.64 µs instead of 3.50) and where it has 4736 (27.22 instead of 22.51);
/// what lies between is not measured. docs/results.md, "`matvec`", has the tables.
fn splits_k(outputs: &[Output<'_>], multiprocessors: u32, resident: u32) -> bool {
    let at_a_time = |resident| at_a_time(multiprocessors, resident);
    let groups = groups(outputs, MatvecGeometry::BLOCK_OUTPUTS);
    (at_a_time(resident) as usize + 1..=at_a_time(resident + 1) as usize).contains(&groups)
}

/// Groups of so many outputs.
fn groups(outputs: &[Output<'_>], block_outputs: u32) -> usize {
    let rows = outputs.iter().map(|output| output.weights.rows);
    rows.fold(0, |sum, rows| sum.saturating_add(rows.div_ceil(block_outputs as usize)))
}

/// Blocks that run at a time, where each multiprocessor has room for so many.
fn at_a_time(multiprocessors: u32, resident: u32) -> u32 {
    multiprocessors.max(1).saturating_mul(resident)
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
    let format = format_of(outputs);
    match format {
        Format::F32 => few::<HalfNumbers<f32>>(queue, outputs, &input, rows),
        Format::F16 => few::<HalfNumbers<f16>>(queue, outputs, &input, rows),
        Format::BF16 => few::<HalfNumbers<bf16>>(queue, outputs, &input, rows),
        _ => with_block!(format, quantized B => few::<HalfPieces<B>>(queue, outputs, &input, rows),
            else unreachable!("the formats that are not quantized are above")),
    }
}

/// Checks and launches the kernel that takes `ROWS` rows in a pass, each by itself. An element of `input` is an
/// `E`.
fn launch<P: Pair, E, const ROWS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: &View<'_, E>,
    rows: usize,
) -> Result<(), Error> {
    let check = Check::<Matvec<P, ROWS>>::new(queue);
    let Arguments { jobs, input, rows, k } =
        arguments::<_, P, E>(&check, outputs, input, rows, MatvecGeometry::BLOCK_OUTPUTS)?;
    let blocks = if P::PERSISTENT { at_a_time(queue.multiprocessors(), P::RESIDENT) } else { u32::MAX };
    let arguments = Matvec::<P, ROWS> { jobs, input, rows, k, blocks, pair: PhantomData };
    // SAFETY: lengths, alignment and limits were just checked; the outputs are borrowed alone.
    unsafe { queue.launch(arguments) }
}

/// Checks and launches the kernel that takes `ROWS` rows of q8 in a pass by the tensor cores, its warps K by parts.
fn launch_rows<B: Pieces + Named, const ROWS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: &View<'_, u8>,
    rows: usize,
) -> Result<(), Error> {
    let check = Check::<MatvecRows<B, ROWS>>::new(queue);
    let Arguments { jobs, input, rows, k } =
        arguments::<_, Quantized<B>, u8>(&check, outputs, input, rows, RowsGeometry::OUTPUTS)?;
    let arguments = MatvecRows::<B, ROWS> { jobs, input, rows, k, format: PhantomData };
    // SAFETY: as above.
    unsafe { queue.launch(arguments) }
}

/// Checks and launches the kernel that takes a row of q8 and weights of two formats.
fn launch_two<A: Pieces + Beside<B>, B: Pieces + Named>(
    queue: &impl Queue,
    [first, second]: [&[Output<'_>]; 2],
    input: &View<'_, u8>,
) -> Result<(), Error> {
    let check = Check::<MatvecTwo<A, B>>::new(queue);
    let Arguments { jobs, input: row, rows, k } =
        arguments::<_, Quantized<A>, u8>(&check, first, input, 1, RowsGeometry::OUTPUTS)?;
    let first = MatvecRows { jobs, input: row, rows, k, format: PhantomData };
    // As there is one input, whose length tells its columns, `k` is that of the others.
    let Arguments { jobs, .. } =
        arguments::<_, Quantized<B>, u8>(&check, second, input, 1, RowsGeometry::OUTPUTS)?;
    let second = MatvecRows { jobs, input: row, rows, k, format: PhantomData };
    let arguments = MatvecTwo::<A, B> { first, second };
    let groups = arguments.launch().grid.y;
    check.that(groups <= Job::MOST_GROUPS, || {
        format!("{groups} groups of outputs together, the most is {}", Job::MOST_GROUPS)
    })?;
    // SAFETY: as above.
    unsafe { queue.launch(arguments) }
}

/// What the kernels take.
struct Arguments {
    jobs: [Job; Job::MOST],
    input: Global<u8>,
    rows: u32,
    k: u32,
}

/// The checked arguments of the kernel `K`, whose blocks have so many outputs. An element of `input` is an `E`.
fn arguments<K: Contract, P: Pair, E>(
    check: &Check<K>,
    outputs: &[Output<'_>],
    input: &View<'_, E>,
    rows: usize,
    block_outputs: u32,
) -> Result<Arguments, Error> {
    // A piece is no larger than a block or, of numbers, what a row is aligned to.
    let (jobs, [rows, k]) = jobs(check, outputs, rows, [block_outputs, P::ELEMENTS])?;
    let input_bytes = u64::from(rows) * u64::from(P::input_row_bytes(k));
    check.view(input, "input", input_bytes / size_of::<E>() as u64, 16)?;
    Ok(Arguments { jobs, input: Global::from_address(input.start().address()), rows, k })
}

/// The checked jobs of the kernel `K`, whose blocks have so many outputs and take so many columns at a time; rows and
/// columns of input.
pub(super) fn jobs<K: Contract>(
    check: &Check<K>,
    outputs: &[Output<'_>],
    rows: usize,
    [block_outputs, lot]: [u32; 2],
) -> Result<([Job; Job::MOST], [u32; 2]), Error> {
    check.that((1..=Job::MOST).contains(&outputs.len()), || {
        format!("{} outputs, there can be 1 to {}", outputs.len(), Job::MOST)
    })?;
    let PlaneMatrix { format, columns, .. } = outputs[0].weights;
    check.that(columns > 0, || "weights have no columns".to_owned())?;
    let rows = check.count(rows, "rows", i32::MAX.unsigned_abs())?;
    let k = check.count(columns, "columns", MOST_COLUMNS)?;
    let most = Job::MOST_GROUPS * block_outputs;
    let mut jobs = [Job::zeroed(); Job::MOST];
    let mut all = 0;
    for (job, Output { out, weights, bias }) in jobs.iter_mut().zip(outputs) {
        check.that((weights.format, weights.columns) == (format, columns), || {
            format!(
                "weights have {columns} columns of {format} and {} of {}, a launch takes one kind",
                weights.columns, weights.format
            )
        })?;
        let [n, _] = check.matrix(weights, "weights", [most, k], lot)?;
        all += u64::from(n.next_multiple_of(block_outputs));
        check.view(out, "out", u64::from(rows) * u64::from(n), 4)?;
        let bias = check.optional(*bias, "bias", n.into(), 4)?;
        *job = Job { out: Global::from_address(out.address()), weights: weights.bytes.start(), bias, n };
    }
    check.that(all <= u64::from(most), || format!("{all} outputs together, the most is {most}"))?;
    Ok((jobs, [rows, k]))
}
