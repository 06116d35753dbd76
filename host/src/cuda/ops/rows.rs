//! Rows of activations that a kernel writes, in each of their forms.

use gpu::product::{Activations, AsF16, AsF16Panels, AsF16Slabs, AsF32, AsQ8, PanelF16, SlabF16};
use gpu::simt::{Contract, Global};
use half::f16;

use super::Check;
use crate::cuda::{Error, ViewMut};

/// Rows of activations for a kernel to write, by their elements: f32, f16, f16 in
/// [panels](gpu::product::panels) or [slabs](gpu::product::slabs), or bytes for the rows of [`Q8Row`](gpu::product::Q8Row).
pub trait RowsMut {
    /// What a kernel stores them as.
    type Kind: Activations;
    /// Their elements.
    type Element;

    /// The view itself.
    fn view(&self) -> &ViewMut<'_, Self::Element>;
}

macro_rules! rows {
    ($($Element:ty => $Kind:ty,)*) => {$(
        impl RowsMut for ViewMut<'_, $Element> {
            type Kind = $Kind;
            type Element = $Element;

            fn view(&self) -> &ViewMut<'_, $Element> {
                self
            }
        }
    )*};
}

rows! {
    f32 => AsF32,
    f16 => AsF16,
    PanelF16 => AsF16Panels,
    SlabF16 => AsF16Slabs,
    u8 => AsQ8,
}

impl<K: Contract> Check<K> {
    /// That `out` is `rows` rows of `width` values, aligned to 16 bytes, and the width one that rows of
    /// its kind can have.
    pub(super) fn rows<O: RowsMut>(&self, out: &O, rows: u32, width: u32) -> Result<Global<u8>, Error> {
        let columns = O::Kind::COLUMNS;
        self.that(width.is_multiple_of(columns), || {
            format!("the width is {width}, not a multiple of {columns}")
        })?;
        let bytes = O::Kind::bytes(rows, width);
        self.view(out.view(), "out", bytes / size_of::<O::Element>() as u64, 16)?;
        Ok(out.view().start().cast())
    }
}
