//! A linear layer, the residual it is added to, and the normalisation of the sum: how a post-norm transformer's halves end.

use candle_core::{Result, Tensor};

use super::{After, Layer, Norm};

/// The normalised rows of residual + x @ weight^T + bias; x is (..., in), residual and the result are (..., out). On a
/// GPU bias, residual and normalisation are one kernel, and the sum is never stored.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn linear_norm(x: &Tensor, layer: Layer<'_>, residual: &Tensor, norm: Norm<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::linear_norm(x, layer, residual, norm);
    }
    super::layer_norm(&super::linear(x, layer, After::AddTo(residual))?, norm)
}

#[cfg(test)]
mod tests {
    use candle_core::D;

    use super::super::Weight;
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn the_sum_is_normalised() {
        let (x, residual) = (random(&[2, 3, 5], 1), random(&[2, 3, 7], 2));
        let (weight, bias, scale) = (random(&[7, 5], 3), random(&[7], 4), random(&[7], 5));
        let sum = x.broadcast_matmul(&weight.t().unwrap()).unwrap().broadcast_add(&bias).unwrap();
        let sum = (sum + &residual).unwrap();
        let centred = sum.broadcast_sub(&sum.mean_keepdim(D::Minus1).unwrap()).unwrap();
        let deviation = (centred.sqr().unwrap().mean_keepdim(D::Minus1).unwrap() + 1e-5).unwrap().sqrt().unwrap();
        let expected = centred.broadcast_div(&deviation).unwrap().broadcast_mul(&scale).unwrap();
        let expected = expected.broadcast_add(&bias).unwrap();

        let weight = Weight::new(weight).unwrap();
        let layer = Layer { weight: &weight, bias: Some(&bias) };
        let norm = Norm { weight: &scale, bias: &bias, epsilon: 1e-5 };
        assert_close(&linear_norm(&x, layer, &residual, norm).unwrap(), &expected, 1e-5);
        assert!(linear_norm(&x, layer, &random(&[2, 3, 5], 6), norm).is_err());
    }
}
