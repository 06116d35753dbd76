//! The answer of a platform without CUDA.

#![expect(unsafe_code, reason = "a launch is unsafe on a device, and the trait is one")]

use std::convert::Infallible;
use std::ops::Range;

use bytemuck::Pod;
use gpu::simt::emulator::Lane;
use gpu::simt::{Kernel, Launch};

use super::buffer::{Buffer, Owner, View, ViewMut};
use super::description::{Description, Resources};
use super::error::{Error, Unavailable};
use super::queue::{Make, ModelQueue, Part, Queue};

/// A device, of which there are none.
#[derive(Clone, Copy, Debug)]
pub enum Device {}

/// No device.
///
/// # Errors
/// [`Unavailable::Platform`], always.
pub fn devices() -> Result<Vec<Description>, Error> {
    Err(Unavailable::Platform.into())
}

impl Device {
    /// No device.
    ///
    /// # Errors
    /// [`Unavailable::Platform`], always.
    pub fn open(_index: u32) -> Result<Self, Error> {
        Err(Unavailable::Platform.into())
    }

    /// What the driver says of it.
    #[must_use]
    pub fn description(&self) -> &'static Description {
        match *self {}
    }

    /// No kernels.
    ///
    /// # Errors
    /// None.
    pub fn prepare(&self, _kernels: impl IntoIterator<Item = &'static str>) -> Result<(), Error> {
        match *self {}
    }

    /// What a kernel takes on this device.
    ///
    /// # Errors
    /// None.
    pub fn resources(self, _kernel: &'static str, _launch: &Launch) -> Result<Resources, Error> {
        match self {}
    }

    /// No memory.
    ///
    /// # Errors
    /// None.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        match *self {}
    }

    /// No stream.
    ///
    /// # Errors
    /// None.
    pub fn stream(self) -> Result<Stream, Error> {
        match self {}
    }
}

/// A stream, of which there are none.
#[derive(Debug)]
pub enum Stream {}

/// A mark in a stream, of which there are none.
#[derive(Debug)]
pub enum Event {}

impl Stream {
    /// The stream's device.
    #[must_use]
    pub const fn device(&self) -> Device {
        match *self {}
    }

    /// No mark.
    ///
    /// # Errors
    /// None.
    pub fn record(&self) -> Result<Event, Error> {
        match *self {}
    }

    /// No mark.
    ///
    /// # Errors
    /// None.
    pub fn record_again(&self, _event: &Event) -> Result<(), Error> {
        match *self {}
    }

    /// Nothing is filled.
    ///
    /// # Errors
    /// None.
    pub fn fill<T: Pod>(&self, _to: ViewMut<'_, T>, _value: T) -> Result<(), Error> {
        match *self {}
    }

    /// Nothing is copied.
    ///
    /// # Errors
    /// None.
    pub fn copy<T: Pod>(&self, _to: ViewMut<'_, T>, _from: View<'_, T>) -> Result<(), Error> {
        match *self {}
    }
}

impl Event {
    /// No time.
    ///
    /// # Errors
    /// None.
    pub fn milliseconds_since(&self, _start: &Self) -> Result<f32, Error> {
        match *self {}
    }
}

impl Queue for Stream {
    fn owner(&self) -> Owner {
        match *self {}
    }

    fn multiprocessors(&self) -> u32 {
        match *self {}
    }

    fn compute_capability(&self) -> Option<u32> {
        match *self {}
    }

    fn input<T: Pod>(&self, _name: &str, _elements: &[T]) -> Result<Buffer<T>, Error> {
        match *self {}
    }

    fn output<T: Pod>(&self, _name: &str, _len: usize) -> Result<Buffer<T>, Error> {
        match *self {}
    }

    fn in_out<T: Pod>(&self, _name: &str, _elements: &[T]) -> Result<Buffer<T>, Error> {
        match *self {}
    }

    unsafe fn launch<K>(&self, _kernel: K) -> Result<(), Error>
    where
        K: for<'a> Kernel<Lane<'a>>,
    {
        match *self {}
    }

    fn synchronize(&self) -> Result<(), Error> {
        match *self {}
    }
}

impl ModelQueue for Stream {
    type Host<T: Pod + Send> = Vec<T>;
    type Graph = Infallible;

    fn name(&self) -> String {
        match *self {}
    }

    fn description(&self) -> String {
        match *self {}
    }

    fn free_memory(&self) -> Result<Option<u64>, Error> {
        match *self {}
    }

    fn prepare(&self, _kernels: &[&'static str]) -> Result<(), Error> {
        match *self {}
    }

    fn host<T: Pod + Send>(&self, _len: usize) -> Result<Vec<T>, Error> {
        match *self {}
    }

    fn write<T: Pod>(&self, _to: ViewMut<'_, T>, _elements: &[T]) -> Result<(), Error> {
        match *self {}
    }

    fn read<T: Pod + Send>(&self, _into: &mut Vec<T>, _from: View<'_, T>) -> Result<(), Error> {
        match *self {}
    }

    fn upload(
        &self,
        _parts: &[Part],
        _make: &Make<'_>,
        _progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Buffer<u8>>, Error> {
        match *self {}
    }

    fn capture(&self, _work: impl FnOnce(&Self) -> Result<(), Error>) -> Result<Option<Infallible>, Error> {
        match *self {}
    }

    fn replay(&self, _graph: &Infallible) -> Result<(), Error> {
        match *self {}
    }
}
