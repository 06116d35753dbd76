//! Queues of work, marks in them, and launches.

#![expect(unsafe_code, reason = "a kernel trusts its arguments")]

use std::ffi::c_void;
use std::ptr;

use bytemuck::Pod;
use cust::event::EventFlags;
use cust::function::{BlockSize, GridSize};
use cust::stream::{StreamFlags, StreamWaitEventFlags};
use gpu::simt::emulator::Lane;
use gpu::simt::{Contract, Kernel, Launch};

use super::buffer::{Buffer, Owner};
use super::description::Resources;
use super::device::Device;
use super::error::Error;
use super::queue::Queue;

/// Work for a device, done in the order in which it is given.
#[derive(Debug)]
pub struct Stream {
    stream: cust::stream::Stream,
    device: Device,
}

/// A mark in a stream: reached when all work before it is done.
#[derive(Debug)]
pub struct Event {
    event: cust::event::Event,
    device: Device,
}

impl Device {
    /// A new stream.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn stream(self) -> Result<Stream, Error> {
        self.enter()?;
        let stream = cust::stream::Stream::new(StreamFlags::DEFAULT, None)
            .map_err(Error::doing("creating a stream"))?;
        Ok(Stream { stream, device: self })
    }

    /// What a kernel takes on this device when it is launched like this.
    ///
    /// # Errors
    /// Those of loading the kernels, and [`Error::SharedMemory`].
    pub fn resources(self, kernel: &'static str, launch: &Launch) -> Result<Resources, Error> {
        let module = self.module()?;
        self.enter()?;
        module.resources(kernel, launch)
    }
}

impl Stream {
    /// The stream's device.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Launches a kernel, also one that only this device's architecture can run. Its grid,
    /// threads and shared memory are those of its contract; an empty grid is no launch.
    ///
    /// # Errors
    /// [`Error::SharedMemory`]; [`Error::Launch`] if the driver refuses it or, with
    /// `LANEMAP_CUDA_SYNC`, if it fails; those of loading the kernels.
    ///
    /// # Safety
    /// The arguments keep the contract that the kernel documents: addresses of live buffers of
    /// this stream's device, as long and as aligned as it says, outputs not overlapping inputs.
    /// They live until the launch is done.
    pub unsafe fn launch<K: Contract>(&self, arguments: K) -> Result<(), Error> {
        let launch = arguments.launch();
        if launch.grid.count() == 0 {
            return Ok(());
        }
        let kernel = K::NAME;
        let fail = |error: cust::error::CudaError| Error::Launch { kernel, error: error.into() };
        let module = self.device.module()?;
        self.device.enter()?;
        let function = module.prepare(kernel, &launch)?;
        let grid = GridSize::xyz(launch.grid.x, launch.grid.y, launch.grid.z);
        // The driver copies the arguments from here before it returns.
        let parameters = [ptr::from_ref(&arguments).cast_mut().cast::<c_void>()];
        // SAFETY: the entry point of this name has one parameter, of type K; the rest is the
        // caller's.
        unsafe {
            self.stream.launch(
                &function,
                grid,
                BlockSize::x(launch.threads),
                launch.shared_bytes,
                &parameters,
            )
        }
        .map_err(fail)?;
        if self.device.synchronises() {
            self.stream.synchronize().map_err(fail)?;
        }
        Ok(())
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// [`Error::Driver`] if some of it has failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.device.enter()?;
        self.stream.synchronize().map_err(Error::doing("waiting for the device"))
    }

    /// Marks where the stream's work has come to.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn record(&self) -> Result<Event, Error> {
        self.device.enter()?;
        let fail = Error::doing("recording an event");
        let event = cust::event::Event::new(EventFlags::DEFAULT).map_err(&fail)?;
        event.record(&self.stream).map_err(&fail)?;
        Ok(Event { event, device: self.device })
    }

    /// Lets later work of this stream wait for the work that `other` has by now.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn wait_for(&self, other: &Self) -> Result<(), Error> {
        let Event { event, .. } = other.record()?;
        self.device.enter()?;
        self.stream
            .wait_event(event, StreamWaitEventFlags::DEFAULT)
            .map_err(Error::doing("waiting for another stream"))
    }
}

impl Queue for Stream {
    fn owner(&self) -> Owner {
        self.device.owner()
    }

    fn input<T: Pod>(&self, _name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::from_slice(self.device, elements)
    }

    fn output<T: Pod>(&self, _name: &str, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::filled(self.device, len, 0xff)
    }

    fn in_out<T: Pod>(&self, _name: &str, elements: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::from_slice(self.device, elements)
    }

    unsafe fn launch<K>(&self, kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        // SAFETY: the caller's.
        unsafe { Self::launch(self, kernel) }
    }

    fn synchronize(&self) -> Result<(), Error> {
        Self::synchronize(self)
    }
}

impl Event {
    /// Milliseconds from `start` to this mark, once both are reached; waits for this one.
    ///
    /// # Errors
    /// [`Error::Driver`] if work before it has failed.
    pub fn milliseconds_since(&self, start: &Self) -> Result<f32, Error> {
        self.device.enter()?;
        let fail = Error::doing("measuring time");
        self.event.synchronize().map_err(&fail)?;
        self.event.elapsed_time_f32(&start.event).map_err(&fail)
    }
}
