//! Attention between channels, over all tokens of an image (DaViT's channel blocks).

use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;

use super::packed::{Packed, Rows, Start, Target, multiply};
use super::{Matrix, numbers};

/// For each group of channels, A = softmax((q tokens^-0.5)^T k) over its last axis, and out = v A^T; qkv is
/// (batch, tokens, 3 channels), the result (batch, tokens, channels) in the type of qkv. All arithmetic is in f32, and q is
/// scaled before the product, which sums over tens of thousands of tokens.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn channel_attention(qkv: &Tensor, groups: usize) -> Result<Tensor> {
    let (_, _, channels) = qkv.dims3()?;
    if groups == 0 || channels % (3 * groups) != 0 {
        candle_core::bail!("{groups} groups do not fit {:?}", qkv.dims());
    }
    #[cfg(feature = "cuda")]
    if qkv.device().is_cuda() {
        return super::cuda::channel_attention(qkv, groups);
    }
    if super::is_fast(qkv) { fast(qkv, groups) } else { reference(qkv, groups) }
}

fn reference(qkv: &Tensor, groups: usize) -> Result<Tensor> {
    let (batch, tokens, channels) = qkv.dims3()?;
    let size = channels / 3 / groups;
    let parts = qkv
        .to_dtype(DType::F32)?
        .reshape((batch, tokens, 3, groups, size))?
        .permute((2, 0, 3, 1, 4))? // (3, batch, groups, tokens, size)
        .contiguous()?;
    let q = (parts.get(0)? * (tokens as f64).powf(-0.5))?;
    let weights = candle_nn::ops::softmax_last_dim(&q.t()?.contiguous()?.matmul(&parts.get(1)?)?)?; // (batch, groups, size, size)
    parts
        .get(2)?
        .matmul(&weights.t()?.contiguous()?)? // (batch, groups, tokens, size)
        .transpose(1, 2)?
        .reshape((batch, tokens, channels / 3))?
        .to_dtype(qkv.dtype())
}

/// Tokens whose scaled q is kept at a time: 64 kB for 32 channels.
const CHUNK: usize = 512;
/// Tokens whose output one thread computes at a time.
const TOKENS: usize = 96;

fn fast(qkv: &Tensor, groups: usize) -> Result<Tensor> {
    let (batch, tokens, all) = qkv.dims3()?;
    let source = qkv.contiguous()?;
    let source = numbers(&source)?;
    let (source, channels) = (&*source, all / 3);
    let size = channels / groups;
    let weights: Vec<Packed<f32>> = (0..batch * groups)
        .into_par_iter()
        .map(|index| {
            let (image, group) = (index / groups, index % groups);
            let image = &source[image * tokens * all..(image + 1) * tokens * all];
            Packed::new(&weights(image, (all, channels), group * size, size), size, size, |weight| weight)
        })
        .collect();
    let mut out = vec![0.0; batch * tokens * channels];
    out.par_chunks_mut((TOKENS * channels).max(1)).enumerate().for_each(|(chunk, out)| {
        // A chunk may lie across two images: each run of tokens of one image is a product of its own.
        let (mut token, end) = (chunk * TOKENS, chunk * TOKENS + out.len() / channels);
        while token < end {
            let image = token / tokens;
            let count = (end - token).min((image + 1) * tokens - token);
            let rows = &mut out[(token - chunk * TOKENS) * channels..][..count * channels];
            for group in 0..groups {
                let v = &source[token * all + 2 * channels + group * size..];
                let v = Rows { values: v, stride: all, count };
                let a = weights[image * groups + group].panels();
                let target = Target::Sums { out: &mut rows[group * size..], stride: channels, start: Start::Fresh };
                multiply(v, a, &[], target);
            }
            token += count;
        }
    });
    Tensor::from_vec(out, (batch, tokens, channels), &Device::Cpu)
}

/// The (size, size) matrix of one group: row = channel of q.
fn weights(qkv: &[f32], (all, channels): (usize, usize), first: usize, size: usize) -> Vec<f32> {
    let tokens = qkv.len() / all;
    let scale = (tokens as f32).powf(-0.5);
    let (mut logits, mut scaled) = (vec![0.0; size * size], vec![0.0; CHUNK * size]);
    for start in (0..tokens).step_by(CHUNK) {
        let count = CHUNK.min(tokens - start);
        for (token, scaled) in scaled.chunks_exact_mut(size).take(count).enumerate() {
            let q = &qkv[(start + token) * all + first..][..size];
            scaled.iter_mut().zip(q).for_each(|(scaled, q)| *scaled = q * scale);
        }
        let q = Matrix::rows(&scaled, size).transposed();
        let k = Matrix::rows(&qkv[start * all + channels + first..], all);
        super::product((size, count, size), q, k, (&mut logits, size), (true, 1.0));
    }
    super::arithmetic::softmax(&mut logits, size, size);
    logits
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, tokens, groups, size) in
            [(1, 1, 1, 1), (2, 5, 2, 3), (1, 511, 1, 32), (3, 513, 2, 8), (2, 1025, 1, 33)]
        {
            let qkv = random(&[batch, tokens, 3 * groups * size], 1);
            let fast = channel_attention(&qkv, groups).unwrap();
            assert_close(&fast, &reference(&qkv, groups).unwrap(), 2e-5);
        }
        assert!(channel_attention(&random(&[1, 4, 7], 1), 2).is_err());
    }
}
