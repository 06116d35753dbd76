//! How many blocks fit on a multiprocessor, where there is no driver to ask.

use gpu::simt::WARP_LANES;

/// What a multiprocessor has, and how it is handed out.
///
/// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the
/// granularity of registers is that of the toolkit's occupancy calculator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Blocks at a time.
    pub blocks: u32,
    /// Warps at a time.
    pub warps: u32,
    /// Bytes of shared memory for all blocks together.
    pub shared_bytes: u32,
    /// Bytes of shared memory that the system takes from each block's share.
    pub reserved_bytes: u32,
}

impl Multiprocessor {
    /// Registers of each of its parts.
    const PART_REGISTERS: u32 = 16_384;
    /// Its parts: a warp lives in one of them.
    const PARTS: u32 = 4;
    /// Registers are given to a warp in multiples of this.
    const REGISTER_UNIT: u32 = 256;
    /// Bytes of shared memory are given to a block in multiples of this.
    const SHARED_UNIT: u32 = 128;

    /// That of an architecture (compute capability times ten), if it is one that is known here.
    #[must_use]
    pub const fn of(sm: u32) -> Option<Self> {
        let (blocks, warps, shared_kib, reserved_bytes) = match sm {
            75 => (16, 32, 64, 0),
            80 => (32, 64, 164, 1024),
            86 => (16, 48, 100, 1024),
            89 => (24, 48, 100, 1024),
            90 => (32, 64, 228, 1024),
            120 | 121 => (24, 48, 100, 1024),
            _ => return None,
        };
        Some(Self { blocks, warps, shared_bytes: shared_kib << 10, reserved_bytes })
    }

    /// Blocks that fit, for a kernel that takes so much; static and dynamic shared memory together.
    #[must_use]
    pub fn fitting(&self, threads: u32, registers: u32, shared_bytes: u32) -> u32 {
        let warps = threads.div_ceil(WARP_LANES).max(1);
        let a_warp = (registers.max(1) * WARP_LANES).next_multiple_of(Self::REGISTER_UNIT);
        let by_registers = Self::PART_REGISTERS / a_warp * Self::PARTS / warps;
        let a_block = shared_bytes.next_multiple_of(Self::SHARED_UNIT) + self.reserved_bytes;
        let by_shared = self.shared_bytes.checked_div(a_block).unwrap_or(self.blocks);
        self.blocks.min(self.warps / warps).min(by_registers).min(by_shared)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// r48 and r50 on a GPU of 100 KB a multiprocessor: 34,816 bytes fit twice, 32 KiB three times.
    #[test]
    fn blocks_are_those_that_the_source_documents_count() {
        let gb10 = Multiprocessor::of(121).unwrap();
        assert_eq!(gb10.fitting(128, 124, 34_816), 2);
        assert_eq!(gb10.fitting(128, 117, 32_768), 3);
        assert_eq!(gb10.fitting(128, 124, 47_872), 2);
        assert_eq!(gb10.fitting(256, 128, 71_040), 1);
        assert_eq!(gb10.fitting(128, 124, 0), 4, "as many as the registers admit, says r48");
    }

    #[test]
    fn each_limit_binds() {
        let h200 = Multiprocessor::of(90).unwrap();
        assert_eq!(h200.fitting(32, 16, 0), 32, "blocks");
        assert_eq!(h200.fitting(1024, 16, 0), 2, "warps");
        assert_eq!(h200.fitting(128, 126, 34_816), 4, "registers");
        assert_eq!(h200.fitting(128, 126, 227 << 10), 1, "shared memory");
        assert_eq!(h200.fitting(256, 255, 0), 1);
        assert_eq!(h200.fitting(288, 255, 0), 0, "more registers than there are");
        assert!(Multiprocessor::of(61).is_none());
    }
}
