//! A linear layer of few rows. Its time is that of reading the weights once, so all threads read, each the weights of its
//! own outputs from front to back.

use candle_core::{Result, Tensor};

use super::TASK;
use super::columns::{Columns, ROWS};
use crate::kernels::numbers;
use crate::kernels::packed::{PANEL, Packed, Panels, Rows, Start, multiply};

/// A linear layer whose weights are packed for few rows.
#[derive(Debug, Clone)]
pub struct StepLinear {
    weight: Packed,
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
    /// Tensors that are not f32 on the CPU, or that do not fit each other.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let (out, inner) = weight.dims2()?;
        let weight = weight.contiguous()?;
        let bias = bias.map(|bias| bias.contiguous()?.to_vec1()).transpose()?.unwrap_or_default();
        if out * inner == 0 || !(bias.is_empty() || bias.len() == out) {
            candle_core::bail!("a layer of {inner} to {out} with a bias of {}", bias.len());
        }
        Ok(Self { weight: Packed::new(&numbers(&weight)?, out, inner), bias })
    }

    /// Numbers of a row of the output, and of the input.
    pub(crate) const fn dims(&self) -> (usize, usize) {
        self.weight.dims()
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
        for (x, out) in x.chunks(ROWS * inner).zip(out.chunks_mut(ROWS * width)) {
            let x = Rows { values: x, stride: inner, count: x.len() / inner };
            let together = TASK.div_ceil(x.count * inner * PANEL);
            share(x, self.weight.panels(), &self.bias, Columns::of(out, width), finish, together);
        }
        Ok(())
    }
}

/// Halves the outputs among threads until a task has `together` panels.
fn share(x: Rows<'_>, weight: Panels<'_>, bias: &[f32], out: Columns<'_>, finish: Finish, together: usize) {
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
fn compute(x: Rows<'_>, weight: Panels<'_>, bias: &[f32], mut out: Columns<'_>, finish: Finish) {
    let mut block = [0.0; ROWS * PANEL];
    let block = &mut block[..x.count * PANEL];
    for panel in 0..weight.out.div_ceil(PANEL) {
        let first = panel * PANEL;
        let part = weight.part(panel, 1);
        let bias = if bias.is_empty() { bias } else { &bias[first..first + part.out] };
        multiply(x, part, bias, Start::Fresh, block, PANEL);
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
    use candle_core::Device;

    use super::*;
    use crate::kernels::tests::{assert_close, random};
    use crate::kernels::{After, Layer, Weight, linear};

    #[test]
    fn equals_the_layer_on_tensors_over_odd_sizes() {
        for (rows, inner, out) in
            [(1, 1, 1), (1, 64, 3), (2, 3, 33), (7, 31, 129), (50, 8, 65), (1, 97, 9001), (5, 67, 2003)]
        {
            let (x, w, b) = (random(&[rows, inner], 1), random(&[out, inner], 2), random(&[out], 3));
            let before = random(&[rows, out], 4);
            let reference = Weight::Plain(w.clone());
            for bias in [None, Some(&b)] {
                let layer = StepLinear::new(&w, bias).unwrap();
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
        }
    }

    #[test]
    fn refuses_lengths_that_do_not_fit() {
        let layer = StepLinear::new(&random(&[3, 4], 1), None).unwrap();
        assert!(layer.forward(&[0.0; 8], &mut [0.0; 5], Finish::Write).is_err());
        assert!(layer.forward(&[0.0; 7], &mut [0.0; 3], Finish::Write).is_err());
        assert!(StepLinear::new(&random(&[3, 4], 1), Some(&random(&[4], 2))).is_err());
    }
}
