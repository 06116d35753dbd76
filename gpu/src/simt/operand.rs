//! What the matrix words take and give: fragments as the registers of one lane.
//!
//! Which element a register holds is written once, in `gpu::fragment`. Here stands only what
//! keeps operands apart: an A is no B, and a fragment that was loaded from a row-major tile is
//! not one of a column-major tile, so a product states both of its layouts and a wrong pair of
//! load and product does not compile:
//!
//! ```
//! # use gpu::simt::{Accumulator, ColMajor, MatrixA, MatrixB, RowMajor, Simt};
//! fn scores<S: Simt>(s: S, q: MatrixA<RowMajor>, k: MatrixB<ColMajor>) -> Accumulator {
//!     s.wmma_mma(q, k, [0.0; 8])
//! }
//! ```
//!
//! K taken for an A is refused,
//!
//! ```compile_fail,E0308
//! # use gpu::simt::{Accumulator, ColMajor, MatrixA, MatrixB, RowMajor, Simt};
//! fn scores<S: Simt>(s: S, q: MatrixA<RowMajor>, k: MatrixB<ColMajor>) -> Accumulator {
//!     s.wmma_mma(k, q, [0.0; 8])
//! }
//! ```
//!
//! and so is K loaded row by row where the signature says that it is column-major:
//!
//! ```compile_fail,E0308
//! # use gpu::simt::{ColMajor, MatrixB, RowMajor, Shared, Simt};
//! # use gpu::quant::f16;
//! unsafe fn load_k<S: Simt>(s: S, k: Shared<f16>) -> MatrixB<ColMajor> {
//!     unsafe { s.wmma_load_b::<RowMajor>(k, 136) }
//! }
//! ```

use core::marker::PhantomData;

use half::f16;

use super::{Shared, Simt};
use crate::fragment::ldmatrix;
pub use crate::fragment::{ColMajor, Layout, RowMajor};

macro_rules! operand {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name<L: Layout> {
            registers: [u32; 4],
            layout: PhantomData<L>,
        }

        impl<L: Layout> $name<L> {
            /// The fragment in these registers, which hold two f16 each, the lower index in
            /// the lower half.
            #[inline(always)]
            #[must_use]
            pub const fn from_registers(registers: [u32; 4]) -> Self {
                Self { registers, layout: PhantomData }
            }

            /// The registers.
            #[inline(always)]
            #[must_use]
            pub const fn registers(self) -> [u32; 4] {
                self.registers
            }
        }
    };
}

operand! {
    /// One lane's part of a 16 × 16 f16 left operand (row, k) of `wmma.mma` m16n16k16: the
    /// eight elements `x[0..8]` in four registers.
    ///
    /// PTX gives this operand eight registers; the upper four are a second copy of the lower
    /// four, and the product does not read them: from sm_75 to sm_121 `ptxas` makes the same
    /// machine code whatever stands there. Fragments are loaded and built in place with four.
    MatrixA
}

operand! {
    /// One lane's part of a 16 × 16 f16 right operand (k, column) of `wmma.mma` m16n16k16, in
    /// four registers as [`MatrixA`].
    MatrixB
}

/// One lane's part of a 16 × 16 f32 accumulator of `wmma.mma` m16n16k16: `x[0..8]`.
pub type Accumulator = [f32; 8];

macro_rules! ldmatrix_operand {
    ($name:ident, $address:path, $transposed:path) => {
        impl<L: Layout> $name<L> {
            /// Where `lane` points for [`ldmatrix`](Self::ldmatrix) in a tile whose `L` index
            /// steps by `stride` elements. Other tiles of the array are as far from it as they
            /// are from this one, so that it is computed once.
            #[inline(always)]
            #[must_use]
            pub const fn lane_address(lane: u32, tile: Shared<f16>, stride: u32) -> Shared<f16> {
                let (row, column) = $address(lane);
                tile.row(row, stride).at(column)
            }

            /// The fragment of a 16 × 16 tile in shared memory, with one `ldmatrix` .x4.
            ///
            /// # Safety
            /// As [`Simt::ldmatrix`]: `lane` is this lane's [`lane_address`](Self::lane_address),
            /// aligned to 16 bytes.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn ldmatrix<S: Simt>(s: S, lane: Shared<f16>) -> Self {
                // SAFETY: the caller's.
                let registers = unsafe {
                    if $transposed() { s.ldmatrix_trans::<4, _>(lane) } else { s.ldmatrix::<4, _>(lane) }
                };
                Self::from_registers(registers)
            }
        }
    };
}

ldmatrix_operand!(MatrixA, ldmatrix::a_address::<L>, ldmatrix::a_trans::<L>);
ldmatrix_operand!(MatrixB, ldmatrix::b_address::<L>, ldmatrix::b_trans::<L>);
