//! Self-attention inside square windows of a grid, without shift, mask or relative positions (DaViT's spatial blocks).

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{Matrix, Threads};

/// For each window and head softmax(q k^T / sqrt(head size)) v; qkv is (batch, height, width, 3 channels) with both sides
/// multiples of `window`, the result (batch, height, width, channels) in the type of qkv. Logits and softmax are in f32.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn window_attention(qkv: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (_, height, width, channels) = qkv.dims4()?;
    if window == 0 || heads == 0 || height % window != 0 || width % window != 0 || channels % (3 * heads) != 0 {
        candle_core::bail!("windows of {window} with {heads} heads do not fit {:?}", qkv.dims());
    }
    if super::is_fast(qkv) {
        return qkv.contiguous()?.apply_op1_no_bwd(&WindowAttention { window, heads });
    }
    reference(qkv, window, heads)
}

fn reference(qkv: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (batch, height, width, channels) = qkv.dims4()?;
    let (rows, columns, tokens, channels) = (height / window, width / window, window * window, channels / 3);
    let size = channels / heads;
    let parts = qkv
        .to_dtype(DType::F32)?
        .reshape((batch, rows, window, columns, window, 3 * channels))?
        .permute([0, 1, 3, 2, 4, 5])? // (batch, rows, columns, window, window, 3 channels)
        .reshape((batch * rows * columns, tokens, 3, heads, size))?
        .permute((2, 0, 3, 1, 4))? // (3, windows, heads, tokens, size)
        .contiguous()?;
    let (q, k, v) = ((parts.get(0)? * (size as f64).powf(-0.5))?, parts.get(1)?, parts.get(2)?);
    let weights = candle_nn::ops::softmax_last_dim(&q.matmul(&k.t()?)?)?; // (windows, heads, tokens, tokens)
    weights
        .matmul(&v)? // (windows, heads, tokens, size)
        .transpose(1, 2)?
        .reshape((batch, rows, columns, window, window, channels))?
        .permute([0, 1, 3, 2, 4, 5])?
        .reshape((batch, height, width, channels))?
        .to_dtype(qkv.dtype())
}

struct WindowAttention {
    window: usize,
    heads: usize,
}

impl CustomOp1 for WindowAttention {
    fn name(&self) -> &'static str {
        "window-attention"
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, height, width, all) = layout.shape().dims4()?;
        let (qkv, channels) = (super::floats(qkv, layout)?, all / 3);
        let mut out = vec![0.0; batch * height * width * channels];
        // A band of windows, `window` rows of the grid, is written by one thread.
        let band = self.window * width * channels;
        out.par_chunks_mut(band.max(1)).zip(qkv.par_chunks((3 * band).max(1))).for_each(|(out, qkv)| {
            let mut scratch = Scratch::new(self.window * self.window, channels / self.heads);
            for column in (0..width).step_by(self.window) {
                for head in 0..self.heads {
                    self.attend(out, qkv, (width, channels, column, head), &mut scratch);
                }
            }
        });
        Ok((CpuStorage::F32(out), (batch, height, width, channels).into()))
    }
}

/// One window's and head's numbers side by side: they fit in the first two caches.
struct Scratch {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
}

impl Scratch {
    fn new(tokens: usize, size: usize) -> Self {
        let tile = || vec![0.0; tokens * size];
        Self { q: tile(), k: tile(), v: tile(), scores: vec![0.0; tokens * tokens], out: tile() }
    }
}

impl WindowAttention {
    fn attend(
        &self,
        out: &mut [f32],
        qkv: &[f32],
        (width, channels, column, head): (usize, usize, usize, usize),
        scratch: &mut Scratch,
    ) {
        let (tokens, size) = (self.window * self.window, channels / self.heads);
        let cell = |token: usize| token / self.window * width + column + token % self.window;
        for token in 0..tokens {
            let from = cell(token) * 3 * channels + head * size;
            let tile = token * size..(token + 1) * size;
            scratch.q[tile.clone()].copy_from_slice(&qkv[from..from + size]);
            scratch.k[tile.clone()].copy_from_slice(&qkv[from + channels..from + channels + size]);
            scratch.v[tile].copy_from_slice(&qkv[from + 2 * channels..from + 2 * channels + size]);
        }
        let (q, k, v) =
            (Matrix::rows(&scratch.q, size), Matrix::rows(&scratch.k, size), Matrix::rows(&scratch.v, size));
        let scale = (size as f32).powf(-0.5);
        let one = Threads::One;
        super::product((tokens, size, tokens), q, k.transposed(), (&mut scratch.scores, tokens), (false, scale), one);
        scratch.scores.chunks_exact_mut(tokens).for_each(super::softmax);
        let weights = Matrix::rows(&scratch.scores, tokens);
        super::product((tokens, tokens, size), weights, v, (&mut scratch.out, size), (false, 1.0), one);
        for (token, tile) in scratch.out.chunks_exact(size).enumerate() {
            let to = cell(token) * channels + head * size;
            out[to..to + size].copy_from_slice(tile);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, rows, columns, window, heads, size) in
            [(1, 1, 1, 1, 1, 1), (2, 1, 2, 3, 2, 4), (1, 2, 1, 12, 1, 32), (1, 3, 2, 5, 3, 7)]
        {
            let qkv = random(&[batch, rows * window, columns * window, 3 * heads * size], 1);
            let fast = window_attention(&qkv, window, heads).unwrap();
            assert_close(&fast, &reference(&qkv, window, heads).unwrap(), 1e-5);
        }
        assert!(window_attention(&random(&[1, 5, 4, 6], 1), 2, 1).is_err());
    }
}
