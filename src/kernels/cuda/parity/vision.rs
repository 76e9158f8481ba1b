//! The kernels of the image encoder.

use candle_core::{DType, Device, Result, Tensor};

use super::{Check, Comparison, Roundings};
use crate::geometry::Size;
use crate::kernels::cuda::{Resizer, patches};
use crate::kernels::{self, Layer, Order, Weight, Window};
use crate::screenshot::{Normalizer, resize};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("resize", resized),
    ("depthwise", depthwise),
    ("window_attention", window_attention),
    ("channel_attention", channel_attention),
    ("patches", convolution),
    ("image_tokens", image_tokens),
];

/// Shrinking, enlarging, one side kept, and neither changed.
fn resized(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    const SIZES: [((u32, u32), (u32, u32)); 7] = [
        ((1, 1), (3, 2)),
        ((37, 53), (16, 16)),
        ((31, 40), (31, 33)),
        ((40, 33), (17, 33)),
        ((33, 17), (33, 17)),
        ((20, 9), (67, 129)),
        ((1080, 2400), (768, 768)),
    ];
    let normalizer = Normalizer::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for (from, to) in SIZES {
        let (from, to) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
        let rgb: Vec<u8> = (0..from.width * from.height * 3).map(noise).collect();
        let expected = normalizer.planes(&resize(&rgb, from, to));
        let shape = (3, to.height as usize, to.width as usize);
        let expected = Tensor::from_vec(expected, shape, &Device::Cpu)?.to_dtype(format)?;
        let rgb = Tensor::from_vec(rgb, (from.height as usize, from.width as usize, 3), comparison.device)?;
        // The second of two pictures, whose neighbour stays as it is.
        let batch = Tensor::zeros((2, 3, to.height as usize, to.width as usize), format, comparison.device)?;
        Resizer::new(to, &normalizer, comparison.device)?.resize_into(&batch.get(1)?, &rgb)?;
        let expected = Tensor::stack(&[expected.zeros_like()?, expected], 0)?.to_dtype(DType::F32)?;
        comparison.compare(("resize", format), format!("{from} to {to}"), &batch, &expected, Roundings::None)?;
    }
    Ok(())
}

/// A byte of noise.
fn noise(index: u32) -> u8 {
    index.wrapping_mul(2_654_435_761).to_be_bytes()[0]
}

fn depthwise(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for shape in [[1, 1, 1, 1], [2, 3, 5, 7], [1, 17, 9, 31], [3, 8, 16, 64], [1, 65, 33, 130], [2, 192, 192, 128]] {
        let x = comparison.operand(&shape, 1, format)?;
        let weight = comparison.operand(&[9, shape[3]], 2, DType::F32)?;
        let bias = comparison.operand(&[shape[3]], 3, DType::F32)?;
        let got = kernels::depthwise_residual(x.gpu.clone(), &weight.gpu, &bias.gpu)?;
        let expected = kernels::depthwise_residual(x.cpu.copy()?, &weight.cpu, &bias.cpu)?;
        comparison.compare(("depthwise", format), format!("{shape:?}"), &got, &expected, Roundings::One)?;
    }
    Ok(())
}

fn window_attention(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (batch, height, width, window, heads, size) in [
        (1, 1, 1, 1, 1, 1),
        (2, 3, 6, 3, 2, 4),
        (1, 24, 12, 12, 1, 32),
        (1, 15, 10, 5, 3, 7),
        (2, 16, 13, 14, 2, 33),
        (1, 25, 13, 12, 2, 64),
        (2, 48, 48, 12, 16, 32),
    ] {
        let qkv = comparison.operand(&[batch, height, width, 3 * heads * size], 1, format)?;
        let padding = comparison.operand(&[3 * heads * size], 2, format)?;
        let got = kernels::window_attention(&qkv.gpu, &padding.gpu, window, heads)?;
        let expected = kernels::window_attention(&qkv.cpu, &padding.cpu, window, heads)?;
        let sizes = format!("{batch}x{height}x{width}, windows of {window}, {heads} heads of {size}");
        comparison.compare(("window_attention", format), sizes, &got, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn channel_attention(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (batch, tokens, groups, size) in
        [(1, 1, 1, 1), (2, 3, 2, 5), (1, 255, 3, 32), (3, 257, 1, 33), (1, 1000, 2, 64), (2, 36_864, 4, 32)]
    {
        let qkv = comparison.operand(&[batch, tokens, 3 * groups * size], 1, format)?;
        let got = kernels::channel_attention(&qkv.gpu, groups)?;
        let expected = kernels::channel_attention(&qkv.cpu, groups)?;
        let sizes = format!("{batch}x{tokens}, {groups} groups of {size}");
        comparison.compare(("channel_attention", format), sizes, &got, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn convolution(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (order, dims, (kernel, stride, padding)) in [
        (Order::Planes, [1, 1, 3, 3], (1, 1, 0)),
        (Order::Planes, [2, 3, 19, 23], (7, 4, 3)),
        (Order::Planes, [1, 3, 64, 64], (7, 4, 3)),
        (Order::ChannelsLast, [1, 5, 7, 3], (3, 2, 1)),
        (Order::ChannelsLast, [2, 9, 8, 130], (3, 2, 1)),
        (Order::ChannelsLast, [1, 8, 6, 32], (2, 2, 0)),
    ] {
        let window = Window { kernel, stride, padding };
        let x = comparison.operand(&dims, 1, format)?;
        let channels = if order == Order::Planes { dims[1] } else { dims[3] };
        let inner = channels * kernel * kernel;
        let sizes = format!("{dims:?} {order:?}, {kernel}x{kernel}, stride {stride}, padding {padding}");

        // The product with the identity shows the patches themselves.
        let identity = Weight::new(Tensor::eye(inner, DType::F32, &Device::Cpu)?)?;
        let layer = Layer { weight: &identity, bias: None };
        let expected = kernels::convolution(&x.cpu, order, window, layer)?;
        let got = patches(&x.gpu, order, window)?;
        comparison.compare(("patches", format), sizes.clone(), &got, &expected, Roundings::None)?;

        let weight = comparison.weight(17, inner, 2, format)?;
        let bias = comparison.operand(&[17], 3, format)?;
        let (cpu, gpu) = (Weight::new(weight.cpu)?, Weight::new(weight.gpu)?);
        let expected = kernels::convolution(&x.cpu, order, window, Layer { weight: &cpu, bias: Some(&bias.cpu) })?;
        let got = kernels::convolution(&x.gpu, order, window, Layer { weight: &gpu, bias: Some(&bias.gpu) })?;
        comparison.compare(("convolution", format), sizes, &got, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn image_tokens(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for shape in [[1, 1, 1], [2, 3, 5], [3, 33, 31], [1, 64, 132], [4, 576, 1024]] {
        let x = comparison.operand(&shape, 1, format)?;
        let position = comparison.operand(&shape[1..], 2, format)?;
        let got = kernels::image_tokens(&x.gpu, &position.gpu)?;
        let expected = kernels::image_tokens(&x.cpu, &position.cpu)?;
        comparison.compare(("image_tokens", format), format!("{shape:?}"), &got, &expected, Roundings::Several)?;
    }
    Ok(())
}
