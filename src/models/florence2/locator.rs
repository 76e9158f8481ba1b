//! Florence-2 as a [`Locator`].

use candle_core::{Device, IndexOp, Tensor};

use super::bart::Bart;
use super::compute;
use super::davit::{Davit, stack};
use crate::models::{Locator, PromptRow, Result, Session, VisualFeatures};

/// The loaded network.
#[derive(Debug)]
pub struct Florence2 {
    davit: Davit,
    bart: Bart,
    side: usize,
    pad: u32,
    device: Device,
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
        let encode = || self.bart.encode(&features, &prompts, self.pad);
        compute(&self.device, || self.bart.begin(&encode()?))
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
        let mut session = self.bart.begin(&encoded)?;
        let logits = session.decode(answer)?;
        let logits = Tensor::from_slice(logits.values, (logits.positions, logits.vocabulary), &Device::Cpu)?; // (answer, vocabulary)
        tensors.push(("image0.features".to_owned(), features));
        tensors.push(("case0.encoder".to_owned(), encoded.states.i(0)?));
        tensors.push(("case0.first_logits".to_owned(), logits.i(0)?));
        tensors.push(("case0.forced_logits".to_owned(), logits));
        Ok(tensors)
    }
}
