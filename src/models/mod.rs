//! Locators: what every model must be able to do, loading a checkpoint strictly, and one folder per architecture.
//! It knows tensors, and neither HTTP nor queues.

pub mod buckets;
pub mod checkpoint;
pub mod device;
pub mod florence2;
pub mod manifest;
pub mod registry;
pub mod weights;

use std::sync::Arc;

use candle_core::Tensor;

pub use checkpoint::Checkpoint;
pub use manifest::Manifest;
pub use registry::{GenerationSettings, LoadError, LoadOptions, LoadedModel, ModelCard, Precision, Profile, load};
pub use weights::WeightsError;

/// Result of a tensor computation; a failure is a fault of the device or of this program, never of a request.
pub type Result<T> = std::result::Result<T, candle_core::Error>;

/// What the image encoder returns for one screenshot: enough to answer any command about it.
#[derive(Debug, Clone)]
pub struct VisualFeatures {
    /// Florence-2: (image tokens, `d_model`).
    pub tensor: Tensor,
}

impl VisualFeatures {
    /// The same in the memory of the host, from where every device can take them.
    ///
    /// # Errors
    /// A device failure.
    pub fn on_host(&self) -> Result<Self> {
        Ok(Self { tensor: self.tensor.to_device(&candle_core::Device::Cpu)? })
    }

    /// Bytes these features occupy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tensor.elem_count() * self.tensor.dtype().size_in_bytes()
    }
}

/// One row of a batch for the text model.
#[derive(Debug, Clone, Copy)]
pub struct PromptRow<'a> {
    /// The screenshot asked about.
    pub features: &'a VisualFeatures,
    /// The whole prompt as ids, special tokens included, not padded.
    pub ids: &'a [u32],
}

/// Raw logits of one decoding pass, in f32 on the host: (rows, positions, vocabulary). They lie in the session's memory
/// until its next pass.
#[derive(Debug, Clone, Copy)]
pub struct Logits<'a> {
    /// Row by row, position by position.
    pub values: &'a [f32],
    /// Decoder positions of the pass.
    pub positions: usize,
    /// Ids that may be chosen.
    pub vocabulary: usize,
}

impl<'a> Logits<'a> {
    /// Logits of one row at one position of the pass: (vocabulary).
    #[must_use]
    pub fn at(self, row: usize, position: usize) -> &'a [f32] {
        let start = (row * self.positions + position) * self.vocabulary;
        &self.values[start..start + self.vocabulary]
    }

    /// Logits of one row after the last position of the pass: (vocabulary).
    #[must_use]
    pub fn last(self, row: usize) -> &'a [f32] {
        self.at(row, self.positions - 1)
    }
}

/// A model that turns screenshots and prompts into tokens. One thread owns it, and may run it on a pool of threads; whoever
/// drives the decoding ([`crate::engine`]) chooses the tokens.
pub trait Locator: Send + Sync {
    /// Encodes screenshots prepared by this model's preprocessor, each a plane-by-plane (3, height, width) tensor.
    ///
    /// # Errors
    /// A device failure.
    fn encode_images(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>>;

    /// Encodes prompts about screenshots, and gives a session that decodes their answers, one row each. Rows may be of
    /// different lengths: each row's answers are those it would get alone.
    ///
    /// # Errors
    /// A device failure.
    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Result<Box<dyn Session + 'a>>;

    /// The batches to run once before the model says that it is ready, so that no request pays for what a device does once for
    /// each size. `largest` is the most commands of a batch. None where that saves nothing.
    fn shapes(&self, _largest: usize) -> Vec<BatchShape> {
        Vec::new()
    }

    /// Whether what runs now is run to warm up.
    fn warming_up(&self, _on: bool) {}

    /// Waits until the device has done what it was asked to. A CPU has when it returns.
    ///
    /// # Errors
    /// A device failure, perhaps of something asked for earlier.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// The way to bring the next batch's screenshots to the device while it runs the present one, where that is another memory.
    fn uploader(&self) -> Option<&dyn Uploader> {
        None
    }

    /// Every intermediate result for one screenshot and prompt, under the names of the project's fixture maker, for whoever
    /// ports or checks a checkpoint. `answer` are the decoder ids to feed when looking at the logits.
    ///
    /// # Errors
    /// A device failure.
    fn trace(&self, pixels: &[f32], ids: &[u32], answer: &[u32]) -> Result<Vec<(String, Tensor)>>;
}

/// A batch as a device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchShape {
    /// Commands, each on a screenshot of its own.
    pub rows: usize,
    /// Ids of each prompt.
    pub prompt: usize,
}

/// Brings screenshots to a device ahead of the batch that needs them.
pub trait Uploader {
    /// Sends screenshots, as [`Locator::encode_images`] takes them, on their way, and does not wait until they are there.
    ///
    /// # Errors
    /// A device failure, or more screenshots than there is room for.
    fn upload(&self, pixels: &[&[f32]]) -> Result<Uploaded>;

    /// As [`Locator::encode_images`], of screenshots that were uploaded last or before the last.
    ///
    /// # Errors
    /// A device failure.
    fn encode(&self, images: Uploaded) -> Result<Vec<VisualFeatures>>;
}

/// Screenshots on their way to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Which of the uploader's places they are in.
    pub place: usize,
    /// How many.
    pub images: usize,
}

/// The decoder in the middle of answering the rows of a batch. On a CPU it has its memory when it begins, more only when its
/// rows are widened: a pass of one id a row takes none.
pub trait Session: Send {
    /// Feeds the same number of new ids to each row (`ids` is row by row) and returns the logits after each of them.
    ///
    /// # Errors
    /// A device failure, or ids that do not fit the rows.
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>>;

    /// Makes the rows be copies of these present rows, in this order: to widen one row to several beams, to follow the
    /// beams chosen, to let finished rows go. Rows of one prompt stay together, and every prompt left has equally many.
    ///
    /// # Errors
    /// A device failure.
    fn select(&mut self, rows: &[usize]) -> Result<()>;

    /// Forgets all ids of each row but the first `length`.
    ///
    /// # Errors
    /// A device failure.
    fn truncate(&mut self, length: usize) -> Result<()>;

    /// Goes back to the state after [`Locator::begin`]: all prompts, one row each, nothing decoded.
    ///
    /// # Errors
    /// A device failure.
    fn restart(&mut self) -> Result<()>;
}

/// Features shared by the cache and the requests that use them.
pub type SharedFeatures = Arc<VisualFeatures>;
