//! Rows of activations that a kernel writes, in each of their forms.

use gpu::activation::RowsOut;
use gpu::simt::{Contract, Global};
use half::f16;

use super::Check;
use crate::cuda::{Error, ViewMut};

/// Rows of activations in memory, as a kernel writes them: f32 or f16.
pub trait RowsMut {
    /// What the kernel is given of them.
    type Out: RowsOut;

    /// See [`rows_out`].
    #[doc(hidden)]
    fn checked<K: Contract>(&mut self, check: &Check<K>, rows: u32, width: u32) -> Result<Self::Out, Error>;
}

/// What the kernel is given, if they are `rows × width` and the width is one that the form can have.
pub(super) fn rows_out<K: Contract, O: RowsMut>(
    check: &Check<K>,
    out: &mut O,
    rows: u32,
    width: u32,
) -> Result<O::Out, Error> {
    let granule = O::Out::GRANULE;
    check.that(width.is_multiple_of(granule), || {
        format!("the width is {width}, not a multiple of {granule}")
    })?;
    out.checked(check, rows, width)
}

macro_rules! plain {
    ($($element:ty, $align:literal);*) => {$(
        impl RowsMut for ViewMut<'_, $element> {
            type Out = Global<$element>;

            fn checked<K: Contract>(
                &mut self,
                check: &Check<K>,
                rows: u32,
                width: u32,
            ) -> Result<Self::Out, Error> {
                check.view(self, "out", u64::from(rows) * u64::from(width), $align)?;
                Ok(self.start())
            }
        }
    )*};
}

plain!(f32, 16; f16, 8);
