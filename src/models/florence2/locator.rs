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
}

impl Locator for Florence2 {
    fn encode_images(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>> {
        // One at a time on a CPU: an image alone keeps all threads busy, and a batch only needs more memory.
        let at_once = if self.device.is_cpu() { 1 } else { pixels.len().max(1) };
        let mut features = Vec::with_capacity(pixels.len());
        for pixels in pixels.chunks(at_once) {
            let tokens = self.davit.forward(&stack(pixels, self.side, &self.device)?, |_, _| {})?; // (batch, image tokens, d_model)
            for image in 0..pixels.len() {
                features.push(VisualFeatures { tensor: tokens.i(image)?.force_contiguous()? });
            }
        }
        Ok(features)
    }

    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Result<Box<dyn Session + 'a>> {
        let features: Vec<&Tensor> = rows.iter().map(|row| &row.features.tensor).collect();
        let prompts: Vec<&[u32]> = rows.iter().map(|row| row.ids).collect();
        let encoded = self.bart.encode(&features, &prompts, self.pad)?;
        let state = self.bart.start(&encoded)?;
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
        let logits = self.bart.decode(&mut self.state, ids)?; // (rows, positions, vocabulary)
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
