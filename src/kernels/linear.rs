//! A linear layer with what comes after it: the bias, and a GELU or the residual it is added to.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{Matrix, Threads};

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

/// x @ weight^T + bias, then `after`; x is (..., in), weight is (out, in), bias is (out), the result (..., out).
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, after: After<'_>) -> Result<Tensor> {
    if !super::is_fast(x) {
        return reference(x, weight, bias, after);
    }
    let residual = match after {
        After::AddTo(residual) => Some(residual.contiguous()?),
        After::Nothing | After::Gelu => None,
    };
    let op = Linear { bias: bias.cloned(), residual, gelu: matches!(after, After::Gelu) };
    x.contiguous()?.apply_op2_no_bwd(weight, &op)
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

struct Linear {
    bias: Option<Tensor>,
    residual: Option<Tensor>,
    gelu: bool,
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (out, inner) = w_layout.shape().dims2()?;
        let mut shape = x_layout.dims().to_vec();
        if shape.last() != Some(&inner) {
            candle_core::bail!("a linear layer of {inner} inputs was given {:?}", x_layout.dims());
        }
        if let Some(last) = shape.last_mut() {
            *last = out;
        }
        let (x, w) = (super::floats(x, x_layout)?, super::floats(w, w_layout)?);
        let rows = x.len() / inner.max(1);
        let mut result = self.start(rows, out)?;
        let keep = self.bias.is_some() || self.residual.is_some();
        super::product(
            (rows, inner, out),
            Matrix::rows(x, inner),
            Matrix::rows(w, inner).transposed(),
            (&mut result, out),
            (keep, 1.0),
            Threads::All,
        );
        if self.gelu {
            super::gelu::gelu_in_place(&mut result);
        }
        Ok((CpuStorage::F32(result), shape.into()))
    }
}

impl Linear {
    /// What the product is added to: the residual and the bias, so that neither needs a pass of its own.
    fn start(&self, rows: usize, out: usize) -> Result<Vec<f32>> {
        let mut start = match &self.residual {
            Some(residual) => {
                let (storage, layout) = residual.storage_and_layout();
                let candle_core::Storage::Cpu(storage) = &*storage else {
                    candle_core::bail!("a residual on another device")
                };
                let residual = super::floats(storage, layout)?;
                if residual.len() != rows * out {
                    candle_core::bail!("a residual of {} numbers for an output of {rows} x {out}", residual.len());
                }
                residual.to_vec()
            }
            None => vec![0.0; rows * out],
        };
        if let Some(bias) = &self.bias {
            let (storage, layout) = bias.storage_and_layout();
            let candle_core::Storage::Cpu(storage) = &*storage else { candle_core::bail!("a bias on another device") };
            let bias = super::floats(storage, layout)?;
            if bias.len() != out {
                candle_core::bail!("a bias of {} numbers for {out} outputs", bias.len());
            }
            start.par_chunks_mut(out * 64).for_each(|rows| {
                for row in rows.chunks_exact_mut(out) {
                    row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
                }
            });
        }
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (rows, inner, out) in [(1, 1, 1), (1, 64, 3), (2, 3, 5), (7, 31, 33), (65, 64, 129), (3, 129, 8)] {
            let (x, w) = (random(&[1, rows, inner], 1), random(&[out, inner], 2));
            let (b, r) = (random(&[out], 3), random(&[1, rows, out], 4));
            for bias in [None, Some(&b)] {
                for after in [After::Nothing, After::Gelu, After::AddTo(&r)] {
                    let fast = linear(&x, &w, bias, after).unwrap();
                    assert_close(&fast, &reference(&x, &w, bias, after).unwrap(), 2e-5);
                }
            }
        }
    }

    #[test]
    fn refuses_shapes_that_do_not_fit() {
        let (x, w) = (random(&[2, 4], 1), random(&[3, 4], 2));
        assert!(linear(&random(&[2, 5], 1), &w, None, After::Nothing).is_err());
        assert!(linear(&x, &w, Some(&random(&[4], 3)), After::Nothing).is_err());
        assert!(linear(&x, &w, None, After::AddTo(&random(&[2, 4], 3))).is_err());
    }
}
