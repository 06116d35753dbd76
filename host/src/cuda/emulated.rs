//! A queue without a GPU: kernels are played by [`gpu::simt::emulator`], which checks them.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use gpu::simt::emulator::{Counters, Emulator, Fault, Lane, Memory};
use gpu::simt::{Global, Kernel};

use super::buffer::{Buffer, Bytes, Owner, View, ViewMut};
use super::error::Error;
use super::queue::{Make, ModelQueue, Part, Queue};

/// The emulator and its memory. A launch is done when it returns.
///
/// Arguments that break a kernel's contract are no danger here: they are a
/// [fault](gpu::simt::emulator::Fault) that is found and reported, as long as a word of the
/// kernel comes upon it.
///
/// ```
/// use lanemap::cuda::{Emulated, Queue, ops};
///
/// let queue = Emulated::new();
/// let a = queue.input("a", &[1.0_f32; 300])?;
/// let mut out = queue.output("out", 300)?;
/// ops::vector_add(&queue, out.view_mut(), a.view(), a.view())?;
/// assert_eq!(out.read()?, [2.0; 300]);
/// assert_eq!(queue.counters().global_stores.bytes, 1200);
/// # Ok::<(), lanemap::cuda::Error>(())
/// ```
#[derive(Debug)]
pub struct Emulated {
    emulator: Emulator,
    memory: Arc<OwnedMemory>,
    counters: Mutex<Counters>,
}

/// Memory and whose it is.
#[derive(Debug)]
struct OwnedMemory {
    owner: Owner,
    memory: Mutex<Memory>,
}

impl Default for Emulated {
    fn default() -> Self {
        Self::new()
    }
}

impl Emulated {
    /// An emulator with memory of its own, whose lanes run in order.
    #[must_use]
    pub fn new() -> Self {
        static EMULATORS: AtomicU64 = AtomicU64::new(0);
        let owner = Owner::Emulator(EMULATORS.fetch_add(1, Ordering::Relaxed));
        Self::with(Emulator::new(), Arc::new(OwnedMemory { owner, memory: Mutex::default() }))
    }

    /// Another queue for the same memory, whose lanes run in an order drawn from `seed`, see
    /// [`Emulator::seed`].
    #[must_use]
    pub fn seed(&self, seed: u64) -> Self {
        Self::with(self.emulator.seed(seed), Arc::clone(&self.memory))
    }

    fn with(emulator: Emulator, memory: Arc<OwnedMemory>) -> Self {
        Self { emulator, memory, counters: Mutex::default() }
    }

    /// What the last launch of this queue did, if it had no fault; nothing before the first.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *lock(&self.counters)
    }

    /// Whether kernels have written each byte of a part of an output once.
    ///
    /// # Errors
    /// [`Fault::NotWrittenOnce`] with the first byte that was not.
    ///
    /// # Panics
    /// If the view is not of this memory.
    pub fn check_written_once<T>(&self, part: View<'_, T>) -> Result<(), Fault> {
        assert_eq!(part.owner(), self.memory.owner, "whose memory the view is in");
        self.memory.lock().check_part_written_once(part.start(), part.len())
    }

    /// A buffer of `len` elements that `register` makes.
    fn buffer<T: Pod>(&self, len: usize, register: impl FnOnce(&mut Memory) -> Global<T>) -> Buffer<T> {
        let start = register(&mut self.memory.lock()).cast();
        Buffer::new(Box::new(EmulatedBytes { start, memory: Arc::clone(&self.memory) }), len)
    }
}

impl Queue for Emulated {
    fn owner(&self) -> Owner {
        self.memory.owner
    }

    /// Few, so that blocks of small problems have more than one tile.
    fn multiprocessors(&self) -> u32 {
        2
    }

    fn compute_capability(&self) -> Option<u32> {
        None
    }

    fn input<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        Ok(self.buffer(elements.len(), |memory| memory.input(name, elements)))
    }

    fn output<T: Pod>(&self, name: &str, len: usize) -> Result<Buffer<T>, Error> {
        Ok(self.buffer(len, |memory| memory.output(name, len)))
    }

    fn in_out<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        Ok(self.buffer(elements.len(), |memory| memory.in_out(name, elements)))
    }

    unsafe fn launch<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        let launch = kernel.launch();
        let mut counters = lock(&self.counters);
        *counters = Counters::default();
        if launch.grid.count() == 0 {
            return Ok(());
        }
        if launch.shared_bytes > Emulator::MAX_SHARED_BYTES {
            return Err(Error::SharedMemory {
                kernel: K::NAME,
                device: "the emulator".to_owned(),
                needed: launch.shared_bytes.into(),
                limit: Emulator::MAX_SHARED_BYTES.into(),
            });
        }
        *counters = self.emulator.launch(&mut self.memory.lock(), kernel)?;
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        drop(self.memory.settled());
        Ok(())
    }
}

impl ModelQueue for Emulated {
    type Host<T: Pod + Send> = Vec<T>;
    type Graph = Infallible;

    fn name(&self) -> String {
        "emulator".to_owned()
    }

    fn description(&self) -> String {
        "the emulator".to_owned()
    }

    fn free_memory(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn prepare(&self, _kernels: &[&'static str]) -> Result<(), Error> {
        Ok(())
    }

    fn host<T: Pod + Send>(&self, len: usize) -> Result<Vec<T>, Error> {
        Ok(vec![T::zeroed(); len])
    }

    fn write<T: Pod>(&self, to: ViewMut<'_, T>, elements: &[T]) -> Result<(), Error> {
        assert!(elements.len() <= to.len(), "{} elements for {}", elements.len(), to.len());
        self.memory.settled().write_part(to.start(), elements);
        Ok(())
    }

    fn read<T: Pod + Send>(&self, into: &mut Vec<T>, from: View<'_, T>) -> Result<(), Error> {
        into[..from.len()].copy_from_slice(&self.memory.settled().part_values(from.start(), from.len()));
        Ok(())
    }

    fn upload(
        &self,
        parts: &[Part],
        make: &Make<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error> {
        let upload = |(index, part): (usize, &Part)| {
            let mut bytes = vec![0; part.len];
            make(index, 0..part.len, &mut bytes);
            progress(part.len);
            self.input(&part.name, &bytes)
        };
        parts.iter().enumerate().map(upload).collect()
    }

    fn capture(&self, _work: impl FnOnce(&Self) -> Result<(), Error>) -> Result<Option<Infallible>, Error> {
        Ok(None)
    }

    fn replay(&self, graph: &Infallible) -> Result<(), Error> {
        match *graph {}
    }
}

/// A registered buffer.
#[derive(Debug)]
struct EmulatedBytes {
    start: Global<u8>,
    memory: Arc<OwnedMemory>,
}

impl Bytes for EmulatedBytes {
    fn owner(&self) -> Owner {
        self.memory.owner
    }

    fn address(&self) -> u64 {
        self.start.address()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.memory.settled().write(self.start, bytes);
        Ok(())
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.memory.settled().values(self.start));
        Ok(())
    }
}

impl Drop for EmulatedBytes {
    fn drop(&mut self) {
        self.memory.lock().free(self.start);
    }
}

impl OwnedMemory {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// The memory where the host waits or copies: all launches are done.
    fn settled(&self) -> MutexGuard<'_, Memory> {
        let mut memory = self.lock();
        memory.settle();
        memory
    }
}

/// What a panic of another thread left behind is whole: the emulator takes a kernel's panic as a fault.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use gpu::probe::ProbeShared;

    use super::*;
    use crate::cuda::ops;

    #[test]
    fn buffers_are_read_written_and_freed() {
        let queue = Emulated::new();
        let mut values = queue.in_out("values", &[1_u32, 2, 3]).unwrap();
        assert_eq!(values.read().unwrap(), [1, 2, 3]);
        values.write(&[4, 5, 6]).unwrap();
        assert_eq!(values.read().unwrap(), [4, 5, 6]);
        assert!(queue.output::<f32>("out", 2).unwrap().read().unwrap().iter().all(|x| x.is_nan()));
        assert!(queue.input::<f32>("nothing", &[]).unwrap().read().unwrap().is_empty());

        let address = {
            let freed = queue.input("a", &[0.0_f32; 4]).unwrap();
            freed.view().start()
        };
        let b = queue.input("b", &[0.0_f32; 4]).unwrap();
        let mut out = queue.output("out", 4).unwrap();
        let kernel =
            gpu::basics::VectorAdd { out: out.view_mut().start(), a: address, b: b.view().start(), n: 4 };
        // SAFETY: the emulator finds what is wrong with it.
        let text = unsafe { queue.launch(kernel) }.unwrap_err().to_string();
        assert!(text.contains("`a, freed`"), "{text}");
    }

    #[test]
    fn views_of_another_memory_are_refused() {
        let (first, second) = (Emulated::new(), Emulated::new());
        let mut out = first.output("out", 1).unwrap();
        let (own, other) = (first.input("a", &[1.0]).unwrap(), second.input("b", &[2.0]).unwrap());
        let error = ops::vector_add(&first, out.view_mut(), own.view(), other.view()).unwrap_err();
        let text =
            format!("vector_add: b is in the memory of {}, the queue of {}", second.owner(), first.owner());
        assert_eq!(error.to_string(), text);
        ops::vector_add(&first.seed(1), out.view_mut(), own.view(), own.view()).unwrap();
        assert_eq!(out.read().unwrap(), [2.0]);
    }

    #[test]
    fn faults_are_errors_with_the_kernels_name() {
        let queue = Emulated::new();
        let (mut out, a) = (queue.output("out", 300).unwrap(), queue.input("a", &[1.0_f32; 299]).unwrap());
        let (start, a) = (out.view_mut().start(), a.view().start());
        let kernel = gpu::basics::VectorAdd { out: start, a, b: a, n: 300 };
        // SAFETY: the emulator finds what is wrong with it.
        let error = unsafe { queue.seed(5).launch(kernel) }.unwrap_err();
        assert!(matches!(error, Error::Emulator(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("vector_add") && text.contains("`a`") && text.contains("seed 5"), "{text}");
    }

    #[test]
    fn too_much_shared_memory_is_refused_and_the_fallback_runs() {
        let queue = Emulated::new();
        let mut out = queue.output("out", 32).unwrap();
        let most = Emulator::MAX_SHARED_BYTES;
        let error = ops::shared(&queue, out.view_mut(), most + 1).unwrap_err();
        assert!(matches!(error, Error::SharedMemory { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&(most + 1).to_string()) && text.contains(&most.to_string()), "{text}");
        assert_eq!(out.read().unwrap(), [u32::MAX; 32], "nothing ran");
        ops::shared_or(&queue, out.view_mut(), most + 1, 1000).unwrap();
        assert_eq!(out.read().unwrap().iter().sum::<u32>(), 1000, "the fallback ran");
        assert!(queue.check_written_once(out.view()).is_ok());
        assert_eq!(queue.counters().barriers, 1);
        // SAFETY: out has 32 elements.
        unsafe { queue.launch(ProbeShared { out: out.view_mut().start(), bytes: 64 }) }.unwrap();
        assert!(queue.check_written_once(out.view()).is_err(), "written twice by now");
    }

    #[test]
    fn an_empty_grid_is_no_launch() {
        let queue = Emulated::new();
        let (mut out, input) = (queue.output("out", 0).unwrap(), queue.input("input", &[]).unwrap());
        ops::block_sum(&queue, out.view_mut(), input.view()).unwrap();
        assert_eq!(queue.counters(), Counters::default());
    }
}
