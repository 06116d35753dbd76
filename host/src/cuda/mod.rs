//! NVIDIA GPUs, through `cust`: on Linux, x86-64 and aarch64 (where the build script sets `cuda`).
//!
//! | file | what |
//! | --- | --- |
//! | `description`, `error` | what is known of a device, and what went wrong, as plain data |
//! | `driver` | the driver's symbols, bound when the program runs |
//! | `device` | which devices there are, and opening one |
//! | `module` | the kernels' PTX on a device: compiled once, and what each kernel takes there |
//! | `buffer` | memory with a length, of a device or of an emulator; views of it |
//! | `memory` | buffers in a device's memory |
//! | `queue` | where kernels run, as a trait: what is written for it runs on both |
//! | `stream` | the queues of a device, events, launches |
//! | `emulated` | the queue of an emulator, for tests and for machines without a GPU |
//! | `ops` | one safe function a kernel: checks the kernel's contract, then launches it on a [`Queue`] |
//! | `absent` | the answer of every other platform |
//!
//! Everything above [`ops`] is free of `unsafe`. Thread counts, grids and shared memory come
//! from the kernel's [`Contract`](gpu::simt::Contract), and its arguments are its own type: a
//! wrong one does not compile.
//!
//! Work of one stream is done in order. Copies between host and device wait for all streams of
//! the device and are done when they return. Between two streams, [`Stream::wait_for`] makes an
//! order; without one, a buffer that both use holds unspecified numbers.
//!
//! # Environment
//!
//! `LANEMAP_CUDA_SYNC=1` waits after every launch, so that a failing kernel is named: errors of a
//! kernel otherwise come to light in some later call.

#[cfg(not(cuda))]
mod absent;
mod buffer;
mod description;
#[cfg(cuda)]
mod device;
#[cfg(cuda)]
mod driver;
mod emulated;
mod error;
#[cfg(cuda)]
mod memory;
#[cfg(cuda)]
mod module;
pub mod ops;
mod queue;
#[cfg(cuda)]
mod stream;

#[cfg(not(cuda))]
pub use absent::{Device, Event, Stream, devices};
pub use buffer::{Buffer, Owner, View, ViewMut};
pub use description::{Description, Resources, Version};
#[cfg(cuda)]
pub use device::{Device, devices};
pub use emulated::Emulated;
pub use error::{CudaError, Error, Unavailable};
pub use queue::Queue;
#[cfg(cuda)]
pub use stream::{Event, Stream};
