//! Memory of a device, with a length.

#![expect(unsafe_code, reason = "memory that the driver gives is not initialised")]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;

use bytemuck::Pod;
use cust::memory::{CopyDestination, DeviceBuffer};
use gpu::simt::Global;

use super::device::Device;
use super::error::Error;
use super::graph;

/// Elements in a device's memory, aligned to 256 bytes.
///
/// Freeing it waits for what still uses it. Memory that a [`Graph`](super::Graph) may have noted
/// down is freed when the graph is gone.
#[derive(Debug)]
pub struct Buffer<T> {
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
    /// When it was allocated, in the device's count of graphs.
    born: u64,
    len: usize,
    device: Device,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// A buffer with these elements.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`] if the copy fails;
    /// [`Error::Captured`] inside a capture.
    pub fn from_slice(device: Device, elements: &[T]) -> Result<Self, Error> {
        let mut buffer = Self::uninitialized(device, elements.len())?;
        buffer.write(elements)?;
        Ok(buffer)
    }

    /// A buffer of `len` elements whose bytes are all zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`]; [`Error::Captured`] inside a capture.
    pub fn zeroed(device: Device, len: usize) -> Result<Self, Error> {
        let mut buffer = Self::uninitialized(device, len)?;
        if len > 0 {
            buffer.bytes.set_8(0).map_err(Error::doing("clearing memory"))?;
        }
        Ok(buffer)
    }

    /// A buffer whose bytes have to be written before anybody reads them.
    fn uninitialized(device: Device, len: usize) -> Result<Self, Error> {
        let doing = "allocating memory";
        graph::outside(doing)?;
        device.enter()?;
        let born = device.retained().now();
        // More than there can be is refused by the driver like any other too large number.
        let asked = len.saturating_mul(size_of::<T>());
        // SAFETY: the two callers write every byte.
        let bytes = unsafe { DeviceBuffer::uninitialized(asked) }.map_err(|error| {
            match (error, device.memory()) {
                (cust::error::CudaError::OutOfMemory, Ok((free, total))) => Error::OutOfMemory {
                    device: device.description().name.clone(),
                    asked: asked as u64,
                    free,
                    total,
                },
                _ => Error::doing(doing)(error),
            }
        })?;
        Ok(Self { bytes: ManuallyDrop::new(bytes), born, len, device, element: PhantomData })
    }

    /// Replaces all elements. Waits for work that was begun before, and is done on return.
    ///
    /// # Errors
    /// [`Error::Driver`]: the copy fails, or a kernel that was launched before has.
    /// [`Error::Captured`] inside a capture.
    ///
    /// # Panics
    /// If there are not [`len`](Self::len) elements.
    pub fn write(&mut self, elements: &[T]) -> Result<(), Error> {
        assert_eq!(elements.len(), self.len, "as many elements as the buffer has");
        if elements.is_empty() {
            return Ok(());
        }
        let doing = "copying to the device";
        graph::outside(doing)?;
        self.device.enter()?;
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        self.bytes.copy_from(bytes).map_err(Error::doing(doing))
    }

    /// All elements. Waits for work that was begun before.
    ///
    /// # Errors
    /// [`Error::Driver`]: the copy fails, or a kernel that was launched before has.
    /// [`Error::Captured`] inside a capture.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        let mut elements = vec![T::zeroed(); self.len];
        if self.len > 0 {
            let doing = "copying from the device";
            graph::outside(doing)?;
            self.device.enter()?;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
            self.bytes.copy_to(bytes).map_err(Error::doing(doing))?;
        }
        Ok(elements)
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, for a kernel to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        self.slice(0..self.len)
    }

    /// All of it, for a kernel to write.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.slice_mut(0..self.len)
    }

    /// A part of it, for a kernel to read.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> View<'_, T> {
        let (start, len) = self.part(range);
        View { start, len, device: self.device, lifetime: PhantomData }
    }

    /// A part of it, for a kernel to write.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[must_use]
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_, T> {
        let (start, len) = self.part(range);
        ViewMut { start, len, device: self.device, lifetime: PhantomData }
    }

    fn part(&self, range: Range<usize>) -> (Global<T>, usize) {
        let Range { start, end } = range;
        assert!(start <= end && end <= self.len, "{start}..{end} is not inside 0..{}", self.len);
        let base = Global::from_address(self.bytes.as_device_ptr().as_raw());
        (base.at(start as u64), end - start)
    }
}

impl Device {
    /// Frees memory of the device.
    pub(super) fn free(self, memory: impl IntoIterator<Item = DeviceBuffer<u8>>) {
        for bytes in memory {
            // The driver frees memory of the thread's own device only. Where that cannot be
            // chosen, the device is lost, and its memory with it.
            let _ = self.enter();
            graph::aside(|| drop(bytes));
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, in the destructor.
        let bytes = unsafe { ManuallyDrop::take(&mut self.bytes) };
        let unused = self.device.retained().retain(self.born, bytes);
        self.device.free(unused);
    }
}

macro_rules! view {
    ($(#[$doc:meta])* $Name:ident, $reference:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $Name<'a, T> {
            start: Global<T>,
            len: usize,
            device: Device,
            lifetime: PhantomData<$reference>,
        }

        impl<T> $Name<'_, T> {
            /// Where it begins on the device.
            #[must_use]
            pub const fn start(&self) -> Global<T> {
                self.start
            }

            /// Elements.
            #[must_use]
            pub const fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            #[must_use]
            pub const fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Whose memory it is.
            #[must_use]
            pub const fn device(&self) -> Device {
                self.device
            }
        }
    };
}

view! {
    /// A part of a [`Buffer`] that a kernel reads.
    View, &'a [T]
}

view! {
    /// A part of a [`Buffer`] that a kernel writes, and nobody else touches.
    ViewMut, &'a mut [T]
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}
