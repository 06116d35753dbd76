//! The kernels' PTX on a device: compiled by the driver, and what each kernel takes there.

#![expect(unsafe_code, reason = "calls of the driver that cust does not wrap")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cust::function::{BlockSize, Function, FunctionAttribute};
use gpu::kernels;
use gpu::simt::Launch;

use super::description::{Description, Resources};
use super::driver::raw;
use super::error::{CudaError, Error};

/// Bytes of the compiler's log that are kept.
const LOG_BYTES: usize = 16 << 10;
/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const ERROR_LOG: [c_int; 2] = [5, 6];
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;

/// Compiled PTX.
pub(super) struct Module {
    module: cust::module::Module,
    /// Of each kernel that was launched, its static shared memory, and the dynamic one that it
    /// may have by now, in bytes.
    shared: Mutex<HashMap<&'static str, (u32, u32)>>,
    shared_bytes: u32,
    shared_bytes_optin: u32,
    device: String,
    sm: u32,
}

impl Module {
    /// Compiles PTX for the current device, which `device` describes.
    pub(super) fn compile(ptx: &str, device: &Description) -> Result<Self, Error> {
        check_target(ptx, device.sm)?;
        let image = CString::new(ptx).map_err(|_| Error::NotText)?;
        let module = cust::module::Module::from_ptx_cstr(&image, &[])
            .map_err(|error| refusal(&image, ptx, device, error))?;
        Ok(Self {
            module,
            shared: Mutex::default(),
            shared_bytes: device.shared_bytes,
            shared_bytes_optin: device.shared_bytes_optin,
            device: device.name.clone(),
            sm: device.sm,
        })
    }

    /// The kernel of this name.
    pub(super) fn function(&self, kernel: &'static str) -> Result<Function<'_>, Error> {
        self.module.get_function(kernel).map_err(|error| {
            missing(kernel, self.sm).unwrap_or(Error::Launch { kernel, error: error.into() })
        })
    }

    /// The kernel of this name, allowed as much shared memory as `launch` asks for.
    pub(super) fn prepare(&self, kernel: &'static str, launch: &Launch) -> Result<Function<'_>, Error> {
        let function = self.function(kernel)?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let (fixed, allowed) = match shared.entry(kernel) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let fixed = attribute(kernel, &function, FunctionAttribute::SharedMemorySizeBytes)?;
                new.insert((fixed, self.shared_bytes.saturating_sub(fixed)))
            }
        };
        let needed = u64::from(*fixed) + u64::from(launch.shared_bytes);
        if needed > u64::from(self.shared_bytes_optin) {
            let (limit, device) = (u64::from(self.shared_bytes_optin), self.device.clone());
            return Err(Error::SharedMemory { kernel, device, needed, limit });
        }
        if launch.shared_bytes > *allowed {
            // Below the limit, so far below 2^31.
            let bytes = launch.shared_bytes.cast_signed();
            // SAFETY: the handle of a live function; the driver checks the value.
            let code =
                unsafe { raw::cuFuncSetAttribute(function.to_raw().cast(), MAX_DYNAMIC_SHARED_SIZE, bytes) };
            CudaError::check(code).map_err(|error| Error::Launch { kernel, error })?;
            *allowed = launch.shared_bytes;
        }
        Ok(function)
    }

    /// What a kernel takes when it is launched like this.
    pub(super) fn resources(&self, kernel: &'static str, launch: &Launch) -> Result<Resources, Error> {
        let function = self.prepare(kernel, launch)?;
        let blocks = function
            .max_active_blocks_per_multiprocessor(BlockSize::x(launch.threads), launch.shared_bytes as usize)
            .map_err(|error| Error::Launch { kernel, error: error.into() })?;
        Ok(Resources {
            registers: attribute(kernel, &function, FunctionAttribute::NumRegisters)?,
            local_bytes: attribute(kernel, &function, FunctionAttribute::LocalSizeBytes)?,
            static_shared_bytes: attribute(kernel, &function, FunctionAttribute::SharedMemorySizeBytes)?,
            blocks_per_multiprocessor: blocks,
        })
    }
}

/// Why the kernels of a device of architecture `sm` are without this one, if that is as it should be.
fn missing(kernel: &'static str, sm: u32) -> Option<Error> {
    let needs = kernels::ALL.iter().find(|entry| entry.name == kernel)?.needs;
    (!needs.runs_on(sm)).then_some(Error::NotForDevice { kernel, needs, sm })
}

fn attribute(kernel: &'static str, function: &Function<'_>, which: FunctionAttribute) -> Result<u32, Error> {
    let value = function.get_attribute(which);
    value.map(i32::unsigned_abs).map_err(|error| Error::Launch { kernel, error: error.into() })
}

/// The word after a directive such as `.version` or `.target`.
fn directive<'a>(ptx: &'a str, name: &str) -> Option<&'a str> {
    let line = ptx.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
    line.split([',', ' ', '\t', '/']).find(|word| !word.is_empty())
}

/// Refuses PTX for a later architecture, or for another one alone: the driver's own words for it
/// differ from version to version.
fn check_target(ptx: &str, sm: u32) -> Result<(), Error> {
    let Some(target) = directive(ptx, ".target") else { return Ok(()) };
    let name = target.trim_start_matches("sm_");
    let (number, exact) = match name.strip_suffix('a') {
        Some(number) => (number, true),
        None => (name, false),
    };
    match number.parse::<u32>() {
        Ok(needed) if sm < needed || exact && sm != needed => {
            Err(Error::WrongTarget { target: target.to_owned(), sm })
        }
        _ => Ok(()),
    }
}

/// Why the driver refused PTX: asked again, for its log.
fn refusal(image: &CStr, ptx: &str, device: &Description, first: cust::error::CudaError) -> Error {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut keys = ERROR_LOG;
    // The driver takes a size in place of a pointer.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = ptr::null_mut();
    // SAFETY: the documented signature; two options with their two values, the log as long as is
    // said; the image ends in NUL.
    let code = unsafe {
        raw::cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 2, keys.as_mut_ptr(), values.as_mut_ptr())
    };
    let error = match CudaError::check(code) {
        Err(error) => error,
        Ok(()) => {
            // SAFETY: it was just loaded, and nobody else knows it.
            unsafe { raw::cuModuleUnload(module) };
            return Error::Refused { error: first.into(), log: "a second try succeeded".to_owned() };
        }
    };
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
    // Some drivers have a code for it, others only a sentence.
    if error.code == CudaError::UNSUPPORTED_PTX_VERSION || log.contains("Unsupported .version") {
        let needed = directive(ptx, ".version").unwrap_or("of an unknown version").to_owned();
        return Error::DriverTooOld { needed, driver: device.cuda };
    }
    Error::Refused { error, log }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//\n// made by hand\n//\n\n.version 9.9\n.target sm_90a, debug\n.address_size 64\n";

    #[test]
    fn directives_are_read() {
        assert_eq!(directive(PTX, ".version"), Some("9.9"));
        assert_eq!(directive(PTX, ".target"), Some("sm_90a"));
        assert_eq!(directive(PTX, ".nothing"), None);
    }

    #[test]
    fn ptx_for_another_device_is_refused_with_both_names() {
        assert!(check_target(PTX, 90).is_ok());
        for sm in [80, 89, 100, 120] {
            let message = check_target(PTX, sm).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(message.contains("sm_90a") && message.contains(&format!("{}.{}", sm / 10, sm % 10)));
        }
        assert!(check_target(".target sm_80", 75).is_err());
        assert!(check_target(".target sm_80", 80).is_ok() && check_target(".target sm_80", 121).is_ok());
    }
    #[test]
    fn a_kernel_that_the_device_cannot_have_is_named_with_what_it_needs() {
        for entry in kernels::ALL {
            assert!(missing(entry.name, entry.needs.sm).is_none(), "{}", entry.name);
            for sm in [70, 75, 80, 100] {
                let message = missing(entry.name, sm).map(|error| error.to_string());
                let expected = (!entry.needs.runs_on(sm)).then(|| {
                    let later = if entry.needs.exact { "" } else { " or later" };
                    let capability = format!("compute capability {}.{}", sm / 10, sm % 10);
                    format!("{}: needs {}{later}, the device has {capability}", entry.name, entry.needs)
                });
                assert_eq!(message, expected);
            }
        }
        assert!(missing("absent", 75).is_none());
    }
}
