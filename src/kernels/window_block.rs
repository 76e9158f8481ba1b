//! The first half of DaViT's spatial blocks: normalisation, queries, keys and values, attention inside windows, projection,
//! residual. Each window goes through all of it while it is in a core's caches.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::attention_layers::{AttentionLayers, with_layers};
use super::layer_norm::Norm;
use super::linear::{After, Layer, linear, norm_linear};
use super::number::Number;
use super::packed::{Packed, Rows, Start, Target, multiply};
use super::weight::Form;
use super::window_attention;
use super::window_attention::attend;

/// The layers and sizes of a [`window_block`].
#[derive(Debug, Clone, Copy)]
pub struct WindowBlock<'a> {
    /// Before everything.
    pub norm: Norm<'a>,
    /// (3 channels, channels): queries, keys, values. Its bias is what a place beyond the grid has for all three.
    pub qkv: Layer<'a>,
    /// (channels, channels).
    pub proj: Layer<'a>,
    /// Side of a window.
    pub window: usize,
    /// Heads; each has channels / heads channels.
    pub heads: usize,
}

/// x + proj(window attention(qkv(norm(x)))); x is (batch, height, width, channels), and so is the result. See
/// [`window_attention()`] for grids that are no multiple of the window. On a CPU x is changed where it is, and whatever shares
/// its memory with it.
///
/// # Errors
/// Shapes that do not fit, a layer without bias, or a device failure.
pub fn window_block(x: Tensor, block: WindowBlock<'_>) -> Result<Tensor> {
    let (batch, height, width, _) = x.dims4()?;
    let windows =
        if block.window == 0 { 0 } else { batch * height.div_ceil(block.window) * width.div_ceil(block.window) };
    // Few windows cannot keep many threads busy; there are more heads.
    if windows >= rayon::current_num_threads() {
        match (&block.qkv.weight.0, &block.proj.weight.0) {
            (Form::F32(qkv), Form::F32(proj)) => return fast(x, block, qkv, proj),
            (Form::Bf16(qkv), Form::Bf16(proj)) => return fast(x, block, qkv, proj),
            _ => {}
        }
    }
    step_by_step(&x, block)
}

fn step_by_step(x: &Tensor, block: WindowBlock<'_>) -> Result<Tensor> {
    let qkv = norm_linear(x, block.norm, block.qkv)?; // (batch, height, width, 3 channels)
    let Some(padding) = block.qkv.bias else { candle_core::bail!("queries, keys and values need a bias") };
    // Windows are filled up after the norm, with zeros, whose queries, keys and values are the biases.
    let attended = window_attention(&qkv, padding, block.window, block.heads)?; // (batch, height, width, channels)
    linear(&attended, block.proj, After::AddTo(x))
}

fn fast<N: Number>(x: Tensor, block: WindowBlock<'_>, qkv: &Packed<N>, proj: &Packed<N>) -> Result<Tensor> {
    let (batch, height, width, channels) = x.dims4()?;
    if block.qkv.bias.is_none() {
        candle_core::bail!("queries, keys and values need a bias");
    }
    with_layers((channels, block.heads), block.norm, (qkv, block.qkv), (proj, block.proj), |layers| {
        super::change(x, |x| {
            for image in x.chunks_exact_mut((height * width * channels).max(1)).take(batch) {
                attend_image(image, (height, width), block.window, layers);
            }
            Ok(())
        })
    })
}

/// One image in place. A window is pieces of lines of the image: each is handed, line by line, to the window it belongs to.
fn attend_image<N: Number>(
    image: &mut [f32],
    (height, width): (usize, usize),
    window: usize,
    layers: &AttentionLayers<'_, N>,
) {
    let channels = layers.proj.dims().0;
    let (rows, columns) = (height.div_ceil(window), width.div_ceil(window));
    let mut windows: Vec<Vec<&mut [f32]>> = (0..rows * columns).map(|_| Vec::with_capacity(window)).collect();
    for (y, line) in image.chunks_exact_mut(width * channels).enumerate() {
        for (column, piece) in line.chunks_mut(window * channels).enumerate() {
            windows[y / window * columns + column].push(piece);
        }
    }
    windows.into_par_iter().with_max_len(1).for_each(|lines| attend_window(lines, window, layers));
}

/// One window of lines of the image, fewer or shorter at its edges.
fn attend_window<N: Number>(mut lines: Vec<&mut [f32]>, window: usize, layers: &AttentionLayers<'_, N>) {
    let (channels, size) = (layers.proj.dims().0, layers.size);
    let columns = lines.first().map_or(0, |line| line.len() / channels);
    let real = lines.len() * columns;
    let stride = N::stride(channels);
    N::with_scratch(real * (stride + 3 * channels) + 3 * channels, |place| {
        let (operand, place) = place.split_at_mut(real * stride);
        let (qkv, padding) = place.split_at_mut(real * 3 * channels);
        for (line, normed) in lines.iter().zip(operand.chunks_exact_mut(columns * stride)) {
            layers.norm.rows(normed, line);
        }
        let rows = Rows { values: &*operand, stride, count: real };
        let target = Target::Numbers { out: &mut *qkv, stride: 3 * channels, gelu: false };
        multiply(rows, layers.qkv.panels(), layers.qkv_bias, target);
        padding.iter_mut().zip(layers.qkv_bias).for_each(|(padding, bias)| *padding = N::from_f32(*bias));
        // What was normalised is not needed any more: what is attended takes its place.
        operand.fill(N::default());
        for head in 0..channels / size {
            let token = |token: usize, part: usize| -> &[N] {
                let (y, x) = (token / window, token % window);
                let all = if y < lines.len() && x < columns {
                    &qkv[(y * columns + x) * 3 * channels..][..3 * channels]
                } else {
                    &*padding
                };
                &all[part * channels + head * size..][..size]
            };
            let real = |place: usize| {
                let (y, x) = (place / window, place % window);
                (y < lines.len() && x < columns).then_some(y * columns + x)
            };
            attend((&mut operand[head * size..], stride), token, real, (window * window, window * window), size);
        }
        let rows = Rows { values: &*operand, stride, count: real };
        f32::with_scratch(real * channels, |sums| {
            let target = Target::Sums { out: &mut *sums, stride: channels, start: Start::Fresh };
            multiply(rows, layers.proj.panels(), layers.proj_bias, target);
            for (line, sums) in lines.iter_mut().zip(sums.chunks_exact(columns * channels)) {
                line.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum);
            }
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
        for (batch, height, width, window, heads, size) in [
            (2, 3, 6, 3, 2, 4),
            (1, 24, 24, 12, 2, 32),
            (1, 15, 10, 5, 3, 7),
            (2, 16, 13, 14, 2, 33),
            (3, 5, 4, 2, 1, 2),
            (1, 7, 20, 12, 1, 32),
        ] {
            let channels = heads * size;
            let x = random(&[batch, height, width, channels], 1);
            let norm = Norm { weight: &random(&[channels], 2), bias: &random(&[channels], 3), epsilon: 1e-5 };
            let (qkv, proj) = (random(&[3 * channels, channels], 4), random(&[channels, channels], 5));
            let (qkv_bias, proj_bias) = (random(&[3 * channels], 6), random(&[channels], 7));
            let run = |dtype: DType, whole: bool| {
                let weight = |weight: &Tensor| Weight::new((weight * 0.2).unwrap().to_dtype(dtype).unwrap()).unwrap();
                let (qkv, proj) = (weight(&qkv), weight(&proj));
                let block = WindowBlock {
                    norm,
                    qkv: Layer { weight: &qkv, bias: Some(&qkv_bias) },
                    proj: Layer { weight: &proj, bias: Some(&proj_bias) },
                    window,
                    heads,
                };
                match (whole, &qkv.0, &proj.0) {
                    (false, ..) => step_by_step(&x, block).unwrap(),
                    (true, Form::F32(qkv), Form::F32(proj)) => fast(x.copy().unwrap(), block, qkv, proj).unwrap(),
                    (true, Form::Bf16(qkv), Form::Bf16(proj)) => fast(x.copy().unwrap(), block, qkv, proj).unwrap(),
                    _ => unreachable!("weights on the CPU are packed"),
                }
            };
            let expected = run(DType::F32, false);
            assert_close(&run(DType::F32, true), &expected, 2e-4);
            assert_close(&run(DType::BF16, true), &expected, 0.1);
        }
    }
}
