//! The kernels' PTX on a device: compiled by the driver, each kernel for itself, and what each
//! takes there.

#![expect(unsafe_code, reason = "calls of the driver that cust does not wrap")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cust::function::{BlockSize, Function, FunctionAttribute};
use gpu::kernels;
use gpu::simt::Launch;
use gpu::simt::sections::Sections;

use super::description::{Description, Resources};
use super::driver::raw;
use super::error::{CudaError, Error};

/// Bytes of the compiler's log that are kept.
const LOG_BYTES: usize = 16 << 10;
/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const ERROR_LOG: [c_int; 2] = [5, 6];
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;

/// The kernels of a device. Each is a module of its own, compiled when it is first asked for and
/// kept until the program ends: all together are seconds of the driver's time, a model needs a few.
pub(super) struct Kernels {
    sections: Sections<'static>,
    /// One for each kernel of the PTX.
    loaded: HashMap<&'static str, Mutex<Option<Loaded>>>,
    device: &'static Description,
}

/// A kernel on its device.
struct Loaded {
    function: &'static Function<'static>,
    /// Bytes of static shared memory.
    fixed: u32,
    /// Bytes of dynamic shared memory that it may have by now.
    allowed: u32,
}

impl Kernels {
    /// The kernels of this PTX, for the device that `device` describes; none is compiled yet.
    pub(super) fn new(ptx: &'static str, device: &'static Description) -> Result<Self, Error> {
        check_target(ptx, device.sm)?;
        let sections = Sections::of(ptx);
        let loaded = sections.kernels().map(|kernel| (kernel, Mutex::default())).collect();
        Ok(Self { sections, loaded, device })
    }

    /// Compiles this kernel for the current device, unless that is done.
    pub(super) fn load(&self, kernel: &'static str) -> Result<(), Error> {
        self.with(kernel, |_| Ok(()))
    }

    /// The kernel of this name, allowed as much shared memory as `launch` asks for.
    pub(super) fn prepare(
        &self,
        kernel: &'static str,
        launch: &Launch,
    ) -> Result<&'static Function<'static>, Error> {
        self.with(kernel, |Loaded { function, fixed, allowed }| {
            let needed = u64::from(*fixed) + u64::from(launch.shared_bytes);
            let limit = u64::from(self.device.shared_bytes_optin);
            if needed > limit {
                let device = self.device.name.clone();
                return Err(Error::SharedMemory { kernel, device, needed, limit });
            }
            if launch.shared_bytes > *allowed {
                // Below the limit, so far below 2^31.
                let bytes = launch.shared_bytes.cast_signed();
                // SAFETY: the handle of a live function; the driver checks the value.
                let code = unsafe {
                    raw::cuFuncSetAttribute(function.to_raw().cast(), MAX_DYNAMIC_SHARED_SIZE, bytes)
                };
                CudaError::check(code).map_err(|error| Error::Launch { kernel, error })?;
                *allowed = launch.shared_bytes;
            }
            Ok(*function)
        })
    }

    /// What a kernel takes when it is launched like this.
    pub(super) fn resources(&self, kernel: &'static str, launch: &Launch) -> Result<Resources, Error> {
        let function = self.prepare(kernel, launch)?;
        let blocks = function
            .max_active_blocks_per_multiprocessor(BlockSize::x(launch.threads), launch.shared_bytes as usize)
            .map_err(|error| Error::Launch { kernel, error: error.into() })?;
        Ok(Resources {
            registers: attribute(kernel, function, FunctionAttribute::NumRegisters)?,
            local_bytes: attribute(kernel, function, FunctionAttribute::LocalSizeBytes)?,
            static_shared_bytes: attribute(kernel, function, FunctionAttribute::SharedMemorySizeBytes)?,
            blocks_per_multiprocessor: blocks,
        })
    }

    /// Does something with the kernel of this name, which is loaded first if it is not. Threads that
    /// ask for the same kernel wait for each other, those that ask for different ones do not.
    fn with<R>(
        &self,
        kernel: &'static str,
        work: impl FnOnce(&mut Loaded) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let slot = self.loaded.get(kernel).ok_or_else(|| not_there(kernel, self.device.sm))?;
        // What a panic left behind is whole: there or not.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(loaded) => work(loaded),
            none => work(none.insert(self.compile(kernel)?)),
        }
    }

    fn compile(&self, kernel: &'static str) -> Result<Loaded, Error> {
        let ptx = self.sections.module(kernel).ok_or_else(|| not_there(kernel, self.device.sm))?;
        // Whoever launches refers to it until the end of the program.
        let module = &*Box::leak(Box::new(compile(&ptx, Some(kernel), self.device)?));
        let function =
            module.get_function(kernel).map_err(|error| Error::Launch { kernel, error: error.into() })?;
        let fixed = attribute(kernel, &function, FunctionAttribute::SharedMemorySizeBytes)?;
        let allowed = self.device.shared_bytes.saturating_sub(fixed);
        Ok(Loaded { function: Box::leak(Box::new(function)), fixed, allowed })
    }
}

/// Has the driver compile all of this PTX for the current device, which `device` describes, and
/// forgets the result.
pub(super) fn try_compile(ptx: &str, device: &Description) -> Result<(), Error> {
    check_target(ptx, device.sm)?;
    compile(ptx, None, device).map(drop)
}

/// Compiles PTX for the current device: that of one kernel, or any.
fn compile(
    ptx: &str,
    kernel: Option<&'static str>,
    device: &Description,
) -> Result<cust::module::Module, Error> {
    let image = CString::new(ptx).map_err(|_| Error::NotText)?;
    cust::module::Module::from_ptx_cstr(&image, &[])
        .map_err(|error| refusal(&image, ptx, kernel, device, error))
}

/// Why the PTX for a device of architecture `sm` is without this kernel.
fn not_there(kernel: &'static str, sm: u32) -> Error {
    // What the driver says of a name that a module does not have.
    let not_found = || cust::error::CudaError::NotFound.into();
    missing(kernel, sm).unwrap_or_else(|| Error::Launch { kernel, error: not_found() })
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
fn refusal(
    image: &CStr,
    ptx: &str,
    kernel: Option<&'static str>,
    device: &Description,
    first: cust::error::CudaError,
) -> Error {
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
            let log = "a second try succeeded".to_owned();
            return Error::Refused { kernel, error: first.into(), log };
        }
    };
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
    // Some drivers have a code for it, others only a sentence.
    if error.code == CudaError::UNSUPPORTED_PTX_VERSION || log.contains("Unsupported .version") {
        let needed = directive(ptx, ".version").unwrap_or("of an unknown version").to_owned();
        return Error::DriverTooOld { needed, driver: device.cuda };
    }
    Error::Refused { kernel, error, log }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;
    use crate::cuda::Version;

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
    fn what_is_not_loaded_is_named() {
        let sm = 80;
        let Ok(variant) = crate::ptx::variant_for(sm) else { return };
        let device = Box::leak(Box::new(Description {
            index: 0,
            name: "none".to_owned(),
            sm,
            memory: 0,
            multiprocessors: 1,
            shared_bytes: 48 << 10,
            shared_bytes_optin: 99 << 10,
            cuda: Version { major: 13, minor: 0 },
            driver: None,
        }));
        let kernels = Kernels::new(variant.text(), device).map_err(|error| error.to_string()).unwrap();
        let why = |kernel| kernels.load(kernel).map_or_else(|error| error.to_string(), |()| String::new());
        assert!(why("probe_map_wgmma_n8").starts_with("probe_map_wgmma_n8: needs sm_90a, "));
        let unknown = why("no_such_kernel");
        assert!(unknown.starts_with("no_such_kernel: ") && unknown.contains("(500)"), "{unknown}");
        // It is there, and no device is current that it could be loaded to.
        assert!(why("vector_add").starts_with("the driver refuses vector_add: "), "{}", why("vector_add"));
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
