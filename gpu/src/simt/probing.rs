//! What probes ask of a machine, and kernels do not.

use half::f16;

use super::{Layout, Shared, Simt};

/// Words for probes alone.
///
/// No product reads the second copy that a `wmma` operand has in its upper registers, so
/// [`MatrixA`](super::MatrixA) and [`MatrixB`](super::MatrixB) do not hold it and kernels do not
/// carry it around. That it *is* a copy shows only where all eight registers are looked at.
pub trait Probing: Simt {
    /// [`wmma_load_a`](Simt::wmma_load_a) with all the registers that it fills: `x[0..8]` and
    /// `x[8..16]`.
    ///
    /// PTX, Lanes, Align, Order, Since, ISA: as [`wmma_load_a`](Simt::wmma_load_a).
    ///
    /// # Safety
    /// As [`wmma_load_a`](Simt::wmma_load_a).
    #[track_caller]
    unsafe fn wmma_load_a_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8];

    /// [`wmma_load_b`](Simt::wmma_load_b) with all the registers that it fills: `x[0..8]` and
    /// `x[8..16]`.
    ///
    /// PTX, Lanes, Align, Order, Since, ISA: as [`wmma_load_b`](Simt::wmma_load_b).
    ///
    /// # Safety
    /// As [`wmma_load_b`](Simt::wmma_load_b).
    #[track_caller]
    unsafe fn wmma_load_b_whole<L: Layout>(self, tile: Shared<f16>, stride: u32) -> [u32; 8];
}
