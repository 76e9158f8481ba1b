//! The two linear layers of a transformer's block, with the normalisation before and the residual after. A few rows go
//! through all of it while they are in a core's caches: the hidden numbers, four times as many as all others, never leave.

use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

use super::layer_norm::Norm;
use super::linear::{After, Layer, ROWS, Weight, bias_of, linear, norm_linear};
use super::packed::{Rows, Start, multiply};
use super::{numbers, scratch};

/// x + second(gelu(first(norm(x)))); x is (..., channels), and so is the result.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn mlp(x: &Tensor, norm: Norm<'_>, first: Layer<'_>, second: Layer<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::mlp(x, norm, first, second);
    }
    let (Weight::Packed(up), Weight::Packed(down)) = (first.weight, second.weight) else {
        return reference(x, norm, first, second);
    };
    let ((hidden, channels), (out, inner)) = (up.dims(), down.dims());
    if x.dims().last() != Some(&channels) || out != channels || inner != hidden {
        candle_core::bail!("layers of {channels} to {hidden} and {inner} to {out} for {:?}", x.dims());
    }
    let source = x.contiguous()?;
    let source = numbers(&source)?;
    let norm = norm.slices(channels)?;
    let norm = norm.get();
    let (first_bias, second_bias) = (bias_of(first.bias, hidden)?, bias_of(second.bias, channels)?);
    let (first_bias, second_bias) =
        (first_bias.as_deref().unwrap_or_default(), second_bias.as_deref().unwrap_or_default());
    let mut result = vec![0.0; source.len()];
    let blocks = result.par_chunks_mut(ROWS * channels).zip(source.par_chunks(ROWS * channels));
    blocks.for_each(|(result, x)| {
        let count = x.len() / channels;
        scratch::with(count * (channels + hidden), |place| {
            let (normed, between) = place.split_at_mut(x.len());
            norm.rows(normed, x);
            let normed = Rows { values: normed, stride: channels, count };
            multiply(normed, up.panels(), first_bias, Start::Fresh, between, hidden);
            super::gelu::gelu_chunk(between);
            result.copy_from_slice(x);
            let between = Rows { values: between, stride: hidden, count };
            multiply(between, down.panels(), second_bias, Start::Present, result, channels);
        });
    });
    Tensor::from_vec(result, x.shape(), &Device::Cpu)
}

/// Layer by layer.
fn reference(x: &Tensor, norm: Norm<'_>, first: Layer<'_>, second: Layer<'_>) -> Result<Tensor> {
    let hidden = super::gelu(&norm_linear(x, norm, first)?)?;
    linear(&hidden, second, After::AddTo(x))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_layers_one_by_one_over_odd_sizes() {
        for (rows, channels, hidden) in [(1, 1, 1), (2, 3, 5), (49, 33, 64), (97, 64, 31)] {
            let x = random(&[1, rows, channels], 1);
            let norm = Norm { weight: &random(&[channels], 2), bias: &random(&[channels], 3), epsilon: 1e-5 };
            let (up, down) = (random(&[hidden, channels], 4), random(&[channels, hidden], 5));
            let (b1, b2) = (random(&[hidden], 6), random(&[channels], 7));
            let run = |up: Weight, down: Weight| {
                let (first, second) =
                    (Layer { weight: &up, bias: Some(&b1) }, Layer { weight: &down, bias: Some(&b2) });
                mlp(&x, norm, first, second).unwrap()
            };
            let fast = run(Weight::new(up.clone()).unwrap(), Weight::new(down.clone()).unwrap());
            assert_close(&fast, &run(Weight::Plain(up), Weight::Plain(down)), 5e-5);
        }
    }

    #[test]
    fn refuses_layers_that_do_not_fit() {
        let norm = Norm { weight: &random(&[4], 1), bias: &random(&[4], 2), epsilon: 1e-5 };
        let (up, down) = (Weight::new(random(&[8, 4], 3)).unwrap(), Weight::new(random(&[5, 8], 4)).unwrap());
        let (first, second) = (Layer { weight: &up, bias: None }, Layer { weight: &down, bias: None });
        assert!(mlp(&random(&[2, 4], 5), norm, first, second).is_err());
        assert!(mlp(&random(&[2, 3], 5), norm, first, first).is_err());
    }
}
