//! The CUDA kernels without a GPU: `kernels/*.cu` compiled as C++ under the header of `kernels/host`, which runs grids, blocks
//! and threads on the CPU, against the references of `tapline::kernels` or plain loops, in each number format, over sizes around
//! the ones at which the kernels change their ways. That they compile for a device is for the feature `cuda` to show.

mod attention;
mod channels;
mod elementwise;
mod library;
mod location;
mod picture;
mod tokens;

use candle_core::{DType, Device, Tensor};

/// A number format of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    F32,
    Bf16,
    F16,
}

const FORMATS: [Format; 3] = [Format::F32, Format::Bf16, Format::F16];

impl Format {
    /// What the names of kernels for it end in.
    fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    /// The distance from 1 to the next number; that of f32 is left to the tolerance of each test.
    fn unit(self) -> f32 {
        match self {
            Self::F32 => 0.0,
            Self::Bf16 => 1.0 / 128.0,
            Self::F16 => 1.0 / 1024.0,
        }
    }

    /// The numbers of a tensor as this format holds them, in f32 again: what a kernel for this format is really given.
    fn round(self, x: &Tensor) -> Tensor {
        x.to_dtype(self.dtype()).unwrap().to_dtype(DType::F32).unwrap()
    }
}

/// What a kernel may differ by from the reference in f32: `f32` in each format, and in 16 bits one unit in the last place of
/// the expected number, or of `scale` where terms of that size were rounded on the way.
#[derive(Debug, Clone, Copy)]
struct Tolerance {
    f32: f32,
    scale: f32,
}

/// Results that are rounded once, at the end.
const ROUNDED: Tolerance = Tolerance { f32: 2e-6, scale: 0.0 };

/// Random numbers from -1 to 1, the same in every run.
fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

#[track_caller]
fn assert_close(got: &Tensor, expected: &Tensor, format: Format, tolerance: Tolerance, case: &str) {
    assert_eq!(got.dims(), expected.dims(), "{case}");
    assert!(got.elem_count() > 0, "{case}: nothing to compare");
    for (place, (got, expected)) in values(got).into_iter().zip(values(expected)).enumerate() {
        let limit = tolerance.f32 + format.unit() * expected.abs().max(tolerance.scale);
        // Not a number is not close.
        assert!(
            (got - expected).abs() <= limit,
            "{case} in {format:?} at {place}: {got}, not {expected}, limit {limit}"
        );
    }
}
