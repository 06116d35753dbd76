//! Copies and fills in a stream.

#![expect(unsafe_code, reason = "the driver copies after the call has returned")]

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use bytemuck::Pod;
use cust::event::{Event, EventFlags};

use super::buffer::{View, ViewMut};
use super::device::Device;
use super::driver::raw;
use super::error::Error;
use super::graph;
use super::pinned::Pinned;
use super::stream::Stream;

const WAITING: &str = "waiting for a copy";

/// A copy between host and device that a stream has begun or will begin.
///
/// It owns the host's side until the copy is done, so that nobody touches that meanwhile.
/// Dropping it waits.
#[derive(Debug)]
#[must_use = "dropped, it waits for the copy"]
pub struct Transfer<T> {
    /// Given back or freed after the event, or never.
    pinned: ManuallyDrop<Pinned<T>>,
    taken: bool,
    done: Event,
    device: Device,
}

impl Stream {
    /// Copies the first elements of `from` to the device, as many as `to` has, after what the
    /// stream has to do by now. `from` comes back from [`Transfer::wait`].
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Captured`] inside a capture; [`Error::Driver`].
    ///
    /// # Panics
    /// If `from` has fewer elements than `to`.
    pub fn upload<T: Pod>(&self, to: ViewMut<'_, T>, from: Pinned<T>) -> Result<Transfer<T>, Error> {
        let doing = "copying to the device";
        self.same_owner(doing, to.owner())?;
        self.transfer(doing, to.len(), from, |from, stream| {
            let bytes: &[u8] = bytemuck::cast_slice(from);
            // SAFETY: both sides are so long; the device's is borrowed alone and freed no earlier
            // than the copy is done, the host's is the transfer's.
            unsafe {
                raw::cuMemcpyHtoDAsync_v2(to.start().address(), bytes.as_ptr().cast(), bytes.len(), stream)
            }
        })
    }

    /// Copies `from` to the first elements of `to`, after what the stream has to do by now. `to`
    /// comes back from [`Transfer::wait`].
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Captured`] inside a capture; [`Error::Driver`].
    ///
    /// # Panics
    /// If `to` has fewer elements than `from`.
    pub fn download<T: Pod>(&self, to: Pinned<T>, from: View<'_, T>) -> Result<Transfer<T>, Error> {
        let doing = "copying from the device";
        self.same_owner(doing, from.owner())?;
        self.transfer(doing, from.len(), to, |to, stream| {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
            // SAFETY: both sides are so long; the device's is freed no earlier than the copy is
            // done, the host's is the transfer's. Any bytes are elements.
            unsafe {
                raw::cuMemcpyDtoHAsync_v2(
                    bytes.as_mut_ptr().cast(),
                    from.start().address(),
                    bytes.len(),
                    stream,
                )
            }
        })
    }

    /// Has `copy` begin a copy of the first `len` elements of `pinned`.
    fn transfer<T: Pod>(
        &self,
        doing: &'static str,
        len: usize,
        pinned: Pinned<T>,
        copy: impl FnOnce(&mut [T], *mut c_void) -> c_int,
    ) -> Result<Transfer<T>, Error> {
        assert!(len <= pinned.len(), "{} elements of the host for {len} of the device", pinned.len());
        self.same_owner(doing, pinned.device().owner())?;
        let stream = self.live(doing)?;
        self.device().enter()?;
        let fail = Error::doing(doing);
        let done = Event::new(EventFlags::DISABLE_TIMING).map_err(&fail)?;
        // From here on the host's side is not freed unless the copy is known to be done.
        let mut pinned = ManuallyDrop::new(pinned);
        if len > 0 {
            Error::check(doing, copy(&mut pinned[..len], stream.as_inner().cast()))?;
        }
        done.record(stream).map_err(&fail)?;
        Ok(Transfer { pinned, taken: false, done, device: self.device() })
    }

    /// Copies inside the device. In a capture it is noted down.
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Driver`].
    ///
    /// # Panics
    /// If the two are not of one length.
    pub fn copy<T: Pod>(&self, to: ViewMut<'_, T>, from: View<'_, T>) -> Result<(), Error> {
        assert_eq!(to.len(), from.len(), "as many elements here as there");
        let doing = "copying inside the device";
        self.same_owner(doing, to.owner())?;
        self.same_owner(doing, from.owner())?;
        if to.is_empty() {
            return Ok(());
        }
        self.device().enter()?;
        let (to, from, bytes) = (to.start().address(), from.start().address(), from.len() * size_of::<T>());
        // SAFETY: both are so long; one is borrowed alone, so they do not overlap; memory is freed
        // no earlier than what was begun before is done.
        Error::check(doing, unsafe { raw::cuMemcpyDtoDAsync_v2(to, from, bytes, self.as_inner()) })
    }

    /// Writes `value`, of 1, 2 or 4 bytes, to every element. In a capture it is noted down.
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::Driver`].
    pub fn fill<T: Pod>(&self, to: ViewMut<'_, T>, value: T) -> Result<(), Error> {
        const { assert!(matches!(size_of::<T>(), 1 | 2 | 4), "what the driver fills with") };
        let doing = "filling memory";
        self.same_owner(doing, to.owner())?;
        if to.is_empty() {
            return Ok(());
        }
        self.device().enter()?;
        let (start, len, stream) = (to.start().address(), to.len(), self.as_inner());
        let mut word = [0; 4];
        word[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        let [a, b, ..] = word;
        // SAFETY: the memory is so long, aligned to its elements and borrowed alone; it is freed no
        // earlier than what was begun before is done.
        let code = unsafe {
            match size_of::<T>() {
                1 => raw::cuMemsetD8Async(start, a, len, stream),
                2 => raw::cuMemsetD16Async(start, u16::from_ne_bytes([a, b]), len, stream),
                _ => raw::cuMemsetD32Async(start, u32::from_ne_bytes(word), len, stream),
            }
        };
        Error::check(doing, code)
    }
}

impl<T> Transfer<T> {
    /// Waits for the copy, and gives the host's side back.
    ///
    /// # Errors
    /// [`Error::Driver`]: the copy, or something before it, has failed, and the host's side is lost.
    /// [`Error::Captured`] inside a capture.
    pub fn wait(mut self) -> Result<Pinned<T>, Error> {
        graph::outside(WAITING)?;
        self.finish()?;
        self.taken = true;
        // SAFETY: the copy is done; what was taken is not dropped again.
        Ok(unsafe { ManuallyDrop::take(&mut self.pinned) })
    }

    fn finish(&self) -> Result<(), Error> {
        self.device.enter()?;
        self.done.synchronize().map_err(Error::doing(WAITING))
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        // Memory that the device may still use is better lost than used again.
        if !self.taken && graph::aside(|| self.finish()).is_ok() {
            // SAFETY: the copy is done, and nobody has taken it.
            unsafe { ManuallyDrop::drop(&mut self.pinned) };
        }
    }
}
