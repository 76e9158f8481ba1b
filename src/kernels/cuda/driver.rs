//! The driver's library, `libcuda.so.1`, opened when a GPU is asked for and not when the program starts. Candle links it, so
//! that without the driver the loader would end the program with a message of its own before `main`. Here every function of
//! the driver that is linked has a small one of the same name in this program, which jumps to where the real one was found;
//! before that, or when the driver is too old to have it, the call fails with `CUDA_ERROR_STUB_LIBRARY`.
//!
//! The linker takes these definitions before it looks into `-lcuda`, and drops a library that it needs nothing of. A function
//! that is missing below shows as an undefined symbol where the program is linked against an empty library, as CI does.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `CUDA_ERROR_STUB_LIBRARY`: there is no driver behind the function.
const STUB_LIBRARY: c_int = 34;
const LIBRARY: &CStr = c"libcuda.so.1";

extern "C" fn absent() -> c_int {
    STUB_LIBRARY
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($slot:path) => {
        std::arch::naked_asm!("jmp qword ptr [rip + {slot}]", slot = sym $slot)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($slot:path) => {
        std::arch::naked_asm!("adrp x16, {slot}", "ldr x16, [x16, :lo12:{slot}]", "br x16", slot = sym $slot)
    };
}

macro_rules! functions {
    ($($name:ident)+) => {
        #[expect(non_upper_case_globals, reason = "called as the functions they stand for")]
        mod slots {
            use super::{AtomicPtr, absent, c_void};
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(absent as *const () as *mut c_void);)+
        }

        mod entries {
            $(
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                // SAFETY: a jump leaves registers and stack as the caller set them up for the function of this name, and the
                // slot holds either that function or `absent`, which takes nothing and may be called with anything.
                unsafe extern "C" fn $name() {
                    jump!(super::slots::$name)
                }
            )+
        }

        /// Every function by its name in the library.
        static FUNCTIONS: &[(&str, &AtomicPtr<c_void>)] = &[$((concat!(stringify!($name), "\0"), &slots::$name)),+];
    };
}

functions! {
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetLimit cuCtxGetStreamPriorityRange
    cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetFlags cuCtxSetLimit cuCtxSynchronize cuDestroyExternalMemory cuDeviceGet
    cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetName cuDeviceGetUuid
    cuDeviceGetUuid_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuDeviceSetMemPool cuDeviceTotalMem_v2
    cuDriverGetVersion cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventElapsedTime_v2 cuEventQuery cuEventRecord
    cuEventSynchronize cuExternalMemoryGetMappedBuffer cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuGetErrorName
    cuGetErrorString cuGraphDestroy cuGraphExecDestroy cuGraphInstantiateWithFlags cuGraphLaunch cuGraphUpload
    cuImportExternalMemory cuInit cuLaunchCooperativeKernel cuLaunchHostFunc cuLaunchKernel cuMemAdvise_v2 cuMemAllocAsync
    cuMemAllocFromPoolAsync cuMemAllocManaged cuMemAlloc_v2 cuMemFreeAsync cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2
    cuMemHostAlloc cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo
    cuMemPrefetchAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2
    cuMemcpyHtoD_v2 cuMemcpyPeerAsync cuMemsetD8Async cuMemsetD8_v2 cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad
    cuModuleLoadData cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialBlockSize
    cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxPotentialClusterSize cuProfilerStart cuProfilerStop
    cuStreamAttachMemAsync cuStreamBeginCapture_v2 cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2
    cuStreamEndCapture cuStreamIsCapturing cuStreamSynchronize cuStreamWaitEvent
}

/// Opens the driver's library and finds its functions, once. Call it before anything else of CUDA.
///
/// # Errors
/// What the loader said, such as that there is no such file.
pub fn load() -> Result<(), &'static str> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map(|&()| ()).map_err(String::as_str)
}

fn open() -> Result<(), String> {
    // SAFETY: the name ends with a zero. NVIDIA's library may be opened in any thread, and is never closed.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        // SAFETY: the loader's message of this thread, valid until its next call.
        let message = unsafe { libc::dlerror() };
        if message.is_null() {
            return Err(format!("{} cannot be opened", LIBRARY.to_string_lossy()));
        }
        // SAFETY: it is not null and ends with a zero.
        return Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned());
    }
    for (name, slot) in FUNCTIONS {
        // SAFETY: the library is open and the name ends with a zero.
        let function = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
        if !function.is_null() {
            slot.store(function, Ordering::Release);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    unsafe extern "C" {
        fn cuInit(flags: u32) -> c_int;
    }

    #[test]
    fn every_function_is_named_once() {
        let names: HashSet<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
        assert!(names.iter().all(|name| name.starts_with("cu") && name.ends_with('\0')));
    }

    #[test]
    fn without_a_driver_every_call_says_so() {
        if let Err(message) = load() {
            assert!(message.contains("libcuda.so.1"), "{message}");
            // SAFETY: there is no driver, so that this is `absent`, which may be called with anything.
            assert_eq!(unsafe { cuInit(0) }, STUB_LIBRARY);
        }
    }
}
