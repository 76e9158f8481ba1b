//! The first half of DaViT's channel blocks: normalisation, queries, keys and values, attention between channels, projection,
//! residual. Two passes over the tokens, since every output needs all of them: the first adds up the products of queries and
//! keys, the second makes the values and what follows. Between them only small matrices are kept.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::arithmetic::softmax;
use super::attention_layers::{AttentionLayers, with_layers};
use super::channel_attention;
use super::layer_norm::Norm;
use super::linear::{After, Layer, linear, norm_linear, rows_together};
use super::number::Number;
use super::packed::{PANEL, Packed, Panels, Rows, Start, Target, multiply};
use super::weight::Form;

/// The layers and sizes of a [`channel_block`].
#[derive(Debug, Clone, Copy)]
pub struct ChannelBlock<'a> {
    /// Before everything.
    pub norm: Norm<'a>,
    /// (3 channels, channels): queries, keys, values.
    pub qkv: Layer<'a>,
    /// (channels, channels).
    pub proj: Layer<'a>,
    /// Groups of channels that attend to each other.
    pub groups: usize,
}

/// x + proj(channel attention(qkv(norm(x)))); x is (batch, height, width, channels), and so is the result. See
/// [`channel_attention()`]. On a CPU x is changed where it is, and whatever shares its memory with it.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn channel_block(x: Tensor, block: ChannelBlock<'_>) -> Result<Tensor> {
    if x.dim(3)?.is_multiple_of(PANEL) {
        match (&block.qkv.weight.0, &block.proj.weight.0) {
            (Form::F32(qkv), Form::F32(proj)) => return fast(x, block, qkv, proj),
            (Form::Bf16(qkv), Form::Bf16(proj)) => return fast(x, block, qkv, proj),
            _ => {}
        }
    }
    step_by_step(&x, block)
}

fn step_by_step(x: &Tensor, block: ChannelBlock<'_>) -> Result<Tensor> {
    let qkv = norm_linear(x, block.norm, block.qkv)?.flatten(1, 2)?; // (batch, tokens, 3 channels)
    let attended = channel_attention(&qkv, block.groups)?.reshape(x.shape())?; // (batch, height, width, channels)
    linear(&attended, block.proj, After::AddTo(x))
}

fn fast<N: Number>(x: Tensor, block: ChannelBlock<'_>, qkv: &Packed<N>, proj: &Packed<N>) -> Result<Tensor> {
    let (batch, height, width, channels) = x.dims4()?;
    with_layers((channels, block.groups), block.norm, (qkv, block.qkv), (proj, block.proj), |layers| {
        super::change(x, |x| {
            for image in x.chunks_exact_mut((height * width * channels).max(1)).take(batch) {
                let weights = channel_weights(image, layers);
                apply(image, &weights, layers);
            }
            Ok(())
        })
    })
}

/// Tokens whose products are added up together. The sum of the sums does not depend on the number of threads.
const CHUNK: usize = 576;
/// Tokens whose queries and keys go into one product.
const TOKENS: usize = 192;

/// The (size, size) matrix of each group.
fn channel_weights<N: Number>(image: &[f32], layers: &AttentionLayers<'_, N>) -> Vec<Packed<N>> {
    let (channels, size) = (layers.proj.dims().0, layers.size);
    let panels = layers.qkv.panels().part(0, 2 * channels / PANEL);
    let bias = &layers.qkv_bias[..2 * channels];
    let tokens = image.len() / channels;
    let chunks: Vec<Vec<f32>> = image
        .par_chunks(CHUNK * channels)
        .map(|chunk| {
            let mut logits = vec![0.0; channels * size];
            for x in chunk.chunks(TOKENS * channels) {
                let (count, stride) = (x.len() / channels, N::stride(channels));
                f32::with_scratch(count * 2 * channels, |products| {
                    N::with_scratch(count * stride, |normed| {
                        layers.norm.rows(normed, x);
                        let rows = Rows { values: &*normed, stride, count };
                        let target = Target::Sums { out: &mut *products, stride: 2 * channels, start: Start::Fresh };
                        multiply(rows, panels, bias, target);
                    });
                    for (group, logits) in logits.chunks_exact_mut(size * size).enumerate() {
                        add_outer(logits, &products[group * size..], 2 * channels, channels, size);
                    }
                });
            }
            logits
        })
        .collect();
    let mut logits = vec![0.0f32; channels * size];
    for chunk in &chunks {
        logits.iter_mut().zip(chunk).for_each(|(sum, chunk)| *sum += chunk);
    }
    let scale = (tokens as f32).powf(-0.5);
    for logit in &mut logits {
        *logit *= scale;
    }
    softmax(&mut logits, size, size);
    logits.chunks_exact(size * size).map(|group| Packed::new(group, size, size, N::from_f32)).collect()
}

/// Adds to `logits` (size, size) the products of a query's channel and a key's, for each token; tokens are `stride` apart, keys
/// `to_keys` behind queries. A product like any other, once the queries are transposed and the keys lie in panels.
fn add_outer(logits: &mut [f32], tokens: &[f32], stride: usize, to_keys: usize, size: usize) {
    let count = tokens.len().div_ceil(stride);
    f32::with_scratch((size + size.next_multiple_of(PANEL)) * count, |place| {
        let (queries, keys) = place.split_at_mut(size * count);
        for (token, numbers) in tokens.chunks(stride).enumerate() {
            for (query, number) in numbers[..size].iter().enumerate() {
                queries[query * count + token] = *number;
            }
            for (panel, numbers) in numbers[to_keys..to_keys + size].chunks(PANEL).enumerate() {
                let line = &mut keys[(panel * count + token) * PANEL..][..PANEL];
                line[..numbers.len()].copy_from_slice(numbers);
                line[numbers.len()..].fill(0.0);
            }
        }
        let queries = Rows { values: &*queries, stride: count, count: size };
        let keys = Panels { numbers: &*keys, inner: count, out: size };
        multiply(queries, keys, &[], Target::Sums { out: logits, stride: size, start: Start::Present });
    });
}

/// Adds the projected attention to the image.
fn apply<N: Number>(image: &mut [f32], weights: &[Packed<N>], layers: &AttentionLayers<'_, N>) {
    let (channels, size) = (layers.proj.dims().0, layers.size);
    let values = layers.qkv.panels().part(2 * channels / PANEL, channels / PANEL);
    let bias = &layers.qkv_bias[2 * channels..];
    let (block, stride) = (rows_together::<N>(image.len() / channels), N::stride(channels));
    image.par_chunks_mut(block * channels).for_each(|x| {
        let count = x.len() / channels;
        // The last group may be looked at beyond its end, where its weights are zeros.
        N::with_scratch(count * 2 * stride + PANEL, |place| {
            let (normed, v) = place.split_at_mut(count * stride);
            layers.norm.rows(normed, x);
            v[count * stride..].fill(N::default());
            let rows = Rows { values: &*normed, stride, count };
            multiply(rows, values, bias, Target::Numbers { out: &mut *v, stride, gelu: false });
            // What was normalised is not needed any more: what is attended takes its place.
            for (group, weights) in weights.iter().enumerate() {
                let rows = Rows { values: &v[group * size..], stride, count };
                let target = Target::Numbers { out: &mut normed[group * size..], stride, gelu: false };
                multiply(rows, weights.panels(), &[], target);
            }
            let rows = Rows { values: &*normed, stride, count };
            let target = Target::Sums { out: x, stride: channels, start: Start::Present };
            multiply(rows, layers.proj.panels(), layers.proj_bias, target);
        });
    });
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::super::Weight;
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_steps_one_by_one_over_odd_sizes() {
        for (batch, height, width, groups, channels) in
            [(1, 1, 1, 1, 32), (2, 5, 3, 2, 64), (1, 29, 41, 4, 128), (2, 7, 7, 4, 32), (1, 25, 24, 3, 96)]
        {
            let x = random(&[batch, height, width, channels], 1);
            let norm = Norm { weight: &random(&[channels], 2), bias: &random(&[channels], 3), epsilon: 1e-5 };
            let (qkv, proj) = (random(&[3 * channels, channels], 4), random(&[channels, channels], 5));
            let (qkv_bias, proj_bias) = (random(&[3 * channels], 6), random(&[channels], 7));
            for (dtype, tolerance) in [(DType::F32, 2e-4), (DType::BF16, 0.4)] {
                let weight = |weight: &Tensor| Weight::new((weight * 0.3).unwrap().to_dtype(dtype).unwrap()).unwrap();
                let (qkv, proj) = (weight(&qkv), weight(&proj));
                let block = ChannelBlock {
                    norm,
                    qkv: Layer { weight: &qkv, bias: Some(&qkv_bias) },
                    proj: Layer { weight: &proj, bias: Some(&proj_bias) },
                    groups,
                };
                let expected = step_by_step(&x, block).unwrap();
                assert_close(&channel_block(x.copy().unwrap(), block).unwrap(), &expected, tolerance);
            }
        }
    }

    #[test]
    fn refuses_layers_that_do_not_fit() {
        let (qkv, proj) = (Weight::new(random(&[96, 32], 1)).unwrap(), Weight::new(random(&[64, 32], 2)).unwrap());
        let norm = Norm { weight: &random(&[32], 2), bias: &random(&[32], 3), epsilon: 1e-5 };
        let block = ChannelBlock {
            norm,
            qkv: Layer { weight: &qkv, bias: None },
            proj: Layer { weight: &proj, bias: None },
            groups: 1,
        };
        assert!(channel_block(random(&[1, 2, 2, 32], 3), block).is_err());
    }
}
