//! Memory of the host that a device copies from and to by itself.

#![expect(unsafe_code, reason = "the driver has its say on when memory is freed")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use cust::memory::LockedBuffer;

use super::device::Device;
use super::error::Error;
use super::graph;

/// Elements in page-locked memory of the host.
///
/// The system cannot move or swap such memory, so that a device reads and writes it while the
/// host does something else. It is scarce and slow to get: get it once, and use it again.
pub struct Pinned<T> {
    bytes: ManuallyDrop<LockedBuffer<u8>>,
    len: usize,
    device: Device,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// `len` elements whose bytes are all zero, for copies from and to `device`.
    ///
    /// # Errors
    /// [`Error::Driver`]: the system does not lock so much memory. [`Error::Captured`] inside a
    /// capture.
    pub fn zeroed(device: Device, len: usize) -> Result<Self, Error> {
        let doing = "locking memory of the host";
        graph::outside(doing)?;
        device.enter()?;
        // More than there can be is refused by the driver like any other too large number.
        let bytes = LockedBuffer::new(&0, len.saturating_mul(size_of::<T>())).map_err(Error::doing(doing))?;
        Ok(Self { bytes: ManuallyDrop::new(bytes), len, device, element: PhantomData })
    }

    /// Whose copies it is for.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }
}

impl<T: Pod> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // Without elements there is no memory either, and no alignment.
        if self.len == 0 { &[] } else { bytemuck::cast_slice(&self.bytes) }
    }
}

impl<T: Pod> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.len == 0 { &mut [] } else { bytemuck::cast_slice_mut(&mut self.bytes) }
    }
}

impl<T> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} elements, {:?})", self.len, self.device)
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // As with a buffer: without the device there is nothing left to free.
        let _ = self.device.enter();
        // SAFETY: dropped once, in the destructor.
        graph::aside(|| unsafe { ManuallyDrop::drop(&mut self.bytes) });
    }
}
