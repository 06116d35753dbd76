//! Queues of work, marks in them, and launches.

#![expect(unsafe_code, reason = "a kernel trusts its arguments")]

use std::ffi::c_void;
use std::ptr;

use bytemuck::Pod;
use cust::event::EventFlags;
use cust::stream::{StreamFlags, StreamWaitEventFlags};
use gpu::simt::emulator::Lane;
use gpu::simt::{Contract, Dim3, Kernel, Launch};

use super::buffer::{Buffer, Owner};
use super::description::Resources;
use super::device::Device;
use super::driver::raw;
use super::error::{CudaError, Error};
use super::graph::{self, Notes};
use super::queue::Queue;

/// Work for a device, done in the order in which it is given, or noted down for a
/// [`Graph`](super::Graph).
#[derive(Debug)]
pub struct Stream {
    work: Work,
    device: Device,
}

#[derive(Debug)]
enum Work {
    /// Its work is done.
    Live(cust::stream::Stream),
    /// Its work is noted down.
    Notes(Notes),
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
    /// [`Error::Driver`]; [`Error::Captured`] inside a capture.
    pub fn stream(self) -> Result<Stream, Error> {
        let doing = "creating a stream";
        graph::outside(doing)?;
        self.enter()?;
        let stream = cust::stream::Stream::new(StreamFlags::DEFAULT, None).map_err(Error::doing(doing))?;
        Ok(Stream { work: Work::Live(stream), device: self })
    }

    /// What a kernel takes on this device when it is launched like this.
    ///
    /// # Errors
    /// Those of loading the kernel, and [`Error::SharedMemory`].
    pub fn resources(self, kernel: &'static str, launch: &Launch) -> Result<Resources, Error> {
        let kernels = self.kernels()?;
        self.enter()?;
        graph::aside(|| kernels.resources(kernel, launch))
    }
}

impl Stream {
    /// The stream's device.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }

    /// A stream that notes down.
    pub(super) const fn noting(notes: Notes, device: Device) -> Self {
        Self { work: Work::Notes(notes), device }
    }

    /// The stream, for what cannot be noted down.
    pub(super) fn live(&self, doing: &'static str) -> Result<&cust::stream::Stream, Error> {
        graph::outside(doing)?;
        match &self.work {
            Work::Live(stream) => Ok(stream),
            Work::Notes(_) => Err(Error::Captured { doing }),
        }
    }

    /// The driver's handle, for what can be noted down.
    pub(super) fn as_inner(&self) -> *mut c_void {
        match &self.work {
            Work::Live(stream) => stream.as_inner().cast(),
            Work::Notes(notes) => notes.as_inner(),
        }
    }

    /// Refuses what belongs to another device.
    pub(super) fn same_owner(&self, doing: &'static str, other: Owner) -> Result<(), Error> {
        let own = self.device.owner();
        if own == other { Ok(()) } else { Err(Error::OtherDevice { doing, own, other }) }
    }

    /// Launches a kernel, also one that only this device's architecture can run. Its grid,
    /// threads and shared memory are those of its contract; an empty grid is no launch.
    ///
    /// # Errors
    /// [`Error::SharedMemory`]; [`Error::Launch`] if the driver refuses it or, with
    /// `LANEMAP_CUDA_SYNC`, if it fails; those of loading the kernel.
    ///
    /// # Safety
    /// The arguments keep the contract that the kernel documents: addresses of live buffers of
    /// this stream's device, as long and as aligned as it says, outputs not overlapping inputs.
    /// They live until the launch is done. In a capture, what a buffer's memory holds when its
    /// graph runs keeps the contract too; that it is still there is seen to.
    pub unsafe fn launch<K: Contract>(&self, arguments: K) -> Result<(), Error> {
        let launch = arguments.launch();
        if launch.grid.count() == 0 {
            return Ok(());
        }
        let kernel = K::NAME;
        let kernels = self.device.kernels()?;
        self.device.enter()?;
        let function = graph::aside(|| kernels.prepare(kernel, &launch))?;
        // The driver copies the arguments from here before it returns.
        let mut parameters = [ptr::from_ref(&arguments).cast_mut().cast::<c_void>()];
        let (function, stream) = (function.to_raw().cast(), self.as_inner());
        let Dim3 { x, y, z } = launch.grid;
        let code = if K::STARTS_EARLY && self.device.starts_early() {
            let attribute = raw::LaunchAttribute::EARLY;
            let config = raw::LaunchConfig {
                grid: [x, y, z],
                block: [launch.threads, 1, 1],
                shared_bytes: launch.shared_bytes,
                stream,
                attributes: &raw const attribute,
                attribute_count: 1,
            };
            // SAFETY: the entry point of this name has one parameter, of type K, and waits itself for the
            // launches before it, as its contract says; the rest is the caller's.
            unsafe { raw::cuLaunchKernelEx(&config, function, parameters.as_mut_ptr(), ptr::null_mut()) }
        } else {
            // SAFETY: the entry point of this name has one parameter, of type K; the rest is the
            // caller's.
            unsafe {
                raw::cuLaunchKernel(
                    function,
                    x,
                    y,
                    z,
                    launch.threads,
                    1,
                    1,
                    launch.shared_bytes,
                    stream,
                    parameters.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        };
        CudaError::check(code).map_err(|error| Error::Launch { kernel, error })?;
        if let Work::Live(stream) = &self.work
            && self.device.synchronises()
        {
            graph::aside(|| stream.synchronize())
                .map_err(|error| Error::Launch { kernel, error: error.into() })?;
        }
        Ok(())
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// [`Error::Driver`] if some of it has failed; [`Error::Captured`] inside a capture.
    pub fn synchronize(&self) -> Result<(), Error> {
        let doing = "waiting for the device";
        let stream = self.live(doing)?;
        self.device.enter()?;
        stream.synchronize().map_err(Error::doing(doing))
    }

    /// Marks where the stream's work has come to.
    ///
    /// # Errors
    /// [`Error::Driver`]; [`Error::Captured`] inside a capture.
    pub fn record(&self) -> Result<Event, Error> {
        let doing = "recording an event";
        let stream = self.live(doing)?;
        self.device.enter()?;
        let fail = Error::doing(doing);
        let event = cust::event::Event::new(EventFlags::DEFAULT).map_err(&fail)?;
        event.record(stream).map_err(&fail)?;
        Ok(Event { event, device: self.device })
    }

    /// Moves a mark to where the stream's work has come to.
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Driver`]; [`Error::Captured`] inside a capture.
    pub fn record_again(&self, event: &Event) -> Result<(), Error> {
        let doing = "recording an event";
        self.same_owner(doing, event.device.owner())?;
        let stream = self.live(doing)?;
        self.device.enter()?;
        event.event.record(stream).map_err(Error::doing(doing))
    }

    /// Lets later work of this stream wait for the work that `other` has by now.
    ///
    /// # Errors
    /// [`Error::Driver`]; [`Error::Captured`] if one of them is inside a capture.
    pub fn wait_for(&self, other: &Self) -> Result<(), Error> {
        let doing = "waiting for another stream";
        let stream = self.live(doing)?;
        let Event { event, .. } = other.record()?;
        self.device.enter()?;
        stream.wait_event(event, StreamWaitEventFlags::DEFAULT).map_err(Error::doing(doing))
    }
}

impl Queue for Stream {
    fn owner(&self) -> Owner {
        self.device.owner()
    }

    fn multiprocessors(&self) -> u32 {
        self.device.description().multiprocessors
    }

    fn compute_capability(&self) -> Option<u32> {
        Some(self.device.description().sm)
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
    /// [`Error::Driver`] if work before it has failed; [`Error::Captured`] inside a capture.
    pub fn milliseconds_since(&self, start: &Self) -> Result<f32, Error> {
        let doing = "measuring time";
        graph::outside(doing)?;
        self.device.enter()?;
        let fail = Error::doing(doing);
        self.event.synchronize().map_err(&fail)?;
        self.event.elapsed_time_f32(&start.event).map_err(&fail)
    }
}
