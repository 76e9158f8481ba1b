//! The kernels of the text model, and those that both halves share.

use candle_core::{DType, Device, Result, Tensor};

use super::{Check, Comparison, Operand, Roundings};
use crate::kernels::cuda::{
    Lengths, Tables, append_into, attention_into, best_location, embed_into, highest, place_into, reorder_into,
};
use crate::kernels::{self, After, AttentionShape, Layer, Norm, Weight};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("layer_norm", layer_norm),
    ("bias", elementwise),
    ("linear", linear),
    ("attention", attention),
    ("attention over caches", attention_over_caches),
    ("append", append),
    ("reorder", reorder),
    ("embed", embed),
    ("location", location),
];

/// Rows and channels around the kernels' packs, warps and blocks.
const ROWS: [[usize; 3]; 7] = [[1, 1, 1], [1, 3, 2], [2, 5, 31], [3, 1, 64], [1, 7, 130], [2, 33, 768], [1, 577, 1024]];

/// A normalisation's parameters, on both sides.
struct NormOperands {
    weight: Operand,
    bias: Operand,
}

impl NormOperands {
    fn new(comparison: &Comparison<'_>, channels: usize) -> Result<Self> {
        Ok(Self {
            weight: comparison.operand(&[channels], 11, DType::F32)?,
            bias: comparison.operand(&[channels], 12, DType::F32)?,
        })
    }

    const fn cpu(&self) -> Norm<'_> {
        Norm { weight: &self.weight.cpu, bias: &self.bias.cpu, epsilon: 1e-5 }
    }

    const fn gpu(&self) -> Norm<'_> {
        Norm { weight: &self.weight.gpu, bias: &self.bias.gpu, epsilon: 1e-5 }
    }
}

/// A linear layer's parameters, on both sides.
struct LayerOperands {
    cpu: (Weight, Tensor),
    gpu: (Weight, Tensor),
}

impl LayerOperands {
    fn new(comparison: &Comparison<'_>, out: usize, inner: usize, format: DType) -> Result<Self> {
        let weight = comparison.weight(out, inner, 21, format)?;
        let bias = comparison.operand(&[out], 22, format)?;
        Ok(Self { cpu: (Weight::new(weight.cpu)?, bias.cpu), gpu: (Weight::new(weight.gpu)?, bias.gpu) })
    }

    const fn cpu(&self) -> Layer<'_> {
        Layer { weight: &self.cpu.0, bias: Some(&self.cpu.1) }
    }

    const fn gpu(&self) -> Layer<'_> {
        Layer { weight: &self.gpu.0, bias: Some(&self.gpu.1) }
    }
}

fn layer_norm(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for shape in ROWS {
        let x = comparison.operand(&shape, 1, format)?;
        let norm = NormOperands::new(comparison, shape[2])?;
        let got = kernels::layer_norm(&x.gpu, norm.gpu())?;
        let expected = kernels::layer_norm(&x.cpu, norm.cpu())?;
        comparison.compare(("layer_norm", format), format!("{shape:?}"), &got, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn elementwise(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for shape in ROWS {
        let sizes = format!("{shape:?}");
        let x = comparison.scaled(&shape, 1, format, 4.0)?;
        let (got, expected) = (kernels::gelu(&x.gpu)?, kernels::gelu(&x.cpu)?);
        comparison.compare(("gelu", format), sizes.clone(), &got, &expected, Roundings::One)?;
        let addend = comparison.operand(&shape[1..], 2, format)?;
        let got = kernels::add_to_each(&x.gpu, &addend.gpu)?;
        let expected = kernels::add_to_each(&x.cpu, &addend.cpu)?;
        comparison.compare(("add_to_each", format), sizes, &got, &expected, Roundings::One)?;
    }
    Ok(())
}

fn linear(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (rows, inner, out) in [(1, 1, 1), (3, 5, 7), (2, 64, 31), (33, 130, 66), (5, 768, 3072), (577, 768, 768)] {
        let sizes = format!("{rows}x{inner} to {out}");
        let x = comparison.operand(&[1, rows, inner], 1, format)?;
        let residual = comparison.operand(&[1, rows, out], 2, format)?;
        let layer = LayerOperands::new(comparison, out, inner, format)?;
        let afters = [
            ("linear", After::Nothing, After::Nothing),
            ("linear and GELU", After::Gelu, After::Gelu),
            ("linear and residual", After::AddTo(&residual.cpu), After::AddTo(&residual.gpu)),
        ];
        for (name, cpu, gpu) in afters {
            let got = kernels::linear(&x.gpu, layer.gpu(), gpu)?;
            let expected = kernels::linear(&x.cpu, layer.cpu(), cpu)?;
            comparison.compare((name, format), sizes.clone(), &got, &expected, Roundings::Several)?;
        }
        // With few channels a row's numbers may be nearly the same: their last places, which differ, would be all there is.
        if out > 8 {
            let norm = NormOperands::new(comparison, out)?;
            let got = kernels::linear_norm(&x.gpu, layer.gpu(), &residual.gpu, norm.gpu())?;
            let expected = kernels::linear_norm(&x.cpu, layer.cpu(), &residual.cpu, norm.cpu())?;
            comparison.compare(("linear_norm", format), sizes.clone(), &got, &expected, Roundings::Several)?;
        }
        let (norm, back) = (NormOperands::new(comparison, inner)?, LayerOperands::new(comparison, inner, out, format)?);
        let got = kernels::mlp(x.gpu.clone(), norm.gpu(), layer.gpu(), back.gpu())?;
        let expected = kernels::mlp(x.cpu.copy()?, norm.cpu(), layer.cpu(), back.cpu())?;
        comparison.compare(("mlp", format), sizes, &got, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn attention(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (batch, queries, keys, heads, size) in [
        (1, 1, 1, 1, 1),
        (2, 3, 5, 2, 4),
        (1, 1, 65, 4, 32),
        (3, 9, 33, 2, 33),
        (2, 8, 600, 3, 64),
        (2, 70, 129, 2, 128),
        (1, 592, 592, 12, 64),
    ] {
        let channels = heads * size;
        let q = comparison.operand(&[batch, queries, channels], 1, format)?;
        let k = comparison.operand(&[batch, keys, channels], 2, format)?;
        let v = comparison.operand(&[batch, keys, channels], 3, format)?;
        let lengths: Vec<usize> = (0..batch).map(|row| (keys - keys / 3 * row).max(1)).collect();
        for (real_keys, causal) in
            [(None, None), (Some(&lengths[..]), None), (None, Some(keys / 2)), (Some(&lengths), Some(0))]
        {
            let shape = AttentionShape { heads, real_keys, causal };
            let got = kernels::attention(&q.gpu, &k.gpu, &v.gpu, shape)?;
            let expected = kernels::attention(&q.cpu, &k.cpu, &v.cpu, shape)?;
            let sizes =
                format!("{batch}x{queries} to {keys}, {heads} heads of {size}, real {real_keys:?}, causal {causal:?}");
            comparison.compare(("attention", format), sizes, &got, &expected, Roundings::Several)?;
        }
    }
    Ok(())
}

/// As in a decode step: queries that are part of a packed tensor, caches with room, lengths on the device.
fn attention_over_caches(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (batch, queries, filled, capacity, heads, size) in
        [(1, 1, 1, 4, 1, 4), (3, 1, 7, 16, 2, 33), (2, 4, 9, 16, 3, 64), (2, 20, 21, 64, 2, 32)]
    {
        let channels = heads * size;
        let qkv = comparison.operand(&[batch, queries, 3 * channels], 1, format)?;
        let k = comparison.operand(&[batch, capacity, channels], 2, format)?;
        let v = comparison.operand(&[batch, capacity, channels], 3, format)?;
        let seen = filled - queries;
        let causal = Tensor::new(&[i32::try_from(seen).unwrap_or(i32::MAX)], comparison.device)?;
        let out = Tensor::zeros((batch, queries, channels), format, comparison.device)?;
        let q = qkv.gpu.narrow(2, channels, channels)?;
        attention_into(&out, &q, &k.gpu, &v.gpu, heads, Lengths { real_keys: None, causal: Some(&causal) })?;
        let q = qkv.cpu.narrow(2, channels, channels)?.contiguous()?;
        let shape = AttentionShape { heads, real_keys: None, causal: Some(seen) };
        let expected = kernels::attention(&q, &k.cpu, &v.cpu, shape)?;
        let sizes = format!("{batch}x{queries} to {filled} of {capacity}, {heads} heads of {size}");
        comparison.compare(("attention over caches", format), sizes, &out, &expected, Roundings::Several)?;
    }
    Ok(())
}

fn append(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (rows, count, capacity, channels, length) in
        [(1, 1, 1, 1, 0), (3, 1, 8, 5, 7), (2, 4, 9, 64, 3), (2, 4, 9, 132, 7), (5, 1, 32, 768, 32)]
    {
        let cache = comparison.operand(&[rows, capacity, channels], 1, format)?;
        let packed = comparison.operand(&[rows, count, 3 * channels], 2, format)?;
        let at = Tensor::new(&[i32::try_from(length).unwrap_or(i32::MAX)], comparison.device)?;
        append_into(&cache.gpu, &packed.gpu.narrow(2, 2 * channels, channels)?, &at)?;
        let fits = count.min(capacity - length);
        let new = packed.cpu.narrow(2, 2 * channels, channels)?.narrow(1, 0, fits)?;
        let expected = cat(&cache.cpu, 1, length, &new)?;
        let sizes = format!("{rows}x{count}x{channels} behind {length} of {capacity}");
        comparison.compare(("append", format), sizes, &cache.gpu, &expected, Roundings::None)?;
    }
    Ok(())
}

fn reorder(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (layers, row_capacity, capacity, channels, length, from) in [
        (1, 1, 1, 1, 1, &[0][..]),
        (2, 4, 8, 5, 3, &[3, 3, 0]),
        (3, 5, 7, 64, 7, &[4, 2, 0, 1, 1]),
        (12, 3, 32, 768, 9, &[2, 2, 2]),
    ] {
        let caches = comparison.operand(&[layers, row_capacity, capacity, channels], 1, format)?;
        let out = comparison.operand(&[layers, row_capacity, capacity, channels], 2, format)?;
        let rows: Vec<i32> = from.to_vec();
        let at = Tensor::new(&[i32::try_from(length).unwrap_or(i32::MAX)], comparison.device)?;
        reorder_into(&out.gpu, &caches.gpu, &Tensor::new(&rows[..], comparison.device)?, &at)?;
        let rows: Vec<i64> = rows.into_iter().map(i64::from).collect();
        let chosen = caches.cpu.index_select(&Tensor::new(rows, &Device::Cpu)?, 1)?.narrow(2, 0, length)?;
        let filled = cat(&out.cpu.narrow(1, 0, from.len())?, 2, 0, &chosen)?;
        let expected = cat(&out.cpu, 1, 0, &filled)?;
        let sizes = format!("{layers}x{row_capacity}x{capacity}x{channels}, {length} filled, from {from:?}");
        comparison.compare(("reorder", format), sizes, &out.gpu, &expected, Roundings::None)?;
    }
    Ok(())
}

/// x with `part` in place of what it has from `start` on along a dimension.
fn cat(x: &Tensor, dim: usize, start: usize, part: &Tensor) -> Result<Tensor> {
    let end = start + part.dim(dim)?;
    Tensor::cat(&[&x.narrow(dim, 0, start)?, part, &x.narrow(dim, end, x.dim(dim)? - end)?], dim)
}

/// Image tokens in front, words behind them: both kernels fill one tensor.
fn embed(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    for (rows, image, words, channels, first) in
        [(1, 1, 1, 1, 0), (2, 3, 5, 31, 0), (3, 5, 1, 64, 4), (2, 577, 17, 768, 0)]
    {
        let tokens = comparison.operand(&[50, channels], 1, format)?;
        let positions = comparison.operand(&[image + words + first + 2, channels], 2, format)?;
        let x = comparison.operand(&[rows, image, channels], 3, format)?;
        let ids: Vec<u32> = (0..).map(|i: u32| (i * 7 + 3) % 50).take(rows * words).collect();
        let out = Tensor::zeros((rows, image + words, channels), format, comparison.device)?;
        let at = Tensor::new(&[i32::try_from(first).unwrap_or(i32::MAX)], comparison.device)?;
        let at = (first > 0).then_some(&at);
        place_into(&out, &x.gpu, &positions.gpu)?;
        let on_gpu = Tensor::from_slice(&ids, (rows, words), comparison.device)?;
        embed_into(&out, &on_gpu, Tables { tokens: &tokens.gpu, positions: &positions.gpu }, at, image)?;

        let placed = x.cpu.broadcast_add(&positions.cpu.narrow(0, 2, image)?)?;
        let ids = Tensor::from_vec(ids, rows * words, &Device::Cpu)?;
        let looked_up = tokens.cpu.index_select(&ids, 0)?.reshape((rows, words, channels))?;
        let embedded = looked_up.broadcast_add(&positions.cpu.narrow(0, first + image + 2, words)?)?;
        let expected = Tensor::cat(&[placed, embedded], 1)?;
        let sizes = format!("{rows}x({image} + {words})x{channels} from {first}");
        comparison.compare(("embed and place", format), sizes, &out, &expected, Roundings::One)?;
    }
    Ok(())
}

/// Logits are in f32 whatever the format, and are looked at once.
fn location(comparison: &mut Comparison<'_>, format: DType) -> Result<()> {
    if format != DType::F32 {
        return Ok(());
    }
    for (rows, vocabulary, count) in [(1, 1, 1), (3, 7, 5), (2, 1000, 3), (5, 1025, 8), (4, 51_289, 6)] {
        let logits = comparison.scaled(&[rows, vocabulary], 1, format, 6.0)?;
        // Two equal numbers at the top of the first row: the lower id is chosen.
        let mut values = logits.cpu.to_vec2::<f32>()?;
        if let [.., before, last] = &mut values[0][..] {
            (*before, *last) = (7.0, 7.0);
        }
        let on_gpu = Tensor::new(values.clone(), comparison.device)?;
        let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let ranges: Vec<(usize, usize)> =
            (0..rows).map(|row| (vocabulary / 2 * row / rows, vocabulary - vocabulary / 4 * row / rows)).collect();
        let table: Vec<i32> = ranges.iter().flat_map(|range| [whole(range.0), whole(range.1)]).collect();
        let chosen = best_location(&on_gpu, &Tensor::from_vec(table, (rows, 2), comparison.device)?)?;
        let best = |row: usize, (first, end): (usize, usize)| ranked(&values[row], first, end)[0];
        let expected = (0..rows).flat_map(|row| [best(row, ranges[row]), best(row, (0, vocabulary))]).collect();
        compare_choices(comparison, "best_location", &chosen, expected, &values)?;
        let chosen = highest(&on_gpu, count)?;
        let expected = (0..rows).flat_map(|row| ranked(&values[row], 0, vocabulary)[..count].to_vec()).collect();
        compare_choices(comparison, "highest", &chosen, expected, &values)?;
    }
    Ok(())
}

/// Ids of a range, best first, the lower first among equals.
fn ranked(logits: &[f32], first: usize, end: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (first..end).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    ids
}

fn compare_choices(
    comparison: &mut Comparison<'_>,
    kernel: &'static str,
    chosen: &kernels::cuda::Chosen,
    expected: Vec<usize>,
    logits: &[Vec<f32>],
) -> Result<()> {
    let (rows, choices) = chosen.ids.dims2()?;
    let log_probabilities: Vec<f32> = expected
        .iter()
        .enumerate()
        .map(|(place, &id)| {
            let row = &logits[place / choices];
            let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
            let log_probability = f64::from(row[id]) - total.ln();
            #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
            let rounded = log_probability as f32;
            rounded
        })
        .collect();
    let ids: Vec<f32> = expected.into_iter().map(|id| id as f32).collect();
    let (ids, log_probabilities) = (
        Tensor::from_vec(ids, (rows, choices), &Device::Cpu)?,
        Tensor::from_vec(log_probabilities, (rows, choices), &Device::Cpu)?,
    );
    let sizes = format!("{rows}x{}", logits[0].len());
    let what = (kernel, DType::F32);
    comparison.compare(what, format!("{sizes}, ids"), &chosen.ids, &ids, Roundings::None)?;
    comparison.compare(
        what,
        format!("{sizes}, log-probabilities"),
        &chosen.log_probabilities,
        &log_probabilities,
        Roundings::One,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_the_place_of_what_was_there() {
        let x = Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu).unwrap();
        let with = |start: usize, part: &[f32]| {
            cat(&x, 0, start, &Tensor::new(part, &Device::Cpu).unwrap()).and_then(|x| x.to_vec1::<f32>()).unwrap()
        };
        assert_eq!(with(0, &[7.0]), [7.0, 2.0, 3.0]);
        assert_eq!(with(2, &[7.0]), [1.0, 2.0, 7.0]);
        assert_eq!(with(0, &[7.0, 8.0, 9.0]), [7.0, 8.0, 9.0]);
        let nothing = cat(&x, 0, 3, &x.narrow(0, 0, 0).unwrap()).and_then(|x| x.to_vec1::<f32>()).unwrap();
        assert_eq!(nothing, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn ids_are_ranked_by_logit_and_then_by_id() {
        assert_eq!(ranked(&[1.0, 3.0, 3.0, 2.0], 0, 4), [1, 2, 3, 0]);
        assert_eq!(ranked(&[1.0, 3.0, 3.0, 2.0], 2, 4), [2, 3]);
    }
}
