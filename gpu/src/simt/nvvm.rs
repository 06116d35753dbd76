//! [`Intrinsics`] on `cuda_std`, for kernels that go through `rustc_codegen_nvvm`.
//!
//! `cuda_std` 0.2 has the indices, `sync_threads`, `sync_warp` and the dynamic shared memory.
//! It has neither shuffles nor votes nor named barriers: those are inline PTX here. The words
//! that are inline PTX anyway are the other backend's, letter for letter (`ptx`); all of them
//! keep to the operands that `rustc_codegen_nvvm` 0.3 knows in `asm!`, which are `reg16`, `reg32`,
//! `reg64` and `const`.
//!
//! It marks no `asm!` as convergent. Nothing here can keep libnvvm from duplicating a shuffle
//! into two arms of a divergent branch, and none of it has been through libnvvm.
//!
//! On the host `cuda_std`'s functions panic, and so does inline PTX: there it is type-checked.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use cuda_std::{shared, thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
use super::ptx::unassembled::asm;
use super::ptx::{Intrinsics, Sm80, Sm90a};
use super::{Ampere, Dim3, Hopper, SHARED_ALIGN, Simt};

/// The architecture that `cuda_builder` compiles for; on the host the highest that it can.
pub const ARCHITECTURE: u32 = architecture();

/// A lane of a GPU of architecture `SM`: 75 for sm_75.
#[derive(Clone, Copy, Debug)]
pub struct Nvvm<const SM: u32>;

impl Sm80 for Nvvm<80> {}

/// `cuda_builder` 0.3 cannot ask for sm_90a: this is for a later one.
impl Sm80 for Nvvm<90> {}
impl Sm90a for Nvvm<90> {}

/// What `cuda_builder` says while it compiles.
#[cfg(target_arch = "nvptx64")]
const fn architecture() -> u32 {
    match env!("CUDA_ARCH").as_bytes() {
        b"750" => 75,
        b"800" => 80,
        _ => panic!("CUDA_ARCH is neither 750 nor 800"),
    }
}

#[cfg(not(target_arch = "nvptx64"))]
const fn architecture() -> u32 {
    80
}

/// A shuffle of all 32 lanes; the last operand of `shfl` stands in its template.
macro_rules! shuffle {
    ($template:literal, $value:ident, $lane:ident) => {{
        let d: u32;
        // SAFETY: only registers.
        unsafe {
            asm!($template, d = out(reg32) d, a = in(reg32) $value, b = in(reg32) $lane,
                options(nomem, nostack));
        }
        d
    }};
}

/// A vote of all 32 lanes. A predicate cannot be an operand, so it crosses as 0 or 1.
macro_rules! vote {
    ($template:literal, $predicate:ident) => {{
        let d: u32;
        // SAFETY: only registers.
        unsafe {
            asm!($template, d = out(reg32) d, a = in(reg32) u32::from($predicate), options(nomem, nostack));
        }
        d
    }};
}

impl<const SM: u32> Intrinsics for Nvvm<SM> {
    const SM: u32 = SM;

    #[inline(always)]
    fn thread() -> u32 {
        thread::thread_idx_x()
    }

    #[inline(always)]
    fn threads() -> u32 {
        thread::block_dim_x()
    }

    #[inline(always)]
    fn block() -> Dim3 {
        Dim3 { x: thread::block_idx_x(), y: thread::block_idx_y(), z: thread::block_idx_z() }
    }

    #[inline(always)]
    fn grid() -> Dim3 {
        Dim3 { x: thread::grid_dim_x(), y: thread::grid_dim_y(), z: thread::grid_dim_z() }
    }

    #[inline(always)]
    fn barrier() {
        thread::sync_threads();
    }

    #[inline(always)]
    fn barrier_named(id: u32, threads: u32) {
        // SAFETY: at worst it hangs.
        unsafe {
            asm!("bar.sync {}, {};", in(reg32) id, in(reg32) threads, options(nostack));
        }
    }

    #[inline(always)]
    fn barrier_arrive(id: u32, threads: u32) {
        // SAFETY: it does not wait.
        unsafe {
            asm!("bar.arrive {}, {};", in(reg32) id, in(reg32) threads, options(nostack));
        }
    }

    #[inline(always)]
    fn warp_sync() {
        // SAFETY: the whole warp is here, by the word's contract.
        unsafe { warp::sync_warp(u32::MAX) }
    }

    /// `cuda_std` declares the memory with an alignment of 16 and gives a generic address. Where
    /// it does not begin at a multiple of [`SHARED_ALIGN`], the kernel stops.
    #[inline(always)]
    fn shared() -> u32 {
        let generic = shared::dynamic_shared_mem::<u8>() as u64;
        let address: u64;
        // SAFETY: only registers.
        unsafe {
            asm!("cvta.to.shared.u64 {}, {};", out(reg64) address, in(reg64) generic,
                options(pure, nomem, nostack));
        }
        let address = address as u32;
        if !address.is_multiple_of(SHARED_ALIGN) {
            // SAFETY: it ends the launch.
            unsafe {
                asm!("trap;", options(nomem, nostack));
            }
        }
        address
    }

    #[inline(always)]
    fn shuffle(value: u32, source: u32) -> u32 {
        shuffle!("shfl.sync.idx.b32 {d}, {a}, {b}, 0x1f, 0xffffffff;", value, source)
    }

    #[inline(always)]
    fn shuffle_up(value: u32, by: u32) -> u32 {
        shuffle!("shfl.sync.up.b32 {d}, {a}, {b}, 0, 0xffffffff;", value, by)
    }

    #[inline(always)]
    fn shuffle_down(value: u32, by: u32) -> u32 {
        shuffle!("shfl.sync.down.b32 {d}, {a}, {b}, 0x1f, 0xffffffff;", value, by)
    }

    #[inline(always)]
    fn shuffle_xor(value: u32, mask: u32) -> u32 {
        shuffle!("shfl.sync.bfly.b32 {d}, {a}, {b}, 0x1f, 0xffffffff;", value, mask)
    }

    #[inline(always)]
    fn ballot(predicate: bool) -> u32 {
        vote!(
            "{{ .reg .pred p; setp.ne.u32 p, {a}, 0; vote.sync.ballot.b32 {d}, p, 0xffffffff; }}",
            predicate
        )
    }

    #[inline(always)]
    fn any(predicate: bool) -> bool {
        vote!(
            "{{ .reg .pred p, q; setp.ne.u32 p, {a}, 0; vote.sync.any.pred q, p, 0xffffffff; selp.u32 {d}, 1, 0, q; }}",
            predicate
        ) != 0
    }

    #[inline(always)]
    fn all(predicate: bool) -> bool {
        vote!(
            "{{ .reg .pred p, q; setp.ne.u32 p, {a}, 0; vote.sync.all.pred q, p, 0xffffffff; selp.u32 {d}, 1, 0, q; }}",
            predicate
        ) != 0
    }
}

// Complete on each; that every kernel runs on it is checked by its entry point (`gpu::kernels`).
const _: () = {
    const fn simt<S: Simt>() {}
    const fn ampere<S: Ampere>() {}
    const fn hopper<S: Hopper>() {}
    simt::<Nvvm<75>>();
    ampere::<Nvvm<80>>();
    hopper::<Nvvm<90>>();
};
