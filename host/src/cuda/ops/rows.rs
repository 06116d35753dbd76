//! Rows of activations that a kernel writes, in each of their forms.

use gpu::product::{Activations, AsF16, AsF32, AsQ8};
use gpu::simt::{Contract, Global};
use half::f16;

use super::{Check, Checked};
use crate::cuda::{Error, ViewMut};

/// Rows of activations for a kernel to write, by their elements: f32, f16, or bytes for the rows of
/// [`Q8Row`](gpu::product::Q8Row), one behind the other.
pub trait RowsMut: Sealed {
    /// What a kernel stores them as.
    type Kind: Activations;
}

/// What a launcher asks of the views of rows.
pub trait Sealed {
    /// Bytes of an element.
    const ELEMENT: u64;
    /// The view.
    #[expect(private_interfaces, reason = "for launchers alone")]
    fn checked(&self) -> &impl Checked;
}

macro_rules! rows {
    ($($element:ty => $Kind:ty,)*) => {$(
        impl RowsMut for ViewMut<'_, $element> {
            type Kind = $Kind;
        }

        impl Sealed for ViewMut<'_, $element> {
            const ELEMENT: u64 = size_of::<$element>() as u64;
            #[expect(private_interfaces, reason = "for launchers alone")]
            fn checked(&self) -> &impl Checked {
                self
            }
        }
    )*};
}

rows! {
    f32 => AsF32,
    f16 => AsF16,
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
        let bytes = u64::from(rows) * u64::from(O::Kind::row_bytes(width));
        self.view(out.checked(), "out", bytes / O::ELEMENT, 16)?;
        Ok(Global::from_address(out.checked().address()))
    }
}
