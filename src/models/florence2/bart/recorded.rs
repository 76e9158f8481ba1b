//! The text model as CUDA graphs. For each number of prompts and each length there are tensors that stay where they are: a graph
//! reads prompts from them and leaves the keys and values of the cross-attention in them, and one graph for each number of new
//! ids reads and extends the decoder's own. How long prompts and answers are lies on the device too, so that the same graph is
//! right for all of them.
//!
//! A batch's prompts stay in their places until it ends: one that has been answered is computed on and not looked at, which costs
//! less than moving the others.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

use super::Bart;
use super::tensors::{Caches, TensorSession};
use crate::kernels::cuda::graph::Graph;
use crate::kernels::cuda::{Lengths, Tables, append_into, attention_with, embed_into, reorder_into};
use crate::kernels::{self, After, Layer};
use crate::models::Result;

/// Sizes of the tensors of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextShape {
    /// Prompts of the batch.
    pub prompts: usize,
    /// Image tokens before each prompt.
    pub image_tokens: usize,
    /// Ids of each prompt, the filling at the end counted.
    pub ids: usize,
    /// Rows that a prompt can be widened to.
    pub width: usize,
    /// Ids of an answer.
    pub room: usize,
}

/// The tensors and graphs of one bucket.
#[derive(Debug)]
pub struct Text {
    shape: TextShape,
    /// (prompts, image tokens, `d_model`).
    features: Tensor,
    /// u32 (prompts, ids).
    ids: Tensor,
    /// i32 (prompts): image tokens and ids of each prompt that are real.
    real: Tensor,
    /// Keys and values of each decoder layer: (prompts, image tokens + ids, `d_model`) each.
    cross: Vec<(Tensor, Tensor)>,
    /// The decoder's own keys and values: (layers, prompts x width, room, `d_model`) each.
    own: [Tensor; 2],
    /// Where rows are put together in a new order.
    spare: Tensor,
    /// i32 (1): ids fed so far.
    length: Tensor,
    encode: Option<Graph>,
    steps: HashMap<StepShape, Step>,
}

/// What a step's graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct StepShape {
    /// Rows of each prompt.
    width: usize,
    /// New ids of each row.
    new: usize,
}

/// One pass of the decoder over new ids.
#[derive(Debug)]
struct Step {
    /// u32 (rows, new ids).
    ids: Tensor,
    /// f32 (rows, new ids, vocabulary).
    logits: Tensor,
    graph: Option<Graph>,
}

/// How work was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launched {
    /// By one graph.
    AsGraph,
    /// Kernel by kernel.
    Apart,
}

impl Text {
    /// Room for a bucket, and the encoder's graph where `record` says so.
    pub fn new(bart: &Bart, shape: TextShape, record: bool) -> Result<Self> {
        let TextShape { prompts, image_tokens, ids, width, room } = shape;
        let decoder = bart.on_tensors()?;
        let (device, dtype) = (&bart.device, decoder.embed.tokens.dtype());
        let d_model = decoder.embed.tokens.dim(1)?;
        let layers = decoder.layers.len();
        let zeros = |dims: &[usize]| Tensor::zeros(dims, dtype, device);
        let cross = || zeros(&[prompts, image_tokens + ids, d_model]);
        let own = [layers, prompts * width, room, d_model];
        let mut text = Self {
            shape,
            features: zeros(&[prompts, image_tokens, d_model])?,
            ids: Tensor::zeros((prompts, ids), DType::U32, device)?,
            real: Tensor::ones(prompts, DType::F32, device)?.to_dtype(DType::I32)?,
            cross: (0..layers).map(|_| Ok((cross()?, cross()?))).collect::<Result<_>>()?,
            own: [zeros(&own)?, zeros(&own)?],
            spare: zeros(&own)?,
            length: Tensor::zeros(1, DType::I32, device)?,
            encode: None,
            steps: HashMap::new(),
        };
        if record {
            text.encode = recorded(device, "the prompt encoder", || text.run_encoder(bart))?;
        }
        Ok(text)
    }

    /// Encodes prompts about images, as [`Bart::encode`] and [`Bart::start`] do.
    pub fn encode(&mut self, bart: &Bart, features: &[&Tensor], prompts: &[&[u32]], pad: u32) -> Result<Launched> {
        let TextShape { prompts: places, image_tokens, ids, .. } = self.shape;
        if prompts.is_empty() || prompts.len() > places || prompts.iter().any(|prompt| prompt.len() > ids) {
            candle_core::bail!("{} prompts for {places} places of {ids} ids", prompts.len());
        }
        for (place, features) in features.iter().enumerate() {
            self.features.slice_set(&features.unsqueeze(0)?, 0, place)?;
        }
        let padded: Vec<u32> = prompts
            .iter()
            .flat_map(|prompt| prompt.iter().copied().chain(std::iter::repeat_n(pad, ids - prompt.len())))
            .collect();
        self.ids.slice_set(&Tensor::from_vec(padded, (prompts.len(), ids), &bart.device)?, 0, 0)?;
        // Places that nobody asks about have something to look at, too: a softmax over nothing is no number.
        let real = (0..places).map(|place| image_tokens + prompts.get(place).map_or(1, |prompt| prompt.len()));
        self.real.slice_set(&integers(real, &bart.device)?, 0, 0)?;
        match &mut self.encode {
            Some(graph) => {
                graph.replay()?;
                Ok(Launched::AsGraph)
            }
            None => self.run_encoder(bart).map(|()| Launched::Apart),
        }
    }

    /// From `features`, `ids` and `real` to `cross`.
    fn run_encoder(&self, bart: &Bart) -> Result<()> {
        let words = bart.encoder.embed.lookup(&self.ids)?; // (prompts, ids, d_model)
        let x = Tensor::cat(&[&self.features, &words], 1)?; // (prompts, tokens, d_model)
        let lengths = Lengths { real_keys: Some(&self.real), causal: None };
        let states = bart.encoder.forward_with(&x, |[q, k, v], heads| attention_with(q, k, v, heads, lengths))?;
        for (layer, (k, v)) in bart.on_tensors()?.layers.iter().zip(&self.cross) {
            k.slice_set(&layer.cross.k.forward(&states)?, 0, 0)?;
            v.slice_set(&layer.cross.v.forward(&states)?, 0, 0)?;
        }
        Ok(())
    }

    /// Feeds the same number of new ids to `width` rows of each prompt after `length` ids, and gives the logits, f32 (rows, new
    /// ids, vocabulary), which stay until the next pass of this shape. Records the pass first where it is new and `record` says so.
    pub fn step(
        &mut self,
        bart: &Bart,
        ids: &[u32],
        (width, length): (usize, usize),
        record: bool,
    ) -> Result<(Tensor, Launched)> {
        let rows = self.shape.prompts * width;
        let new = ids.len() / rows.max(1);
        if !self.has_room(width, length + new) || new == 0 || ids.len() != rows * new {
            candle_core::bail!("{} ids for {rows} rows after {length} of {}", ids.len(), self.shape.room);
        }
        let device = &bart.device;
        self.length.slice_set(&integers([length], device)?, 0, 0)?;
        let shape = StepShape { width, new };
        let ids = Tensor::from_slice(ids, (rows, new), device)?;
        if !self.steps.contains_key(&shape) {
            let logits = Tensor::zeros((rows, new, bart.on_tensors()?.vocabulary), DType::F32, device)?;
            let mut step = Step { ids: ids.clone(), logits, graph: None };
            if record {
                step.graph = recorded(device, "a decoder step", || self.run_step(bart, &step, width))?;
            } else {
                self.run_step(bart, &step, width)?;
                return Ok((step.logits, Launched::Apart));
            }
            self.steps.insert(shape, step);
        }
        let Some(mut step) = self.steps.remove(&shape) else { candle_core::bail!("a step that is not there") };
        // The first time its own ids are the given ones.
        let copied = if step.ids.id() == ids.id() { Ok(()) } else { step.ids.slice_set(&ids, 0, 0) };
        let launched = copied.and_then(|()| match &mut step.graph {
            Some(graph) => graph.replay().map(|()| Launched::AsGraph),
            None => self.run_step(bart, &step, width).map(|()| Launched::Apart),
        });
        let logits = step.logits.clone();
        self.steps.insert(shape, step);
        Ok((logits, launched?))
    }

    /// Whether answers of so many ids in so many rows of each prompt fit.
    pub const fn has_room(&self, width: usize, ids: usize) -> bool {
        width > 0 && width <= self.shape.width && ids <= self.shape.room
    }

    /// From `ids`, `cross` and the first `length` ids of `own` to the logits, and more ids of `own`.
    fn run_step(&self, bart: &Bart, step: &Step, width: usize) -> Result<()> {
        let decoder = bart.on_tensors()?;
        let (rows, new) = step.ids.dims2()?;
        let d_model = decoder.embed.tokens.dim(1)?;
        let tables = Tables { tokens: &decoder.embed.tokens, positions: &decoder.embed.positions };
        let x = Tensor::zeros((rows, new, d_model), decoder.embed.tokens.dtype(), &bart.device)?;
        embed_into(&x, &step.ids, tables, Some(&self.length), 0)?;
        let mut x = decoder.embed.norm.forward(&x)?;
        for (number, layer) in decoder.layers.iter().enumerate() {
            let (q, k, v) = layer.attention.project(&x)?; // (rows, new, d_model)
            let [own_k, own_v] = [self.own_of(0, number, rows)?, self.own_of(1, number, rows)?]; // (rows, room, d_model)
            append_into(&own_k, &k, &self.length)?;
            append_into(&own_v, &v, &self.length)?;
            let own = Lengths { real_keys: None, causal: Some(&self.length) };
            let attended = attention_with(&q, &own_k, &own_v, layer.attention.heads, own)?;
            x = kernels::linear_norm(&attended, layer.attention.out.layer(), &x, layer.attention_norm.norm())?;

            let q = layer.cross.q.forward(&x)?.reshape((self.shape.prompts, width * new, d_model))?;
            let (k, v) = &self.cross[number];
            let cross = Lengths { real_keys: Some(&self.real), causal: None };
            let attended = attention_with(&q, k, v, layer.cross.heads, cross)?.reshape((rows, new, d_model))?;
            x = kernels::linear_norm(&attended, layer.cross.out.layer(), &x, layer.cross_norm.norm())?;
            x = layer.mlp.forward(x)?;
        }
        let head = Layer { weight: &decoder.lm_head, bias: decoder.logits_bias.as_ref() };
        step.logits.slice_set(&kernels::linear(&x.to_dtype(DType::F32)?, head, After::Nothing)?, 0, 0)
    }

    /// The first rows of a layer's own keys (0) or values (1): (rows, room, `d_model`).
    fn own_of(&self, which: usize, layer: usize, rows: usize) -> Result<Tensor> {
        self.own[which].narrow(0, layer, 1)?.squeeze(0)?.narrow(0, 0, rows)
    }

    /// Makes the decoder's rows copies of these present rows, in this order, of which `length` ids are filled.
    pub fn reorder(&self, rows: &[usize], length: usize) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let device = self.length.device();
        let (from, length) = (integers(rows.iter().copied(), device)?, integers([length], device)?);
        for own in &self.own {
            reorder_into(&self.spare, own, &from, &length)?;
            own.slice_set(&self.spare, 0, 0)?;
        }
        Ok(())
    }

    /// A session on other tensors that goes on where this one is, for rows that were fed `length` ids, `width` of each prompt.
    pub fn resume<'a>(
        &self,
        bart: &'a Bart,
        rows: &[usize],
        prompts: &[usize],
        (width, length): (usize, usize),
    ) -> Result<TensorSession<'a>> {
        let device = self.length.device();
        let (row_index, prompt_index) = (indices(rows, device)?, indices(prompts, device)?);
        let all = self.shape.prompts * self.shape.width;
        let own = |which: usize, layer: usize| -> Result<Tensor> {
            self.own_of(which, layer, all)?.narrow(1, 0, length)?.contiguous()?.index_select(&row_index, 0)
        };
        let copy = |(layer, (k, v)): (usize, &(Tensor, Tensor))| {
            let own = if length > 0 { Some((own(0, layer)?, own(1, layer)?)) } else { None };
            Ok((own, (k.index_select(&prompt_index, 0)?, v.index_select(&prompt_index, 0)?)))
        };
        let caches = self.cross.iter().enumerate().map(copy).collect::<Result<Caches>>()?;
        Ok(bart.on_tensors()?.resume(caches, self.real(prompts)?, (width, length)))
    }

    /// Image tokens and ids of these prompts that are real.
    fn real(&self, prompts: &[usize]) -> Result<Vec<usize>> {
        let real: Vec<i32> = self.real.to_vec1()?;
        Ok(prompts.iter().filter_map(|&prompt| usize::try_from(*real.get(prompt)?).ok()).collect())
    }

    /// Places for prompts.
    pub const fn prompts(&self) -> usize {
        self.shape.prompts
    }
}

/// Records work, or says once why it will be done kernel by kernel.
pub fn recorded(device: &Device, what: &str, work: impl Fn() -> Result<()>) -> Result<Option<Graph>> {
    match Graph::record(device, work) {
        Ok(graph) => Ok(Some(graph)),
        Err(error) => {
            tracing::warn!(%error, "no CUDA graph of {what}: its kernels are launched one by one");
            // If the device itself is broken, this says so.
            device.synchronize()?;
            Ok(None)
        }
    }
}

/// i32 numbers on the device.
fn integers(numbers: impl IntoIterator<Item = usize>, device: &Device) -> Result<Tensor> {
    let numbers: Vec<i32> = numbers.into_iter().map(|number| i32::try_from(number).unwrap_or(i32::MAX)).collect();
    let count = numbers.len();
    Tensor::from_vec(numbers, count, device)
}

fn indices(numbers: &[usize], device: &Device) -> Result<Tensor> {
    let numbers: Vec<u32> = numbers.iter().map(|&number| u32::try_from(number).unwrap_or(u32::MAX)).collect();
    Tensor::from_slice(&numbers, numbers.len(), device)
}
