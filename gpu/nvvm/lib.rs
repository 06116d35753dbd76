//! The kernels of `gpu` as the one file that `cuda_builder` makes of a `cdylib`.
//!
//! Empty without the feature `nvvm`.
#![cfg_attr(target_arch = "nvptx64", no_std)]

#[cfg(feature = "nvvm")]
use gpu as _;
