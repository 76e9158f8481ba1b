//! The decoder in f32 on the CPU, on plain numbers in memory that a session keeps: see [`crate::kernels::step`].

use candle_core::{DType, Device, Result, Tensor};

use super::rows::RowGroups;
use super::{Encoded, Loaded, POSITION_OFFSET, TextConfig};
use crate::kernels::Weight;
use crate::kernels::step::{self, Finish, History, Memory, StepLinear};
use crate::models::florence2::tensors::{LayerNorm, Linear, Path, failed};
use crate::models::{Logits, Session};

/// The weights.
#[derive(Debug)]
pub(super) struct StepDecoder {
    /// (vocabulary rows, `d_model`).
    tokens: Tensor,
    /// (positions + 2, `d_model`).
    positions: Tensor,
    norm: LayerNorm,
    layers: Vec<StepLayer>,
    lm_head: StepLinear,
    heads: usize,
    d_model: usize,
    hidden: usize,
    vocabulary: usize,
    /// Ids of an answer that sessions have room for from the start.
    room: usize,
}

#[derive(Debug)]
struct StepLayer {
    /// Queries, keys and values in one product: (3 * `d_model`, `d_model`).
    qkv: StepLinear,
    out: StepLinear,
    norm: LayerNorm,
    cross_q: StepLinear,
    /// Keys and values of encoder states, of which there are many: (2 * `d_model`, `d_model`).
    cross_kv: Linear,
    cross_out: StepLinear,
    cross_norm: LayerNorm,
    fc1: StepLinear,
    fc2: StepLinear,
    mlp_norm: LayerNorm,
}

/// The decoder while it answers the rows of a batch.
#[derive(Debug)]
pub(super) struct StepSession<'a> {
    decoder: &'a StepDecoder,
    /// For each layer, each prompt's.
    memories: Vec<Vec<Memory>>,
    history: History,
    rows: RowGroups,
    buffers: Buffers,
}

/// Numbers of one pass, for as many tokens as there have been in one so far.
#[derive(Debug, Default)]
struct Buffers {
    /// (tokens, `d_model`).
    x: Vec<f32>,
    /// (tokens, `d_model`).
    other: Vec<f32>,
    /// (tokens, `d_model`).
    attended: Vec<f32>,
    /// (tokens, the widest of a layer's outputs).
    wide: Vec<f32>,
    /// Attention's working memory.
    work: Vec<f32>,
    /// (tokens, vocabulary).
    logits: Vec<f32>,
}

impl StepDecoder {
    /// Takes the decoder's tensors; `lm_head` is (vocabulary, `d_model`), and comes with the vocabulary. Sessions have room for answers of `room` ids.
    pub(super) fn new(
        config: &TextConfig,
        tokens: Tensor,
        (lm_head, vocabulary): (Weight, usize),
        logits_bias: Option<&Tensor>,
        room: usize,
        mut at: Path<'_, '_>,
    ) -> Loaded<Self> {
        let (d_model, hidden) = (config.d_model, config.decoder_ffn_dim);
        let mut layers = Vec::with_capacity(config.decoder_layers);
        let table = [config.max_position_embeddings + POSITION_OFFSET, d_model];
        let positions = at.pp("embed_positions").tensor("weight", &table)?;
        let norm = at.pp("layernorm_embedding").layer_norm(d_model)?;
        for n in 0..config.decoder_layers {
            let mut at = at.pp("layers");
            layers.push(StepLayer::new(d_model, hidden, at.pp(n))?);
        }
        let lm_head = StepLinear::new(lm_head, logits_bias).map_err(|error| failed("lm_head", &error))?;
        let heads = config.decoder_attention_heads;
        Ok(Self { tokens, positions, norm, layers, lm_head, heads, d_model, hidden, vocabulary, room })
    }

    /// A session that has been fed nothing.
    pub(super) fn begin(&self, encoded: &Encoded) -> Result<StepSession<'_>> {
        let states = encoded.states.to_dtype(DType::F32)?;
        let memory = |layer: &StepLayer| Memory::new(&layer.cross_kv.forward(&states)?, &encoded.real, self.heads);
        let memories = self.layers.iter().map(memory).collect::<Result<Vec<_>>>()?;
        let mut session = StepSession {
            decoder: self,
            memories,
            history: History::new(self.layers.len(), self.heads, self.d_model),
            rows: RowGroups::new(encoded.real.len()),
            buffers: Buffers::default(),
        };
        session.reserve(1, self.room);
        Ok(session)
    }
}

impl StepLayer {
    fn new(d_model: usize, hidden: usize, mut at: Path<'_, '_>) -> Loaded<Self> {
        let square = [d_model; 2];
        let mut own = at.pp("self_attn");
        let qkv = step_linear(stacked(&mut own, &["q_proj", "k_proj", "v_proj"], square)?)?;
        let out = step_linear(stacked(&mut own, &["out_proj"], square)?)?;
        let mut cross = at.pp("encoder_attn");
        let (weight, bias) = stacked(&mut cross, &["k_proj", "v_proj"], square)?;
        let cross_kv = Linear::of(weight, bias);
        let cross_q = step_linear(stacked(&mut cross, &["q_proj"], square)?)?;
        let cross_out = step_linear(stacked(&mut cross, &["out_proj"], square)?)?;
        let fc1 = step_linear(stacked(&mut at, &["fc1"], [hidden, d_model])?)?;
        let fc2 = step_linear(stacked(&mut at, &["fc2"], [d_model, hidden])?)?;
        let norm = at.pp("self_attn_layer_norm").layer_norm(d_model)?;
        let cross_norm = at.pp("encoder_attn_layer_norm").layer_norm(d_model)?;
        let mlp_norm = at.pp("final_layer_norm").layer_norm(d_model)?;
        Ok(Self { qkv, out, norm, cross_q, cross_kv, cross_out, cross_norm, fc1, fc2, mlp_norm })
    }
}

/// The weight (all outputs, in) and bias of linear layers with the same inputs, one below the other.
fn stacked(at: &mut Path<'_, '_>, names: &[&str], [out, inner]: [usize; 2]) -> Loaded<(Weight, Tensor)> {
    if let [name] = names {
        let mut at = at.pp(name);
        return Ok((at.weight(inner, out)?, at.tensor("bias", &[out])?));
    }
    let (mut weights, mut biases) = (Vec::new(), Vec::new());
    for name in names {
        let mut at = at.pp(name);
        weights.push(at.matrix("weight", &[out, inner])?);
        biases.push(at.tensor("bias", &[out])?);
    }
    let stack = |parts: Vec<Tensor>| Tensor::cat(&parts, 0).map_err(|error| failed(names[0], &error));
    let weight = Weight::new(stack(weights)?).map_err(|error| failed(names[0], &error))?;
    Ok((weight, stack(biases)?))
}

fn step_linear((weight, bias): (Weight, Tensor)) -> Loaded<StepLinear> {
    StepLinear::new(weight, Some(&bias)).map_err(|error| failed("decoder", &error))
}

impl StepSession<'_> {
    /// Makes room for passes of `new` ids for each row, and answers of `length` ids. Allocates only to grow.
    fn reserve(&mut self, new: usize, length: usize) {
        let StepDecoder { d_model, hidden, vocabulary, .. } = *self.decoder;
        let tokens = self.rows.count() * new;
        self.history.reserve(self.rows.count(), length);
        let queries = self.rows.width() * new;
        let most = |memories: &Vec<Memory>| memories.iter().map(|memory| memory.work(queries)).max();
        let work = self.memories.first().and_then(most).unwrap_or(0) * self.rows.prompts().len();
        let Buffers { x, other, attended, wide, work: working, logits } = &mut self.buffers;
        let wanted = [
            (x, tokens * d_model),
            (other, tokens * d_model),
            (attended, tokens * d_model),
            (wide, tokens * hidden.max(3 * d_model)),
            (working, work),
            (logits, tokens * vocabulary),
        ];
        for (numbers, wanted) in wanted {
            if numbers.len() < wanted {
                numbers.resize(wanted, 0.0);
            }
        }
    }

    /// Feeds the ids; the logits are in the buffers afterwards. There is room for them.
    fn forward(&mut self, ids: &[u32]) -> Result<()> {
        let StepDecoder { d_model, hidden, vocabulary, .. } = *self.decoder;
        let (decoder, tokens) = (self.decoder, ids.len());
        let (rows, length, prompts) = (self.rows.count(), self.rows.length(), self.rows.prompts());
        let Buffers { x, other, attended, wide, work, logits } = &mut self.buffers;
        let (mut x, mut other) = (&mut x[..tokens * d_model], &mut other[..tokens * d_model]);
        let attended = &mut attended[..tokens * d_model];
        let queries = self.rows.width() * (tokens / rows);
        step::embed(&decoder.tokens, &decoder.positions, ids, tokens / rows, length + POSITION_OFFSET, other)?;
        step::normalise(other, decoder.norm.norm(), x)?;
        for (index, (layer, memories)) in decoder.layers.iter().zip(&self.memories).enumerate() {
            let qkv = &mut wide[..tokens * 3 * d_model];
            layer.qkv.forward(x, qkv, Finish::Write)?;
            self.history.attend(index, rows, length, qkv, attended)?;
            layer.out.forward(attended, x, Finish::Add)?;
            step::normalise(x, layer.norm.norm(), other)?;

            let q = &mut wide[..tokens * d_model];
            layer.cross_q.forward(other, q, Finish::Write)?;
            // All rows of a prompt look at the same states: they are queries of one attention.
            let most = prompts.iter().map(|&prompt| memories[prompt].work(queries)).max().unwrap_or(0);
            step::attend(memories, prompts, q, &mut work[..most * prompts.len()], attended)?;
            layer.cross_out.forward(attended, other, Finish::Add)?;
            step::normalise(other, layer.cross_norm.norm(), x)?;

            let between = &mut wide[..tokens * hidden];
            layer.fc1.forward(x, between, Finish::Gelu)?;
            layer.fc2.forward(between, x, Finish::Add)?;
            step::normalise(x, layer.mlp_norm.norm(), other)?;
            std::mem::swap(&mut x, &mut other);
        }
        decoder.lm_head.forward(x, &mut logits[..tokens * vocabulary], Finish::Write)
    }
}

impl Session for StepSession<'_> {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>> {
        let positions = self.rows.new_ids(ids.len())?;
        let length = self.rows.length() + positions;
        self.reserve(positions, length);
        super::compute(&Device::Cpu, || self.forward(ids))?;
        self.rows.set_length(length);
        let vocabulary = self.decoder.vocabulary;
        Ok(Logits { values: &self.buffers.logits[..ids.len() * vocabulary], positions, vocabulary })
    }

    fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.rows.select(rows)?;
        // What the next pass needs, now: passes shall not.
        self.reserve(1, self.rows.length() + 1);
        self.history.select(rows, self.rows.length());
        Ok(())
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        self.rows.set_length(length.min(self.rows.length()));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.rows.restart();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use candle_core::Device;

    use super::super::{Bart, DecoderKind};
    use super::*;
    use crate::kernels::tests::random;
    use crate::models::florence2::config::Config;
    use crate::models::florence2::names::Layout;
    use crate::models::florence2::tensors::Source;
    use crate::models::{Checkpoint, Precision};

    /// The text model of a fixture with this decoder.
    fn bart(name: &str, kind: DecoderKind) -> (Bart, usize) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let checkpoint = Checkpoint::Folder(folder);
        let json = serde_json::from_slice(&checkpoint.read("config.json").unwrap().unwrap()).unwrap();
        let config = Config::from_json(&json).unwrap();
        let mut weights = checkpoint.weights().unwrap();
        let layout = Layout::of(|name| weights.has(name)).unwrap();
        let mut source = Source::new(&mut weights, layout, Precision::F32, &Device::Cpu);
        let bart = Bart::with_decoder(&config.text, config.vocabulary, kind, &mut source, &Device::Cpu).unwrap();
        (bart, config.text.d_model)
    }

    #[test]
    fn every_pass_equals_the_tensor_decoders() {
        for name in ["padded-96", "window-3", "tied", "native"] {
            let (steps, d_model) = bart(name, DecoderKind::Steps { room: 6 });
            let (tensors, _) = bart(name, DecoderKind::Tensors);
            let features = [random(&[7, d_model], 1), random(&[7, d_model], 2), random(&[7, d_model], 3)];
            let prompts: [&[u32]; 3] = [&[0, 9, 8, 7, 2], &[0, 5, 2], &[0, 11, 12, 13, 14, 15, 2]];
            let encode = |bart: &Bart| bart.encode(&features.each_ref(), &prompts, 1).unwrap();
            let (encoded, other) = (encode(&steps), encode(&tensors));
            let mut pair = [steps.begin(&encoded).unwrap(), tensors.begin(&other).unwrap()];
            let decode = |pair: &mut [Box<dyn Session + '_>; 2], ids: &[u32]| {
                let [ours, theirs] = pair;
                let (ours, theirs) = (ours.decode(ids).unwrap(), theirs.decode(ids).unwrap());
                assert_eq!((ours.positions, ours.values.len()), (theirs.positions, theirs.values.len()));
                let off = ours.values.iter().zip(theirs.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(off < 1e-4 && ours.values.iter().all(|x| x.is_finite()), "{name}: logits are off by {off}");
            };
            // Widened, reordered, with prompts gone or in another order, shortened, longer than there was room for.
            let first: Vec<u32> = [2, 0, 4].repeat(3);
            for _ in 0..2 {
                decode(&mut pair, &first);
                for (rows, ids) in [
                    (&[0, 0, 1, 1, 2, 2][..], &[4, 5, 6, 7, 8, 9][..]),
                    (&[1, 1, 3, 2, 4, 5], &[20, 21, 22, 23, 24, 25]),
                    (&[4, 5, 1, 0], &[9, 8, 7, 6]),
                    (&[0, 1, 2, 3], &[5, 6, 7, 8]),
                    (&[3, 2, 2], &[1, 3, 5]),
                ] {
                    for session in &mut pair {
                        session.select(rows).unwrap();
                    }
                    decode(&mut pair, ids);
                }
                for session in &mut pair {
                    session.truncate(4).unwrap();
                }
                decode(&mut pair, &[3, 4, 5, 6, 7, 8]);
                for session in &mut pair {
                    assert!(session.select(&[0, 3]).is_err(), "there are three rows");
                    assert!(session.decode(&[1, 2]).is_err(), "two ids for three rows");
                    session.restart().unwrap();
                }
            }
        }
    }
}
