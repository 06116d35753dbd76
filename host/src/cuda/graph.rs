//! Work that is noted down once and done many times.
//!
//! A model's decode step is a few hundred launches, each of which costs the host some
//! microseconds. [`Device::capture`] has the driver note them down; [`Graph::launch`] gives them
//! to a stream in one call. What changes from one time to the next (positions, token ids) is read
//! from the device's memory, where a copy or a kernel has put it.

#![expect(unsafe_code, reason = "calls of the driver that cust does not wrap")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use super::device::Device;
use super::driver::raw;
use super::error::Error;
use super::stream::Stream;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

const CAPTURING: &str = "capturing a graph";

/// Work of a device that was noted down: kernels, fills, and copies inside the device.
///
/// It holds addresses, not borrows: between two runs the host may write and read the buffers. All
/// memory of the device that was there at the end of the capture stays allocated as long as the
/// graph lives, also after its [`Buffer`](super::Buffer) is gone. So to free memory, drop the graphs
/// that are younger than it, too.
#[derive(Debug)]
pub struct Graph {
    /// Null if there is nothing to do.
    executable: *mut c_void,
    nodes: usize,
    device: Device,
    number: u64,
}

// SAFETY: the driver lets any thread use the handle, only not two at a time: it is not Sync.
unsafe impl Send for Graph {}

impl Device {
    /// Notes down the work that `work` gives to the stream it is called with. None of it is done.
    ///
    /// [`Stream::launch`] and all [`ops`](super::ops), [`Stream::copy`] and [`Stream::fill`] can
    /// be noted down, by this or another thread; a kernel that is not loaded yet is loaded then.
    /// The thread cannot wait, measure, allocate, or copy between host and device meanwhile: all that
    /// is refused and leaves the capture as it is. Other threads and other streams are not disturbed.
    ///
    /// With `LANEMAP_CUDA_SYNC` launches inside are not waited for; [`Graph::launch`] waits for all of
    /// them. To learn which one fails, do the work without a graph ([`Device::synchronises`]).
    ///
    /// # Errors
    /// What `work` returns, such as the launch that was refused; [`Error::Captured`] inside another capture; [`Error::Driver`] if the driver does not
    /// make a graph of the work. After an error, or a panic in `work`, nothing is left behind.
    pub fn capture(self, work: impl FnOnce(&Stream) -> Result<(), Error>) -> Result<Graph, Error> {
        let recording = Recording::begin(self)?;
        work(&Stream::noting(Notes(recording.stream), self))?;
        recording.finish()
    }
}

impl Graph {
    /// Does the work once more, after what the stream has to do by now. It reads the numbers that
    /// are in the device's memory then.
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Captured`] inside a capture; [`Error::Driver`] if the driver
    /// refuses it or, with `LANEMAP_CUDA_SYNC`, if a kernel of it fails.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let doing = "running a graph";
        stream.same_owner(doing, self.device.owner())?;
        let live = stream.live(doing)?;
        if self.executable.is_null() {
            return Ok(());
        }
        self.device.enter()?;
        // SAFETY: both handles live; the memory of every address inside is retained, and no other
        // thread is in this call, because a graph is not Sync.
        Error::check(doing, unsafe { raw::cuGraphLaunch(self.executable, live.as_inner().cast()) })?;
        if self.device.synchronises() {
            live.synchronize()
                .map_err(|error| Error::Launch { kernel: "a kernel of a graph", error: error.into() })?;
        }
        Ok(())
    }

    /// Kernels, copies and fills inside.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// The graph's device.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.executable.is_null() {
            // As with a buffer: without the device there is nothing left to free.
            let _ = self.device.enter();
            // SAFETY: the handle is the graph's own; the driver lets a run in progress end.
            aside(|| unsafe { raw::cuGraphExecDestroy(self.executable) });
        }
        // Freeing waits for a run that is in progress.
        let unused = self.device.retained().forget(self.number);
        self.device.free(unused);
    }
}

/// The driver's handle of a stream that notes down.
#[derive(Debug)]
pub(super) struct Notes(*mut c_void);

// SAFETY: the driver lets any thread launch on a stream. Only the recording, which stays on its
// thread, ends the capture.
unsafe impl Send for Notes {}
// SAFETY: likewise.
unsafe impl Sync for Notes {}

impl Notes {
    pub(super) const fn as_inner(&self) -> *mut c_void {
        self.0
    }
}

thread_local! {
    /// Whether the thread is inside [`Device::capture`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Refuses what a thread cannot do inside a capture: the driver would break the capture.
pub(super) fn outside(doing: &'static str) -> Result<(), Error> {
    if INSIDE.get() { Err(Error::Captured { doing }) } else { Ok(()) }
}

/// Does what is no part of the work that a capture notes down, and what the driver forbids a
/// thread inside it: it loads a kernel no earlier than it is asked for, and frees memory and other
/// graphs.
pub(super) fn aside<R>(work: impl FnOnce() -> R) -> R {
    if !INSIDE.get() {
        return work();
    }
    let mut mode = RELAXED;
    // SAFETY: the documented signature; the thread's mode comes back in `mode`. Should it fail, the
    // work does, and says so.
    unsafe { raw::cuThreadExchangeStreamCaptureMode(&mut mode) };
    let done = work();
    // SAFETY: likewise; the mode is the one from before.
    unsafe { raw::cuThreadExchangeStreamCaptureMode(&mut mode) };
    done
}

/// A capture in progress, on a stream of its own that does not wait for the device's other
/// streams: otherwise any thread that copies meanwhile would break the capture and fail itself.
struct Recording {
    /// Null until it is created.
    stream: *mut c_void,
    /// Whether the stream captures.
    capturing: bool,
    finished: bool,
    device: Device,
}

impl Recording {
    fn begin(device: Device) -> Result<Self, Error> {
        outside(CAPTURING)?;
        device.enter()?;
        device.retained().begin();
        let mut this = Self { stream: ptr::null_mut(), capturing: false, finished: false, device };
        // SAFETY: the documented signature.
        let code = unsafe { raw::cuStreamCreateWithPriority(&mut this.stream, NON_BLOCKING, 0) };
        Error::check(CAPTURING, code)?;
        // SAFETY: the stream lives.
        Error::check(CAPTURING, unsafe { raw::cuStreamBeginCapture_v2(this.stream, THREAD_LOCAL) })?;
        this.capturing = true;
        INSIDE.set(true);
        Ok(this)
    }

    /// Ends the capture.
    fn end(&mut self) -> Result<Noted, Error> {
        self.capturing = false;
        INSIDE.set(false);
        self.device.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream lives and captures, begun by this thread.
        Error::check(CAPTURING, unsafe { raw::cuStreamEndCapture(self.stream, &mut graph) })?;
        Ok(Noted(graph))
    }

    fn finish(mut self) -> Result<Graph, Error> {
        let noted = self.end()?;
        let mut nodes = 0;
        // SAFETY: the graph lives; null in place of an array asks for the number alone.
        Error::check(CAPTURING, unsafe { raw::cuGraphGetNodes(noted.0, ptr::null_mut(), &mut nodes) })?;
        let mut executable = ptr::null_mut();
        if nodes > 0 {
            // SAFETY: the graph lives; no flags.
            let code = unsafe { raw::cuGraphInstantiateWithFlags(&mut executable, noted.0, 0) };
            Error::check(CAPTURING, code)?;
        }
        let number = self.device.retained().finish();
        self.finished = true;
        Ok(Graph { executable, nodes, device: self.device, number })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.capturing {
            // What ended the work early is what is reported.
            let _ = self.end();
        }
        if !self.stream.is_null() {
            // SAFETY: the stream is the recording's own, and nothing was ever done on it.
            unsafe { raw::cuStreamDestroy_v2(self.stream) };
        }
        if !self.finished {
            let unused = self.device.retained().abandon();
            self.device.free(unused);
        }
    }
}

/// What was noted down, which an executable graph is made from.
struct Noted(*mut c_void);

impl Drop for Noted {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the handle is its own; what was made from it does not need it.
            unsafe { raw::cuGraphDestroy(self.0) };
        }
    }
}
