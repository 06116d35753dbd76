//! `probe_shared`: as much dynamic shared memory as the arguments say, all of it used.
//!
//! One warp writes byte `i` as `i mod 251`, and after a barrier reads every byte in another
//! lane; `out[lane]` is how many of its bytes were right. Together they are `bytes`.

use crate::fragment::WARP_LANES;
use crate::simt::{Contract, Count, Dim3, Expectations, Global, Kernel, Launch, Occurrence, Simt};

/// A prime below 256, so that no power of two of bytes looks like any other.
const PERIOD: u32 = 251;

/// The arguments of `probe_shared`.
#[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
#[repr(C)]
pub struct ProbeShared {
    /// 32 counts.
    pub out: Global<u32>,
    /// Bytes of shared memory, at most 2^32 - 32.
    pub bytes: u32,
}

impl Contract for ProbeShared {
    const NAME: &'static str = "probe_shared";
    const EXPECTATIONS: Expectations = Expectations {
        instructions: &[Occurrence::new("bar.sync", Count::Exactly(1))],
        registers: 32,
        local_memory: false,
    };

    fn launch(&self) -> Launch {
        Launch { grid: Dim3::linear(1), threads: WARP_LANES, shared_bytes: self.bytes }
    }
}

impl<S: Simt> Kernel<S> for ProbeShared {
    #[inline(always)]
    unsafe fn run(self, s: S) {
        let bytes = s.shared::<u8>();
        // SAFETY: indices below `bytes`, written before the barrier and read after it;
        // out[lane] belongs to the lane.
        unsafe {
            let mut i = s.lane();
            while i < self.bytes {
                s.store_shared(bytes.at(i), (i % PERIOD) as u8);
                i += WARP_LANES;
            }
            s.barrier();
            let mut right = 0;
            let mut i = s.lane() ^ 1;
            while i < self.bytes {
                right += u32::from(u32::from(s.load_shared(bytes.at(i))) == i % PERIOD);
                i += WARP_LANES;
            }
            s.store_global(self.out.at(u64::from(s.lane())), right);
        }
    }
}
