//! Which kernels are launched.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use gpu::simt::Kernel;
use gpu::simt::emulator::Lane;

use super::{Around, Error, Queue};

/// A queue that notes the names of kernels, and passes the launches on or does not.
#[derive(Debug)]
pub struct Noted<'a, Q> {
    queue: &'a Q,
    names: RefCell<BTreeSet<&'static str>>,
    launches: bool,
}

impl<'a, Q> Noted<'a, Q> {
    /// Passes launches on to `queue`.
    #[must_use]
    pub fn new(queue: &'a Q) -> Self {
        Self { queue, names: RefCell::default(), launches: true }
    }

    /// Stands in the place of `queue`, and launches nothing.
    #[must_use]
    pub fn only(queue: &'a Q) -> Self {
        Self { launches: false, ..Self::new(queue) }
    }

    /// Those noted so far.
    #[must_use]
    pub fn into_names(self) -> BTreeSet<&'static str> {
        self.names.into_inner()
    }
}

impl<Q: Queue> Around for Noted<'_, Q> {
    type Inner = Q;

    fn inner(&self) -> &Q {
        self.queue
    }

    unsafe fn launch_around<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        self.names.borrow_mut().insert(K::NAME);
        if !self.launches {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { self.queue.launch(kernel) }
    }

    fn synchronize_around(&self) -> Result<(), Error> {
        if self.launches { self.queue.synchronize() } else { Ok(()) }
    }
}
