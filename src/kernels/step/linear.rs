//! A linear layer of few rows. Its time is that of reading the weights once, so all threads read, each the weights of its
//! own outputs from front to back.

use candle_core::{Result, Tensor};

use super::TASK;
use super::columns::{Columns, ROWS};
use crate::kernels::Weight;
use crate::kernels::number::Number;
use crate::kernels::packed::{PANEL, Packed, Panels, Rows, Start, Target, multiply};
use crate::kernels::weight::Form;

/// A linear layer for few rows.
#[derive(Debug)]
pub struct StepLinear {
    weight: Weight,
    out: usize,
    inner: usize,
    /// Empty where there is none.
    bias: Vec<f32>,
}

/// What happens to the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// They take the place of what was there.
    Write,
    /// Their exact GELU does.
    Gelu,
    /// They are added to what was there.
    Add,
}

impl StepLinear {
    /// A layer of these weights (out, in) and this bias (out).
    ///
    /// # Errors
    /// A weight that is not packed for the CPU, or a bias that does not fit.
    pub fn new(weight: Weight, bias: Option<&Tensor>) -> Result<Self> {
        let (out, inner) = match &weight.0 {
            Form::F32(weight) => weight.dims(),
            Form::Bf16(weight) => weight.dims(),
            Form::Plain(weight) => candle_core::bail!("a weight of {:?} is not packed for the CPU", weight.dtype()),
        };
        let bias = bias.map(|bias| bias.contiguous()?.to_vec1()).transpose()?.unwrap_or_default();
        if out * inner == 0 || !(bias.is_empty() || bias.len() == out) {
            candle_core::bail!("a layer of {inner} to {out} with a bias of {}", bias.len());
        }
        Ok(Self { weight, out, inner, bias })
    }

    /// Numbers of a row of the output, and of the input.
    pub(crate) const fn dims(&self) -> (usize, usize) {
        (self.out, self.inner)
    }

    /// x is (rows, in), out is (rows, out).
    ///
    /// # Errors
    /// Lengths that do not fit.
    pub fn forward(&self, x: &[f32], out: &mut [f32], finish: Finish) -> Result<()> {
        let (width, inner) = self.dims();
        if !x.len().is_multiple_of(inner) || out.len() != x.len() / inner * width {
            candle_core::bail!("a layer of {inner} to {width} was given {} and {} numbers", x.len(), out.len());
        }
        match &self.weight.0 {
            Form::F32(weight) => self.multiply(weight, x, out, finish),
            Form::Bf16(weight) => self.multiply(weight, x, out, finish),
            Form::Plain(_) => candle_core::bail!("the weight is not packed"),
        }
        Ok(())
    }

    fn multiply<N: Number>(&self, weight: &Packed<N>, x: &[f32], out: &mut [f32], finish: Finish) {
        let (width, inner) = self.dims();
        for (x, out) in x.chunks(ROWS * inner).zip(out.chunks_mut(ROWS * width)) {
            N::with_operand(x, inner, |x| {
                let together = TASK.div_ceil(x.count * inner * PANEL);
                share(x, weight.panels(), &self.bias, Columns::of(out, width), finish, together);
            });
        }
    }
}

/// Halves the outputs among threads until a task has `together` panels.
fn share<N: Number>(
    x: Rows<'_, N>,
    weight: Panels<'_, N>,
    bias: &[f32],
    out: Columns<'_>,
    finish: Finish,
    together: usize,
) {
    let panels = weight.out.div_ceil(PANEL);
    if panels <= together {
        return compute(x, weight, bias, out, finish);
    }
    let half = panels / 2;
    let (left, right) = out.split_at(half * PANEL);
    let (left_bias, right_bias) = bias.split_at(bias.len().min(half * PANEL));
    rayon::join(
        || share(x, weight.part(0, half), left_bias, left, finish, together),
        || share(x, weight.part(half, panels - half), right_bias, right, finish, together),
    );
}

/// The outputs of these panels, on this thread.
fn compute<N: Number>(x: Rows<'_, N>, weight: Panels<'_, N>, bias: &[f32], mut out: Columns<'_>, finish: Finish) {
    let mut block = [0.0; ROWS * PANEL];
    let block = &mut block[..x.count * PANEL];
    for panel in 0..weight.out.div_ceil(PANEL) {
        let first = panel * PANEL;
        let part = weight.part(panel, 1);
        let bias = if bias.is_empty() { bias } else { &bias[first..first + part.out] };
        multiply(x, part, bias, Target::Sums { out: &mut *block, stride: PANEL, start: Start::Fresh });
        if finish == Finish::Gelu {
            crate::kernels::gelu::gelu_chunk(block);
        }
        for (out, block) in out.rows().iter_mut().zip(block.chunks_exact(PANEL)) {
            let (out, block) = (&mut out[first..first + part.out], &block[..part.out]);
            if finish == Finish::Add {
                out.iter_mut().zip(block).for_each(|(out, value)| *out += value);
            } else {
                out.copy_from_slice(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::kernels::tests::{assert_close, random};
    use crate::kernels::{After, Layer, linear, numbers};

    #[test]
    fn equals_the_layer_on_tensors_over_odd_sizes() {
        for (rows, inner, out) in
            [(1, 1, 1), (1, 64, 3), (2, 3, 33), (7, 31, 129), (50, 8, 65), (1, 97, 9001), (5, 67, 2003)]
        {
            let (x, w, b) = (random(&[rows, inner], 1), random(&[out, inner], 2), random(&[out], 3));
            let before = random(&[rows, out], 4);
            let reference = Weight(Form::Plain(w.clone()));
            let half = Weight::new(w.to_dtype(DType::BF16).unwrap()).unwrap();
            let half = StepLinear::new(half, Some(&b)).unwrap();
            for bias in [None, Some(&b)] {
                let layer = StepLinear::new(Weight::new(w.clone()).unwrap(), bias).unwrap();
                for (finish, after) in
                    [(Finish::Write, After::Nothing), (Finish::Gelu, After::Gelu), (Finish::Add, After::AddTo(&before))]
                {
                    let mut result = numbers(&before).unwrap().to_vec();
                    layer.forward(&numbers(&x).unwrap(), &mut result, finish).unwrap();
                    let result = Tensor::from_vec(result, (rows, out), &Device::Cpu).unwrap();
                    let expected = linear(&x, Layer { weight: &reference, bias }, after).unwrap();
                    assert_close(&result, &expected, 3e-5);
                }
            }
            let mut result = vec![0.0; rows * out];
            half.forward(&numbers(&x).unwrap(), &mut result, Finish::Write).unwrap();
            let expected = linear(&x, Layer { weight: &reference, bias: Some(&b) }, After::Nothing).unwrap();
            assert_close(&Tensor::from_vec(result, (rows, out), &Device::Cpu).unwrap(), &expected, 0.1);
        }
    }

    #[test]
    fn refuses_lengths_that_do_not_fit() {
        let weight = || Weight::new(random(&[3, 4], 1)).unwrap();
        let layer = StepLinear::new(weight(), None).unwrap();
        assert!(layer.forward(&[0.0; 8], &mut [0.0; 5], Finish::Write).is_err());
        assert!(layer.forward(&[0.0; 7], &mut [0.0; 3], Finish::Write).is_err());
        assert!(StepLinear::new(weight(), Some(&random(&[4], 2))).is_err());
        assert!(StepLinear::new(Weight(Form::Plain(random(&[3, 4], 1))), None).is_err());
    }
}
