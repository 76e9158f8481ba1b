//! The compute device: opened on the thread that will own it, and what can be wrong with it.

use candle_core::Device;

/// An NVIDIA GPU's generation, such as 9.0 for Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability {
    /// The 9 of 9.0.
    pub major: u32,
    /// The 0 of 9.0.
    pub minor: u32,
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build has no GPU code.
    #[error("there is no `cuda:{number}`: this program was built without CUDA")]
    NoCuda {
        /// The number asked for.
        number: usize,
    },
    /// The driver's library is not there.
    #[error("the NVIDIA driver is not installed: {message}")]
    NoDriver {
        /// What the loader said.
        message: String,
    },
    /// The driver is older than what this program was built with.
    #[error("the NVIDIA driver supports CUDA {has}, but this program needs {needs}")]
    OldDriver {
        /// The newest CUDA that the driver runs.
        has: String,
        /// The CUDA that this program was built with.
        needs: String,
    },
    /// There are fewer GPUs.
    #[error("there is no `cuda:{number}`: the driver shows {count} GPUs")]
    NoSuchGpu {
        /// The number asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// The kernels are for other GPUs.
    #[error("{name} has the compute capability {gpu}, but this program was built for {built}")]
    Capability {
        /// The GPU's name.
        name: String,
        /// What it is.
        gpu: Capability,
        /// `CUDA_COMPUTE_CAP` of the build.
        built: String,
    },
    /// Anything else that the driver refused.
    #[error("the GPU cannot be opened: {message}")]
    Failed {
        /// What the driver said.
        message: String,
    },
}

impl DeviceError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoCuda { .. } => "build with `--features cuda` (needs nvcc), or use `--device cpu`".to_owned(),
            Self::NoDriver { .. } => {
                "install the driver; in a container, pass the GPUs with `--gpus all` and the driver \
                                      comes with them; or use `--device cpu`"
                    .to_owned()
            }
            Self::OldDriver { needs, .. } => {
                format!("install a driver for CUDA {needs} or later, or the cuda-compat package of that version")
            }
            Self::NoSuchGpu { .. } => "GPUs count from 0; `CUDA_VISIBLE_DEVICES` hides some".to_owned(),
            Self::Capability { gpu, .. } => {
                format!("build again with `CUDA_COMPUTE_CAP={}{}`", gpu.major, gpu.minor)
            }
            Self::Failed { .. } => "`tapline doctor` says which devices this machine has".to_owned(),
        }
    }
}

impl Capability {
    /// Whether this GPU runs what was compiled for `built`, as `CUDA_COMPUTE_CAP` has it: `80`, or `90a`. Such code is PTX, which
    /// a later generation can translate; not so from 9.0 on, where instructions of that very generation are compiled in. What
    /// cannot be understood is left for the driver to judge.
    #[must_use]
    pub fn runs(self, built: &str) -> bool {
        let digits = built.trim().trim_end_matches(['a', 'f']);
        let Ok(number) = digits.parse::<u32>() else { return true };
        let built = Self { major: number / 10, minor: number % 10 };
        if built.major < 9 { self >= built } else { self == built }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Opens NVIDIA GPU `number`. Call it on the thread that will compute.
///
/// # Errors
/// [`DeviceError`] says what is missing.
pub fn open_gpu(number: usize) -> Result<Device, DeviceError> {
    #[cfg(feature = "cuda")]
    return crate::kernels::cuda::device::open(number);
    #[cfg(not(feature = "cuda"))]
    Err(DeviceError::NoCuda { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_runs_what_was_made_for_it_or_an_older_one() {
        let runs = |gpu: (u32, u32), built: &str| Capability { major: gpu.0, minor: gpu.1 }.runs(built);
        for (gpu, built) in
            [((8, 0), "80"), ((8, 6), "80"), ((8, 9), "86"), ((9, 0), "89"), ((9, 0), "90"), ((9, 0), "90a")]
        {
            assert!(runs(gpu, built), "{gpu:?} {built}");
        }
        for (gpu, built) in [((7, 5), "80"), ((8, 0), "86"), ((8, 9), "90"), ((10, 0), "90"), ((12, 1), "120")] {
            assert!(!runs(gpu, built), "{gpu:?} {built}");
        }
        assert!(runs((9, 0), "native"), "the driver is to judge");
    }

    #[test]
    fn every_error_says_what_to_do() {
        let error = DeviceError::Capability {
            name: "NVIDIA H200".into(),
            gpu: Capability { major: 9, minor: 0 },
            built: "80".into(),
        };
        assert_eq!(error.to_string(), "NVIDIA H200 has the compute capability 9.0, but this program was built for 80");
        assert_eq!(error.hint(), "build again with `CUDA_COMPUTE_CAP=90`");
        assert!(DeviceError::NoDriver { message: String::new() }.hint().contains("--gpus all"));
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_cuda_says_so() {
        assert!(matches!(open_gpu(0), Err(DeviceError::NoCuda { number: 0 })));
    }
}
