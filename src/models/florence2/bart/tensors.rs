//! The decoder on tensors: for every device and number format, and the reference for the one that makes none.

use candle_core::{DType, Device, Result, Tensor};

use super::{Attention, Embedding, Encoded, Loaded, Mlp, TextConfig};
use crate::kernels::{self, After, AttentionShape, Layer, Weight};
use crate::models::florence2::tensors::{LayerNorm, Path};
use crate::models::{Logits, Session};

/// The weights.
#[derive(Debug)]
pub(super) struct TensorDecoder {
    pub(super) embed: Embedding,
    pub(super) layers: Vec<DecoderLayer>,
    /// (vocabulary, `d_model`).
    pub(super) lm_head: Weight,
    /// (vocabulary), f32, where it is not zero.
    pub(super) logits_bias: Option<Tensor>,
    pub(super) vocabulary: usize,
    device: Device,
}

#[derive(Debug)]
pub(super) struct DecoderLayer {
    pub(super) attention: Attention,
    pub(super) attention_norm: LayerNorm,
    pub(super) cross: Attention,
    pub(super) cross_norm: LayerNorm,
    pub(super) mlp: Mlp,
}

/// Keys and values.
#[cfg(feature = "cuda")]
pub(super) type KeysAndValues = (Tensor, Tensor);
/// For each layer: the decoder's own keys and values, and those of the encoder's states.
#[cfg(feature = "cuda")]
pub(super) type Caches = Vec<(Option<KeysAndValues>, KeysAndValues)>;

/// What the decoder knows while it answers the rows of a batch. Rows of one prompt lie together.
pub struct TensorSession<'a> {
    decoder: &'a TensorDecoder,
    state: State,
    /// The state before anything was decoded. Its tensors are shared with `state`, not copied.
    fresh: State,
    /// Of the last pass: (rows, positions, vocabulary).
    logits: Vec<f32>,
}

#[derive(Debug, Clone)]
struct State {
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

impl TensorDecoder {
    /// Takes the decoder's tensors; `lm_head` is (vocabulary, `d_model`), and comes with the vocabulary.
    pub(super) fn new(
        config: &TextConfig,
        tokens: Tensor,
        (lm_head, vocabulary): (Weight, usize),
        logits_bias: Option<Tensor>,
        device: &Device,
        mut at: Path<'_, '_>,
    ) -> Loaded<Self> {
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
        Ok(Self { embed, layers, lm_head, logits_bias, vocabulary, device: device.clone() })
    }

    /// A session that has been fed nothing.
    pub(super) fn begin(&self, encoded: &Encoded) -> Result<TensorSession<'_>> {
        let layers = self
            .layers
            .iter()
            .map(|layer| {
                let cross = (layer.cross.k.forward(&encoded.states)?, layer.cross.v.forward(&encoded.states)?);
                Ok(LayerState { own: None, cross })
            })
            .collect::<Result<_>>()?;
        let state = State { layers, real_keys: encoded.real.clone(), width: 1, length: 0 };
        Ok(TensorSession { decoder: self, fresh: state.clone(), state, logits: Vec::new() })
    }

    /// A session in the middle of an answer: `width` rows of each prompt, fed `length` ids.
    #[cfg(feature = "cuda")]
    pub(super) fn resume(
        &self,
        caches: Caches,
        real_keys: Vec<usize>,
        (width, length): (usize, usize),
    ) -> TensorSession<'_> {
        let layers = caches.into_iter().map(|(own, cross)| LayerState { own, cross }).collect();
        let state = State { layers, real_keys, width, length };
        TensorSession { decoder: self, fresh: state.clone(), state, logits: Vec::new() }
    }

    /// ids are (rows, new ids); the result is (rows, new ids, `d_model`).
    fn forward(&self, state: &mut State, ids: &Tensor) -> Result<Tensor> {
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
            x = kernels::linear_norm(&attended, layer.attention.out.layer(), &x, layer.attention_norm.norm())?;

            // All rows of a prompt look at the same states: they are queries of one attention, and nothing is copied.
            let q = layer.cross.q.forward(&x)?.reshape((prompts, state.width * new, ()))?;
            let cross = AttentionShape { heads: layer.cross.heads, real_keys: Some(&state.real_keys), causal: None };
            let attended = kernels::attention(&q, &cache.cross.0, &cache.cross.1, cross)?.reshape((rows, new, ()))?;
            x = kernels::linear_norm(&attended, layer.cross.out.layer(), &x, layer.cross_norm.norm())?;
            x = layer.mlp.forward(x)?;
        }
        state.length += new;
        Ok(x)
    }

    /// Logits (rows, ids of a row, vocabulary) in f32.
    fn decode(&self, state: &mut State, ids: &[u32]) -> Result<Tensor> {
        let rows = state.real_keys.len() * state.width;
        if rows == 0 || ids.is_empty() || !ids.len().is_multiple_of(rows) {
            candle_core::bail!("{} ids for {rows} rows", ids.len());
        }
        let ids = Tensor::new(ids, &self.device)?.reshape((rows, ids.len() / rows))?;
        let x = self.forward(state, &ids)?.to_dtype(DType::F32)?; // (rows, new ids, d_model)
        let layer = Layer { weight: &self.lm_head, bias: self.logits_bias.as_ref() };
        kernels::linear(&x, layer, After::Nothing)
    }
}

impl Session for TensorSession<'_> {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>> {
        let Self { decoder, state, logits, .. } = self;
        let new = super::compute(&decoder.device, || decoder.decode(state, ids))?; // (rows, positions, vocabulary)
        let positions = new.dim(1)?;
        *logits = new.flatten_all()?.to_vec1()?;
        Ok(Logits { values: logits, positions, vocabulary: decoder.vocabulary })
    }

    fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.state.select(rows)
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        self.state.truncate(length)
    }

    fn restart(&mut self) -> Result<()> {
        self.state = self.fresh.clone();
        Ok(())
    }
}

impl State {
    /// Makes the rows copies of these present rows. Rows of one prompt stay together, equally many for each.
    fn select(&mut self, rows: &[usize]) -> Result<()> {
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
    fn truncate(&mut self, length: usize) -> Result<()> {
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
