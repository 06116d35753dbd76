//! `probe_approximations`: the approximate functions of the machine, element by element.
//!
//! `exp2[i] = 2^x[i]`, `reciprocal[i] = 1 / x[i]`, `rsqrt[i] = 1 / √x[i]`, each by the one
//! instruction that [`Simt`] has for it. What the words promise of their errors is held against
//! f64 by whoever launches it.

use crate::simt::{Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt};

const THREADS: u32 = 256;

/// The arguments of `probe_approximations`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct ProbeApproximations {
    /// `n`, as the two below overlapping no other.
    pub exp2: Global<f32>,
    /// `n`.
    pub reciprocal: Global<f32>,
    /// `n`.
    pub rsqrt: Global<f32>,
    /// `n`.
    pub x: Global<f32>,
    /// Elements, at most 2^32 - 256.
    pub n: u32,
}

impl ProbeApproximations {
    /// The most elements of a launch.
    pub const MOST: u32 = u32::MAX - THREADS + 1;
}

impl Contract for ProbeApproximations {
    const NAME: &'static str = "probe_approximations";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("ex2.approx.ftz.f32", Count::Exactly(1)),
            Occurrence::new("rcp.approx.ftz.f32", Count::Exactly(1)),
            Occurrence::new("rsqrt.approx.ftz.f32", Count::Exactly(1)),
        ],
        registers: 32,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(self.n.div_ceil(THREADS)), threads: THREADS, shared_bytes: 0 }
    }
}

impl<S: Simt> Kernel<S> for ProbeApproximations {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let i = s.block().x * THREADS + s.thread();
        if i < self.n {
            let i = u64::from(i);
            // SAFETY: all four have n elements, and each thread its own.
            unsafe {
                let x = s.load_global_constant(self.x.at(i));
                s.store_global(self.exp2.at(i), s.exp2_approx(x));
                s.store_global(self.reciprocal.at(i), s.reciprocal_approx(x));
                s.store_global(self.rsqrt.at(i), s.rsqrt_approx(x));
            }
        }
    }
}
