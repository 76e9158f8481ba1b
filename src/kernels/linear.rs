//! A linear layer with what comes before and after it: a normalisation; the bias, a GELU, or the residual it is added to.

use std::ops::Deref;

use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

use super::layer_norm::{Norm, NormSlices};
use super::number::{Number, round_rows};
use super::numbers;
use super::packed::{PANEL, Packed, Rows, Start, Target, multiply};
use super::weight::{Form, Weight};

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
    match &layer.weight.0 {
        Form::F32(weight) => fast(x, None, weight, layer.bias, after),
        Form::Bf16(weight) => fast(x, None, weight, layer.bias, after),
        Form::Plain(weight) => reference(x, weight, layer.bias, after),
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
    match &layer.weight.0 {
        Form::F32(weight) => fast(x, Some(norm), weight, layer.bias, After::Nothing),
        Form::Bf16(weight) => fast(x, Some(norm), weight, layer.bias, After::Nothing),
        Form::Plain(weight) => reference(&super::layer_norm(x, norm)?, weight, layer.bias, After::Nothing),
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

fn fast<N: Number>(
    x: &Tensor,
    norm: Option<Norm<'_>>,
    weight: &Packed<N>,
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
    if norm.is_none() && rows <= FEW_ROWS {
        let mut result = by_outputs(&x, rows, weight, bias);
        if gelu {
            super::gelu::gelu_chunk(&mut result);
        }
        if let Some(residual) = residual.as_deref() {
            result.iter_mut().zip(residual).for_each(|(result, residual)| *result += residual);
        }
        return Tensor::from_vec(result, shape, &Device::Cpu);
    }
    let mut result = vec![0.0; rows * out];
    let block = rows_together::<N>(rows);
    result.par_chunks_mut(block * out).zip(x.par_chunks(block * inner)).enumerate().for_each(|(index, (result, x))| {
        let count = x.len() / inner;
        let start = match residual.as_deref() {
            Some(residual) => {
                result.copy_from_slice(&residual[index * block * out..][..result.len()]);
                Start::Present
            }
            None => Start::Fresh,
        };
        let target = Target::Sums { out: &mut *result, stride: out, start };
        match norm {
            Some(norm) => N::with_scratch(count * N::stride(inner), |operand| {
                norm.rows(operand, x);
                let rows = Rows { values: operand, stride: N::stride(inner), count };
                multiply(rows, weight.panels(), bias, target);
            }),
            None => N::with_operand(x, inner, |rows| multiply(rows, weight.panels(), bias, target)),
        }
        if gelu {
            super::gelu::gelu_chunk(result);
        }
    });
    Tensor::from_vec(result, shape, &Device::Cpu)
}

/// Rows that one thread takes together: some tiles, which stay in its caches with a panel; fewer where that shares out the
/// work more evenly.
pub(super) fn rows_together<N: Number>(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    // Rows that the thread with most of them has.
    let most = |together: usize| rows.div_ceil(together).div_ceil(threads) * together;
    let sizes = (1..=N::ROWS / N::TILE_ROWS).rev().map(|tiles| tiles * N::TILE_ROWS);
    // The largest of the best: a panel is read once for all of them.
    sizes.min_by_key(|&together| most(together)).unwrap_or(N::ROWS)
}

/// (rows, out), the outputs shared out among the threads.
fn by_outputs<N: Number>(x: &[f32], rows: usize, weight: &Packed<N>, bias: &[f32]) -> Vec<f32> {
    let (out, inner) = weight.dims();
    let mut result = vec![0.0; rows * out];
    if rows == 0 {
        return result;
    }
    let stride = N::stride(inner);
    N::with_scratch(rows * stride, |operand| {
        round_rows(operand, x, inner);
        let x = Rows { values: &*operand, stride, count: rows };
        let panels = TASK.div_ceil(rows * inner * PANEL);
        if panels * PANEL >= out {
            multiply(x, weight.panels(), bias, Target::Sums { out: &mut result, stride: out, start: Start::Fresh });
            return;
        }
        // Each task has its outputs for all rows together; with one row that is the result.
        result.par_chunks_mut(rows * panels * PANEL).enumerate().for_each(|(task, result)| {
            let (first, count) = (task * panels * PANEL, result.len() / rows);
            let bias = if bias.is_empty() { bias } else { &bias[first..first + count] };
            let target = Target::Sums { out: result, stride: count, start: Start::Fresh };
            multiply(x, weight.panels().part(task * panels, panels), bias, target);
        });
        if rows == 1 {
            return;
        }
        let mut in_rows = vec![0.0; rows * out];
        for (task, block) in result.chunks(rows * panels * PANEL).enumerate() {
            let (first, count) = (task * panels * PANEL, block.len() / rows);
            for (row, block) in block.chunks_exact(count).enumerate() {
                in_rows[row * out + first..][..count].copy_from_slice(block);
            }
        }
        result = in_rows;
    });
    result
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
    }
}
