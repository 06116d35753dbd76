//! Activations on their way into a product: rows of f16 or of 8-bit quants, and the products that take
//! them.

use std::fmt;

use bytemuck::Pod;
use gpu::product::{Activations, AsF16, AsF16Panels, AsF16Slabs, AsQ8, PanelF16, SlabF16, WeightPanelF16};
use half::f16;

use crate::cuda::ops::{self, Output, RowsMut};
use crate::cuda::{Buffer, Error, Queue, View, ViewMut};

/// What rows of activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// 16-bit floats, and products that every device has.
    F16,
    /// 16-bit floats, and products that compute capability 9.0 alone has, with matrices that are unpacked
    /// to 16-bit floats first: for a prompt. A few rows take as long as hundreds.
    F16Wgmma,
    /// 16-bit floats, and products that compute capability 9.0 alone has, which unpack weights where they multiply
    /// them: for steps of several sequences. One or two take as long as eight.
    F16SplitK,
    /// Two quants of 8 bits a value, with one scale for 32 of them, see [`gpu::product::activations`]: for steps.
    /// A prompt takes as long as its tokens do one by one, in eights.
    Q8,
}

impl ActivationKind {
    /// The name, on the command line too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F16Wgmma => "f16-wgmma",
            Self::F16SplitK => "f16-splitk",
            Self::Q8 => "q8",
        }
    }

    /// Whether compute capability 9.0 alone has its products.
    pub(super) const fn needs_wgmma(self) -> bool {
        matches!(self, Self::F16Wgmma | Self::F16SplitK)
    }
}

impl fmt::Display for ActivationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Does something with `$R` standing for the element of rows of a kind.
macro_rules! with_rows {
    ($kind:expr, $R:ident => $work:expr) => {
        match $kind {
            ActivationKind::F16 => {
                type $R = half::f16;
                $work
            }
            ActivationKind::F16Wgmma => {
                type $R = gpu::product::PanelF16;
                $work
            }
            ActivationKind::F16SplitK => {
                type $R = gpu::product::SlabF16;
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

/// Rows of activations of each kind, of which one is in use at a time, but for panels: a product reads some while it
/// writes others.
#[derive(Debug)]
pub(super) struct RowsBuffer {
    f16: Buffer<f16>,
    /// Not as wide as a gated layer's middle.
    panels: Buffer<PanelF16>,
    /// Of a gated layer's middle.
    gated: Buffer<PanelF16>,
    slabs: Buffer<SlabF16>,
    q8: Buffer<u8>,
}

/// How many rows of each kind there is room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsRoom {
    /// Of those that every device has.
    pub(super) rows: usize,
    /// Of [`ActivationKind::F16Wgmma`].
    pub(super) panels: usize,
    /// Of [`ActivationKind::F16SplitK`].
    pub(super) slabs: usize,
}

impl RowsBuffer {
    /// For rows of at most `width` values, or of a gated layer's `middle`.
    pub(super) fn new(
        queue: &impl Queue,
        room: RowsRoom,
        [width, middle]: [usize; 2],
    ) -> Result<Self, Error> {
        let widest = width.max(middle);
        Ok(Self {
            f16: queue.output("f16 rows", f16::elements(room.rows, widest))?,
            panels: queue.output("f16 rows in panels", PanelF16::elements(room.panels, width))?,
            gated: queue.output("gated f16 rows in panels", PanelF16::elements(room.panels, middle))?,
            slabs: queue.output("f16 rows in slabs", SlabF16::elements(room.slabs, widest))?,
            q8: queue.output("q8 rows", u8::elements(room.rows, widest))?,
        })
    }

    /// Bytes of that.
    pub(super) fn byte_len(room: RowsRoom, [width, middle]: [usize; 2]) -> usize {
        let widest = width.max(middle);
        let f16s = f16::elements(room.rows, widest)
            + PanelF16::elements(room.panels, width)
            + PanelF16::elements(room.panels, middle)
            + SlabF16::elements(room.slabs, widest);
        f16s * size_of::<f16>() + u8::elements(room.rows, widest)
    }

    /// What gate and up are multiplied with, `rows` rows of `width` values in panels, and where those of a gated
    /// layer's middle go.
    pub(super) fn gated(
        &mut self,
        rows: usize,
        [width, middle]: [usize; 2],
    ) -> (View<'_, PanelF16>, ViewMut<'_, PanelF16>) {
        let Self { panels, gated, .. } = self;
        let of = |width| 0..PanelF16::elements(rows, width);
        (panels.slice(of(width)), gated.slice_mut(of(middle)))
    }

    /// The rows that came there.
    pub(super) fn middle(&self, rows: usize, middle: usize) -> View<'_, PanelF16> {
        self.gated.slice(0..PanelF16::elements(rows, middle))
    }

    /// The first `rows` rows of `width` values.
    pub(super) fn rows<R: Rows>(&self, rows: usize, width: usize) -> View<'_, R> {
        R::buffer(self).slice(0..R::elements(rows, width))
    }

    /// As [`rows`](Self::rows), to write.
    pub(super) fn rows_mut<R: Rows>(&mut self, rows: usize, width: usize) -> ViewMut<'_, R> {
        R::buffer_mut(self).slice_mut(0..R::elements(rows, width))
    }
}

/// The element of rows of activations.
pub(super) trait Rows: Pod {
    /// Elements of `rows` rows of `width` values.
    fn elements(rows: usize, width: usize) -> usize;

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

    /// The products of `rows` rows with several matrices, through the kernels for `many` rows, those of a
    /// prompt, or for few, one a sequence. `unpacked` is room for a matrix, which not every kind of rows needs.
    fn multiply(
        queue: &impl Queue,
        outputs: Vec<Output<'_>>,
        input: View<'_, Self>,
        rows: usize,
        many: bool,
        unpacked: &mut Buffer<WeightPanelF16>,
    ) -> Result<(), Error>;
}

/// What kinds of rows have in common.
macro_rules! common {
    ($Kind:ty, $field:ident, $convert:ident) => {
        fn elements(rows: usize, width: usize) -> usize {
            // Both are far below 2^31: a model's rows were checked when it was loaded.
            <$Kind as Activations>::bytes(rows as u32, width as u32) as usize / size_of::<Self>()
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
    };
}

impl Rows for f16 {
    common!(AsF16, f16, convert_f16);

    fn multiply(
        queue: &impl Queue,
        outputs: Vec<Output<'_>>,
        input: View<'_, Self>,
        rows: usize,
        many: bool,
        _unpacked: &mut Buffer<WeightPanelF16>,
    ) -> Result<(), Error> {
        if many {
            return outputs.into_iter().try_for_each(|Output { out, weights, bias }| {
                ops::matmul_f16_quant(queue, out, input, weights, bias, rows)
            });
        }
        ops::matvec_f16_by_format(queue, outputs, input, rows)
    }
}

impl Rows for u8 {
    common!(AsQ8, q8, convert_q8);

    /// Also many rows go through the kernels for few, eight at a time: integers on the tensor cores lost to
    /// f16 there (docs/results.md).
    fn multiply(
        queue: &impl Queue,
        outputs: Vec<Output<'_>>,
        input: View<'_, Self>,
        rows: usize,
        _many: bool,
        _unpacked: &mut Buffer<WeightPanelF16>,
    ) -> Result<(), Error> {
        ops::matvec_q8_by_format(queue, outputs, input, rows)
    }
}

impl Rows for PanelF16 {
    common!(AsF16Panels, panels, convert_f16_panels);

    /// One matrix after the other is unpacked and multiplied, whatever its format and however many rows.
    fn multiply(
        queue: &impl Queue,
        outputs: Vec<Output<'_>>,
        input: View<'_, Self>,
        rows: usize,
        _many: bool,
        unpacked: &mut Buffer<WeightPanelF16>,
    ) -> Result<(), Error> {
        for Output { out, weights, bias } in outputs {
            let shape = [rows, weights.rows, weights.columns];
            let elements = 0..Self::elements(weights.rows, weights.columns);
            ops::unpack_f16(queue, unpacked.slice_mut(elements.clone()), weights)?;
            ops::matmul_f16_wgmma(queue, out, input, unpacked.slice(elements), bias, shape)?;
        }
        Ok(())
    }
}

impl Rows for SlabF16 {
    common!(AsF16Slabs, slabs, convert_f16_slabs);

    fn multiply(
        queue: &impl Queue,
        outputs: Vec<Output<'_>>,
        input: View<'_, Self>,
        rows: usize,
        _many: bool,
        _unpacked: &mut Buffer<WeightPanelF16>,
    ) -> Result<(), Error> {
        ops::matmul_splitk_by_format(queue, outputs, input, rows)
    }
}
