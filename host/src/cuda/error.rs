//! What can go wrong with a GPU, as values and as one line each.

use gpu::simt::Architecture;
use gpu::simt::emulator::EmulatorError;
use thiserror::Error;

use super::buffer::Owner;
use super::description::Version;
use crate::ptx::PtxError;

/// An error code of the driver with what the driver says of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} ({code}): {message}")]
pub struct CudaError {
    /// The code.
    pub code: i32,
    /// Its name, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// What it means.
    pub message: String,
}

impl CudaError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_NO_DEVICE`.
    pub const NO_DEVICE: i32 = 100;
    /// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
    pub const UNSUPPORTED_PTX_VERSION: i32 = 222;
}

/// Why no GPU can be used at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// Not on this platform.
    #[error("this build has no CUDA: it is for Linux on x86-64 or aarch64")]
    Platform,
    /// The driver's library is not there or cannot be loaded.
    #[error("no NVIDIA driver: {0}")]
    NoDriver(String),
    /// The driver does not start.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(#[source] CudaError),
    /// The driver shows no device.
    #[error("the NVIDIA driver shows no device (is CUDA_VISIBLE_DEVICES set?)")]
    NoDevice,
}

/// Why something on a GPU failed.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no GPU.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// There are GPUs, but not this one.
    #[error("there is no cuda:{index}: the driver shows {count} (cuda:0 to cuda:{})", count - 1)]
    NoSuchDevice {
        /// The one that was asked for.
        index: u32,
        /// How many there are, at least 1.
        count: u32,
    },
    /// There are no kernels for the device.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// The PTX is newer than the driver.
    #[error(
        "the kernels are PTX {needed}, which this driver does not read (it is made for CUDA {driver}): \
         update the NVIDIA driver"
    )]
    DriverTooOld {
        /// The version in the PTX.
        needed: String,
        /// The CUDA version that the driver supports.
        driver: Version,
    },
    /// The PTX is for another architecture.
    #[error(
        "the kernels are compiled for {target}, the device has compute capability {}.{}",
        sm / 10,
        sm % 10
    )]
    WrongTarget {
        /// The architecture in the PTX.
        target: String,
        /// The device's.
        sm: u32,
    },
    /// A kernel needs what the device's architecture does not have.
    #[error(
        "{kernel}: needs {needs}{}, the device has compute capability {}.{}",
        if needs.exact { "" } else { " or later" },
        sm / 10,
        sm % 10
    )]
    NotForDevice {
        /// The kernel.
        kernel: &'static str,
        /// The architecture that it needs.
        needs: Architecture,
        /// The device's.
        sm: u32,
    },
    /// The driver does not compile the PTX.
    #[error("the driver refuses {}: {error}\n{log}", kernel.unwrap_or("the kernels"))]
    Refused {
        /// The kernel that was compiled alone, if it was one.
        kernel: Option<&'static str>,
        /// The driver's code.
        error: CudaError,
        /// The compiler's own words, with line numbers of the text that it was given.
        log: String,
    },
    /// The PTX holds a NUL byte.
    #[error("the kernels are no PTX: there is a NUL byte in the text")]
    NotText,
    /// A kernel wants more shared memory than a block can have.
    #[error("{kernel}: a block needs {needed} bytes of shared memory, {device} has {limit}")]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Static and dynamic, in bytes.
        needed: u64,
        /// The most that the device gives a block that asks for it, in bytes.
        limit: u64,
    },
    /// A kernel's contract does not admit the arguments.
    #[error("{kernel}: {what}")]
    Contract {
        /// The kernel.
        kernel: &'static str,
        /// Which rule is broken, with the numbers.
        what: String,
    },
    /// There is not enough memory.
    #[error("cannot allocate {asked} bytes on {device}: {free} of {total} bytes are free")]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
    /// A launch was refused, or the kernel failed while the debug switch waited for it.
    #[error("{kernel}: {error}")]
    Launch {
        /// The kernel.
        kernel: &'static str,
        /// The driver's code.
        error: CudaError,
    },
    /// What was given to a stream belongs to another device.
    #[error("{doing}: the stream is on {own}, what it was given on {other}")]
    OtherDevice {
        /// What was to be done.
        doing: &'static str,
        /// The stream's device.
        own: Owner,
        /// The other one.
        other: Owner,
    },
    /// What waits, measures or touches the host cannot be a part of a graph.
    #[error(
        "{doing} inside a capture: a graph holds kernels, fills and copies inside the device; do it before \
         or after"
    )]
    Captured {
        /// What was to be done.
        doing: &'static str,
    },
    /// The emulator found a fault in a kernel.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// Something that was begun earlier failed, or the call itself.
    #[error("{doing}: {error}{}", hint(error))]
    Driver {
        /// What was done.
        doing: &'static str,
        /// The driver's code.
        error: CudaError,
    },
}

/// Codes from 700 to 799 are those of kernels that ran.
fn hint(error: &CudaError) -> &'static str {
    if (700..800).contains(&error.code) {
        "; set LANEMAP_CUDA_SYNC=1 to learn which kernel failed"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_one_line_with_what_to_do() {
        let text = Error::Captured { doing: "copying to the device" }.to_string();
        assert_eq!(
            text,
            "copying to the device inside a capture: a graph holds kernels, fills and copies inside the \
             device; do it before or after"
        );
        let text =
            Error::OtherDevice { doing: "running a graph", own: Owner::Device(0), other: Owner::Device(3) }
                .to_string();
        assert_eq!(text, "running a graph: the stream is on cuda:0, what it was given on cuda:3");
        let driver = |code| {
            let error = CudaError { code, name: "NAME".to_owned(), message: "what".to_owned() };
            Error::Driver { doing: "waiting for the device", error }.to_string()
        };
        assert_eq!(driver(2), "waiting for the device: NAME (2): what");
        assert!(driver(700).ends_with("; set LANEMAP_CUDA_SYNC=1 to learn which kernel failed"));
    }
}
