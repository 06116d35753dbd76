//! `block_sum`: many numbers to one per block, through shuffles and then shared memory.
//!
//! `out[b] = Σ input[i]` over `1024 b <= i < min(1024 (b + 1), n)`; all f32.
//!
//! # Who owns what
//!
//! ```text
//! a block's 1024 elements, as 4 rounds of 256 threads:
//!
//!   round 0 | t0 t1 ... t255 |      a thread adds its 4 elements in order of rounds,
//!   round 1 | t0 t1 ... t255 |      what lies beyond n counts as 0
//!   round 2 | t0 t1 ... t255 |
//!   round 3 | t0 t1 ... t255 |
//!               |
//!   warp 0 .. 7: butterfly over 32 lanes, lane 0 writes partial[warp]
//!               |                                   shared: partial[8], 32 bytes
//!            barrier                                the only one
//!               |
//!   warp 0: lane l reads partial[l] (l < 8, else 0), butterfly, thread 0 writes out[b]
//! ```
//!
//! # Numeric contract
//!
//! f32 sums in the fixed order above: the result depends on the elements and on nothing else.

use crate::simt::{
    Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt, WARP_LANES,
};

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements that a thread adds.
const ROUNDS: u32 = 4;
/// Elements that a block adds.
const BLOCK_ELEMENTS: u32 = THREADS * ROUNDS;
/// Warps of a block, and partial sums in shared memory.
const WARPS: u32 = THREADS / WARP_LANES;
/// Shared memory: one f32 for every warp.
const SHARED_BYTES: u32 = WARPS * 4;

const _: () = assert!(WARPS <= WARP_LANES, "one warp adds what the warps left");

/// The arguments of `block_sum`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct BlockSum {
    /// One sum for every 1024 elements begun, not overlapping the input.
    pub out: Global<f32>,
    /// `n` elements.
    pub input: Global<f32>,
    /// How many, at most 2^32 - 1024: so no index overflows.
    pub n: u32,
}

impl BlockSum {
    /// How many sums `n` elements give.
    #[must_use]
    pub const fn sums(n: u32) -> u32 {
        n.div_ceil(BLOCK_ELEMENTS)
    }
}

impl Contract for BlockSum {
    const NAME: &'static str = "block_sum";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[
            Occurrence::new("bar.sync", Count::Exactly(1)),
            Occurrence::new("shfl.sync.bfly", Count::Exactly(10)),
            Occurrence::new("ld.global.nc.b32", Count::Exactly(ROUNDS)),
        ],
        registers: 32,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(Self::sums(self.n)), threads: THREADS, shared_bytes: SHARED_BYTES }
    }
}

impl<S: Simt> Kernel<S> for BlockSum {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let partial = s.shared::<f32>();
        let (thread, lane, warp) = (s.thread(), s.lane(), s.warp());
        let first = s.block().x * BLOCK_ELEMENTS;

        // SAFETY: elements below n; partial[warp] with warp < WARPS, written by one lane and
        // read after the barrier; out[block] written by one thread of the block.
        unsafe {
            let mut sum = 0.0;
            for round in 0..ROUNDS {
                let i = first + round * THREADS + thread;
                if i < self.n {
                    sum += s.load_global_constant(self.input.at(u64::from(i)));
                }
            }

            let sum = s.warp_sum(sum);
            if lane == 0 {
                s.store_shared(partial.at(warp), sum);
            }
            s.barrier();

            if warp == 0 {
                let sum = if lane < WARPS { s.load_shared(partial.at(lane)) } else { 0.0 };
                let sum = s.warp_sum(sum);
                if thread == 0 {
                    s.store_global(self.out.at(u64::from(s.block().x)), sum);
                }
            }
        }
    }
}
