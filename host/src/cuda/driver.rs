//! The driver's entry points, bound when the program runs.
//!
//! `cust` is linked against the symbols of `libcuda`, which belongs to the driver and is not
//! there on most machines that build or even run lanemap. Each symbol is therefore defined here,
//! as one jump through a slot of a table. The slots first lead to a function that says "not
//! found"; [`bind`] loads `libcuda.so.1` and fills in what it has. So one program runs with an
//! old driver, a new one, or none.

#![expect(unsafe_code, reason = "the driver is a foreign library, found at run time")]

use std::arch::naked_asm;
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

use super::error::{CudaError, Error, Unavailable};

/// The names to try, the one of the driver's package first.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// What a symbol returns that the driver lacks: `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_int = 500;

extern "C" fn missing() -> c_int {
    NOT_FOUND
}

/// Without a driver there are no messages; `cust` reads one all the same.
///
/// # Safety
/// `text` may be written.
unsafe extern "C" fn missing_text(_code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { text.write(c"no message: the CUDA driver is not loaded".as_ptr()) };
    0
}

/// One slot a symbol, in the order of [`NAMES`].
type Table = [AtomicPtr<c_void>; NAMES.len()];

macro_rules! symbols {
    ($($name:ident)*) => {
        /// The driver's functions that `cust` and this crate refer to.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The index of a symbol's slot.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "the driver's own names")]
        #[derive(Clone, Copy)]
        enum Slot {
            $($name),*
        }

        static TABLE: Table = [$(AtomicPtr::new(default_of(Slot::$name))),*];

        #[allow(non_snake_case, reason = "the driver's own names")]
        mod trampolines {
            use super::*;

            $(
                /// Jumps to the driver's function of this name: arguments and result are its own.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    #[cfg(target_arch = "x86_64")]
                    naked_asm!(
                        "jmp qword ptr [rip + {table} + {offset}]",
                        table = sym TABLE,
                        offset = const Slot::$name as usize * size_of::<AtomicPtr<c_void>>(),
                    );
                    // x16 is the register that a linker's own jumps use between functions.
                    #[cfg(target_arch = "aarch64")]
                    naked_asm!(
                        "adrp x16, {table} + {offset}",
                        "ldr x16, [x16, :lo12:{table} + {offset}]",
                        "br x16",
                        table = sym TABLE,
                        offset = const Slot::$name as usize * size_of::<AtomicPtr<c_void>>(),
                    );
                }
            )*
        }
    };
}

const fn default_of(slot: Slot) -> *mut c_void {
    match slot {
        Slot::cuGetErrorString | Slot::cuGetErrorName => missing_text as *mut c_void,
        _ => missing as *mut c_void,
    }
}

symbols! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayDestroy cuCtxCreate_v2 cuCtxDestroy_v2
    cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags cuCtxGetLimit
    cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2 cuCtxPushCurrent_v2
    cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetLimit cuCtxSetSharedMemConfig cuCtxSynchronize
    cuDestroyExternalMemory cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetName
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxSetFlags_v2 cuDeviceTotalMem_v2 cuDriverGetVersion cuEventCreate cuEventDestroy_v2
    cuEventElapsedTime cuEventQuery cuEventRecord cuEventSynchronize cuExternalMemoryGetMappedBuffer
    cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuGetErrorName
    cuGetErrorString cuGraphAddKernelNode cuGraphCreate cuGraphDebugDotPrint cuGraphDestroy
    cuGraphExecDestroy cuGraphGetEdges cuGraphGetNodes cuGraphInstantiateWithFlags
    cuGraphKernelNodeGetParams cuGraphLaunch cuGraphNodeGetType cuImportExternalMemory cuInit cuLaunchHostFunc
    cuLaunchKernel cuLaunchKernelEx cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy
    cuMemAdvise cuMemAllocAsync cuMemAllocHost_v2 cuMemAllocManaged cuMemAllocPitch_v2 cuMemAlloc_v2
    cuMemFreeAsync cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 cuMemPrefetchAsync cuMemcpy2D_v2
    cuMemcpyAtoH_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2
    cuMemcpyHtoA_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2 cuMemsetD16Async cuMemsetD16_v2
    cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8Async cuMemsetD8_v2 cuModuleGetFunction
    cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleUnload
    cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxPotentialBlockSize cuStreamBeginCapture_v2 cuStreamCreateWithPriority cuStreamDestroy_v2
    cuStreamEndCapture cuStreamGetFlags cuStreamGetPriority cuStreamSynchronize cuStreamWaitEvent
    cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuTexObjectCreate cuTexObjectDestroy
    cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuThreadExchangeStreamCaptureMode
}

/// What `cust` has no safe word for, or a poorer one. Codes are plain numbers here: a driver that
/// is newer than `cust` has more of them than its enum.
pub(super) mod raw {
    use super::{c_char, c_int, c_void};

    /// `CUlaunchConfig`.
    #[repr(C)]
    pub(in crate::cuda) struct LaunchConfig {
        pub(in crate::cuda) grid: [u32; 3],
        pub(in crate::cuda) block: [u32; 3],
        pub(in crate::cuda) shared_bytes: u32,
        pub(in crate::cuda) stream: *mut c_void,
        pub(in crate::cuda) attributes: *const LaunchAttribute,
        pub(in crate::cuda) attribute_count: u32,
    }

    /// `CUlaunchAttribute`, of which the value is a union of 64 bytes.
    #[repr(C, align(8))]
    pub(in crate::cuda) struct LaunchAttribute {
        id: c_int,
        padding: c_int,
        value: [c_int; 16],
    }

    impl LaunchAttribute {
        /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, allowed: the launch may begin as soon as
        /// the one before it lets it.
        pub(in crate::cuda) const EARLY: Self = {
            let mut value = [0; 16];
            value[0] = 1;
            Self { id: 6, padding: 0, value }
        };
    }

    const _: () = assert!(size_of::<LaunchConfig>() == 56 && size_of::<LaunchAttribute>() == 72);

    unsafe extern "C" {
        pub(in crate::cuda) fn cuInit(flags: u32) -> c_int;
        pub(in crate::cuda) fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int;
        pub(in crate::cuda) fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int;
        pub(in crate::cuda) fn cuFuncSetAttribute(
            function: *mut c_void,
            attribute: c_int,
            value: c_int,
        ) -> c_int;
        pub(in crate::cuda) fn cuDeviceGetAttribute(
            value: *mut c_int,
            attribute: c_int,
            device: c_int,
        ) -> c_int;
        pub(in crate::cuda) fn cuModuleLoadDataEx(
            module: *mut *mut c_void,
            image: *const c_void,
            options: u32,
            keys: *mut c_int,
            values: *mut *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuModuleUnload(module: *mut c_void) -> c_int;
        pub(in crate::cuda) fn cuStreamCreateWithPriority(
            stream: *mut *mut c_void,
            flags: u32,
            priority: c_int,
        ) -> c_int;
        pub(in crate::cuda) fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int;
        pub(in crate::cuda) fn cuLaunchKernel(
            function: *mut c_void,
            grid_x: u32,
            grid_y: u32,
            grid_z: u32,
            block_x: u32,
            block_y: u32,
            block_z: u32,
            shared_bytes: u32,
            stream: *mut c_void,
            parameters: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuLaunchKernelEx(
            config: *const LaunchConfig,
            function: *mut c_void,
            parameters: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemcpyHtoDAsync_v2(
            to: u64,
            from: *const c_void,
            bytes: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemcpyDtoHAsync_v2(
            to: *mut c_void,
            from: u64,
            bytes: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemcpyDtoDAsync_v2(
            to: u64,
            from: u64,
            bytes: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemsetD8Async(
            to: u64,
            value: u8,
            count: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemsetD16Async(
            to: u64,
            value: u16,
            count: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuMemsetD32Async(
            to: u64,
            value: u32,
            count: usize,
            stream: *mut c_void,
        ) -> c_int;
        pub(in crate::cuda) fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_int) -> c_int;
        pub(in crate::cuda) fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int;
        pub(in crate::cuda) fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int;
        pub(in crate::cuda) fn cuGraphGetNodes(
            graph: *mut c_void,
            nodes: *mut *mut c_void,
            count: *mut usize,
        ) -> c_int;
        pub(in crate::cuda) fn cuGraphInstantiateWithFlags(
            executable: *mut *mut c_void,
            graph: *mut c_void,
            flags: u64,
        ) -> c_int;
        pub(in crate::cuda) fn cuGraphDestroy(graph: *mut c_void) -> c_int;
        pub(in crate::cuda) fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) -> c_int;
        pub(in crate::cuda) fn cuGraphExecDestroy(executable: *mut c_void) -> c_int;
    }
}

/// Loads the driver and starts it, once.
///
/// # Errors
/// [`Unavailable`]: why there is none, or why it does not start.
pub(super) fn bind() -> Result<(), Unavailable> {
    static BOUND: OnceLock<Result<(), Unavailable>> = OnceLock::new();
    BOUND.get_or_init(load).clone()
}

fn load() -> Result<(), Unavailable> {
    let mut why = String::new();
    for name in LIBRARIES {
        // SAFETY: what runs on loading is the driver's, which is trusted with the machine.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                fill(&library);
                // The table points into it until the program ends.
                std::mem::forget(library);
                // SAFETY: the driver's documented signature; no flags exist.
                let code = unsafe { raw::cuInit(0) };
                return CudaError::check(code).map_err(Unavailable::Start);
            }
            // The loader's own words, which name the file, are the error's source.
            Err(error) if why.is_empty() => {
                why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            }
            Err(_) => {}
        }
    }
    Err(Unavailable::NoDriver(why))
}

fn fill(library: &Library) {
    for (name, slot) in NAMES.iter().zip(&TABLE) {
        // SAFETY: only the address is taken; who calls it goes by the driver's documentation.
        if let Ok(symbol) = unsafe { library.get::<*mut c_void>(name.as_bytes()) } {
            slot.store(*symbol, Ordering::Release);
        }
    }
}

/// What the driver says of an error code: its name and its message.
fn describe(code: c_int) -> (String, String) {
    type Text = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    let ask = |function: Text| {
        let mut text = ptr::null();
        // SAFETY: the driver's documented signature; `text` is written or left null.
        unsafe { function(code, &mut text) };
        // SAFETY: not null, so a string that lives as long as the driver.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let unknown = || "unknown to the driver".to_owned();
    (
        ask(raw::cuGetErrorName).unwrap_or_else(|| format!("error {code}")),
        ask(raw::cuGetErrorString).unwrap_or_else(unknown),
    )
}

impl CudaError {
    pub(super) fn of(code: c_int) -> Self {
        let (name, message) = describe(code);
        Self { code, name, message }
    }

    pub(super) fn check(code: c_int) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self::of(code)) }
    }
}

impl From<cust::error::CudaError> for CudaError {
    fn from(error: cust::error::CudaError) -> Self {
        Self::of(error as c_int)
    }
}

impl Error {
    /// Names what was done when the driver said no.
    pub(super) fn doing(doing: &'static str) -> impl Fn(cust::error::CudaError) -> Self {
        move |error| Self::Driver { doing, error: error.into() }
    }

    /// The same for a call that `cust` has no word for.
    pub(super) fn check(doing: &'static str, code: c_int) -> Result<(), Self> {
        CudaError::check(code).map_err(|error| Self::Driver { doing, error })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::*;

    #[test]
    fn a_symbol_is_in_its_slot() {
        assert_eq!(NAMES[Slot::cuInit as usize], "cuInit");
        assert_eq!(NAMES.last().copied(), Some("cuThreadExchangeStreamCaptureMode"));
        assert_eq!(Slot::cuThreadExchangeStreamCaptureMode as usize, NAMES.len() - 1);
        assert!(NAMES.is_sorted(), "in order, so that each is found");
    }

    /// A name that no driver has would be found out by its first call only.
    #[test]
    fn a_driver_has_every_symbol() -> io::Result<()> {
        if let Err(why) = bind() {
            return writeln!(io::stderr(), "NO DEVICE: a_driver_has_every_symbol: {why}");
        }
        for (name, slot) in NAMES.iter().zip(&TABLE) {
            let address = slot.load(Ordering::Acquire);
            assert!(![missing as *mut c_void, missing_text as *mut c_void].contains(&address), "{name}");
        }
        Ok(())
    }

    #[test]
    fn without_a_driver_every_call_returns() {
        if bind().is_ok() {
            return;
        }
        assert!(matches!(bind(), Err(Unavailable::NoDriver(_) | Unavailable::Start(_))));
        if let Err(Unavailable::NoDriver(why)) = bind() {
            assert!(why.contains("libcuda"), "{why}");
            let (mut executable, nowhere) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: nothing is behind these two symbols that would look at its arguments.
            let codes = unsafe {
                [
                    raw::cuGraphInstantiateWithFlags(&mut executable, nowhere, 0),
                    raw::cuGraphLaunch(executable, nowhere),
                ]
            };
            assert_eq!(codes, [NOT_FOUND; 2]);
            assert_eq!(cust::device::Device::num_devices(), Err(cust::error::CudaError::NotFound));
            let text = cust::error::CudaError::NotFound.to_string();
            assert!(text.contains("driver is not loaded"), "{text}");
        }
    }
}
