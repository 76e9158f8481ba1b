//! The two linear layers of a transformer's block, with the normalisation before and the residual after. A few rows go
//! through all of it while they are in a core's caches: the hidden numbers, four times as many as all others, never leave.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::layer_norm::Norm;
use super::linear::{After, Layer, bias_of, linear, norm_linear, rows_together};
use super::number::{Number, round_rows};
use super::packed::{Packed, Rows, Start, Target, multiply};
use super::weight::Form;

/// x + second(gelu(first(norm(x)))); x is (..., channels), and so is the result. On a CPU x is changed where it is, and
/// whatever shares its memory with it.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn mlp(x: Tensor, norm: Norm<'_>, first: Layer<'_>, second: Layer<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::mlp(&x, norm, first, second);
    }
    let (order, biases) = (Order::NormFirst(norm), (first.bias, second.bias));
    match (&first.weight.0, &second.weight.0) {
        (Form::F32(up), Form::F32(down)) => fast(x, order, (up, down), biases),
        (Form::Bf16(up), Form::Bf16(down)) => fast(x, order, (up, down), biases),
        _ => reference(&x, norm, first, second),
    }
}

/// The normalised rows of x + second(gelu(first(x))); x is (..., channels), and so is the result. On a CPU x is changed where
/// it is, and whatever shares its memory with it.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn mlp_norm(x: Tensor, first: Layer<'_>, second: Layer<'_>, norm: Norm<'_>) -> Result<Tensor> {
    let (order, biases) = (Order::NormLast(norm), (first.bias, second.bias));
    match (&first.weight.0, &second.weight.0) {
        (Form::F32(up), Form::F32(down)) => fast(x, order, (up, down), biases),
        (Form::Bf16(up), Form::Bf16(down)) => fast(x, order, (up, down), biases),
        _ => super::linear_norm(&linear(&x, first, After::Gelu)?, second, &x, norm),
    }
}

/// Where the normalisation is.
#[derive(Clone, Copy)]
enum Order<'a> {
    /// Before the first layer; the residual is what was not normalised.
    NormFirst(Norm<'a>),
    /// After the residual.
    NormLast(Norm<'a>),
}

fn fast<N: Number>(
    x: Tensor,
    order: Order<'_>,
    (up, down): (&Packed<N>, &Packed<N>),
    (first_bias, second_bias): (Option<&Tensor>, Option<&Tensor>),
) -> Result<Tensor> {
    let ((hidden, channels), (out, inner)) = (up.dims(), down.dims());
    if x.dims().last() != Some(&channels) || out != channels || inner != hidden {
        candle_core::bail!("layers of {channels} to {hidden} and {inner} to {out} for {:?}", x.dims());
    }
    let (Order::NormFirst(norm) | Order::NormLast(norm)) = order;
    let norm = norm.slices(channels)?;
    let norm = norm.get();
    let (first_bias, second_bias) = (bias_of(first_bias, hidden)?, bias_of(second_bias, channels)?);
    let (first_bias, second_bias) =
        (first_bias.as_deref().unwrap_or_default(), second_bias.as_deref().unwrap_or_default());
    let (narrow, wide) = (N::stride(channels), N::stride(hidden));
    super::change(x, |x| {
        let block = rows_together::<N>(x.len() / channels);
        x.par_chunks_mut(block * channels).for_each(|x| {
            let count = x.len() / channels;
            N::with_scratch(count * (narrow + wide), |place| {
                let (operand, between) = place.split_at_mut(count * narrow);
                match order {
                    Order::NormFirst(_) => norm.rows(operand, x),
                    Order::NormLast(_) => round_rows(operand, x, channels),
                }
                if wide > hidden {
                    between.fill(N::default());
                }
                let operand = Rows { values: &*operand, stride: narrow, count };
                let target = Target::Numbers { out: &mut *between, stride: wide, gelu: true };
                multiply(operand, up.panels(), first_bias, target);
                let between = Rows { values: &*between, stride: wide, count };
                let target = Target::Sums { out: &mut *x, stride: channels, start: Start::Present };
                multiply(between, down.panels(), second_bias, target);
            });
            if matches!(order, Order::NormLast(_)) {
                f32::with_scratch(x.len(), |sums| {
                    sums.copy_from_slice(x);
                    norm.rows(x, sums);
                });
            }
        });
        Ok(())
    })
}

/// Layer by layer.
fn reference(x: &Tensor, norm: Norm<'_>, first: Layer<'_>, second: Layer<'_>) -> Result<Tensor> {
    let hidden = super::gelu(&norm_linear(x, norm, first)?)?;
    linear(&hidden, second, After::AddTo(x))
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::super::Weight;
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_layers_one_by_one_over_odd_sizes() {
        for (rows, channels, hidden) in [(1, 1, 1), (2, 3, 5), (49, 33, 64), (97, 64, 31), (200, 32, 128)] {
            let x = random(&[1, rows, channels], 1);
            let norm = Norm { weight: &random(&[channels], 2), bias: &random(&[channels], 3), epsilon: 1e-5 };
            let (up, down) = (random(&[hidden, channels], 4), random(&[channels, hidden], 5));
            let (b1, b2) = (random(&[hidden], 6), random(&[channels], 7));
            let run = |up: Weight, down: Weight| {
                let (first, second) =
                    (Layer { weight: &up, bias: Some(&b1) }, Layer { weight: &down, bias: Some(&b2) });
                let after = mlp_norm(x.copy().unwrap(), first, second, norm).unwrap();
                Tensor::cat(&[mlp(x.copy().unwrap(), norm, first, second).unwrap(), after], 0).unwrap()
            };
            let expected = run(Weight(Form::Plain(up.clone())), Weight(Form::Plain(down.clone())));
            for (dtype, tolerance) in [(DType::F32, 5e-5), (DType::BF16, 0.2)] {
                let weight = |weight: &Tensor| Weight::new(weight.to_dtype(dtype).unwrap()).unwrap();
                assert_close(&run(weight(&up), weight(&down)), &expected, tolerance);
            }
        }
    }

    #[test]
    fn refuses_layers_that_do_not_fit() {
        let norm = Norm { weight: &random(&[4], 1), bias: &random(&[4], 2), epsilon: 1e-5 };
        let (up, down) = (Weight::new(random(&[8, 4], 3)).unwrap(), Weight::new(random(&[5, 8], 4)).unwrap());
        let (first, second) = (Layer { weight: &up, bias: None }, Layer { weight: &down, bias: None });
        assert!(mlp(random(&[2, 4], 5), norm, first, second).is_err());
        assert!(mlp(random(&[2, 3], 5), norm, first, first).is_err());
    }
}
