//! BART, Florence-2's text model: an encoder over image tokens and prompt, a decoder with caches. Post-norm, no final norm.
//! Reference: transformers 5.24 `models/bart`; the paper is <https://arxiv.org/abs/1910.13461>.

#[cfg(feature = "cuda")]
pub mod recorded;

use candle_core::{DType, Device, IndexOp, Tensor};

use super::config::TextConfig;
use super::tensors::{LayerNorm, Linear, Path, Source, failed};
use crate::kernels::{self, After, AttentionShape, Layer, Weight};
use crate::models::Result;
use crate::models::weights::WeightsError;

type Loaded<T> = std::result::Result<T, WeightsError>;

/// Position `p` is row `p + 2` of a position table.
const POSITION_OFFSET: usize = 2;

/// The text model.
#[derive(Debug)]
pub struct Bart {
    encoder: Encoder,
    decoder: Decoder,
    /// (vocabulary, `d_model`), f32: the final product is in f32 always.
    lm_head: Weight,
    /// (vocabulary), f32, where it is not zero.
    logits_bias: Option<Tensor>,
    vocabulary: usize,
    device: Device,
}

#[derive(Debug)]
struct Encoder {
    embed: Embedding,
    layers: Vec<EncoderLayer>,
}

#[derive(Debug)]
struct Decoder {
    embed: Embedding,
    layers: Vec<DecoderLayer>,
}

#[derive(Debug)]
struct Embedding {
    /// (vocabulary rows, `d_model`).
    tokens: Tensor,
    /// (positions + 2, `d_model`).
    positions: Tensor,
    norm: LayerNorm,
}

#[derive(Debug)]
struct EncoderLayer {
    attention: Attention,
    attention_norm: LayerNorm,
    mlp: Mlp,
}

#[derive(Debug)]
struct DecoderLayer {
    attention: Attention,
    attention_norm: LayerNorm,
    cross: Attention,
    cross_norm: LayerNorm,
    mlp: Mlp,
}

#[derive(Debug)]
struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    heads: usize,
}

#[derive(Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    norm: LayerNorm,
}

/// What the decoder knows while it answers the rows of a batch. Rows of one prompt lie together.
#[derive(Debug, Clone)]
pub struct DecoderState {
    layers: Vec<LayerState>,
    /// Real encoder states of each prompt; the rest of its keys are padding.
    real_keys: Vec<usize>,
    /// Rows of each prompt.
    width: usize,
    /// Ids each row has been fed.
    length: usize,
}

#[derive(Debug, Clone)]
struct LayerState {
    /// Keys and values of the ids so far: (rows, length, `d_model`) each.
    own: Option<(Tensor, Tensor)>,
    /// Keys and values of the encoder's states, computed once: (prompts, tokens, `d_model`) each.
    cross: (Tensor, Tensor),
}

/// Keys and values.
#[cfg(feature = "cuda")]
type KeysAndValues = (Tensor, Tensor);

/// Encoder states of a batch of prompts, and how many of each are real.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// (prompts, image tokens + longest prompt, `d_model`).
    pub states: Tensor,
    /// Image tokens and ids of each prompt.
    pub real: Vec<usize>,
}

impl Bart {
    /// Takes the text model's tensors. Ids from `vocabulary` up are never chosen.
    pub fn new(config: &TextConfig, vocabulary: usize, source: &mut Source<'_>, device: &Device) -> Loaded<Self> {
        const AT: &str = "model.language_model";
        let table = [config.vocab_size, config.d_model];
        let dtype = source.dtype();
        let named = |part: &str| format!("{AT}.{part}.weight");
        let copies = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"].map(named);
        // One table may stand for all; a file that has copies of its own is taken at its word.
        let Some(first) = copies.iter().find(|name| source.has(name)).cloned() else {
            return Err(WeightsError::Missing { tensor: source.layout().name(&copies[0]) });
        };
        let head = "lm_head.weight";
        let tied = !source.has(head);
        let shared_f32 = if tied { Some(source.tensor(&first, &table, DType::F32)?) } else { None };
        let shared = match &shared_f32 {
            Some(shared) => shared.to_dtype(dtype).map_err(|error| failed("shared", &error))?,
            None => source.tensor(&first, &table, dtype)?,
        };
        let mut copy = |name: &String| -> Loaded<Tensor> {
            if source.has(name) { source.tensor(name, &table, dtype) } else { Ok(shared.clone()) }
        };
        let (encoder_tokens, decoder_tokens) = (copy(&copies[1])?, copy(&copies[2])?);
        let lm_head = match shared_f32 {
            Some(shared) => shared,
            None => source.tensor(head, &table, DType::F32)?,
        };
        let lm_head = lm_head.narrow(0, 0, vocabulary).and_then(Weight::new).map_err(|error| failed(head, &error))?;
        let logits_bias = if source.has("final_logits_bias") {
            let bias = source.tensor("final_logits_bias", &[1, config.vocab_size], DType::F32)?;
            some_if_not_zero(&bias, vocabulary).map_err(|error| failed("final_logits_bias", &error))?
        } else {
            None
        };
        let encoder = Encoder::new(config, encoder_tokens, source.at(AT).pp("encoder"))?;
        let decoder = Decoder::new(config, decoder_tokens, source.at(AT).pp("decoder"))?;
        Ok(Self { encoder, decoder, lm_head, logits_bias, vocabulary, device: device.clone() })
    }

    /// Ids that may be chosen.
    pub const fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Where it computes.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Encodes prompts about images. features are (image tokens, `d_model`) each; shorter prompts are padded with `pad` at
    /// the end, and what is computed there is never looked at.
    pub fn encode(&self, features: &[&Tensor], prompts: &[&[u32]], pad: u32) -> Result<Encoded> {
        let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let padded: Vec<u32> = prompts
            .iter()
            .flat_map(|ids| ids.iter().copied().chain(std::iter::repeat_n(pad, longest - ids.len())))
            .collect();
        let ids = Tensor::from_vec(padded, (prompts.len(), longest), &self.device)?;
        let images = Tensor::stack(features, 0)?; // (prompts, image tokens, d_model)
        let real: Vec<usize> = prompts.iter().map(|ids| images.dim(1).unwrap_or(0) + ids.len()).collect();
        let words = self.encoder.embed.lookup(&ids)?; // (prompts, longest, d_model)
        let x = Tensor::cat(&[images.to_dtype(words.dtype())?, words], 1)?; // (prompts, tokens, d_model)
        Ok(Encoded { states: self.encoder.forward(&x, &real)?, real })
    }

    /// The decoder before it has been fed anything.
    pub fn start(&self, encoded: &Encoded) -> Result<DecoderState> {
        let layers = self
            .decoder
            .layers
            .iter()
            .map(|layer| {
                let cross = (layer.cross.k.forward(&encoded.states)?, layer.cross.v.forward(&encoded.states)?);
                Ok(LayerState { own: None, cross })
            })
            .collect::<Result<_>>()?;
        Ok(DecoderState { layers, real_keys: encoded.real.clone(), width: 1, length: 0 })
    }

    /// Feeds each row the same number of ids (`ids` is row by row); logits (rows, ids of a row, vocabulary) in f32.
    pub fn decode(&self, state: &mut DecoderState, ids: &[u32]) -> Result<Tensor> {
        let rows = state.real_keys.len() * state.width;
        if rows == 0 || ids.is_empty() || !ids.len().is_multiple_of(rows) {
            candle_core::bail!("{} ids for {rows} rows", ids.len());
        }
        let ids = Tensor::new(ids, &self.device)?.reshape((rows, ids.len() / rows))?;
        let x = self.decoder.forward(state, &ids)?.to_dtype(DType::F32)?; // (rows, new ids, d_model)
        let layer = Layer { weight: &self.lm_head, bias: self.logits_bias.as_ref() };
        kernels::linear(&x, layer, After::Nothing)
    }
}

impl DecoderState {
    /// In the middle of an answer: for each layer its own keys and values and those of the encoder's states.
    #[cfg(feature = "cuda")]
    pub fn new(
        layers: Vec<(Option<KeysAndValues>, KeysAndValues)>,
        real_keys: Vec<usize>,
        width: usize,
        length: usize,
    ) -> Self {
        let layers = layers.into_iter().map(|(own, cross)| LayerState { own, cross }).collect();
        Self { layers, real_keys, width, length }
    }

    /// Makes the rows copies of these present rows. Rows of one prompt stay together, equally many for each.
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        let prompts: Vec<usize> = rows.iter().map(|row| row / self.width).collect();
        let mut kept = prompts.clone();
        kept.dedup();
        let width = rows.len() / kept.len().max(1);
        let grouped = kept.len() * width == rows.len()
            && prompts.chunks(width.max(1)).zip(&kept).all(|(group, prompt)| group.iter().all(|other| other == prompt));
        if !grouped || rows.is_empty() {
            candle_core::bail!("rows {rows:?} do not keep the {} rows of each prompt together", self.width);
        }
        let index = |indices: &[usize], device: &Device| -> Result<Tensor> {
            Tensor::new(indices.iter().map(|&i| u32::try_from(i).unwrap_or(u32::MAX)).collect::<Vec<_>>(), device)
        };
        let all_stay = kept.len() == self.real_keys.len();
        for layer in &mut self.layers {
            if let Some((k, v)) = &layer.own {
                let index = index(rows, k.device())?;
                layer.own = Some((k.index_select(&index, 0)?, v.index_select(&index, 0)?));
            }
            if !all_stay {
                let (k, v) = &layer.cross;
                let index = index(&kept, k.device())?;
                layer.cross = (k.index_select(&index, 0)?, v.index_select(&index, 0)?);
            }
        }
        self.real_keys = kept.iter().map(|&prompt| self.real_keys[prompt]).collect();
        self.width = width;
        Ok(())
    }

    /// Forgets all ids of each row but the first `length`.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        if length >= self.length {
            return Ok(());
        }
        for layer in &mut self.layers {
            layer.own = match &layer.own {
                Some((k, v)) if length > 0 => {
                    Some((k.narrow(1, 0, length)?.contiguous()?, v.narrow(1, 0, length)?.contiguous()?))
                }
                _ => None,
            };
        }
        self.length = length;
        Ok(())
    }
}

impl Encoder {
    fn new(config: &TextConfig, tokens: Tensor, mut at: Path<'_, '_>) -> Loaded<Self> {
        let embed = Embedding::new(config, tokens, &mut at)?;
        let mut layers = Vec::with_capacity(config.encoder_layers);
        for n in 0..config.encoder_layers {
            let mut at = at.pp("layers");
            let mut at = at.pp(n);
            layers.push(EncoderLayer {
                attention: Attention::new(config.d_model, config.encoder_attention_heads, at.pp("self_attn"))?,
                attention_norm: at.pp("self_attn_layer_norm").layer_norm(config.d_model)?,
                mlp: Mlp::new(config.d_model, config.encoder_ffn_dim, at)?,
            });
        }
        Ok(Self { embed, layers })
    }

    /// x is (prompts, tokens, `d_model`), of which `real` are looked at.
    fn forward(&self, x: &Tensor, real: &[usize]) -> Result<Tensor> {
        self.forward_with(x, |[q, k, v], heads| {
            kernels::attention(q, k, v, AttentionShape { heads, real_keys: Some(real), causal: None })
        })
    }

    /// As [`Self::forward`], with an attention of queries, keys and values in so many heads that knows what is real.
    fn forward_with(&self, x: &Tensor, attend: impl Fn([&Tensor; 3], usize) -> Result<Tensor>) -> Result<Tensor> {
        let mut x = self.embed.place(x, 0)?;
        for layer in &self.layers {
            let (q, k, v) = layer.attention.project(&x)?;
            let attended = attend([&q, &k, &v], layer.attention.heads)?;
            x = layer.attention_norm.forward(&layer.attention.out.forward_add(&attended, &x)?)?;
            x = layer.mlp.forward(&x)?;
        }
        Ok(x)
    }
}

impl Decoder {
    fn new(config: &TextConfig, tokens: Tensor, mut at: Path<'_, '_>) -> Loaded<Self> {
        let embed = Embedding::new(config, tokens, &mut at)?;
        let (d_model, heads) = (config.d_model, config.decoder_attention_heads);
        let mut layers = Vec::with_capacity(config.decoder_layers);
        for n in 0..config.decoder_layers {
            let mut at = at.pp("layers");
            let mut at = at.pp(n);
            layers.push(DecoderLayer {
                attention: Attention::new(d_model, heads, at.pp("self_attn"))?,
                attention_norm: at.pp("self_attn_layer_norm").layer_norm(d_model)?,
                cross: Attention::new(d_model, heads, at.pp("encoder_attn"))?,
                cross_norm: at.pp("encoder_attn_layer_norm").layer_norm(d_model)?,
                mlp: Mlp::new(d_model, config.decoder_ffn_dim, at)?,
            });
        }
        Ok(Self { embed, layers })
    }

    /// ids are (rows, new ids); the result is (rows, new ids, `d_model`).
    fn forward(&self, state: &mut DecoderState, ids: &Tensor) -> Result<Tensor> {
        let (rows, new) = ids.dims2()?;
        let prompts = state.real_keys.len();
        let mut x = self.embed.place(&self.embed.lookup(ids)?, state.length)?;
        for (layer, cache) in self.layers.iter().zip(&mut state.layers) {
            let (q, k, v) = layer.attention.project(&x)?;
            let (k, v) = match cache.own.take() {
                Some((old_k, old_v)) => (Tensor::cat(&[old_k, k], 1)?, Tensor::cat(&[old_v, v], 1)?), // (rows, length, d_model)
                None => (k, v),
            };
            let own = AttentionShape { heads: layer.attention.heads, real_keys: None, causal: Some(state.length) };
            let attended = kernels::attention(&q, &k, &v, own)?;
            cache.own = Some((k, v));
            x = layer.attention_norm.forward(&layer.attention.out.forward_add(&attended, &x)?)?;

            // All rows of a prompt look at the same states: they are queries of one attention, and nothing is copied.
            let q = layer.cross.q.forward(&x)?.reshape((prompts, state.width * new, ()))?;
            let cross = AttentionShape { heads: layer.cross.heads, real_keys: Some(&state.real_keys), causal: None };
            let attended = kernels::attention(&q, &cache.cross.0, &cache.cross.1, cross)?.reshape((rows, new, ()))?;
            x = layer.cross_norm.forward(&layer.cross.out.forward_add(&attended, &x)?)?;
            x = layer.mlp.forward(&x)?;
        }
        state.length += new;
        Ok(x)
    }
}

impl Embedding {
    fn new(config: &TextConfig, tokens: Tensor, at: &mut Path<'_, '_>) -> Loaded<Self> {
        let rows = config.max_position_embeddings + POSITION_OFFSET;
        Ok(Self {
            tokens,
            positions: at.pp("embed_positions").tensor("weight", &[rows, config.d_model])?,
            norm: at.pp("layernorm_embedding").layer_norm(config.d_model)?,
        })
    }

    /// (rows, ids) to (rows, ids, `d_model`).
    fn lookup(&self, ids: &Tensor) -> Result<Tensor> {
        let (rows, count) = ids.dims2()?;
        self.tokens.index_select(&ids.flatten_all()?, 0)?.reshape((rows, count, ()))
    }

    /// Adds the positions from `first` on and normalises; x is (rows, tokens, `d_model`).
    fn place(&self, x: &Tensor, first: usize) -> Result<Tensor> {
        let positions = self.positions.i(first + POSITION_OFFSET..first + POSITION_OFFSET + x.dim(1)?)?;
        self.norm.forward(&kernels::add_to_each(x, &positions)?)
    }
}

impl Attention {
    fn new(d_model: usize, heads: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        let mut linear = |name: &str| at.pp(name).linear(d_model, d_model);
        Ok(Self { q: linear("q_proj")?, k: linear("k_proj")?, v: linear("v_proj")?, out: linear("out_proj")?, heads })
    }

    /// Queries, keys and values of x itself, each shaped like x.
    fn project(&self, x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        Ok((self.q.forward(x)?, self.k.forward(x)?, self.v.forward(x)?))
    }
}

impl Mlp {
    fn new(d_model: usize, hidden: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        Ok(Self {
            fc1: at.pp("fc1").linear(d_model, hidden)?,
            fc2: at.pp("fc2").linear(hidden, d_model)?,
            norm: at.pp("final_layer_norm").layer_norm(d_model)?,
        })
    }

    /// (rows, tokens, `d_model`) to the same.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward(&self.fc2.forward_add(&self.fc1.forward_gelu(x)?, x)?)
    }
}

fn some_if_not_zero(bias: &Tensor, vocabulary: usize) -> Result<Option<Tensor>> {
    let bias = bias.flatten_all()?.narrow(0, 0, vocabulary)?;
    let sum = bias.abs()?.sum_all()?.to_scalar::<f32>()?;
    Ok((sum != 0.0).then_some(bias.contiguous()?))
}
