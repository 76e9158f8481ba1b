//! Florence-2 as a [`Locator`].

use candle_core::{Device, IndexOp, Tensor};

use super::bart::{Bart, DecoderState};
use super::davit::{Davit, stack};
use crate::models::{Locator, Logits, PromptRow, Result, Session, VisualFeatures};

/// The loaded network.
#[derive(Debug)]
pub struct Florence2 {
    davit: Davit,
    bart: Bart,
    side: usize,
    pad: u32,
    device: Device,
}

/// The decoder in the middle of answering.
struct Answering<'a> {
    bart: &'a Bart,
    state: DecoderState,
    /// The state before anything was decoded. Its tensors are shared with `state`, not copied.
    fresh: DecoderState,
}

impl Florence2 {
    /// A network for inputs of `side` pixels.
    pub const fn new(davit: Davit, bart: Bart, side: usize, pad: u32, device: Device) -> Self {
        Self { davit, bart, side, pad, device }
    }

    fn encode_together(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>> {
        let tokens = self.davit.forward(&stack(pixels, self.side, &self.device)?, |_, _| {})?; // (batch, image tokens, d_model)
        (0..pixels.len()).map(|image| Ok(VisualFeatures { tensor: tokens.i(image)?.force_contiguous()? })).collect()
    }
}

/// Runs `work` where `device` computes: on a CPU that is one of the pool's threads, so that the kernels share out their work
/// among threads that are awake, instead of waking one for each kernel and waiting for it.
fn compute<T: Send>(device: &Device, work: impl FnOnce() -> T + Send) -> T {
    if device.is_cpu() { rayon::scope(|_| work()) } else { work() }
}

impl Locator for Florence2 {
    fn encode_images(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>> {
        // One at a time on a CPU: an image alone keeps all threads busy, and a batch only needs more memory.
        let at_once = if self.device.is_cpu() { 1 } else { pixels.len().max(1) };
        let mut features = Vec::with_capacity(pixels.len());
        for pixels in pixels.chunks(at_once) {
            features.extend(compute(&self.device, || self.encode_together(pixels))?);
        }
        Ok(features)
    }

    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Result<Box<dyn Session + 'a>> {
        let features: Vec<&Tensor> = rows.iter().map(|row| &row.features.tensor).collect();
        let prompts: Vec<&[u32]> = rows.iter().map(|row| row.ids).collect();
        let state = compute(&self.device, || self.bart.start(&self.bart.encode(&features, &prompts, self.pad)?))?;
        Ok(Box::new(Answering { bart: &self.bart, fresh: state.clone(), state }))
    }

    fn trace(&self, pixels: &[f32], ids: &[u32], answer: &[u32]) -> Result<Vec<(String, Tensor)>> {
        let mut tensors = Vec::new();
        let input = stack(&[pixels], self.side, &self.device)?;
        tensors.push(("image0.pixel_values".to_owned(), input.i(0)?));
        let features = self.davit.forward(&input, |stage, x| {
            if let Ok(x) = x.i(0) {
                tensors.push((format!("image0.stage{stage}"), x));
            }
        })?;
        let features = features.i(0)?;
        let encoded = self.bart.encode(&[&features], &[ids], self.pad)?;
        let logits = self.bart.decode(&mut self.bart.start(&encoded)?, answer)?.i(0)?; // (answer, vocabulary)
        tensors.push(("image0.features".to_owned(), features));
        tensors.push(("case0.encoder".to_owned(), encoded.states.i(0)?));
        tensors.push(("case0.first_logits".to_owned(), logits.i(0)?));
        tensors.push(("case0.forced_logits".to_owned(), logits));
        Ok(tensors)
    }
}

impl Session for Answering<'_> {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits> {
        let logits = compute(self.bart.device(), || self.bart.decode(&mut self.state, ids))?; // (rows, positions, vocabulary)
        let positions = logits.dim(1)?;
        Ok(Logits { values: logits.flatten_all()?.to_vec1()?, positions, vocabulary: self.bart.vocabulary() })
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
