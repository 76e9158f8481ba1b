//! The grid of an image with its positions, and its mean in front: what Florence-2 hands to its text model.

use candle_core::{DType, Result, Tensor};

/// The mean over the tokens of x + position, then x + position; x is (batch, tokens, channels), position is shaped like one
/// item, with or without a batch of one, and the result is (batch, 1 + tokens, channels). The mean is in f32.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn image_tokens(x: &Tensor, position: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::image_tokens(x, position);
    }
    let x = super::add_to_each(x, position)?;
    let mean = x.to_dtype(DType::F32)?.mean_keepdim(1)?.to_dtype(x.dtype())?; // (batch, 1, channels)
    Tensor::cat(&[mean, x], 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn the_mean_comes_first() {
        let (x, position) = (random(&[2, 3, 5], 1), random(&[1, 3, 5], 2));
        let tokens = image_tokens(&x, &position).unwrap();
        assert_eq!(tokens.dims(), [2, 4, 5]);
        let grid = tokens.narrow(1, 1, 3).unwrap();
        assert_close(&grid, &x.broadcast_add(&position).unwrap(), 0.0);
        let sum = ((grid.get_on_dim(1, 0).unwrap() + grid.get_on_dim(1, 1).unwrap()).unwrap()
            + grid.get_on_dim(1, 2).unwrap())
        .unwrap();
        assert_close(&tokens.get_on_dim(1, 0).unwrap(), &(sum / 3.0).unwrap(), 1e-6);
        assert!(image_tokens(&x, &random(&[2, 5], 3)).is_err());
    }
}
