//! What is known of a device, and of a kernel on it: plain data, the same on every platform.

use std::fmt;

use crate::ptx::{self, Variant};

/// A device as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its number among those that the driver shows.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability times ten: 90 for 9.0.
    pub sm: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that a block gets without asking.
    pub shared_bytes: u32,
    /// Bytes of shared memory, static and dynamic, that a block gets at most.
    pub shared_bytes_optin: u32,
    /// The CUDA version that the driver supports.
    pub cuda: Version,
    /// The driver's own version, where the system tells it.
    pub driver: Option<String>,
}

impl Description {
    /// The kernels that it runs.
    ///
    /// # Errors
    /// A [`PtxError`](ptx::PtxError): there are none for it, or none at all.
    pub fn variant(&self) -> Result<&'static Variant, ptx::PtxError> {
        ptx::variant_for(self.sm)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory as f64 / f64::from(1 << 30);
        write!(
            f,
            "cuda:{}  {}, compute capability {}.{}, {} multiprocessors, {gib:.1} GiB, driver ",
            self.index,
            self.name,
            self.sm / 10,
            self.sm % 10,
            self.multiprocessors,
        )?;
        match &self.driver {
            Some(driver) => write!(f, "{driver} (CUDA {})", self.cuda),
            None => write!(f, "for CUDA {}", self.cuda),
        }
    }
}

/// What a kernel takes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: arrays and spilled registers.
    pub local_bytes: u32,
    /// Bytes of shared memory that are fixed at compile time.
    pub static_shared_bytes: u32,
    /// Blocks that fit on a multiprocessor, for the launch that was asked about.
    pub blocks_per_multiprocessor: u32,
}

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The part before the dot.
    pub major: u32,
    /// The part after it.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
