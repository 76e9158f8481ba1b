//! A linear layer with what comes before and after it: a normalisation; the bias, a GELU, or the residual it is added to.

use std::ops::Deref;

use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

use super::layer_norm::{Norm, NormSlices};
use super::packed::{PANEL, Packed, Rows, Start, multiply};
use super::{numbers, scratch};

/// A weight (out, in) as its device wants it: packed for f32 on the CPU, as it is for everything else.
#[derive(Debug, Clone)]
pub enum Weight {
    /// In panels.
    Packed(Packed),
    /// (out, in).
    Plain(Tensor),
}

impl Weight {
    /// From (out, in).
    ///
    /// # Errors
    /// Another number of dimensions, or a device failure.
    pub fn new(weight: Tensor) -> Result<Self> {
        let (out, inner) = weight.dims2()?;
        if !super::is_fast(&weight) || out * inner == 0 {
            return Ok(Self::Plain(if weight.is_contiguous() { weight } else { weight.contiguous()? }));
        }
        let weight = weight.contiguous()?;
        Ok(Self::Packed(Packed::new(&numbers(&weight)?, out, inner)))
    }
}

/// A linear layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// (out, in).
    pub weight: &'a Weight,
    /// (out).
    pub bias: Option<&'a Tensor>,
}

/// What happens to a linear layer's output.
#[derive(Debug, Clone, Copy)]
pub enum After<'a> {
    /// Nothing.
    Nothing,
    /// The exact GELU.
    Gelu,
    /// It is added to this tensor of the output's shape.
    AddTo(&'a Tensor),
}

/// x @ weight^T + bias, then `after`; x is (..., in), the result (..., out).
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn linear(x: &Tensor, layer: Layer<'_>, after: After<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::linear(x, layer, after);
    }
    match layer.weight {
        Weight::Packed(weight) => fast(x, None, weight, layer.bias, after),
        Weight::Plain(weight) => reference(x, weight, layer.bias, after),
    }
}

/// [`linear`] of the normalised x.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn norm_linear(x: &Tensor, norm: Norm<'_>, layer: Layer<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::norm_linear(x, norm, layer);
    }
    match layer.weight {
        Weight::Packed(weight) => fast(x, Some(norm), weight, layer.bias, After::Nothing),
        Weight::Plain(weight) => reference(&super::layer_norm(x, norm)?, weight, layer.bias, After::Nothing),
    }
}

fn reference(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, after: After<'_>) -> Result<Tensor> {
    let (out, inner) = weight.dims2()?;
    let mut shape = x.dims().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    let product = x.reshape(((), inner))?.matmul(&weight.t()?)?.reshape(shape)?;
    let product = match bias {
        Some(bias) => product.broadcast_add(bias)?,
        None => product,
    };
    match after {
        After::Nothing => Ok(product),
        After::Gelu => super::gelu(&product),
        After::AddTo(residual) => residual + product,
    }
}

/// Rows that one thread takes together: four tiles, which stay in its caches with a panel.
pub(super) const ROWS: usize = 48;
/// Up to so many rows are shared out by outputs, since there are fewer than threads could share.
const FEW_ROWS: usize = 24;
/// Products worth a task of their own: a few microseconds.
const TASK: usize = 1 << 18;

/// The bias of a layer of `out` outputs; empty where there is none.
pub(super) fn bias_of(bias: Option<&Tensor>, out: usize) -> Result<Option<impl Deref<Target = [f32]>>> {
    let bias = bias.map(numbers).transpose()?;
    if let Some(bias) = &bias
        && bias.len() != out
    {
        candle_core::bail!("a bias of {} numbers for {out} outputs", bias.len());
    }
    Ok(bias)
}

fn fast(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    weight: &Packed,
    bias: Option<&Tensor>,
    after: After<'_>,
) -> Result<Tensor> {
    let (out, inner) = weight.dims();
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(last) if *last == inner => *last = out,
        _ => candle_core::bail!("a linear layer of {inner} inputs was given {:?}", x.dims()),
    }
    let x = x.contiguous()?;
    let (x, bias) = (numbers(&x)?, bias_of(bias, out)?);
    let bias = bias.as_deref().unwrap_or_default();
    let norm = norm.as_ref().map(|norm| norm.slices(inner)).transpose()?;
    let norm = norm.as_ref().map(NormSlices::get);
    let residual = match after {
        After::AddTo(residual) => Some(residual.contiguous()?),
        After::Nothing | After::Gelu => None,
    };
    let residual = residual.as_ref().map(numbers).transpose()?;
    let rows = x.len() / inner;
    if let Some(residual) = residual.as_deref()
        && residual.len() != rows * out
    {
        candle_core::bail!("a residual of {} numbers for an output of {rows} x {out}", residual.len());
    }
    let gelu = matches!(after, After::Gelu);
    let finish = |out: &mut [f32]| {
        if gelu {
            super::gelu::gelu_chunk(out);
        }
    };
    if norm.is_none() && rows <= FEW_ROWS {
        let mut result = by_outputs(&x, rows, weight, bias);
        finish(&mut result);
        if let Some(residual) = residual.as_deref() {
            result.iter_mut().zip(residual).for_each(|(result, residual)| *result += residual);
        }
        return Tensor::from_vec(result, shape, &Device::Cpu);
    }
    let mut result = vec![0.0; rows * out];
    result.par_chunks_mut(ROWS * out).zip(x.par_chunks(ROWS * inner)).enumerate().for_each(|(block, (result, x))| {
        let count = x.len() / inner;
        let start = match residual.as_deref() {
            Some(residual) => {
                result.copy_from_slice(&residual[block * ROWS * out..][..result.len()]);
                Start::Present
            }
            None => Start::Fresh,
        };
        match norm {
            Some(norm) => scratch::with(x.len(), |normed| {
                norm.rows(normed, x);
                let normed = Rows { values: normed, stride: inner, count };
                multiply(normed, weight.panels(), bias, start, result, out);
            }),
            None => {
                multiply(Rows { values: x, stride: inner, count }, weight.panels(), bias, start, result, out);
            }
        }
        finish(result);
    });
    Tensor::from_vec(result, shape, &Device::Cpu)
}

/// (rows, out), the outputs shared out among the threads.
fn by_outputs(x: &[f32], rows: usize, weight: &Packed, bias: &[f32]) -> Vec<f32> {
    let (out, inner) = weight.dims();
    let mut result = vec![0.0; rows * out];
    if rows == 0 {
        return result;
    }
    let x = Rows { values: x, stride: inner, count: rows };
    let panels = TASK.div_ceil(rows * inner * PANEL);
    if panels * PANEL >= out {
        multiply(x, weight.panels(), bias, Start::Fresh, &mut result, out);
        return result;
    }
    // Each task has its outputs for all rows together; with one row that is the result.
    result.par_chunks_mut(rows * panels * PANEL).enumerate().for_each(|(task, result)| {
        let (first, count) = (task * panels * PANEL, result.len() / rows);
        let bias = if bias.is_empty() { bias } else { &bias[first..first + count] };
        multiply(x, weight.panels().part(task * panels, panels), bias, Start::Fresh, result, count);
    });
    if rows == 1 {
        return result;
    }
    let mut in_rows = vec![0.0; rows * out];
    for (task, block) in result.chunks(rows * panels * PANEL).enumerate() {
        let (first, count) = (task * panels * PANEL, block.len() / rows);
        for (row, block) in block.chunks_exact(count).enumerate() {
            in_rows[row * out + first..][..count].copy_from_slice(block);
        }
    }
    in_rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (rows, inner, out) in
            [(1, 1, 1), (1, 64, 3), (2, 3, 5), (7, 31, 33), (65, 64, 129), (3, 129, 8), (1, 97, 9001), (5, 67, 2003)]
        {
            let (x, w) = (random(&[1, rows, inner], 1), random(&[out, inner], 2));
            let (b, r) = (random(&[out], 3), random(&[1, rows, out], 4));
            let weight = Weight::new(w.clone()).unwrap();
            for bias in [None, Some(&b)] {
                let layer = Layer { weight: &weight, bias };
                for after in [After::Nothing, After::Gelu, After::AddTo(&r)] {
                    let fast = linear(&x, layer, after).unwrap();
                    assert_close(&fast, &reference(&x, &w, bias, after).unwrap(), 3e-5);
                }
                let norm = Norm { weight: &random(&[inner], 5), bias: &random(&[inner], 6), epsilon: 1e-5 };
                let fast = norm_linear(&x, norm, layer).unwrap();
                let normed = crate::kernels::layer_norm(&x, norm).unwrap();
                assert_close(&fast, &reference(&normed, &w, bias, After::Nothing).unwrap(), 3e-5);
            }
        }
    }

    #[test]
    fn refuses_shapes_that_do_not_fit() {
        let (x, w) = (random(&[2, 4], 1), Weight::new(random(&[3, 4], 2)).unwrap());
        let (wrong, plain) = (random(&[4], 3), Layer { weight: &w, bias: None });
        assert!(linear(&random(&[2, 5], 1), plain, After::Nothing).is_err());
        assert!(linear(&x, Layer { bias: Some(&wrong), ..plain }, After::Nothing).is_err());
        assert!(linear(&x, plain, After::AddTo(&random(&[2, 4], 3))).is_err());
        assert!(Weight::new(random(&[2, 3, 4], 1)).is_err());
    }
}
