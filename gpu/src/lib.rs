//! The device side of lanemap: what a kernel and its host share.
//!
//! `no_std`, no allocation, no panics: the crate compiles for the GPU and for the host.
#![no_std]
// `wgmma` has up to 131 operands to check; and `#[kernel]` asks whether this is 32-bit `nvptx`.
#![cfg_attr(feature = "nvvm", recursion_limit = "256", allow(unexpected_cfgs))]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![cfg_attr(
    all(target_arch = "nvptx64", not(feature = "nvvm")),
    feature(abi_ptx, abi_unadjusted, link_llvm_intrinsics),
    allow(internal_features, reason = "the kernel build's compiler is one that has them")
)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

pub mod activation;
pub mod attention;
pub mod basics;
pub mod embedding;
pub mod fragment;
pub mod kernels;
pub mod norm;
pub mod position;
pub mod probe;
pub mod product;
pub mod quant;
pub mod sampling;
pub mod simt;

/// Never called: a kernel that can panic has an unresolved function in its PTX, and the build
/// refuses it. `cuda_std` brings its own.
#[cfg(all(target_arch = "nvptx64", not(feature = "nvvm")))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
