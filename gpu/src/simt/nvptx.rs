//! [`Intrinsics`] of rustc's own backend: LLVM's, which it knows to be convergent.
//!
//! Compiled only for `nvptx64`.

use core::arch::{asm, global_asm};

use super::Dim3;
use super::ptx::Intrinsics;

// As large as the launch says, and aligned to `SHARED_ALIGN`.
global_asm!(".extern .shared .align 1024 .b8 dyn_smem[];");
const _: () = assert!(super::SHARED_ALIGN == 1024);

/// All lanes of a warp.
const WARP: u32 = u32::MAX;

/// The third operand of `shfl`: no segments, and lanes clamped to 31 (or to 0 for `up`).
const CLAMP_HIGH: u32 = 31;
const CLAMP_LOW: u32 = 0;

// SAFETY: the names and signatures are those of LLVM's NVPTX backend. They touch no memory of
// the caller's; at worst a barrier hangs.
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    safe fn ntid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    safe fn ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.y"]
    safe fn ctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.z"]
    safe fn ctaid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.x"]
    safe fn nctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.y"]
    safe fn nctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.z"]
    safe fn nctaid_z() -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    safe fn barrier_sync_all(id: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    safe fn barrier_sync_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    safe fn barrier_arrive_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    safe fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    safe fn shfl_idx(mask: u32, value: u32, source: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    safe fn shfl_up(mask: u32, value: u32, by: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    safe fn shfl_down(mask: u32, value: u32, by: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    safe fn shfl_bfly(mask: u32, value: u32, lanes: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    safe fn vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    safe fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    safe fn vote_all(mask: u32, predicate: bool) -> bool;
}

/// A lane of the GPU that runs this code.
#[derive(Clone, Copy, Debug)]
pub struct Ptx;

#[cfg(target_feature = "sm_80")]
impl super::ptx::Sm80 for Ptx {}

#[cfg(target_feature = "sm_90a")]
impl super::ptx::Sm90a for Ptx {}

impl Intrinsics for Ptx {
    const SM: u32 = if cfg!(target_feature = "sm_90a") {
        90
    } else if cfg!(target_feature = "sm_80") {
        80
    } else {
        75
    };

    #[inline(always)]
    fn thread() -> u32 {
        let thread: u32;
        // As for `shared`: what follows from the thread's index is cheaper computed again than
        // kept in a register through a loop, and `ptxas` knows which of both it can afford.
        // SAFETY: only a register.
        unsafe { asm!("mov.u32 {0}, %tid.x;", out(reg32) thread, options(nomem, nostack)) };
        thread
    }

    #[inline(always)]
    fn threads() -> u32 {
        ntid_x()
    }

    #[inline(always)]
    fn block() -> Dim3 {
        Dim3 { x: ctaid_x(), y: ctaid_y(), z: ctaid_z() }
    }

    #[inline(always)]
    fn grid() -> Dim3 {
        Dim3 { x: nctaid_x(), y: nctaid_y(), z: nctaid_z() }
    }

    #[inline(always)]
    fn barrier() {
        barrier_sync_all(0);
    }

    #[inline(always)]
    fn barrier_named(id: u32, threads: u32) {
        barrier_sync_count(id, threads);
    }

    #[inline(always)]
    fn barrier_arrive(id: u32, threads: u32) {
        barrier_arrive_count(id, threads);
    }

    #[inline(always)]
    fn warp_sync() {
        bar_warp_sync(WARP);
    }

    #[inline(always)]
    fn shared() -> u32 {
        let address: u32;
        // Not `pure`, so that LLVM does not take every address that follows from this one out of
        // a loop, each into a register of its own. `ptxas` knows the number and folds it.
        // SAFETY: only a register.
        unsafe { asm!("mov.u32 {0}, dyn_smem;", out(reg32) address, options(nomem, nostack)) };
        address
    }

    #[inline(always)]
    fn shuffle(value: u32, source: u32) -> u32 {
        shfl_idx(WARP, value, source, CLAMP_HIGH)
    }

    #[inline(always)]
    fn shuffle_up(value: u32, by: u32) -> u32 {
        shfl_up(WARP, value, by, CLAMP_LOW)
    }

    #[inline(always)]
    fn shuffle_down(value: u32, by: u32) -> u32 {
        shfl_down(WARP, value, by, CLAMP_HIGH)
    }

    #[inline(always)]
    fn shuffle_xor(value: u32, mask: u32) -> u32 {
        shfl_bfly(WARP, value, mask, CLAMP_HIGH)
    }

    #[inline(always)]
    fn ballot(predicate: bool) -> u32 {
        vote_ballot(WARP, predicate)
    }

    #[inline(always)]
    fn any(predicate: bool) -> bool {
        vote_any(WARP, predicate)
    }

    #[inline(always)]
    fn all(predicate: bool) -> bool {
        vote_all(WARP, predicate)
    }
}
