//! Where kernels run: a stream of a device, or the emulator.

#![expect(unsafe_code, reason = "a kernel trusts its arguments")]

use bytemuck::Pod;
use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;
use tracing::warn;

use super::buffer::{Buffer, Owner};
use super::error::Error;

/// A queue of launches, done in the order in which they are given, and the memory they work on.
///
/// Whatever goes through it runs on both: on a [`Stream`](super::Stream), and without a GPU on an
/// [`Emulated`](super::Emulated) one. Kernels that only one architecture can run are launched
/// with the stream's own `launch`.
pub trait Queue {
    /// Whose memory the kernels work on.
    fn owner(&self) -> Owner;

    /// A buffer with elements that kernels only read. The emulator reports its faults under
    /// `name`, and a write to it as one.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Driver`] if the copy fails.
    fn input<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error>;

    /// A buffer of `len` elements that kernels write before they read it. Its bytes are 0xff,
    /// which is NaN in every float format.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    fn output<T: Pod>(&self, name: &str, len: usize) -> Result<Buffer<T>, Error>;

    /// A buffer with elements that kernels may read and write.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    fn in_out<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error>;

    /// Launches a kernel. Its grid, threads and shared memory are those of its contract; an empty
    /// grid is no launch.
    ///
    /// # Errors
    /// [`Error::SharedMemory`]; [`Error::Launch`] if the driver refuses it or, with
    /// `LANEMAP_CUDA_SYNC`, if it fails; those of loading the kernels; [`Error::Emulator`] with
    /// the fault that the emulator found.
    ///
    /// # Safety
    /// The arguments keep the contract that the kernel documents: addresses of live buffers of
    /// this queue's owner, as long and as aligned as it says, outputs not overlapping inputs.
    /// They live until the launch is done.
    unsafe fn launch<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>;

    /// Launches `preferred`, or `fallback` where there is not enough shared memory for it, and
    /// warns of that.
    ///
    /// # Errors
    /// Those of [`launch`](Self::launch).
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for both.
    unsafe fn launch_or<P, F>(&self, preferred: P, fallback: F) -> Result<(), Error>
    where
        P: for<'a> Kernel<Lane<'a>>,
        F: for<'a> Kernel<Lane<'a>>,
    {
        // SAFETY: the caller's.
        match unsafe { self.launch(preferred) } {
            Err(error @ Error::SharedMemory { .. }) => {
                warn!("{error}; {} runs instead", F::NAME);
                // SAFETY: the caller's.
                unsafe { self.launch(fallback) }
            }
            result => result,
        }
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// [`Error::Driver`] if some of it has failed.
    fn synchronize(&self) -> Result<(), Error>;
}
