//! Buffers in a device's memory.

#![expect(unsafe_code, reason = "memory that the driver gives is not initialised")]

use bytemuck::Pod;
use cust::memory::{CopyDestination, DeviceBuffer};

use super::buffer::{Buffer, Bytes, Owner};
use super::device::Device;
use super::error::Error;

impl<T: Pod> Buffer<T> {
    /// A buffer with these elements.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`] if the copy fails.
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
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`].
    pub fn zeroed(device: Device, len: usize) -> Result<Self, Error> {
        Self::filled(device, len, 0)
    }

    /// A buffer of `len` elements whose bytes are all `byte`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`].
    pub fn filled(device: Device, len: usize, byte: u8) -> Result<Self, Error> {
        // More than there can be is refused by the driver like any other too large number.
        let mut bytes = DeviceBytes::uninitialized(device, len.saturating_mul(size_of::<T>()))?;
        if len > 0 {
            bytes.bytes.set_8(byte).map_err(Error::doing("filling memory"))?;
        }
        Ok(Self::new(Box::new(bytes), len))
    }
}

/// Bytes on a device.
#[derive(Debug)]
struct DeviceBytes {
    bytes: DeviceBuffer<u8>,
    device: Device,
}

impl DeviceBytes {
    /// Bytes that have to be written before anybody reads them.
    fn uninitialized(device: Device, asked: usize) -> Result<Self, Error> {
        device.enter()?;
        // SAFETY: the callers write every byte.
        let bytes = unsafe { DeviceBuffer::uninitialized(asked) }.map_err(|error| {
            match (error, device.memory()) {
                (cust::error::CudaError::OutOfMemory, Ok((free, total))) => Error::OutOfMemory {
                    device: device.description().name.clone(),
                    asked: asked as u64,
                    free,
                    total,
                },
                _ => Error::doing("allocating memory")(error),
            }
        })?;
        Ok(Self { bytes, device })
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
        self.device.enter()?;
        self.bytes.copy_from(bytes).map_err(Error::doing("copying to the device"))
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        self.device.enter()?;
        self.bytes.copy_to(into).map_err(Error::doing("copying from the device"))
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        // The driver frees memory of the thread's own device only. Where that cannot be chosen,
        // the device is lost, and its memory with it.
        let _ = self.device.enter();
    }
}
