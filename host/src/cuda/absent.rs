//! The answer of a platform without CUDA.

use gpu::simt::Launch;

use super::description::{Description, Resources};
use super::error::{Error, Unavailable};

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

    /// What a kernel takes on this device.
    ///
    /// # Errors
    /// None.
    pub fn resources(self, _kernel: &'static str, _launch: &Launch) -> Result<Resources, Error> {
        match self {}
    }
}
