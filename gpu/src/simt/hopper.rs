//! What sm_90a adds: barriers in memory that count bytes, bulk copies, and products of a
//! whole warp group straight from shared memory.

use super::{Ampere, Global, Layout, Shared};

/// How rows are spread over the banks of shared memory: bits of the row are mixed into the
/// index of the 16-byte chunk (chunk `XOR` row, modulo the pattern's chunks).
///
/// The tile that a [`MatrixDescriptor`] names must have been written in the same pattern, and
/// begin at a multiple of 8 rows of it (1024 bytes for [`Bytes128`](Self::Bytes128)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Swizzle {
    /// Rows stay as they are.
    None = 0,
    /// 128-byte rows, eight chunks.
    Bytes128 = 1,
    /// 64-byte rows, four chunks.
    Bytes64 = 2,
    /// 32-byte rows, two chunks.
    Bytes32 = 3,
}

/// Where and how a `wgmma` operand lies in shared memory.
///
/// ISA: Asynchronous Warpgroup Level Matrix Instructions, Matrix Descriptor Format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct MatrixDescriptor(u64);

impl MatrixDescriptor {
    /// The descriptor of a tile that begins at `tile`. `leading_bytes` and `stride_bytes` step
    /// from one 8 × 16-byte core matrix to the next, along and across the contiguous index
    /// (the leading one is not used where the rows are swizzled and K is contiguous); both and
    /// the address are multiples of 16 below 2^18.
    #[inline(always)]
    #[must_use]
    pub const fn new<T>(tile: Shared<T>, leading_bytes: u32, stride_bytes: u32, swizzle: Swizzle) -> Self {
        const fn field(bytes: u32) -> u64 {
            (bytes as u64 & 0x3_ffff) >> 4
        }
        Self(
            field(tile.address())
                | field(leading_bytes) << 16
                | field(stride_bytes) << 32
                | (swizzle as u64) << 62,
        )
    }

    /// The descriptor `bytes` further on: the next step of K within a tile. A multiple of 16
    /// that stays below 2^18.
    #[inline(always)]
    #[must_use]
    pub const fn advance(self, bytes: u32) -> Self {
        // The lower half alone, so that the upper one is a constant in every step.
        let low = (self.0 as u32).wrapping_add(bytes >> 4);
        Self(self.0 & !(u32::MAX as u64) | low as u64)
    }

    /// The 64 bits that the instruction takes.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// What one lane of an sm_90a can do besides.
///
/// A *warp group* is four consecutive warps, the first of them a multiple of four. The two
/// *proxies* are two ways into the same shared memory: ordinary accesses (generic), and those
/// of bulk copies and of `wgmma` (async). Data that one wrote and the other reads needs
/// [`fence_proxy_async`](Self::fence_proxy_async) in between.
pub trait Hopper: Ampere {
    // ------------------------------------------------------------------ mbarrier

    /// Makes the 8 bytes at `barrier` a barrier whose phase ends after `arrivals` arrivals and
    /// all the bytes that were expected. Its first phase has parity 0.
    ///
    /// PTX: `mbarrier.init.shared.b64 [barrier], arrivals`. Lanes: one. Align: 8. Order: seen
    /// by others after a barrier, by the async proxy after
    /// [`fence_mbarrier_init`](Self::fence_mbarrier_init). Since: sm_80. ISA: `mbarrier.init`.
    ///
    /// # Safety
    /// The address lies in the launch's shared memory, is aligned, and nobody uses it as a
    /// barrier or otherwise until this is ordered before.
    #[track_caller]
    unsafe fn mbarrier_init(self, barrier: Shared<u64>, arrivals: u32);

    /// Makes initialized barriers known to the async proxy and to the cluster.
    ///
    /// PTX: `fence.mbarrier_init.release.cluster`. Lanes: the one that initialized. Since:
    /// sm_90. ISA: `membar`, `fence`.
    #[track_caller]
    fn fence_mbarrier_init(self);

    /// Arrives once.
    ///
    /// PTX: `mbarrier.arrive.shared.b64 _, [barrier]`. Lanes: own. Align: 8. Order: what the
    /// lane did before is seen by those whose wait for the phase returns. Since: sm_80. ISA: `mbarrier.arrive`.
    ///
    /// # Safety
    /// `barrier` has been initialized, and no more arrive in a phase than it expects.
    #[track_caller]
    unsafe fn mbarrier_arrive(self, barrier: Shared<u64>);

    /// Arrives once and adds `bytes` to what the phase waits for.
    ///
    /// PTX: `mbarrier.arrive.expect_tx.shared.b64 _, [barrier], bytes`. Lanes: own. Align: 8.
    /// Order: as [`mbarrier_arrive`](Self::mbarrier_arrive). Since: sm_90. ISA: `mbarrier.arrive`.
    ///
    /// # Safety
    /// As [`mbarrier_arrive`](Self::mbarrier_arrive); copies of exactly `bytes` bytes complete on the barrier
    /// in this phase, fewer than 2^20.
    #[track_caller]
    unsafe fn mbarrier_arrive_expect(self, barrier: Shared<u64>, bytes: u32);

    /// Adds `bytes` to what the phase waits for, without arriving.
    ///
    /// PTX: `mbarrier.expect_tx.relaxed.cta.shared.b64 [barrier], bytes`. Lanes: own. Align: 8.
    /// Order: none. Since: sm_90. ISA: `mbarrier.expect_tx`.
    ///
    /// # Safety
    /// As [`mbarrier_arrive_expect`](Self::mbarrier_arrive_expect), and the phase cannot end before.
    #[track_caller]
    unsafe fn mbarrier_expect(self, barrier: Shared<u64>, bytes: u32);

    /// Waits until the phase of this parity (0, 1, 0, ...) has ended. It returns at once for
    /// the parity of the phase before the current one.
    ///
    /// PTX: a loop of `mbarrier.try_wait.parity.shared.b64 p, [barrier], parity`. Lanes: own.
    /// Align: 8. Order: what came before the phase's arrivals, and its copies' bytes, are seen
    /// after. Since: sm_90. ISA: `mbarrier.try_wait`.
    ///
    /// # Safety
    /// `barrier` has been initialized.
    #[track_caller]
    unsafe fn mbarrier_wait(self, barrier: Shared<u64>, parity: u32);

    // ------------------------------------------------------------------ bulk copies

    /// Begins to copy `bytes` bytes from global to shared memory; they count on `barrier`.
    ///
    /// PTX: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from],
    /// bytes, [barrier]`. Lanes: one. Align: 16, both, and `bytes` too. Order: async proxy;
    /// seen by a lane whose [`mbarrier_wait`](Self::mbarrier_wait) for the phase returns. Since: sm_90. ISA:
    /// `cp.async.bulk`.
    ///
    /// # Safety
    /// See the [module](super)'s section on memory words, until the phase has ended; the
    /// barrier expects the bytes.
    #[track_caller]
    unsafe fn bulk_load<T>(self, to: Shared<T>, from: Global<T>, bytes: u32, barrier: Shared<u64>);

    /// Begins to copy `bytes` bytes from shared to global memory, in the lane's open bulk group.
    ///
    /// PTX: `cp.async.bulk.global.shared::cta.bulk_group [to], [from], bytes`. Lanes: one.
    /// Align: 16, both, and `bytes` too. Order: async proxy: what ordinary stores wrote needs
    /// [`fence_proxy_async`](Self::fence_proxy_async) by the writers and a barrier first. Since: sm_90. ISA: `cp.async.bulk`.
    ///
    /// # Safety
    /// See the [module](super)'s section on memory words, until the group has been waited for.
    #[track_caller]
    unsafe fn bulk_store<T>(self, to: Global<T>, from: Shared<T>, bytes: u32);

    /// Closes the lane's group of bulk stores.
    ///
    /// PTX: `cp.async.bulk.commit_group`. Lanes: own. Since: sm_90. ISA: `cp.async.bulk.commit_group`.
    #[track_caller]
    fn bulk_commit(self);

    /// Waits until at most the `PENDING` youngest of the lane's bulk groups still read shared
    /// memory, which may then be written again.
    ///
    /// PTX: `cp.async.bulk.wait_group.read PENDING`. Lanes: own. Since: sm_90. ISA: `cp.async.bulk.wait_group`.
    #[track_caller]
    fn bulk_wait_read<const PENDING: u32>(self);

    /// Orders this lane's ordinary accesses to shared memory before later ones of the async
    /// proxy (a `wgmma` operand, a bulk store), together with a barrier if another lane starts those.
    ///
    /// PTX: `fence.proxy.async.shared::cta`. Lanes: own. Since: sm_90. ISA: `membar`, `fence`.
    #[track_caller]
    fn fence_proxy_async(self);

    // ------------------------------------------------------------------ registers

    /// Has the lanes of this warp group have `REGISTERS` registers from here on, at least as many as before: waits
    /// until other warp groups of the block have given as many back. A multiple of 8, 24 to 256. How many each lane
    /// of the block has in the beginning is the kernel's [`REGISTER_LIMIT`](super::Contract::REGISTER_LIMIT),
    /// without which there is no such word.
    ///
    /// PTX: `setmaxnreg.inc.sync.aligned.u32`. Lanes: warp, and all four of the group. Order: none.
    /// Since: sm_90a. ISA: `setmaxnreg`.
    ///
    /// # Safety
    /// All four warps of the group do so, each with all its lanes: in a part of them it is undefined. No warp of
    /// it does so again before the others have done it. If the registers never come to be free, it waits forever.
    #[track_caller]
    unsafe fn take_registers<const REGISTERS: u32>(self);

    /// Has the lanes of this warp group have `REGISTERS` registers from here on, at most as many as before; the
    /// others are for [`take_registers`](Self::take_registers). A multiple of 8, 24 to 256.
    ///
    /// PTX: `setmaxnreg.dec.sync.aligned.u32`. Lanes: warp, and all four of the group. Order: none.
    /// Since: sm_90a. ISA: `setmaxnreg`.
    ///
    /// # Safety
    /// As `take_registers`. What a lane had in a register that it gives up is lost: the code that follows is
    /// compiled to keep nothing there.
    #[track_caller]
    unsafe fn give_registers<const REGISTERS: u32>(self);

    // ------------------------------------------------------------------ wgmma

    /// Orders earlier writes of accumulators and register operands before the `wgmma` that
    /// follow. Needed before the first of them, and whenever the registers were touched.
    ///
    /// PTX: `wgmma.fence.sync.aligned`. Lanes: warp, and all four of the group. Since: sm_90a.
    /// ISA: `wgmma.fence`.
    #[track_caller]
    fn wgmma_fence(self);

    /// Closes the group of products begun so far.
    ///
    /// PTX: `wgmma.commit_group.sync.aligned`. Lanes: warp group. Since: sm_90a. ISA: `wgmma.commit_group`.
    #[track_caller]
    fn wgmma_commit(self);

    /// Waits until at most the `PENDING` youngest groups are unfinished. Until then neither
    /// accumulators nor operands may be touched.
    ///
    /// PTX: `wgmma.wait_group.sync.aligned PENDING`. Lanes: warp group. Since: sm_90a. ISA: `wgmma.wait_group`.
    #[track_caller]
    fn wgmma_wait<const PENDING: u32>(self);

    /// Begins `D = A · B + D`, 64 × N × 16, f16 operands in shared memory, f32 accumulators;
    /// with `accumulate` false, `D = A · B`. `REGISTERS` is N / 2: 4, 8, 16, 32, 48, 64, 96, 120 or 128.
    ///
    /// Register `4 j + i` of lane `l` of warp `w` holds row `16 w + l / 4 + 8 (i / 2)`, column
    /// `8 j + 2 (l % 4) + i % 2`.
    ///
    /// PTX: `wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16 {d...}, a, b, p, 1, 1, trans-a,
    /// trans-b`. Lanes: warp group. Order: async proxy; `d` holds the result after
    /// [`wgmma_wait`](Self::wgmma_wait). Since: sm_90a. ISA: `wgmma.mma_async`.
    ///
    /// # Safety
    /// Both operands lie in the launch's shared memory, have been written and made visible to
    /// the async proxy, and are not written until the wait.
    #[track_caller]
    unsafe fn wgmma_f16<A: Layout, B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: MatrixDescriptor,
        b: MatrixDescriptor,
        accumulate: bool,
    );

    /// As [`wgmma_f16`](Self::wgmma_f16), with A in registers: each warp of the group gives its
    /// 16 rows as the A operand of `mma` m16n8k16.
    ///
    /// PTX: `wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16 {d...}, {a0, a1, a2, a3}, b, p,
    /// 1, 1, trans-b`. Lanes, Order, Since, ISA: as [`wgmma_f16`](Self::wgmma_f16).
    ///
    /// # Safety
    /// As [`wgmma_f16`](Self::wgmma_f16), for B.
    #[track_caller]
    unsafe fn wgmma_f16_register_a<B: Layout, const REGISTERS: usize>(
        self,
        d: &mut [f32; REGISTERS],
        a: [u32; 4],
        b: MatrixDescriptor,
        accumulate: bool,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_holds_its_fields() {
        let tile = Shared::<u8>::from_address(0x1_2340);
        let bits = MatrixDescriptor::new(tile, 16, 1024, Swizzle::Bytes128).advance(32).bits();
        assert_eq!(bits & 0x3fff, 0x1_2360 >> 4);
        assert_eq!(bits >> 16 & 0x3fff, 1);
        assert_eq!(bits >> 32 & 0x3fff, 64);
        assert_eq!(bits >> 62, 1);
    }
}
