//! Buffers in a device's memory.

#![expect(unsafe_code, reason = "memory that the driver gives is not initialised")]

use std::mem::ManuallyDrop;

use bytemuck::Pod;
use cust::memory::{CopyDestination, DeviceBuffer};

use super::buffer::{Buffer, Bytes, Owner};
use super::device::Device;
use super::error::Error;
use super::graph;

impl<T: Pod> Buffer<T> {
    /// A buffer with these elements.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`] if the copy fails;
    /// [`Error::Captured`] inside a capture.
    pub fn from_slice(device: Device, elements: &[T]) -> Result<Self, Error> {
        let mut bytes = DeviceBytes::uninitialized(device, elements.len().saturating_mul(size_of::<T>()))?;
        if !elements.is_empty() {
            bytes.write(bytemuck::cast_slice(elements))?;
        }
        Ok(Self::new(Box::new(bytes), elements.len()))
    }

    /// A buffer of `len` elements whose bytes are all zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`]; [`Error::Captured`] inside a
    /// capture.
    pub fn zeroed(device: Device, len: usize) -> Result<Self, Error> {
        Self::filled(device, len, 0)
    }

    /// A buffer of `len` elements whose bytes are all `byte`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`]; [`Error::Captured`] inside a
    /// capture.
    pub fn filled(device: Device, len: usize, byte: u8) -> Result<Self, Error> {
        // More than there can be is refused by the driver like any other too large number.
        let mut bytes = DeviceBytes::uninitialized(device, len.saturating_mul(size_of::<T>()))?;
        if len > 0 {
            bytes.bytes.set_8(byte).map_err(Error::doing("filling memory"))?;
        }
        Ok(Self::new(Box::new(bytes), len))
    }
}

impl Buffer<u8> {
    /// A buffer of `len` bytes for a copy that writes all of them; until then they are whatever was there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`]; [`Error::Captured`] inside a
    /// capture.
    pub(super) fn unwritten(device: Device, len: usize) -> Result<Self, Error> {
        Ok(Self::new(Box::new(DeviceBytes::uninitialized(device, len)?), len))
    }
}

/// Bytes on a device. Those that a [`Graph`](super::Graph) may have noted down outlive their owner.
#[derive(Debug)]
struct DeviceBytes {
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
    /// When they were allocated, in the device's count of graphs.
    born: u64,
    device: Device,
}

impl DeviceBytes {
    /// Bytes that have to be written before anybody reads them.
    fn uninitialized(device: Device, asked: usize) -> Result<Self, Error> {
        let doing = "allocating memory";
        graph::outside(doing)?;
        device.enter()?;
        let born = device.retained().now();
        // SAFETY: the callers write every byte.
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
        Ok(Self { bytes: ManuallyDrop::new(bytes), born, device })
    }
}

impl Bytes for DeviceBytes {
    fn owner(&self) -> Owner {
        self.device.owner()
    }

    fn address(&self) -> u64 {
        self.bytes.as_device_ptr().as_raw()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let doing = "copying to the device";
        graph::outside(doing)?;
        self.device.enter()?;
        self.bytes.copy_from(bytes).map_err(Error::doing(doing))
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        let doing = "copying from the device";
        graph::outside(doing)?;
        self.device.enter()?;
        self.bytes.copy_to(into).map_err(Error::doing(doing))
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

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        // SAFETY: taken once, in the destructor.
        let bytes = unsafe { ManuallyDrop::take(&mut self.bytes) };
        let unused = self.device.retained().retain(self.born, bytes);
        self.device.free(unused);
    }
}
