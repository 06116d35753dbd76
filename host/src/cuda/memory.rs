//! Buffers in a device's memory.

#![expect(unsafe_code, reason = "memory that the driver gives is not initialised")]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceSlice};

use super::buffer::{ALIGN, Buffer, Bytes, Owner, ViewMut};
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
        let mut bytes = Extent::uninitialized(device, elements.len().saturating_mul(size_of::<T>()))?;
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
        let bytes = Extent::uninitialized(device, len.saturating_mul(size_of::<T>()))?;
        if len > 0 {
            bytes.slice().set_8(byte).map_err(Error::doing("filling memory"))?;
        }
        Ok(Self::new(Box::new(bytes), len))
    }
}

/// Memory that becomes several buffers, with one allocation.
pub(super) struct Arena {
    memory: Arc<Memory>,
    whole: Buffer<u8>,
}

impl Arena {
    /// `len` bytes, which are whatever was there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what is free; [`Error::Driver`]; [`Error::Captured`] inside a
    /// capture.
    pub(super) fn unwritten(device: Device, len: usize) -> Result<Self, Error> {
        let whole = Extent::uninitialized(device, len)?;
        Ok(Self { memory: Arc::clone(&whole.memory), whole: Buffer::new(Box::new(whole), len) })
    }

    /// A part of it, for a copy to write.
    ///
    /// # Panics
    /// If the range is not inside.
    pub(super) fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_, u8> {
        self.whole.slice_mut(range)
    }

    /// Parts of it as buffers, each at a multiple of [`ALIGN`]; it is freed with the last of them.
    ///
    /// # Panics
    /// If they overlap, are not in order or not inside.
    ///
    /// # Safety
    /// Every byte of theirs has been written.
    pub(super) unsafe fn into_buffers(
        self,
        ranges: impl IntoIterator<Item = Range<usize>>,
    ) -> Vec<Buffer<u8>> {
        let mut end = 0;
        let buffer = |range: Range<usize>| {
            assert!(end <= range.start && range.start <= range.end && range.end <= self.whole.len());
            assert!(range.start.is_multiple_of(ALIGN));
            end = range.end;
            let len = range.len();
            Buffer::new(Box::new(Extent { memory: Arc::clone(&self.memory), range }), len)
        };
        ranges.into_iter().map(buffer).collect()
    }
}

/// Bytes on a device that a buffer holds: its own alone, or a part of an [`Arena`]'s that no other has.
#[derive(Debug)]
struct Extent {
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl Extent {
    /// An allocation of its own, which has to be written before anybody reads it.
    fn uninitialized(device: Device, len: usize) -> Result<Self, Error> {
        Ok(Self { memory: Arc::new(Memory::uninitialized(device, len)?), range: 0..len })
    }

    fn slice(&self) -> DeviceSlice<u8> {
        self.memory.bytes.index(self.range.clone())
    }
}

/// An allocation on a device. One that a [`Graph`](super::Graph) may have noted down outlives its owner.
#[derive(Debug)]
struct Memory {
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
    /// When they were allocated, in the device's count of graphs.
    born: u64,
    device: Device,
}

impl Memory {
    /// Bytes that have to be written before anybody reads them.
    fn uninitialized(device: Device, asked: usize) -> Result<Self, Error> {
        let doing = "allocating memory";
        graph::outside(doing)?;
        device.enter()?;
        let born = device.retained().now();
        // SAFETY: nobody reads a byte before it is written: who fills a buffer writes all of it, and who makes
        // buffers of an arena says so.
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

impl Bytes for Extent {
    fn owner(&self) -> Owner {
        self.memory.device.owner()
    }

    fn address(&self) -> u64 {
        self.memory.bytes.as_device_ptr().as_raw() + self.range.start as u64
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let doing = "copying to the device";
        graph::outside(doing)?;
        self.memory.device.enter()?;
        self.slice().copy_from(bytes).map_err(Error::doing(doing))
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        let doing = "copying from the device";
        graph::outside(doing)?;
        self.memory.device.enter()?;
        self.slice().copy_to(into).map_err(Error::doing(doing))
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

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: taken once, in the destructor.
        let bytes = unsafe { ManuallyDrop::take(&mut self.bytes) };
        let unused = self.device.retained().retain(self.born, bytes);
        self.device.free(unused);
    }
}
