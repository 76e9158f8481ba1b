//! DaViT, Florence-2's image encoder, and the projection of its output to image tokens. Channels are last throughout.
//! Reference: transformers 5.24 `models/florence2`; the paper is <https://arxiv.org/abs/2204.03645>.

use candle_core::{DType, Device, Tensor};

use super::config::{StageConfig, VisionConfig};
use super::tensors::{LayerNorm, Linear, Path, Source, failed};
use crate::kernels::{self, After, Layer, Order, Weight, Window};
use crate::models::Result;
use crate::models::weights::WeightsError;

type Loaded<T> = std::result::Result<T, WeightsError>;

/// Pixels to image tokens.
#[derive(Debug)]
pub struct Davit {
    stages: Vec<Stage>,
    projector: Projector,
    dtype: DType,
}

#[derive(Debug)]
struct Stage {
    embed: ConvEmbed,
    blocks: Vec<(SpatialBlock, ChannelBlock)>,
}

#[derive(Debug)]
struct ConvEmbed {
    /// The kernel as a linear layer over the pixels under it.
    conv: Linear,
    order: Order,
    window: Window,
    norm: LayerNorm,
    norm_first: bool,
}

#[derive(Debug)]
struct SpatialBlock {
    before: Depthwise,
    norm: LayerNorm,
    qkv: Linear,
    proj: Linear,
    rest: Rest,
    window: usize,
    heads: usize,
}

#[derive(Debug)]
struct ChannelBlock {
    before: Depthwise,
    norm: LayerNorm,
    qkv: Linear,
    proj: Linear,
    rest: Rest,
    groups: usize,
}

/// The second half of either block.
#[derive(Debug)]
struct Rest {
    before: Depthwise,
    norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
}

/// x + depthwise 3x3 (x).
#[derive(Debug)]
struct Depthwise {
    /// (9, channels), f32.
    weight: Tensor,
    /// (channels), f32.
    bias: Tensor,
}

#[derive(Debug)]
struct Projector {
    /// (1, tokens, channels): position of each token and the first temporal row, added up once.
    position: Tensor,
    /// (`d_model`, channels).
    projection: Weight,
    norm: LayerNorm,
}

impl Davit {
    /// Takes the image encoder's tensors for inputs of `side` x `side` pixels.
    pub fn new(config: &VisionConfig, d_model: usize, side: usize, source: &mut Source<'_>) -> Loaded<Self> {
        let mut stages = Vec::with_capacity(config.stages.len());
        let mut inner = 3;
        for (i, stage) in config.stages.iter().enumerate() {
            // The pixels come plane by plane; only a normalisation over the channels needs them last.
            let order = if i == 0 && !stage.norm_first { Order::Planes } else { Order::ChannelsLast };
            let embed = ConvEmbed::new(stage, inner, order, source.at("model.vision_tower.convs").pp(i))?;
            let mut blocks = Vec::with_capacity(stage.depth);
            for j in 0..stage.depth {
                let mut at = source.at("model.vision_tower.blocks");
                let (mut at, ratio) = (at.pp(i), config.mlp_ratio);
                let mut at = at.pp(j);
                let spatial = SpatialBlock::new(stage, config.window, ratio, at.pp("spatial_block"))?;
                let channel = ChannelBlock::new(stage, ratio, at.pp("channel_block"))?;
                blocks.push((spatial, channel));
            }
            stages.push(Stage { embed, blocks });
            inner = stage.channels;
        }
        let projector = Projector::new(config, d_model, side, source)?;
        Ok(Self { stages, projector, dtype: source.dtype() })
    }

    /// pixels is (batch, 3, side, side) in f32; the result is (batch, image tokens, `d_model`), the mean token first, then
    /// the grid row by row. Each stage's output (batch, tokens, channels) is shown to `look`, and is still that afterwards.
    pub fn forward(&self, pixels: &Tensor, mut look: impl FnMut(usize, &Tensor)) -> Result<Tensor> {
        let mut x = pixels.to_dtype(self.dtype)?;
        if self.stages.first().is_none_or(|stage| stage.embed.order == Order::ChannelsLast) {
            x = x.permute((0, 2, 3, 1))?.contiguous()?; // (batch, side, side, 3)
        }
        for (i, stage) in self.stages.iter().enumerate() {
            x = stage.embed.forward(&x)?; // (batch, rows, columns, channels)
            for (spatial, channel) in &stage.blocks {
                x = channel.forward(spatial.forward(x)?)?;
            }
            look(i, &x.flatten(1, 2)?); // (batch, tokens, channels)
        }
        self.projector.forward(&x.flatten(1, 2)?)
    }
}

impl ConvEmbed {
    fn new(stage: &StageConfig, inner: usize, order: Order, mut at: Path<'_, '_>) -> Loaded<Self> {
        let (out, kernel) = (stage.channels, stage.patch);
        let mut conv = at.pp("conv");
        let weight = conv.matrix("weight", &[out, inner, kernel, kernel])?;
        let bias = conv.tensor("bias", &[out])?;
        // As the pixels under the kernel are laid out.
        let weight = if order == Order::Planes { Ok(weight) } else { weight.permute((0, 2, 3, 1)) };
        let conv = weight
            .and_then(|weight| weight.reshape((out, kernel * kernel * inner)))
            .and_then(|weight| Linear::new(weight, bias))
            .map_err(|error| failed("conv.weight", &error))?;
        let norm = at.pp("norm").layer_norm(if stage.norm_first { inner } else { out })?;
        Ok(Self { conv, order, window: stage.window(), norm, norm_first: stage.norm_first })
    }

    /// (batch, height, width, in), or (batch, in, height, width) for pixels, to (batch, rows, columns, out).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let convolve = |x: &Tensor| kernels::convolution(x, self.order, self.window, self.conv.layer());
        if self.norm_first { convolve(&self.norm.forward(x)?) } else { self.norm.forward(&convolve(x)?) }
    }
}

impl SpatialBlock {
    fn new(stage: &StageConfig, window: usize, ratio: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        let channels = stage.channels;
        Ok(Self {
            before: Depthwise::new(channels, at.pp("conv1"))?,
            norm: at.pp("norm1").layer_norm(channels)?,
            qkv: at.pp("window_attn.qkv").linear(channels, 3 * channels)?,
            proj: at.pp("window_attn.proj").linear(channels, channels)?,
            rest: Rest::new(channels, ratio, at)?,
            window,
            heads: stage.heads,
        })
    }

    /// (batch, rows, columns, channels) to the same.
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let block = kernels::WindowBlock {
            norm: self.norm.norm(),
            qkv: self.qkv.layer(),
            proj: self.proj.layer(),
            window: self.window,
            heads: self.heads,
        };
        self.rest.forward(kernels::window_block(self.before.forward(x)?, block)?)
    }
}

impl ChannelBlock {
    fn new(stage: &StageConfig, ratio: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        let channels = stage.channels;
        Ok(Self {
            before: Depthwise::new(channels, at.pp("conv1"))?,
            norm: at.pp("norm1").layer_norm(channels)?,
            qkv: at.pp("channel_attn.qkv").linear(channels, 3 * channels)?,
            proj: at.pp("channel_attn.proj").linear(channels, channels)?,
            rest: Rest::new(channels, ratio, at)?,
            groups: stage.groups,
        })
    }

    /// (batch, rows, columns, channels) to the same.
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let block = kernels::ChannelBlock {
            norm: self.norm.norm(),
            qkv: self.qkv.layer(),
            proj: self.proj.layer(),
            groups: self.groups,
        };
        self.rest.forward(kernels::channel_block(self.before.forward(x)?, block)?)
    }
}

impl Rest {
    fn new(channels: usize, ratio: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        Ok(Self {
            before: Depthwise::new(channels, at.pp("conv2"))?,
            norm: at.pp("norm2").layer_norm(channels)?,
            fc1: at.pp("ffn.fc1").linear(channels, ratio * channels)?,
            fc2: at.pp("ffn.fc2").linear(ratio * channels, channels)?,
        })
    }

    /// (batch, rows, columns, channels) to the same.
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let x = self.before.forward(x)?;
        kernels::mlp(x, self.norm.norm(), self.fc1.layer(), self.fc2.layer())
    }
}

impl Depthwise {
    fn new(channels: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        let weight = at.tensor_f32("weight", &[channels, 1, 3, 3])?;
        let weight = weight
            .reshape((channels, 9))
            .and_then(|weight| weight.t()?.contiguous())
            .map_err(|error| failed("depthwise weight", &error))?; // (9, channels)
        Ok(Self { weight, bias: at.tensor_f32("bias", &[channels])? })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        kernels::depthwise_residual(x, &self.weight, &self.bias)
    }
}

impl Projector {
    fn new(config: &VisionConfig, d_model: usize, side: usize, source: &mut Source<'_>) -> Loaded<Self> {
        const AT: &str = "model.multi_modal_projector";
        let (channels, grid) = (config.channels(), config.grid(side));
        let projection = format!("{AT}.image_projection.weight");
        let (dtype, weight_dtype) = (source.dtype(), source.weight_dtype());
        let projection = if source.layout().transposes_projection() {
            let stored = source.tensor(&projection, &[channels, d_model], weight_dtype)?;
            stored.t().and_then(|stored| stored.contiguous()).map_err(|error| failed("image_projection", &error))?
        } else {
            source.tensor(&projection, &[d_model, channels], weight_dtype)?
        };
        let mut at = source.at(AT);
        // With an odd number of channels the columns get the one left over.
        let (for_rows, for_columns) = (channels / 2, channels - channels / 2);
        let rows = at.tensor_f32("image_position_embed.row_embeddings.weight", &[config.grid_positions, for_rows])?;
        let columns =
            at.tensor_f32("image_position_embed.column_embeddings.weight", &[config.grid_positions, for_columns])?;
        let temporal =
            at.tensor_f32("visual_temporal_embed.pos_idx_to_embed", &[config.temporal_positions, channels])?;
        let norm = at.pp("image_proj_norm").layer_norm(d_model)?;
        let projection = Weight::new(projection).map_err(|error| failed("image_projection", &error))?;
        let position = position(&rows, &columns, &temporal, grid)
            .and_then(|position| position.to_dtype(dtype))
            .map_err(|error| failed("image_position_embed", &error))?;
        Ok(Self { position, projection, norm })
    }

    /// (batch, tokens, channels) to (batch, 1 + tokens, `d_model`).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let tokens = kernels::image_tokens(x, &self.position)?; // (batch, 1 + tokens, channels)
        let layer = Layer { weight: &self.projection, bias: None };
        self.norm.forward(&kernels::linear(&tokens, layer, After::Nothing)?)
    }
}

/// (1, grid * grid, channels): columns first, then rows, and the first temporal row on top.
fn position(rows: &Tensor, columns: &Tensor, temporal: &Tensor, grid: usize) -> Result<Tensor> {
    let columns = columns.narrow(0, 0, grid)?.unsqueeze(0)?; // (1, grid, columns' channels)
    let rows = rows.narrow(0, 0, grid)?.unsqueeze(1)?; // (grid, 1, rows' channels)
    let columns = columns.repeat((grid, 1, 1))?;
    let rows = rows.repeat((1, grid, 1))?;
    Tensor::cat(&[columns, rows], 2)?.flatten(0, 1)?.broadcast_add(&temporal.get(0)?)?.unsqueeze(0)
}

/// A batch of prepared screenshots, each (3, side, side), as one tensor (batch, 3, side, side).
pub fn stack(pixels: &[&[f32]], side: usize, device: &Device) -> Result<Tensor> {
    let numbers = 3 * side * side;
    let mut all = Vec::with_capacity(pixels.len() * numbers);
    for pixels in pixels {
        if pixels.len() != numbers {
            candle_core::bail!("a screenshot of {} numbers for an input of {numbers}", pixels.len());
        }
        all.extend_from_slice(pixels);
    }
    Tensor::from_vec(all, (pixels.len(), 3, side, side), device)
}
