//! The operations of Florence-2-base, of which TinyClick is a fine-tune, with their shapes and how often they occur.

use candle_core::{DType, Device, Result, Tensor};
use tapline::kernels::{self, After, AttentionShape, ChannelBlock, Layer, Norm, Order, Weight, Window, WindowBlock};

use super::MOST_WEIGHTS;

/// Pixels along a side of the input.
pub const SIDE: usize = 768;
/// Ids of the prompt.
pub const PROMPT: usize = 15;
/// Ids fed to the decoder, one by one, for an answer of seven.
pub const DECODED: usize = 6;

const IMAGE_TOKENS: usize = 577;
const TOKENS: usize = IMAGE_TOKENS + PROMPT;
const D_MODEL: usize = 768;
const HIDDEN: usize = 3072;
const LAYERS: usize = 6;
const HEADS: usize = 12;
const VOCABULARY: usize = 51_289;
const WINDOW: usize = 12;
/// Channels of a head, and of a group of channels, in the image encoder.
const HEAD: usize = 32;

/// One stage of the image encoder.
struct Stage {
    side: usize,
    channels: usize,
    /// Pairs of a window block and a channel block.
    depth: usize,
    /// Channels of what comes in.
    inner: usize,
    window: Window,
}

const STAGES: [Stage; 4] = [
    Stage { side: 192, channels: 128, depth: 1, inner: 3, window: Window { kernel: 7, stride: 4, padding: 3 } },
    Stage { side: 96, channels: 256, depth: 1, inner: 128, window: Window { kernel: 3, stride: 2, padding: 1 } },
    Stage { side: 48, channels: 512, depth: 9, inner: 256, window: Window { kernel: 3, stride: 2, padding: 1 } },
    Stage { side: 24, channels: 1024, depth: 1, inner: 512, window: Window { kernel: 3, stride: 2, padding: 1 } },
];

/// A part of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A stage of the image encoder.
    Stage(usize),
    /// From the last stage to image tokens.
    Projection,
    /// The encoder of the prompt.
    Encoder,
    /// Keys and values of the encoder's states for the decoder, once an answer.
    Cross,
    /// The decoder, id by id.
    Step,
}

impl Part {
    /// As the table calls it.
    pub fn name(self) -> String {
        match self {
            Self::Stage(stage) => format!("vision {stage}"),
            Self::Projection => "projection".to_owned(),
            Self::Encoder => "encoder".to_owned(),
            Self::Cross => "cross".to_owned(),
            Self::Step => "step".to_owned(),
        }
    }
}

/// One operation at one shape.
pub struct Operation {
    /// Where it occurs.
    pub part: Part,
    /// What it is.
    pub name: &'static str,
    /// Of its input and output.
    pub shape: String,
    /// How often it occurs in an answer.
    pub times: usize,
    /// Of one occurrence.
    pub gflop: f64,
    /// What it is given; the operation may change a copy of it.
    pub input: Tensor,
    /// Runs it once. The number chooses among its weights.
    pub run: Box<dyn Fn(usize, Tensor) -> Result<Tensor> + Send + Sync>,
}

/// All operations in the order in which they run. They are made one at a time, since their weights fill memory.
pub fn operations(dtype: DType) -> impl Iterator<Item = Operation> {
    let vision = STAGES.iter().enumerate().flat_map(move |(number, stage)| {
        let makers: [fn(usize, &Stage, DType) -> Operation; 5] = [embed, depthwise, window, channel, mlp];
        makers.into_iter().map(move |make| make(number, stage, dtype))
    });
    let text: [fn(DType) -> Operation; 15] = [
        |dtype| linear(Part::Projection, "linear", (IMAGE_TOKENS, 1024, D_MODEL), 1, After::Nothing, dtype),
        |dtype| {
            linear(Part::Encoder, "linear (q, k, v)", (TOKENS, D_MODEL, D_MODEL), 3 * LAYERS, After::Nothing, dtype)
        },
        |_| attention(Part::Encoder, "attention", TOKENS, TOKENS, LAYERS),
        |dtype| add(Part::Encoder, "linear + residual", (TOKENS, D_MODEL, D_MODEL), LAYERS, dtype),
        |dtype| linear(Part::Encoder, "linear + GELU", (TOKENS, D_MODEL, HIDDEN), LAYERS, After::Gelu, dtype),
        |dtype| add(Part::Encoder, "linear + residual", (TOKENS, HIDDEN, D_MODEL), LAYERS, dtype),
        |_| norm(Part::Encoder, TOKENS, 2 * LAYERS + 1),
        |dtype| linear(Part::Cross, "linear (k, v)", (TOKENS, D_MODEL, D_MODEL), 2 * LAYERS, After::Nothing, dtype),
        |dtype| {
            linear(
                Part::Step,
                "linear (q, k, v, q)",
                (1, D_MODEL, D_MODEL),
                4 * LAYERS * DECODED,
                After::Nothing,
                dtype,
            )
        },
        |_| attention(Part::Step, "attention", 1, DECODED, LAYERS * DECODED),
        |_| attention(Part::Step, "attention", 1, TOKENS, LAYERS * DECODED),
        |dtype| add(Part::Step, "linear + residual", (1, D_MODEL, D_MODEL), 2 * LAYERS * DECODED, dtype),
        |dtype| linear(Part::Step, "linear + GELU", (1, D_MODEL, HIDDEN), LAYERS * DECODED, After::Gelu, dtype),
        |dtype| add(Part::Step, "linear + residual", (1, HIDDEN, D_MODEL), LAYERS * DECODED, dtype),
        |dtype| linear(Part::Step, "linear (logits)", (1, D_MODEL, VOCABULARY), DECODED, After::Nothing, dtype),
    ];
    vision.chain(text.into_iter().map(move |make| make(dtype)))
}

fn embed(number: usize, stage: &Stage, dtype: DType) -> Operation {
    let &Stage { side, channels, inner, window, .. } = stage;
    let (before, patch) = (side * window.stride, window.kernel * window.kernel * inner);
    let order = if number == 0 { Order::Planes } else { Order::ChannelsLast };
    let shape = if number == 0 { [1, inner, before, before] } else { [1, before, before, inner] };
    let layer = Parameters::new(1, patch, channels, dtype);
    // Normalised after the first convolution, and before the others.
    let norm = Affine::new(if number == 0 { channels } else { inner });
    Operation {
        part: Part::Stage(number),
        name: "convolution, norm",
        shape: format!("{before}x{before}x{inner} to {side}x{side}x{channels}"),
        times: 1,
        gflop: product(side * side, patch, channels),
        input: random(&shape, DType::F32),
        run: Box::new(move |_, x| {
            let convolve = |x: &Tensor| kernels::convolution(x, order, window, layer.layer(0));
            if number == 0 {
                kernels::layer_norm(&convolve(&x)?, norm.norm())
            } else {
                convolve(&kernels::layer_norm(&x, norm.norm())?)
            }
        }),
    }
}

fn depthwise(number: usize, stage: &Stage, _: DType) -> Operation {
    let &Stage { side, channels, depth, .. } = stage;
    let (weight, bias) = (random(&[9, channels], DType::F32), random(&[channels], DType::F32));
    Operation {
        name: "depthwise 3x3 + residual",
        times: 4 * depth,
        gflop: product(side * side, 9, channels),
        ..grid(number, stage, move |_, x| kernels::depthwise_residual(x, &weight, &bias))
    }
}

fn window(number: usize, stage: &Stage, dtype: DType) -> Operation {
    let &Stage { side, channels, depth, .. } = stage;
    let (qkv, proj) = projections(channels, depth, dtype);
    let norm = Affine::new(channels);
    let run = move |turn, x| {
        let (qkv, proj) = (qkv.layer(turn), proj.layer(turn));
        let block = WindowBlock { norm: norm.norm(), qkv, proj, window: WINDOW, heads: channels / HEAD };
        kernels::window_block(x, block)
    };
    Operation {
        name: "window attention block",
        times: depth,
        gflop: product(side * side, 4 * channels, channels) + 2.0 * product(side * side, WINDOW * WINDOW, channels),
        ..grid(number, stage, run)
    }
}

fn channel(number: usize, stage: &Stage, dtype: DType) -> Operation {
    let &Stage { side, channels, depth, .. } = stage;
    let (qkv, proj) = projections(channels, depth, dtype);
    let norm = Affine::new(channels);
    let run = move |turn, x| {
        let (qkv, proj) = (qkv.layer(turn), proj.layer(turn));
        kernels::channel_block(x, ChannelBlock { norm: norm.norm(), qkv, proj, groups: channels / HEAD })
    };
    Operation {
        name: "channel attention block",
        times: depth,
        gflop: product(side * side, 4 * channels, channels) + 2.0 * product(side * side, HEAD, channels),
        ..grid(number, stage, run)
    }
}

fn mlp(number: usize, stage: &Stage, dtype: DType) -> Operation {
    let &Stage { side, channels, depth, .. } = stage;
    let up = Parameters::new(2 * depth, channels, 4 * channels, dtype);
    let down = Parameters::new(2 * depth, 4 * channels, channels, dtype);
    let norm = Affine::new(channels);
    Operation {
        name: "mlp",
        times: 2 * depth,
        gflop: product(side * side, 8 * channels, channels),
        ..grid(number, stage, move |turn, x| kernels::mlp(x, norm.norm(), up.layer(turn), down.layer(turn)))
    }
}

/// An operation from a stage's grid to the same; its name, times and GFLOP are for the caller to say.
fn grid(
    number: usize,
    stage: &Stage,
    run: impl Fn(usize, Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Operation {
    let &Stage { side, channels, .. } = stage;
    Operation {
        part: Part::Stage(number),
        name: "",
        shape: format!("{side}x{side}x{channels}"),
        times: 1,
        gflop: 0.0,
        input: random(&[1, side, side, channels], DType::F32),
        run: Box::new(run),
    }
}

fn projections(channels: usize, depth: usize, dtype: DType) -> (Parameters, Parameters) {
    (Parameters::new(depth, channels, 3 * channels, dtype), Parameters::new(depth, channels, channels, dtype))
}

fn linear(
    part: Part,
    name: &'static str,
    (rows, inner, out): (usize, usize, usize),
    times: usize,
    after: After<'static>,
    dtype: DType,
) -> Operation {
    let layer = Parameters::new(times, inner, out, dtype);
    Operation {
        part,
        name,
        shape: format!("{rows}x{inner}x{out}"),
        times,
        gflop: product(rows, inner, out),
        input: random(&[1, rows, inner], DType::F32),
        run: Box::new(move |turn, x| kernels::linear(&x, layer.layer(turn), after)),
    }
}

fn add(part: Part, name: &'static str, sizes: (usize, usize, usize), times: usize, dtype: DType) -> Operation {
    let (rows, inner, out) = sizes;
    let (layer, residual) = (Parameters::new(times, inner, out, dtype), random(&[1, rows, out], DType::F32));
    Operation {
        run: Box::new(move |turn, x| kernels::linear(&x, layer.layer(turn), After::AddTo(&residual))),
        ..linear(part, name, sizes, times, After::Nothing, dtype)
    }
}

fn attention(part: Part, name: &'static str, queries: usize, keys: usize, times: usize) -> Operation {
    let (k, v) = (random(&[1, keys, D_MODEL], DType::F32), random(&[1, keys, D_MODEL], DType::F32));
    Operation {
        part,
        name,
        shape: format!("{queries} of {keys} x {D_MODEL}"),
        times,
        gflop: 2.0 * product(queries, keys, D_MODEL),
        input: random(&[1, queries, D_MODEL], DType::F32),
        run: Box::new(move |_, q| {
            kernels::attention(&q, &k, &v, AttentionShape { heads: HEADS, real_keys: None, causal: None })
        }),
    }
}

fn norm(part: Part, rows: usize, times: usize) -> Operation {
    let norm = Affine::new(D_MODEL);
    Operation {
        part,
        name: "norm",
        shape: format!("{rows}x{D_MODEL}"),
        times,
        gflop: 0.0,
        input: random(&[1, rows, D_MODEL], DType::F32),
        run: Box::new(move |_, x| kernels::layer_norm(&x, norm.norm())),
    }
}

/// GFLOP of (rows, inner) times (inner, out).
fn product(rows: usize, inner: usize, out: usize) -> f64 {
    2.0 * rows as f64 * inner as f64 * out as f64 / 1e9
}

/// A linear layer's weights, different ones for each time it occurs.
struct Parameters {
    weights: Vec<Weight>,
    bias: Tensor,
}

impl Parameters {
    fn new(times: usize, inner: usize, out: usize, dtype: DType) -> Self {
        let weight = |_| {
            // So scaled, outputs are as large as inputs and nothing grows without bound.
            let weight = (random(&[out, inner], DType::F32) / (inner as f64).sqrt()).and_then(|w| w.to_dtype(dtype));
            weight.and_then(Weight::new).expect("a random weight")
        };
        Self { weights: (0..times.min(MOST_WEIGHTS)).map(weight).collect(), bias: random(&[out], DType::F32) }
    }

    fn layer(&self, turn: usize) -> Layer<'_> {
        Layer { weight: &self.weights[turn % self.weights.len()], bias: Some(&self.bias) }
    }
}

/// Scale and shift of a layer normalisation.
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl Affine {
    fn new(channels: usize) -> Self {
        Self { weight: random(&[channels], DType::F32), bias: random(&[channels], DType::F32) }
    }

    fn norm(&self) -> Norm<'_> {
        Norm { weight: &self.weight, bias: &self.bias, epsilon: 1e-5 }
    }
}

fn random(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu).and_then(|x| x.to_dtype(dtype)).expect("a random tensor")
}
