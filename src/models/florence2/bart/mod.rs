//! BART, Florence-2's text model: an encoder over image tokens and prompt, a decoder with caches. Post-norm, no final norm.
//! Reference: transformers 5.24 `models/bart`; the paper is <https://arxiv.org/abs/1910.13461>.

#[cfg(feature = "cuda")]
pub mod recorded;
mod rows;
mod steps;
mod tensors;

use candle_core::{DType, Device, IndexOp, Tensor};

use self::steps::StepDecoder;
use self::tensors::TensorDecoder;
#[cfg(feature = "cuda")]
pub use self::tensors::TensorSession;
use super::compute;
use super::config::TextConfig;
use super::tensors::{LayerNorm, Linear, Path, Source, failed};
use crate::kernels::{self, AttentionShape, Weight};
use crate::models::weights::WeightsError;
use crate::models::{Result, Session};

type Loaded<T> = std::result::Result<T, WeightsError>;

/// Position `p` is row `p + 2` of a position table.
const POSITION_OFFSET: usize = 2;

/// The text model.
#[derive(Debug)]
pub struct Bart {
    encoder: Encoder,
    decoder: Decoder,
    device: Device,
}

/// Which decoder to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderKind {
    /// On plain numbers: f32 on the CPU only. Its sessions have room for answers of `room` ids from the start.
    Steps {
        /// Ids of an answer.
        room: usize,
    },
    /// On tensors.
    Tensors,
}

#[derive(Debug)]
enum Decoder {
    Steps(StepDecoder),
    Tensors(TensorDecoder),
}

#[derive(Debug)]
struct Encoder {
    embed: Embedding,
    layers: Vec<EncoderLayer>,
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

/// Encoder states of a batch of prompts, and how many of each are real.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// (prompts, image tokens + longest prompt, `d_model`).
    pub states: Tensor,
    /// Image tokens and ids of each prompt.
    pub real: Vec<usize>,
}

impl Bart {
    /// Takes the text model's tensors. Ids from `vocabulary` up are never chosen; answers have `room` ids at most, or the
    /// decoder needs more memory on its way.
    pub fn new(
        config: &TextConfig,
        vocabulary: usize,
        room: usize,
        source: &mut Source<'_>,
        device: &Device,
    ) -> Loaded<Self> {
        let plain = device.is_cpu() && source.dtype() == DType::F32;
        let kind = if plain { DecoderKind::Steps { room } } else { DecoderKind::Tensors };
        Self::with_decoder(config, vocabulary, kind, source, device)
    }

    /// As [`Self::new`], with a decoder of this kind.
    pub fn with_decoder(
        config: &TextConfig,
        vocabulary: usize,
        kind: DecoderKind,
        source: &mut Source<'_>,
        device: &Device,
    ) -> Loaded<Self> {
        const AT: &str = "model.language_model";
        let table = [config.vocab_size, config.d_model];
        let (dtype, logits_dtype) = (source.weight_dtype(), source.logits_dtype());
        let named = |part: &str| format!("{AT}.{part}.weight");
        let copies = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"].map(named);
        // One table may stand for all; a file that has copies of its own is taken at its word.
        let Some(first) = copies.iter().find(|name| source.has(name)).cloned() else {
            return Err(WeightsError::Missing { tensor: source.layout().name(&copies[0]) });
        };
        let head = "lm_head.weight";
        let shared = source.tensor(&first, &table, dtype)?;
        let mut copy = |name: &String| -> Loaded<Tensor> {
            if source.has(name) { source.tensor(name, &table, dtype) } else { Ok(shared.clone()) }
        };
        let (encoder_tokens, decoder_tokens) = (copy(&copies[1])?, copy(&copies[2])?);
        let lm_head = if source.has(head) {
            source.weight(head, table, vocabulary, logits_dtype)?
        } else {
            let tied = shared.narrow(0, 0, vocabulary).and_then(|shared| shared.to_dtype(logits_dtype));
            tied.and_then(Weight::new).map_err(|error| failed(head, &error))?
        };
        let logits_bias = if source.has("final_logits_bias") {
            let bias = source.tensor("final_logits_bias", &[1, config.vocab_size], DType::F32)?;
            some_if_not_zero(&bias, vocabulary).map_err(|error| failed("final_logits_bias", &error))?
        } else {
            None
        };
        let encoder = Encoder::new(config, encoder_tokens, source.at(AT).pp("encoder"))?;
        let mut at = source.at(AT);
        let (at, bias) = (at.pp("decoder"), logits_bias);
        let decoder = match kind {
            DecoderKind::Steps { room } => {
                let tokens = decoder_tokens;
                Decoder::Steps(StepDecoder::new(config, tokens, (lm_head, vocabulary), bias.as_ref(), room, at)?)
            }
            DecoderKind::Tensors => {
                let head = (lm_head, vocabulary);
                Decoder::Tensors(TensorDecoder::new(config, decoder_tokens, head, bias, device, at)?)
            }
        };
        Ok(Self { encoder, decoder, device: device.clone() })
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
    pub fn begin<'a>(&'a self, encoded: &Encoded) -> Result<Box<dyn Session + 'a>> {
        Ok(match &self.decoder {
            Decoder::Steps(decoder) => Box::new(decoder.begin(encoded)?),
            Decoder::Tensors(decoder) => Box::new(decoder.begin(encoded)?),
        })
    }
}

#[cfg(feature = "cuda")]
impl Bart {
    /// The decoder as it is on a GPU.
    fn on_tensors(&self) -> Result<&TensorDecoder> {
        match &self.decoder {
            Decoder::Tensors(decoder) => Ok(decoder),
            Decoder::Steps(_) => candle_core::bail!("the decoder was made for a CPU"),
        }
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
            x = kernels::linear_norm(&attended, layer.attention.out.layer(), &x, layer.attention_norm.norm())?;
            x = layer.mlp.forward(x)?;
        }
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
        let rows_of_table = self.tokens.index_select(&ids.flatten_all()?, 0)?;
        rows_of_table.to_dtype(self.positions.dtype())?.reshape((rows, count, ()))
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
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        kernels::mlp_norm(x, self.fc1.layer(), self.fc2.layer(), self.norm.norm())
    }
}

fn some_if_not_zero(bias: &Tensor, vocabulary: usize) -> Result<Option<Tensor>> {
    let bias = bias.flatten_all()?.narrow(0, 0, vocabulary)?;
    let sum = bias.abs()?.sum_all()?.to_scalar::<f32>()?;
    Ok((sum != 0.0).then_some(bias.contiguous()?))
}
