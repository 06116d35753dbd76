//! The device side of lanemap: what a kernel and its host share.
//!
//! `no_std`, no allocation, no panics: the crate compiles for the GPU and for the host.
#![no_std]

pub mod quant;
pub mod simt;
