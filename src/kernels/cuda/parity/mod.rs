//! Every kernel against the CPU, over odd sizes and all number formats: what is to be run on each new kind of card before
//! it is trusted (`cargo bench --features cuda --bench gpu_kernels`).
//!
//! Operands are rounded to the format first, so that both sides start from the same numbers; the CPU's side is computed
//! in f32.

mod text;
mod vision;

use candle_core::{DType, Device, Result, Tensor};

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The kernel, or the operation that is made of several.
    pub kernel: &'static str,
    /// The number format of its tensors.
    pub format: DType,
    /// The sizes it was given.
    pub sizes: String,
    /// The largest difference, relative to numbers above 1.
    pub difference: f32,
    /// The largest difference that is right.
    pub tolerance: f32,
}

impl Line {
    /// Whether the kernel is right.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.difference <= self.tolerance
    }
}

/// Runs every kernel on a GPU and compares it with the CPU.
///
/// # Errors
/// A kernel that cannot be run, by name; one that is wrong is a line that does not hold.
pub fn run(device: &Device) -> Result<Vec<Line>> {
    let mut comparison = Comparison { device, lines: Vec::new() };
    for format in [DType::F32, DType::BF16, DType::F16] {
        for (name, check) in vision::CHECKS.iter().chain(text::CHECKS) {
            check(&mut comparison, format).map_err(|error| error.context(format!("`{name}` in {format:?}")))?;
        }
    }
    Ok(comparison.lines)
}

/// Window attention as it is without a kernel of its own: copies into windows, products, a softmax, and copies back. What
/// the kernel is measured against.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn unfused_window_attention(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    crate::kernels::window_attention::reference(qkv, padding, window, heads)
}

/// A check of one operation in one number format, over several sizes.
type Check = fn(&mut Comparison<'_>, DType) -> Result<()>;

struct Comparison<'a> {
    device: &'a Device,
    lines: Vec<Line>,
}

/// The same numbers twice.
struct Operand {
    /// In f32.
    cpu: Tensor,
    /// In the format that is checked.
    gpu: Tensor,
}

/// How many roundings to the number format lie between the operands and the result.
#[derive(Debug, Clone, Copy)]
enum Roundings {
    /// Numbers are only moved.
    None,
    /// The result is rounded.
    One,
    /// What is between is rounded too.
    Several,
}

impl Roundings {
    /// In units of a format's last place at 1; f32 allows for sums in another order.
    fn tolerance(self, format: DType) -> f32 {
        let unit = match format {
            DType::BF16 => 1.0 / 128.0,
            DType::F16 => 1.0 / 1024.0,
            _ => 1e-5,
        };
        match self {
            Self::None => 0.0,
            Self::One => unit,
            Self::Several => 4.0 * unit,
        }
    }
}

impl Comparison<'_> {
    /// Random numbers of -1 to 1, the same in every run.
    fn operand(&self, shape: &[usize], seed: u64, format: DType) -> Result<Operand> {
        self.scaled(shape, seed, format, 1.0)
    }

    /// A weight (out, in) whose products with such numbers are about as large as they are.
    fn weight(&self, out: usize, inner: usize, seed: u64, format: DType) -> Result<Operand> {
        self.scaled(&[out, inner], seed, format, (inner as f32).powf(-0.5))
    }

    fn scaled(&self, shape: &[usize], seed: u64, format: DType, scale: f32) -> Result<Operand> {
        let values: Vec<f32> = numbers(seed).take(shape.iter().product()).map(|number| number * scale).collect();
        let rounded = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(format)?;
        Ok(Operand { cpu: rounded.to_dtype(DType::F32)?, gpu: rounded.to_device(self.device)? })
    }

    /// Notes how far `got` is from `expected`, which is on the CPU in f32.
    fn compare(
        &mut self,
        (kernel, format): (&'static str, DType),
        sizes: String,
        got: &Tensor,
        expected: &Tensor,
        roundings: Roundings,
    ) -> Result<()> {
        if got.dims() != expected.dims() {
            candle_core::bail!("{:?} where {:?} is right, for {sizes}", got.dims(), expected.dims());
        }
        let flat = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        let difference = flat(got)?.into_iter().zip(flat(expected)?).map(|(got, expected)| {
            let difference = (got - expected).abs() / expected.abs().max(1.0);
            // A NaN is as wrong as can be, and `max` would drop it.
            if difference.is_nan() && !(got.is_nan() && expected.is_nan()) { f32::INFINITY } else { difference }
        });
        let difference = difference.fold(0.0, f32::max);
        self.lines.push(Line { kernel, format, sizes, difference, tolerance: roundings.tolerance(format) });
        Ok(())
    }
}

/// Numbers of -1 to 1 (xorshift).
fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has a form for a CPU is held to the same tolerances there, in tensor operations where the format is not f32.
    #[test]
    fn a_cpu_is_right() {
        let mut comparison = Comparison { device: &Device::Cpu, lines: Vec::new() };
        let checks = vision::CHECKS.iter().chain(text::CHECKS);
        for (name, check) in checks.filter(|(name, _)| ON_A_CPU.contains(name)) {
            for format in [DType::F32, DType::BF16] {
                check(&mut comparison, format).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        let wrong: Vec<_> = comparison.lines.iter().filter(|line| !line.holds()).collect();
        assert!(wrong.is_empty() && comparison.lines.len() > 100, "{wrong:#?}");
    }

    const ON_A_CPU: [&str; 8] = [
        "depthwise",
        "window_attention",
        "channel_attention",
        "image_tokens",
        "layer_norm",
        "bias",
        "linear",
        "attention",
    ];

    #[test]
    fn a_difference_is_noted_and_judged() {
        let mut comparison = Comparison { device: &Device::Cpu, lines: Vec::new() };
        let x = comparison.operand(&[3, 5], 1, DType::BF16).unwrap();
        comparison.compare(("same", DType::BF16), String::new(), &x.gpu, &x.cpu, Roundings::None).unwrap();
        let off = (&x.cpu + 0.5).unwrap();
        comparison.compare(("off", DType::BF16), String::new(), &off, &x.cpu, Roundings::Several).unwrap();
        let nan = (&x.cpu * f64::NAN).unwrap();
        comparison.compare(("nan", DType::F32), String::new(), &nan, &x.cpu, Roundings::Several).unwrap();
        assert_eq!(comparison.lines.iter().map(Line::holds).collect::<Vec<_>>(), [true, false, false]);
        assert!(
            comparison.compare(("", DType::F32), String::new(), &x.cpu.t().unwrap(), &x.cpu, Roundings::One).is_err()
        );
    }
}
