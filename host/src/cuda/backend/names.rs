//! Which kernels a pass launches, found out by playing it without launching anything.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use bytemuck::Pod;
use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;

use crate::cuda::{Buffer, Error, Owner, Queue};

/// A queue that notes the names of kernels and launches none.
pub(super) struct Names<'a, Q> {
    queue: &'a Q,
    names: RefCell<BTreeSet<&'static str>>,
}

impl<'a, Q> Names<'a, Q> {
    /// In the place of `queue`.
    pub(super) fn new(queue: &'a Q) -> Self {
        Self { queue, names: RefCell::default() }
    }

    /// Those noted so far.
    pub(super) fn into_names(self) -> BTreeSet<&'static str> {
        self.names.into_inner()
    }
}

impl<Q: Queue> Queue for Names<'_, Q> {
    fn owner(&self) -> Owner {
        self.queue.owner()
    }

    fn multiprocessors(&self) -> u32 {
        self.queue.multiprocessors()
    }

    fn input<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        self.queue.input(name, elements)
    }

    fn output<T: Pod>(&self, name: &str, len: usize) -> Result<Buffer<T>, Error> {
        self.queue.output(name, len)
    }

    fn in_out<T: Pod>(&self, name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        self.queue.in_out(name, elements)
    }

    unsafe fn launch<K>(&self, _kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        self.names.borrow_mut().insert(K::NAME);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
}
