//! Which devices there are, and opening one.

#![expect(unsafe_code, reason = "one attribute that cust has no name for")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::fs;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cust::CudaApiVersion;
use cust::context::{Context, CurrentContext};
use cust::device::DeviceAttribute;
use cust::memory::DeviceBuffer;
use rayon::prelude::*;
use tracing::debug;

use super::buffer::Owner;
use super::description::{Description, Version};
use super::driver::{self, raw};
use super::error::{CudaError, Error, Unavailable};
use super::graph;
use super::module::{self, Kernels};
use super::retained::Retained;

/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;

/// Every device that the driver shows; at least one.
///
/// # Errors
/// [`Error::Unavailable`]: there is no driver or no device, and why. [`Error::Driver`] if a
/// device cannot be asked.
pub fn devices() -> Result<Vec<Description>, Error> {
    (0..count()?).map(describe).collect()
}

/// How many devices there are, at least one.
fn count() -> Result<u32, Error> {
    let none = |error: CudaError| error.code == CudaError::NO_DEVICE;
    match driver::bind() {
        Err(Unavailable::Start(error)) if none(error.clone()) => Err(Unavailable::NoDevice.into()),
        Err(error) => Err(error.into()),
        Ok(()) => match cust::device::Device::num_devices() {
            Ok(0) => Err(Unavailable::NoDevice.into()),
            Ok(count) => Ok(count),
            Err(error) => Err(Unavailable::Start(error.into()).into()),
        },
    }
}

fn describe(index: u32) -> Result<Description, Error> {
    let fail = Error::doing("asking the driver about a device");
    let device = cust::device::Device::get_device(index).map_err(&fail)?;
    let attribute = |which| device.get_attribute(which).map(i32::unsigned_abs).map_err(&fail);
    let mut optin = 0;
    // SAFETY: the driver's documented signature, with the handle of a device.
    let code =
        unsafe { raw::cuDeviceGetAttribute(&mut optin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device.as_raw()) };
    Error::check("asking the driver about a device", code)?;
    let (major, minor) = (
        attribute(DeviceAttribute::ComputeCapabilityMajor)?,
        attribute(DeviceAttribute::ComputeCapabilityMinor)?,
    );
    let cuda = CudaApiVersion::get().map_err(&fail)?;
    Ok(Description {
        index,
        name: device.name().map_err(&fail)?,
        sm: 10 * major + minor,
        memory: device.total_memory().map_err(&fail)? as u64,
        multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
        shared_bytes: attribute(DeviceAttribute::MaxSharedMemoryPerBlock)?,
        shared_bytes_optin: optin.unsigned_abs(),
        cuda: Version { major: cuda.major().unsigned_abs(), minor: cuda.minor().unsigned_abs() },
        // The kernel module's, which is the driver's.
        driver: fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned()),
    })
}

/// An open device. Opened once, it stays open until the program ends, and this is its handle.
#[derive(Clone, Copy)]
pub struct Device(&'static Opened);

struct Opened {
    description: Description,
    context: Context,
    synchronise: bool,
    starts_early: bool,
    kernels: Mutex<Option<&'static Kernels>>,
    retained: Mutex<Retained<DeviceBuffer<u8>>>,
}

impl Device {
    /// Opens device `index`, or takes it up again.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::NoSuchDevice`], or [`Error::Driver`] when the driver
    /// does not give it.
    pub fn open(index: u32) -> Result<Self, Error> {
        static OPEN: OnceLock<Mutex<BTreeMap<u32, Device>>> = OnceLock::new();
        let count = count()?;
        if index >= count {
            return Err(Error::NoSuchDevice { index, count });
        }
        // What a panic left behind is a whole map.
        let mut open = OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&device) = open.get(&index) {
            return Ok(device);
        }
        let fail = Error::doing("opening the device");
        let raw = cust::device::Device::get_device(index).map_err(&fail)?;
        let description = describe(index)?;
        let opened = Opened {
            starts_early: starts_early(&description),
            description,
            context: Context::new(raw).map_err(&fail)?,
            synchronise: std::env::var_os("LANEMAP_CUDA_SYNC").is_some_and(|value| value != "0"),
            kernels: Mutex::new(None),
            retained: Mutex::default(),
        };
        // Kernels and buffers refer to the context until the end of the program.
        let device = Self(Box::leak(Box::new(opened)));
        open.insert(index, device);
        Ok(device)
    }

    /// What the driver says of it.
    #[must_use]
    pub fn description(&self) -> &'static Description {
        &self.0.description
    }

    /// Whether every launch is waited for, see the [module](super).
    #[must_use]
    pub fn synchronises(&self) -> bool {
        self.0.synchronise
    }

    /// Whether launches may begin before those before them are done, if their kernels can: see the
    /// [module](super).
    #[must_use]
    pub fn starts_early(&self) -> bool {
        self.0.starts_early
    }

    /// It, as the owner of memory.
    pub(super) fn owner(&self) -> Owner {
        Owner::Device(self.0.description.index)
    }

    /// Makes it the calling thread's device: the driver's calls have no other way to know.
    pub(super) fn enter(&self) -> Result<(), Error> {
        CurrentContext::set_current(&self.0.context).map_err(Error::doing("choosing the device"))
    }

    /// The kernels that there are for the device.
    pub(super) fn kernels(&self) -> Result<&'static Kernels, Error> {
        let mut kernels = self.0.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = *kernels {
            return Ok(kernels);
        }
        let variant = self.0.description.variant()?;
        let new = &*Box::leak(Box::new(Kernels::new(variant.text(), &self.0.description)?));
        *kernels = Some(new);
        Ok(new)
    }

    /// Compiles the kernels of these names for the device, unless that is done, many at a time on
    /// rayon's threads. Otherwise each is compiled at its first launch, which waits for it.
    ///
    /// # Errors
    /// That of the first kernel that there is not, or that the driver does not compile; the others
    /// are compiled all the same.
    pub fn prepare(&self, kernels: impl IntoIterator<Item = &'static str>) -> Result<(), Error> {
        let names: Vec<_> = kernels.into_iter().collect();
        let kernels = self.kernels()?;
        let load = |&kernel: &&'static str| {
            self.enter()?;
            graph::aside(|| kernels.load(kernel))
        };
        names.par_iter().map(load).collect::<Vec<_>>().into_iter().collect()
    }

    /// What graphs of the device keep from being freed.
    pub(super) fn retained(&self) -> MutexGuard<'static, Retained<DeviceBuffer<u8>>> {
        self.0.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the driver compile all of this PTX for the device, and forgets the result.
    ///
    /// # Errors
    /// Why it is refused: [`Error::WrongTarget`], [`Error::DriverTooOld`], or
    /// [`Error::Refused`] with the compiler's log.
    pub fn try_compile(&self, ptx: &str) -> Result<(), Error> {
        self.enter()?;
        module::try_compile(ptx, &self.0.description)
    }

    /// Bytes of memory that are free, and that there are.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        self.enter()?;
        let (free, total) = cust::memory::mem_get_info().map_err(Error::doing("asking for free memory"))?;
        Ok((free as u64, total as u64))
    }
}

/// Whether kernels on this device may begin early: unless the environment forbids it, where their PTX has the
/// instructions, and the driver notes down such launches in graphs.
fn starts_early(device: &Description) -> bool {
    const SINCE: Version = Version { major: 12, minor: 3 };
    if std::env::var_os("LANEMAP_CUDA_EARLY").is_some_and(|value| value == "0") {
        return false;
    }
    let has_words = device.variant().is_ok_and(|variant| variant.architecture().sm >= 90);
    if has_words && device.cuda < SINCE {
        let (index, cuda) = (device.index, device.cuda);
        debug!("cuda:{index}: launches wait for each other: the driver is for CUDA {cuda}, not {SINCE}");
    }
    has_words && device.cuda >= SINCE
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0.description)
    }
}
