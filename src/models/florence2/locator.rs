//! Florence-2 as a [`Locator`].

use candle_core::{Device, IndexOp, Tensor};

use super::bart::Bart;
use super::compute;
use super::davit::{Davit, stack};
#[cfg(feature = "cuda")]
use super::recorded::Graphs;
#[cfg(feature = "cuda")]
use crate::models::{BatchShape, Uploaded, Uploader};
use crate::models::{Locator, PromptRow, Result, Session, VisualFeatures};

/// The loaded network.
#[derive(Debug)]
pub struct Florence2 {
    davit: Davit,
    bart: Bart,
    side: usize,
    pad: u32,
    device: Device,
    /// On a GPU.
    #[cfg(feature = "cuda")]
    graphs: Option<Graphs>,
}

impl Florence2 {
    /// A network for inputs of `side` pixels.
    pub const fn new(davit: Davit, bart: Bart, side: usize, pad: u32, device: Device) -> Self {
        Self {
            davit,
            bart,
            side,
            pad,
            device,
            #[cfg(feature = "cuda")]
            graphs: None,
        }
    }

    /// With graphs for the GPU that it is on.
    #[cfg(feature = "cuda")]
    pub fn with_graphs(self, graphs: Graphs) -> Self {
        Self { graphs: Some(graphs), ..self }
    }

    /// (images, 3, side, side) to the features of each.
    fn encode_stacked(&self, pixels: &Tensor) -> Result<Vec<VisualFeatures>> {
        let tokens = self.see(pixels)?; // (images, image tokens, d_model)
        (0..tokens.dim(0)?).map(|image| Ok(VisualFeatures { tensor: tokens.i(image)?.force_contiguous()? })).collect()
    }

    fn see(&self, pixels: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs {
            return graphs.see(&self.davit, pixels);
        }
        self.davit.forward(pixels, |_, _| {})
    }
}

impl Locator for Florence2 {
    fn encode_images(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>> {
        // One at a time on a CPU: an image alone keeps all threads busy, and a batch only needs more memory.
        let at_once = if self.device.is_cpu() { 1 } else { pixels.len().max(1) };
        let mut features = Vec::with_capacity(pixels.len());
        for pixels in pixels.chunks(at_once) {
            let encode = || self.encode_stacked(&stack(pixels, self.side, &self.device)?);
            features.extend(compute(&self.device, encode)?);
        }
        Ok(features)
    }

    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Result<Box<dyn Session + 'a>> {
        // Where several devices share a cache, features come from the host.
        let features: Vec<Tensor> =
            rows.iter().map(|row| row.features.tensor.to_device(&self.device)).collect::<Result<_>>()?;
        let features: Vec<&Tensor> = features.iter().collect();
        let prompts: Vec<&[u32]> = rows.iter().map(|row| row.ids).collect();
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs
            && let Some(session) = graphs.begin(&self.bart, &features, &prompts)?
        {
            return Ok(Box::new(session));
        }
        let encode = || self.bart.encode(&features, &prompts, self.pad);
        compute(&self.device, || self.bart.begin(&encode()?))
    }

    #[cfg(feature = "cuda")]
    fn shapes(&self, largest: usize) -> Vec<BatchShape> {
        self.graphs.as_ref().map(|graphs| graphs.shapes(largest)).unwrap_or_default()
    }

    #[cfg(feature = "cuda")]
    fn warming_up(&self, on: bool) {
        if let Some(graphs) = &self.graphs {
            graphs.record(on);
        }
    }

    #[cfg(feature = "cuda")]
    fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }

    #[cfg(feature = "cuda")]
    fn uploader(&self) -> Option<&dyn Uploader> {
        self.graphs.as_ref().map(|_| self as &dyn Uploader)
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

#[cfg(feature = "cuda")]
impl Uploader for Florence2 {
    fn upload(&self, pixels: &[&[f32]]) -> Result<Uploaded> {
        match &self.graphs {
            Some(graphs) => graphs.upload(pixels, self.side),
            None => candle_core::bail!("nothing is uploaded ahead to this device"),
        }
    }

    fn encode(&self, images: Uploaded) -> Result<Vec<VisualFeatures>> {
        match &self.graphs {
            Some(graphs) => self.encode_stacked(&graphs.uploaded(images, self.side)?),
            None => candle_core::bail!("nothing was uploaded ahead to this device"),
        }
    }
}
