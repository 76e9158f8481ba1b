//! Which failures of a device are the end: after some CUDA errors nothing of this process works on the GPU any more, and only
//! a new process gets a new context. Asking again would fail again, or hang.

/// What a failure means for those who come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// This piece of work failed; another may succeed.
    Passing,
    /// The device answers nobody any more: stop, without touching it again, and let the supervisor start a new process.
    Final,
}

/// CUDA errors after which the context is unusable ("the process must be terminated and relaunched" in the driver's
/// documentation of its error codes), hardware faults, and what cuBLAS says when its kernel met one of them.
const FINAL: [&str; 22] = [
    "CUDA_ERROR_DEINITIALIZED",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_INVALID_CONTEXT",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_EXTERNAL_DEVICE",
    "CUDA_ERROR_MPS_CLIENT_TERMINATED",
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "CUDA_ERROR_UNKNOWN",
    "CUBLAS_STATUS_EXECUTION_FAILED",
];

impl Severity {
    /// By the message of an error, which names the driver's code. Messages of a CPU name none.
    #[must_use]
    pub fn of(message: &str) -> Self {
        let mut words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if words.any(|word| FINAL.contains(&word)) { Self::Final } else { Self::Passing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_contexts_are_final_and_full_memory_is_not() {
        for message in [
            r#"DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")"#,
            r#"DriverError(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered") when loading affine"#,
            "CublasError(CUBLAS_STATUS_EXECUTION_FAILED)",
            "the step failed: CUDA_ERROR_LAUNCH_FAILED",
            "CUDA_ERROR_UNKNOWN",
        ] {
            assert_eq!(Severity::of(message), Severity::Final, "{message}");
        }
        for message in [
            "",
            r#"DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")"#,
            r#"DriverError(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")"#,
            r#"DriverError(CUDA_ERROR_INVALID_VALUE, "invalid argument")"#,
            "CublasError(CUBLAS_STATUS_ALLOC_FAILED)",
            "shape mismatch in matmul, lhs: [1, 2], rhs: [3, 4]",
            "NOT_CUDA_ERROR_ILLEGAL_ADDRESS",
        ] {
            assert_eq!(Severity::of(message), Severity::Passing, "{message}");
        }
    }
}
