//! The launch of `gpu::product::MatmulSplitK`.

use std::marker::PhantomData;

use gpu::product::matvec::Named;
use gpu::product::{Activations, AsF16Slabs, MatmulSplitK, SlabF16};
use gpu::quant::planes::{PIECE_ELEMENTS, Pieces};
use gpu::quant::with_block;

use super::Check;
use super::matvec::{Output, by_format, format_of, jobs, not_quantized};
use crate::cuda::{Error, Queue, View};

/// `out[r][n] = Σ_k input[r][k] · weights[n][k] + bias[n]` for up to three matrices of weights of one quantized
/// format, `rows` rows of f16 in [slabs](gpu::product::slabs). On a GPU of compute capability 9.0 alone. Each row has
/// the same bits whatever the other rows are. Weights of 1023 or more in size count as infinite.
///
/// Weights are read while launches before this one still run, as in [`matvec_q8`](super::matvec_q8).
///
/// # Errors
/// As [`matvec_q8`](super::matvec_q8); [`Error::NotForDevice`].
pub fn matmul_splitk(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: View<'_, SlabF16>,
    rows: usize,
) -> Result<(), Error> {
    match rows {
        0..=8 => matmul_splitk_by::<4>(queue, outputs, input, rows),
        9..=32 => matmul_splitk_by::<16>(queue, outputs, input, rows),
        _ => matmul_splitk_by::<32>(queue, outputs, input, rows),
    }
}

/// [`matmul_splitk`] of weights of several formats: a launch for each.
///
/// # Errors
/// As [`matmul_splitk`].
pub fn matmul_splitk_by_format(
    queue: &impl Queue,
    mut outputs: Vec<Output<'_>>,
    input: View<'_, SlabF16>,
    rows: usize,
) -> Result<(), Error> {
    by_format(&mut outputs).try_for_each(|outputs| matmul_splitk(queue, outputs, input, rows))
}

/// As [`matmul_splitk`], by the kernel that takes twice `REGISTERS` rows in a pass, which are 8, 32 or 64: all give the
/// same bits.
///
/// # Errors
/// As [`matmul_splitk`].
pub fn matmul_splitk_by<const REGISTERS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: View<'_, SlabF16>,
    rows: usize,
) -> Result<(), Error> {
    let format = format_of(outputs);
    with_block!(format, quantized B => launch::<B, REGISTERS>(queue, outputs, &input, rows),
        else Err(not_quantized("matmul_splitk", format)))
}

fn launch<B: Pieces + Named, const REGISTERS: usize>(
    queue: &impl Queue,
    outputs: &[Output<'_>],
    input: &View<'_, SlabF16>,
    rows: usize,
) -> Result<(), Error> {
    type Kernel<B, const REGISTERS: usize> = MatmulSplitK<B, REGISTERS>;
    let check = Check::<Kernel<B, REGISTERS>>::new(queue);
    let (jobs, [rows, k]) = jobs(&check, outputs, rows, [Kernel::<B, REGISTERS>::OUTPUTS, PIECE_ELEMENTS])?;
    let bytes = AsF16Slabs::bytes(rows, k);
    check.view(input, "input", bytes / size_of::<SlabF16>() as u64, 16)?;
    let input = input.start().cast();
    let arguments = Kernel::<B, REGISTERS> { jobs, input, rows, k, format: PhantomData };
    // SAFETY: lengths, alignment and limits were just checked; the outputs are borrowed alone.
    unsafe { queue.launch(arguments) }
}
