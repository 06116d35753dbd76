//! Where kernels run: a stream of a device, or the emulator.

#![expect(unsafe_code, reason = "a kernel trusts its arguments")]

use std::convert::Infallible;
use std::ops::{DerefMut, Range};

use bytemuck::Pod;
use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;

use super::buffer::{Buffer, Owner, View, ViewMut};
use super::error::Error;
use super::fallback::warn_once;

/// The [compute capability](Queue::compute_capability) that has `wgmma`, and all else that is of sm_90a: it and
/// no later one.
pub const WGMMA: u32 = 90;

/// A queue of launches, done in the order in which they are given, and the memory they work on.
///
/// Whatever goes through it runs on both: on a [`Stream`](super::Stream), and without a GPU on an
/// [`Emulated`](super::Emulated) one. A kernel that only one architecture can
/// run is [refused](Error::NotForDevice) by every other device.
pub trait Queue {
    /// Whose memory the kernels work on.
    fn owner(&self) -> Owner;

    /// Blocks of which each has a multiprocessor for itself, for kernels that take as many.
    fn multiprocessors(&self) -> u32;

    /// Its compute capability times ten: 90 for 9.0. `None`: it plays all kernels, whatever they need.
    fn compute_capability(&self) -> Option<u32>;

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
                warn_once(&error.to_string(), F::NAME);
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

/// Writes the bytes of a range of a part, see [`ModelQueue::upload`].
pub type Make<'a> = dyn Fn(usize, Range<usize>, &mut [u8]) + Sync + 'a;

/// What becomes a buffer of [`ModelQueue::upload`].
#[derive(Clone, Debug)]
pub struct Part {
    /// What the emulator calls it.
    pub name: String,
    /// Bytes.
    pub len: usize,
    /// Bytes that are made together, at least 1.
    pub unit: usize,
}

/// A queue that whole models run on: with copies both ways in their order among the launches, uploads
/// that are made while they are copied, and work that is noted down once and done many times.
pub trait ModelQueue: Queue + Send {
    /// Memory of the host that a device copies to by itself, where there is such.
    type Host<T: Pod + Send>: DerefMut<Target = [T]> + Send;
    /// Work that was noted down.
    type Graph: Send;

    /// The device's name on the command line.
    fn name(&self) -> String;

    /// What it is, for people.
    fn description(&self) -> String;

    /// Bytes of memory that are free, where there is a limit.
    ///
    /// # Errors
    /// [`Error::Driver`].
    fn free_memory(&self) -> Result<Option<u64>, Error>;

    /// Has kernels compiled that will be launched, many at a time: otherwise each waits for that at its
    /// first launch.
    ///
    /// # Errors
    /// Those of loading kernels.
    fn prepare(&self, kernels: &[&'static str]) -> Result<(), Error>;

    /// `len` elements of the host whose bytes are all zero.
    ///
    /// # Errors
    /// [`Error::Driver`]: the system does not lock so much memory.
    fn host<T: Pod + Send>(&self, len: usize) -> Result<Self::Host<T>, Error>;

    /// Copies `elements`, few of them, to the first of `to`, after the launches before. They may be
    /// changed when the call returns.
    ///
    /// # Errors
    /// [`Error::Driver`].
    ///
    /// # Panics
    /// If there are more than `to` has.
    fn write<T: Pod>(&self, to: ViewMut<'_, T>, elements: &[T]) -> Result<(), Error>;

    /// Copies all of `from` to the first elements of `into`, after the launches before, and waits for that.
    ///
    /// # Errors
    /// [`Error::Driver`] if something before has failed.
    ///
    /// # Panics
    /// If `into` is shorter.
    fn read<T: Pod + Send>(&self, into: &mut Self::Host<T>, from: View<'_, T>) -> Result<(), Error>;

    /// Buffers that kernels only read, one for each of `parts`. `make` writes the bytes of a range of the
    /// part with this index, one of whole units; it is called for all of them, by any thread, while others
    /// are under way. `progress` is told the bytes of each copy that is done.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    fn upload(
        &self,
        parts: &[Part],
        make: &Make<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error>;

    /// Has the kernels that `work` launches noted down, and nothing of it done. `None` where nothing can be
    /// noted down: then it has to be done each time.
    ///
    /// # Errors
    /// What `work` returns; [`Error::Driver`].
    fn capture(&self, work: impl FnOnce(&Self) -> Result<(), Error>) -> Result<Option<Self::Graph>, Error>;

    /// Does what was noted down once more, after the launches before.
    ///
    /// # Errors
    /// [`Error::Driver`].
    fn replay(&self, graph: &Self::Graph) -> Result<(), Error>;
}

/// A queue around another one, whose launches it changes, notes or leaves out. Memory and all else are the
/// inner one's; but it has no graphs, whose launches would not come by.
pub trait Around {
    /// The inner queue.
    type Inner: Queue;

    /// The inner queue.
    fn inner(&self) -> &Self::Inner;

    /// What becomes of a launch.
    ///
    /// # Errors
    /// Those of [`Queue::launch`].
    ///
    /// # Safety
    /// As [`Queue::launch`].
    unsafe fn launch_around<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>;

    /// What is said of the compute capability.
    fn compute_capability_around(&self) -> Option<u32> {
        self.inner().compute_capability()
    }

    /// What becomes of waiting.
    ///
    /// # Errors
    /// Those of [`Queue::synchronize`].
    fn synchronize_around(&self) -> Result<(), Error> {
        self.inner().synchronize()
    }
}

impl<W: Around> Queue for W {
    fn owner(&self) -> Owner {
        self.inner().owner()
    }

    fn multiprocessors(&self) -> u32 {
        self.inner().multiprocessors()
    }

    fn compute_capability(&self) -> Option<u32> {
        self.compute_capability_around()
    }

    fn input<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        self.inner().input(name, elements)
    }

    fn output<T: Pod>(&self, name: &str, len: usize) -> Result<Buffer<T>, Error> {
        self.inner().output(name, len)
    }

    fn in_out<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        self.inner().in_out(name, elements)
    }

    unsafe fn launch<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        // SAFETY: the caller's.
        unsafe { self.launch_around(kernel) }
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.synchronize_around()
    }
}

impl<W: Around<Inner: ModelQueue> + Send> ModelQueue for W {
    type Host<T: Pod + Send> = <W::Inner as ModelQueue>::Host<T>;
    type Graph = Infallible;

    fn name(&self) -> String {
        self.inner().name()
    }

    fn description(&self) -> String {
        self.inner().description()
    }

    fn free_memory(&self) -> Result<Option<u64>, Error> {
        self.inner().free_memory()
    }

    fn prepare(&self, kernels: &[&'static str]) -> Result<(), Error> {
        self.inner().prepare(kernels)
    }

    fn host<T: Pod + Send>(&self, len: usize) -> Result<Self::Host<T>, Error> {
        self.inner().host(len)
    }

    fn write<T: Pod>(&self, to: ViewMut<'_, T>, elements: &[T]) -> Result<(), Error> {
        self.inner().write(to, elements)
    }

    fn read<T: Pod + Send>(&self, into: &mut Self::Host<T>, from: View<'_, T>) -> Result<(), Error> {
        self.inner().read(into, from)
    }

    fn upload(
        &self,
        parts: &[Part],
        make: &Make<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error> {
        self.inner().upload(parts, make, progress)
    }

    fn capture(&self, _work: impl FnOnce(&Self) -> Result<(), Error>) -> Result<Option<Infallible>, Error> {
        Ok(None)
    }

    fn replay(&self, graph: &Infallible) -> Result<(), Error> {
        match *graph {}
    }
}
