//! `vector_add`: one thread, one element.
//!
//! `out[i] = a[i] + b[i]` for `i < n`; all f32. One rounding, so the result is exact to the bit.
//!
//! # Who owns what
//!
//! ```text
//! block     |        0        |        1        |  ...  |   last    |
//! thread    | 0 1 2 ...   255 | 0 1 2 ...   255 |       | 0 1 2 :   |
//! element   | 0 1 2 ...   255 | 256 ...     511 |       |     n-1   |  threads from n on do nothing
//! ```
//!
//! Neighbouring lanes read neighbouring words: a warp's load is one 128-byte line. No shared
//! memory, nobody waits.

use crate::simt::{Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt};

/// Threads of a block.
const THREADS: u32 = 256;

/// The arguments of `vector_add`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct VectorAdd {
    /// `n` sums, not overlapping the inputs.
    pub out: Global<f32>,
    /// `n` elements.
    pub a: Global<f32>,
    /// `n` elements.
    pub b: Global<f32>,
    /// How many, any number.
    pub n: u32,
}

impl Contract for VectorAdd {
    const NAME: &'static str = "vector_add";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ld.global.nc.b32", Count::Exactly(2)),
            Occurrence::new("st.global.b32", Count::Exactly(1)),
            Occurrence::new("bar.sync", Count::Never),
        ],
        registers: 16,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(self.n.div_ceil(THREADS)), threads: THREADS, shared_bytes: 0 }
    }
}

impl<S: Simt> Kernel<S> for VectorAdd {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        // The last block's last thread is at most 2^32 - 1: this does not overflow.
        let i = s.block().x * THREADS + s.thread();
        if i < self.n {
            let i = u64::from(i);
            // SAFETY: i < n, the length of all three; nobody else has element i of `out`.
            unsafe {
                let sum = s.load_global_constant(self.a.at(i)) + s.load_global_constant(self.b.at(i));
                s.store_global(self.out.at(i), sum);
            }
        }
    }
}
