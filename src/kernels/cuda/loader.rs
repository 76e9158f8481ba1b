//! The compiled kernels of this program on a device: all modules and functions at once, when the device is first used, so
//! that a card that cannot run them is found out at the start and nothing is loaded while a graph is captured.

use std::sync::{Arc, PoisonError, RwLock};

use candle_core::cuda_backend::DeviceId;
use candle_core::cuda_backend::cudarc::driver::{CudaFunction, CudaModule, DriverError};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::{CudaDevice, DType, Device, Error, Result};

use crate::kernels::catalogue::{Kernel, SUFFIXES};
use crate::kernels::images::{self, Image};

mod compiled {
    include!(concat!(env!("OUT_DIR"), "/cuda_images.rs"));
}

/// Why the kernels cannot be used on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernels were compiled for other cards. Build again with the variable that the message names.
    #[error(
        "no CUDA kernels for a card of compute capability {major}.{minor}, only for {built}: build again with \
         `TAPLINE_CUDA_ARCHITECTURES={major}{minor}`"
    )]
    NoImage {
        /// The 8 of 8.6.
        major: u32,
        /// The 6 of 8.6.
        minor: u32,
        /// The architectures that there is machine code for, such as `80, 90`.
        built: String,
    },
    /// The kernels use what earlier cards lack.
    #[error("a card of compute capability {major}.{minor} is too old for the CUDA kernels, which need 8.0")]
    TooOld {
        /// The 7 of 7.5.
        major: u32,
        /// The 5 of 7.5.
        minor: u32,
    },
    /// The driver did not take a module. It may be too old for the toolkit that the program was built with.
    #[error("the driver refused the CUDA module `{module}`: {source}; it must support CUDA 13.0")]
    Refused {
        /// The module.
        module: &'static str,
        /// What the driver said.
        source: DriverError,
    },
    /// A module lacks a function: the program was put together from parts of different versions. Build it again.
    #[error("the CUDA module `{module}` has no function `{function}`: {source}")]
    NoFunction {
        /// The module.
        module: &'static str,
        /// The function.
        function: String,
        /// What the driver said.
        source: DriverError,
    },
    /// The device is not a GPU, or it does not answer.
    #[error("no CUDA kernels on this device: {message}")]
    Device {
        /// What is wrong with it.
        message: String,
    },
}

/// Loads the kernels on a device. Operations do so themselves when they are first called; a server calls this before, to
/// end at once where the kernels cannot be used.
///
/// # Errors
/// [`LoadError`] says what to do.
pub fn load(device: &Device) -> std::result::Result<(), LoadError> {
    let device = device.as_cuda_device().map_err(|error| LoadError::Device { message: error.to_string() })?;
    loaded(device).map(|_| ())
}

/// The functions of all kernels on one device.
#[derive(Debug)]
pub(super) struct Functions {
    /// By kernel and number format; a kernel without formats has its function three times.
    by_kernel: Vec<[CudaFunction; 3]>,
}

/// Tensor cores that multiply bf16 came with 8.0; `kernels/build.rs` compiles for nothing older.
const LOWEST_MAJOR: u32 = 8;

/// Devices whose functions were loaded. A process has a handful at most, so a list is searched fastest.
static LOADED: RwLock<Vec<(DeviceId, Arc<Functions>)>> = RwLock::new(Vec::new());

/// The functions on a device, loaded once.
pub(super) fn functions(device: &CudaDevice) -> Result<Arc<Functions>> {
    loaded(device).map_err(Error::wrap)
}

fn loaded(device: &CudaDevice) -> std::result::Result<Arc<Functions>, LoadError> {
    let find = |all: &[(DeviceId, Arc<Functions>)]| {
        all.iter().find(|(id, _)| *id == device.id()).map(|(_, functions)| functions.clone())
    };
    // The list is whole whenever the lock is free: nothing is left half done by a thread that panicked.
    if let Some(functions) = find(&LOADED.read().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(functions);
    }
    let mut all = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = find(&all) {
        return Ok(functions);
    }
    let functions = Arc::new(Functions::load(device)?);
    all.push((device.id(), functions.clone()));
    Ok(functions)
}

impl Functions {
    fn load(device: &CudaDevice) -> std::result::Result<Self, LoadError> {
        let mut modules: Vec<(&'static str, Arc<CudaModule>)> = Vec::new();
        let mut by_kernel = Vec::with_capacity(Kernel::ALL.len());
        for kernel in Kernel::ALL {
            let entry = kernel.entry();
            let present = modules.iter().find(|(name, _)| *name == entry.module).map(|(_, module)| module.clone());
            let module = if let Some(module) = present {
                module
            } else {
                let module = load_module(device, entry.module)?;
                modules.push((entry.module, module.clone()));
                module
            };
            let function = |suffix: &str| {
                let function = format!("{}{}", entry.function, if entry.formats { suffix } else { "" });
                module.load_function(&function).map_err(|source| LoadError::NoFunction {
                    module: entry.module,
                    function,
                    source,
                })
            };
            let [f32, bf16, f16] = SUFFIXES.map(function);
            by_kernel.push([f32?, bf16?, f16?]);
        }
        Ok(Self { by_kernel })
    }

    /// The function of a kernel for tensors of a type.
    pub(super) fn get(&self, kernel: Kernel, dtype: DType) -> Result<&CudaFunction> {
        let function = kernel.format(dtype).and_then(|format| self.by_kernel.get(kernel as usize)?.get(format));
        function.ok_or_else(|| Error::Msg(format!("no CUDA kernel `{}` for {dtype:?}", kernel.entry().function)))
    }
}

fn load_module(device: &CudaDevice, module: &'static str) -> std::result::Result<Arc<CudaModule>, LoadError> {
    let stream = device.cuda_stream();
    let context = stream.context();
    let (major, minor) =
        context.compute_capability().map_err(|error| LoadError::Device { message: error.to_string() })?;
    let (major, minor) = (major.unsigned_abs(), minor.unsigned_abs());
    let image = images::choose(module, 10 * major + minor, compiled::CUBINS, compiled::PTX);
    let image = match image {
        Some(Image::Cubin(code)) => Ptx::from_binary(code.to_vec()),
        Some(Image::Ptx(text)) => Ptx::from_src(text),
        None if major < LOWEST_MAJOR => return Err(LoadError::TooOld { major, minor }),
        None => return Err(LoadError::NoImage { major, minor, built: built() }),
    };
    context.load_module(image).map_err(|source| LoadError::Refused { module, source })
}

/// The architectures that there is machine code for.
fn built() -> String {
    let mut architectures: Vec<u32> = compiled::CUBINS.iter().map(|(_, architecture, _)| *architecture).collect();
    architectures.sort_unstable();
    architectures.dedup();
    architectures.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_was_not_built_for_is_told_how_to_build() {
        let error = LoadError::NoImage { major: 8, minor: 6, built: built() };
        let message = error.to_string();
        assert!(message.contains("`TAPLINE_CUDA_ARCHITECTURES=86`") && !built().is_empty(), "{message}");
    }

    #[test]
    fn a_cpu_has_no_kernels() {
        assert!(matches!(load(&Device::Cpu), Err(LoadError::Device { .. })));
    }

    #[test]
    fn every_function_was_compiled() {
        for kernel in Kernel::ALL {
            let entry = kernel.entry();
            let texts: Vec<_> = compiled::PTX.iter().filter(|(module, _, _)| *module == entry.module).collect();
            assert!(!texts.is_empty(), "no module `{}`", entry.module);
            let suffixes: &[&str] = if entry.formats { &SUFFIXES } else { &[""] };
            for function in suffixes.iter().map(|suffix| format!(".visible .entry {}{suffix}(", entry.function)) {
                assert!(texts.iter().all(|(_, _, text)| text.contains(&function)), "no {function}");
            }
        }
    }

    #[test]
    fn every_module_has_machine_code_for_every_architecture() {
        let architectures = built();
        for kernel in Kernel::ALL {
            let module = kernel.entry().module;
            for architecture in architectures.split(", ") {
                let card = architecture.parse().expect("a number");
                let image = images::choose(module, card, compiled::CUBINS, compiled::PTX);
                assert!(matches!(image, Some(Image::Cubin(_))), "{module} for {card}: {image:?}");
            }
        }
    }
}
