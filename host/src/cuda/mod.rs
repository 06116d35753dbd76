//! NVIDIA GPUs, through `cust`: on Linux, x86-64 and aarch64 (where the build script sets `cuda`).
//!
//! | file | what |
//! | --- | --- |
//! | `description`, `error` | what is known of a device, and what went wrong, as plain data |
//! | `driver` | the driver's symbols, bound when the program runs |
//! | `device` | which devices there are, and opening one |
//! | `module` | the kernels' PTX on a device: each compiled at its first use, and what it takes there |
//! | `buffer` | memory with a length, of a device or of an emulator; views of it |
//! | `memory` | buffers in a device's memory |
//! | `pinned` | memory of the host that a device copies from and to by itself |
//! | `queue` | where kernels and whole models run, as traits: what is written for them runs on both |
//! | `recorded` | a queue that notes what each launch costs |
//! | `stream` | the queues of a device, events, launches |
//! | `copy` | copies and fills in a stream |
//! | `feed` | what a model needs of a stream besides launches |
//! | `lots` | what an upload makes and copies at a time, and who does which |
//! | `graph` | work that is noted down once and done many times |
//! | `retained` | memory that graphs still hold the address of |
//! | `emulated` | the queue of an emulator, for tests and for machines without a GPU |
//! | `noted` | which kernels are launched |
//! | `ops` | one safe function a kernel: checks the kernel's contract, then launches it on a [`Queue`] |
//! | `backend` | whole models on a queue |
//! | `absent` | the answer of every other platform |
//!
//! Everything above [`ops`] is free of `unsafe`. Thread counts, grids and shared memory come
//! from the kernel's [`Contract`](gpu::simt::Contract), and its arguments are its own type: a
//! wrong one does not compile.
//!
//! Work of one stream is done in order. A buffer's own copies from and to the host wait for all
//! streams of the device and are done when they return; those of a stream go through [`Pinned`]
//! memory, and their [`Transfer`] is what to wait for. Between two streams, [`Stream::wait_for`] makes an
//! order; without one, a buffer that both use holds unspecified numbers.
//!
//! Some kernels begin before the launch before them is done ([`Contract::STARTS_EARLY`](gpu::simt::Contract)),
//! and wait for it themselves before they touch what it touches: the results are the same. That takes a GPU
//! of compute capability 9.0 with its own kernels, and a driver for CUDA 12.3.
//!
//! # Environment
//!
//! `LANEMAP_CUDA_EARLY=0` has every launch begin after the one before it.
//!
//! `LANEMAP_CUDA_SYNC=1` waits after every launch, so that a failing kernel is named: errors of a
//! kernel otherwise come to light in some later call. A graph is waited for as a whole.
//!
//! `LANEMAP_CUDA_WGMMA_ATTENTION=0` has a prompt's attention on GPUs of compute capability 9.0 done by the kernel
//! that all have, see [`ops::attention()`].

#[cfg(not(cuda))]
mod absent;
pub mod backend;
mod buffer;
#[cfg(cuda)]
mod copy;
mod description;
#[cfg(cuda)]
mod device;
#[cfg(cuda)]
mod driver;
mod emulated;
mod error;
mod fallback;
#[cfg(cuda)]
mod feed;
#[cfg(cuda)]
mod graph;
#[cfg(cuda)]
mod lots;
#[cfg(cuda)]
mod memory;
#[cfg(cuda)]
mod module;
mod noted;
pub mod ops;
#[cfg(cuda)]
mod pinned;
mod queue;
mod recorded;
#[cfg(cuda)]
mod retained;
#[cfg(cuda)]
mod stream;

#[cfg(not(cuda))]
pub use absent::{Device, Event, Stream, devices};
pub use buffer::{Buffer, Owner, View, ViewMut};
#[cfg(cuda)]
pub use copy::Transfer;
pub use description::{Description, Resources, Version};
#[cfg(cuda)]
pub use device::{Device, devices};
pub use emulated::Emulated;
pub use error::{CudaError, Error, Unavailable};
#[cfg(cuda)]
pub use graph::Graph;
pub use noted::Noted;
#[cfg(cuda)]
pub use pinned::Pinned;
pub use queue::{Around, Make, ModelQueue, Part, Queue, WGMMA};
pub use recorded::{Cost, Launched, Observed, Pass, Recorded, Recorder};
#[cfg(cuda)]
pub use stream::{Event, Stream};
