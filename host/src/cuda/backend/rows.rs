//! Activations on their way into a product: rows of f16 or of 8-bit quants, and the products that take
//! them.

use bytemuck::Pod;
use gpu::product::{Activations, AsF16, AsQ8};
use half::f16;

use crate::cuda::ops::{self, Output, PlaneMatrix, RowsMut};
use crate::cuda::{Buffer, Error, Queue, View, ViewMut};

/// What rows of activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// 16-bit floats.
    F16,
    /// Blocks of 32 quants of 8 bits with one scale, see [`gpu::product::activations`].
    Q8,
}

/// Does something with `$R` standing for the element of rows of a kind.
macro_rules! with_rows {
    ($kind:expr, $R:ident => $work:expr) => {
        match $kind {
            ActivationKind::F16 => {
                type $R = half::f16;
                $work
            }
            ActivationKind::Q8 => {
                type $R = u8;
                $work
            }
        }
    };
}

pub(super) use with_rows;

/// Rows of activations of either kind, of which one is in use at a time.
#[derive(Debug)]
pub(super) struct RowsBuffer {
    f16: Buffer<f16>,
    q8: Buffer<u8>,
}

impl RowsBuffer {
    /// For `rows` rows of at most `width` values.
    pub(super) fn new(queue: &impl Queue, rows: usize, width: usize) -> Result<Self, Error> {
        Ok(Self {
            f16: queue.output("f16 rows", rows * f16::elements(width))?,
            q8: queue.output("q8 rows", rows * u8::elements(width))?,
        })
    }

    /// Bytes of that.
    pub(super) fn byte_len(rows: usize, width: usize) -> usize {
        rows * (f16::elements(width) * size_of::<f16>() + u8::elements(width))
    }

    /// The first `rows` rows of `width` values.
    pub(super) fn rows<R: Rows>(&self, rows: usize, width: usize) -> View<'_, R> {
        R::buffer(self).slice(0..rows * R::elements(width))
    }

    /// As [`rows`](Self::rows), to write.
    pub(super) fn rows_mut<R: Rows>(&mut self, rows: usize, width: usize) -> ViewMut<'_, R> {
        R::buffer_mut(self).slice_mut(0..rows * R::elements(width))
    }
}

/// The element of rows of activations.
pub(super) trait Rows: Pod {
    /// Elements of a row of `width` values.
    fn elements(width: usize) -> usize;

    fn buffer(rows: &RowsBuffer) -> &Buffer<Self>;

    fn buffer_mut(rows: &mut RowsBuffer) -> &mut Buffer<Self>;

    /// A view, as what writes activations takes it.
    fn target(view: ViewMut<'_, Self>) -> impl RowsMut;

    /// Rows of these from rows of f32.
    fn convert(
        queue: &impl Queue,
        out: ViewMut<'_, Self>,
        input: View<'_, f32>,
        shape: [usize; 2],
    ) -> Result<(), Error>;

    /// The product of a prompt's rows.
    fn many(
        queue: &impl Queue,
        out: ViewMut<'_, f32>,
        input: View<'_, Self>,
        weights: PlaneMatrix<'_>,
        bias: Option<View<'_, f32>>,
        rows: usize,
    ) -> Result<(), Error>;

    /// The products of a few rows, one a sequence, with weights of one format.
    fn few(
        queue: &impl Queue,
        outputs: &[Output<'_>],
        input: View<'_, Self>,
        rows: usize,
    ) -> Result<(), Error>;
}

macro_rules! rows {
    ($Element:ty, $Kind:ty, $field:ident, $convert:ident, $many:ident, $few:ident) => {
        impl Rows for $Element {
            fn elements(width: usize) -> usize {
                // Widths are far below 2^31: a model's rows were checked when it was loaded.
                <$Kind as Activations>::row_bytes(width as u32) as usize / size_of::<Self>()
            }

            fn buffer(rows: &RowsBuffer) -> &Buffer<Self> {
                &rows.$field
            }

            fn buffer_mut(rows: &mut RowsBuffer) -> &mut Buffer<Self> {
                &mut rows.$field
            }

            fn target(view: ViewMut<'_, Self>) -> impl RowsMut {
                view
            }

            fn convert(
                queue: &impl Queue,
                out: ViewMut<'_, Self>,
                input: View<'_, f32>,
                shape: [usize; 2],
            ) -> Result<(), Error> {
                ops::$convert(queue, out, input, shape)
            }

            fn many(
                queue: &impl Queue,
                out: ViewMut<'_, f32>,
                input: View<'_, Self>,
                weights: PlaneMatrix<'_>,
                bias: Option<View<'_, f32>>,
                rows: usize,
            ) -> Result<(), Error> {
                ops::$many(queue, out, input, weights, bias, rows)
            }

            fn few(
                queue: &impl Queue,
                outputs: &[Output<'_>],
                input: View<'_, Self>,
                rows: usize,
            ) -> Result<(), Error> {
                ops::$few(queue, outputs, input, rows)
            }
        }
    };
}

rows!(f16, AsF16, f16, convert_f16, matmul_f16_quant, matvec_f16);
rows!(u8, AsQ8, q8, convert_q8, matmul_q8_quant, matvec_q8);
