//! `matvec_q8_*_*_split_k`: one row of 8-bit activations times weights of two formats.
//!
//! Query, key and value have one input, and often value has a format of its own: alone it is a launch of a few
//! blocks. Here some blocks do what those of `MatvecRows<A, 1>` do, and those behind them what `MatvecRows<B, 1>`'s
//! do, with the same bits. Formats are chosen by the block, so no warp is of two minds.
//!
//! ```text
//! grid: y = group of 16 outputs, those of the first format's jobs and then those of the second's
//! ```
//!
//! All else is in [`MatvecRows`].

use super::super::activations::Q8Row;
use super::{Beside, Job, MatvecRows, Named, RowsGeometry, registers};
use crate::quant::Format;
use crate::quant::planes::Pieces;
use crate::simt::{Contract, Count, Dim3, Expectations, Kernel, Launch, Occurrence, Simt, Work};

/// The arguments of a kernel for weights of two formats.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MatvecTwo<A, B> {
    /// The first format's weights, and one row of input.
    pub first: MatvecRows<A, 1>,
    /// The second's, and the same row. Both together have at most [`Job::MOST_GROUPS`] groups.
    pub second: MatvecRows<B, 1>,
}

// SAFETY: addresses and numbers, which may be zero.
unsafe impl<A, B> bytemuck::Zeroable for MatvecTwo<A, B> {}

impl<A: Pieces + Beside<B>, B: Pieces + Named> Contract for MatvecTwo<A, B> {
    const NAME: &'static str = A::TWO;
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            // One a format.
            Occurrence::new("bar.sync", Count::Exactly(2)),
            Occurrence::new(
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
                Count::Exactly(2 * MatvecRows::<A, 1>::PRODUCTS),
            )
            .since(80),
        ],
        registers: 128,
        local_memory: false,
    };
    // All blocks of a launch are to run at a time. Q5_K would spill on compute capability 12.0.
    const REGISTER_LIMIT: Option<u32> = match A::FORMAT {
        Format::Q5_K => None,
        _ => Some(registers(RowsGeometry::RESIDENT, RowsGeometry::THREADS)),
    };
    const STARTS_EARLY: bool = true;

    fn launch(&self) -> Launch {
        let (first, second) = (self.first.launch(), self.second.launch());
        Launch { grid: Dim3 { y: first.grid.y + second.grid.y, ..first.grid }, ..first }
    }

    fn work(&self, position: u32) -> Option<Work> {
        let (first, second) = (self.first.work(position)?, self.second.work(position)?);
        // What both read of the input is read once.
        let shared = Q8Row::new(self.first.k).read_bytes(A::HAS_MIN && B::HAS_MIN);
        Some(Work {
            bytes_read: first.bytes_read + second.bytes_read - shared,
            bytes_written: first.bytes_written + second.bytes_written,
            operations: first.operations.saturating_add(second.operations),
            unit: first.unit,
        })
    }
}

impl<S: Simt, A: Pieces + Beside<B>, B: Pieces + Named> Kernel<S> for MatvecTwo<A, B> {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let Dim3 { x: pass, y: group, .. } = s.block();
        let of_first = Job::groups(&self.first.jobs, RowsGeometry::OUTPUTS);
        // SAFETY: the caller's; threads and shared memory are those of both, and each group of either has one block.
        unsafe {
            if group < of_first {
                self.first.block(s, pass, group);
            } else {
                self.second.block(s, pass, group - of_first);
            }
        }
    }
}
