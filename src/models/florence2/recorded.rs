//! Florence-2 on a GPU with CUDA graphs: one of the image encoder and one of the prompt encoder for each size of batch, one of
//! the decoder for each number of new ids. They are recorded while the model warms up; what comes later and fits none runs
//! kernel by kernel, and is counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Tensor};

use super::bart::recorded::{Launched, Text, TextShape, recorded};
use super::bart::{Bart, TensorSession};
use super::davit::Davit;
use crate::kernels::cuda::graph::Graph;
use crate::kernels::cuda::upload::Uploads;
use crate::models::buckets::{bucket, buckets};
use crate::models::{BatchShape, Logits, Result, Session, Uploaded};
use crate::telemetry::Counter;

/// Lengths of prompts that there are graphs for. TinyClick's sentence around a short command has some 20 ids.
const PROMPT_LENGTHS: [usize; 2] = [32, 64];

/// Graphs and the tensors they work on.
#[derive(Debug)]
pub struct Graphs {
    model: String,
    device: Device,
    pad: u32,
    /// Most beams that the decoder's own keys and values have room for, and most ids of an answer.
    width: usize,
    room: usize,
    /// Whether graphs are wanted. Without, screenshots are still uploaded ahead.
    wanted: bool,
    /// Most images of a batch.
    largest: AtomicUsize,
    state: Mutex<State>,
}

/// What of a model's settings graphs depend on.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The id that fills up shorter prompts.
    pub pad: u32,
    /// Most beams.
    pub width: usize,
    /// Most ids of an answer.
    pub room: usize,
    /// Whether anything is recorded at all.
    pub wanted: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Whether what is missing is recorded.
    recording: bool,
    vision: HashMap<usize, Vision>,
    /// By prompts and ids of a prompt. One that a session is using is not here.
    texts: HashMap<(usize, usize), Text>,
    uploads: Option<Uploads>,
}

/// The image encoder for one size of batch.
#[derive(Debug)]
struct Vision {
    /// (images, 3, side, side), f32.
    pixels: Tensor,
    /// (images, image tokens, `d_model`).
    tokens: Tensor,
    graph: Option<Graph>,
}

/// A batch that is being answered.
pub struct Answering<'a> {
    graphs: &'a Graphs,
    bart: &'a Bart,
    key: (usize, usize),
    /// There until the session is over.
    text: Option<Text>,
    /// Prompts that the session began with, in places of the same number.
    all: usize,
    /// The places of the prompts that are still asked about.
    places: Vec<usize>,
    width: usize,
    length: usize,
    /// What goes on on other tensors since it does not fit these.
    outgrown: Option<TensorSession<'a>>,
    /// Of the last pass: (rows, new ids, vocabulary).
    logits: Vec<f32>,
}

impl Graphs {
    /// Nothing recorded yet.
    pub fn new(model: &str, device: &Device, settings: Settings) -> Self {
        let Settings { pad, width, room, wanted } = settings;
        let (model, device, largest) = (model.to_owned(), device.clone(), AtomicUsize::new(1));
        Self { model, device, pad, width, room, wanted, largest, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a step is a fault of its own; what is kept here is whole after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, or no longer, whatever is missing is recorded.
    pub fn record(&self, on: bool) {
        self.lock().recording = on && self.wanted;
    }

    /// The batches to warm up with when the largest has so many commands.
    pub fn shapes(&self, largest: usize) -> Vec<BatchShape> {
        self.largest.store(largest, Ordering::Relaxed);
        let lengths = PROMPT_LENGTHS;
        buckets(largest).into_iter().flat_map(|rows| lengths.map(|prompt| BatchShape { rows, prompt })).collect()
    }

    fn count(&self, launched: Launched) {
        let result = if launched == Launched::AsGraph { "hit" } else { "miss" };
        Counter::GraphLaunches.add(1, &[("model", &self.model), ("result", result)]);
    }

    /// (images, 3, side, side) to (images, image tokens, `d_model`), which stay until the next batch.
    pub fn see(&self, davit: &Davit, pixels: &Tensor) -> Result<Tensor> {
        let images = pixels.dim(0)?;
        let size = bucket(images);
        let mut state = self.lock();
        if state.recording && !state.vision.contains_key(&size) {
            let vision = Vision::new(davit, size, pixels)?;
            state.vision.insert(size, vision);
        }
        let Some(Vision { pixels: place, tokens, graph: Some(graph) }) = state.vision.get_mut(&size) else {
            drop(state);
            self.count(Launched::Apart);
            return davit.forward(pixels, |_, _| {});
        };
        place.slice_set(pixels, 0, 0)?;
        graph.replay()?;
        let tokens = tokens.narrow(0, 0, images);
        drop(state);
        self.count(Launched::AsGraph);
        tokens
    }

    /// A session for these prompts; `None` where nothing was recorded for them.
    pub fn begin<'a>(
        &'a self,
        bart: &'a Bart,
        features: &[&Tensor],
        prompts: &[&[u32]],
    ) -> Result<Option<Answering<'a>>> {
        let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let ids = PROMPT_LENGTHS.into_iter().find(|&length| length >= longest);
        let (Some(first), Some(ids)) = (features.first(), ids) else {
            self.count(Launched::Apart);
            return Ok(None);
        };
        let key = (bucket(prompts.len()), ids);
        let mut state = self.lock();
        let recording = state.recording;
        let text = state.texts.remove(&key);
        drop(state);
        let text = match text {
            Some(text) => Some(text),
            None if recording => {
                let image_tokens = first.dim(0)?;
                let (width, room) = (self.width, self.room);
                Some(Text::new(bart, TextShape { prompts: key.0, image_tokens, ids, width, room }, true)?)
            }
            None => None,
        };
        let Some(mut text) = text else {
            self.count(Launched::Apart);
            return Ok(None);
        };
        let launched = text.encode(bart, features, prompts, self.pad);
        let all = prompts.len();
        let session = Answering {
            graphs: self,
            bart,
            key,
            text: Some(text),
            all,
            places: (0..all).collect(),
            width: 1,
            length: 0,
            outgrown: None,
            logits: Vec::new(),
        };
        self.count(launched?);
        Ok(Some(session))
    }

    /// Sends screenshots of `side` pixels on their way.
    pub fn upload(&self, pixels: &[&[f32]], side: usize) -> Result<Uploaded> {
        let mut state = self.lock();
        if state.uploads.is_none() {
            let most = self.largest.load(Ordering::Relaxed);
            state.uploads = Some(Uploads::new(&self.device, most * 3 * side * side)?);
        }
        let Some(uploads) = &mut state.uploads else { candle_core::bail!("there is no way to upload") };
        Ok(Uploaded { place: uploads.upload(pixels)?, images: pixels.len() })
    }

    /// What was uploaded, as one tensor.
    pub fn uploaded(&self, images: Uploaded, side: usize) -> Result<Tensor> {
        let state = self.lock();
        let Some(uploads) = &state.uploads else { candle_core::bail!("nothing was uploaded") };
        uploads.take(images.place, (images.images, 3, side, side))
    }
}

impl Vision {
    fn new(davit: &Davit, images: usize, like: &Tensor) -> Result<Self> {
        let (_, planes, height, width) = like.dims4()?;
        let pixels = Tensor::zeros((images, planes, height, width), DType::F32, like.device())?;
        let tokens = davit.forward(&pixels, |_, _| {})?.force_contiguous()?;
        let see = || tokens.slice_set(&davit.forward(&pixels, |_, _| {})?.contiguous()?, 0, 0);
        let graph = recorded(like.device(), "the image encoder", see)?;
        Ok(Self { pixels, tokens, graph })
    }
}

impl Answering<'_> {
    /// Goes on on tensors that grow as they need to.
    fn outgrow(&mut self) -> Result<()> {
        let Some(text) = &self.text else { candle_core::bail!("the session is over") };
        let rows: Vec<usize> =
            self.places.iter().flat_map(|place| place * self.width..(place + 1) * self.width).collect();
        self.outgrown = Some(text.resume(self.bart, &rows, &self.places, (self.width, self.length))?);
        Ok(())
    }

    /// Where the caller's present row is among the rows of all places.
    fn row(&self, row: usize) -> Option<usize> {
        Some(self.places.get(row / self.width)? * self.width + row % self.width)
    }

    /// The places of the prompts kept, each in one block of `width` rows; `None` where rows are not like that.
    fn kept(&self, rows: &[usize]) -> Option<(Vec<usize>, usize)> {
        let mut kept: Vec<usize> = Vec::new();
        for &row in rows {
            let place = *self.places.get(row / self.width)?;
            if kept.last() != Some(&place) {
                kept.push(place);
            }
        }
        let width = rows.len().checked_div(kept.len())?;
        let in_blocks = rows.chunks(width).zip(&kept).all(|(block, &place)| {
            block.len() == width && block.iter().all(|row| self.places.get(row / self.width) == Some(&place))
        });
        let mut distinct = kept.clone();
        distinct.sort_unstable();
        distinct.dedup();
        (in_blocks && distinct.len() == kept.len()).then_some((kept, width))
    }
}

impl Session for Answering<'_> {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>> {
        let rows = self.places.len() * self.width;
        let new = ids.len() / rows.max(1);
        if rows == 0 || new == 0 || ids.len() != rows * new {
            candle_core::bail!("{} ids for {rows} rows", ids.len());
        }
        let fits = self.text.as_ref().is_some_and(|text| text.has_room(self.width, self.length + new));
        if self.outgrown.is_none() && !fits {
            self.outgrow()?;
        }
        if let Some(session) = &mut self.outgrown {
            self.graphs.count(Launched::Apart);
            return session.decode(ids);
        }
        let recording = self.graphs.lock().recording;
        let Some(text) = &mut self.text else { candle_core::bail!("the session is over") };
        // Places that nobody asks about are fed something, too.
        let mut all = vec![self.graphs.pad; text.prompts() * self.width * new];
        for (place, ids) in self.places.iter().zip(ids.chunks_exact(self.width * new)) {
            all[place * self.width * new..(place + 1) * self.width * new].copy_from_slice(ids);
        }
        let (logits, launched) = text.step(self.bart, &all, (self.width, self.length), recording)?;
        self.graphs.count(launched);
        self.length += new;
        let vocabulary = logits.dim(2)?;
        let block = self.width * new * vocabulary;
        // Only the places that were there at the beginning, and of those the ones that are still asked about.
        let read: Vec<f32> = logits.narrow(0, 0, self.all * self.width)?.flatten_all()?.to_vec1()?;
        self.logits = if self.places.len() == self.all {
            read
        } else {
            self.places.iter().flat_map(|place| &read[place * block..(place + 1) * block]).copied().collect()
        };
        Ok(Logits { values: &self.logits, positions: new, vocabulary })
    }

    fn select(&mut self, rows: &[usize]) -> Result<()> {
        if let Some(state) = &mut self.outgrown {
            return state.select(rows);
        }
        let kept = self.kept(rows);
        let fitting = kept.zip(self.text.as_ref()).filter(|((_, width), text)| text.has_room(*width, self.length));
        let Some(((kept, width), text)) = fitting else {
            self.outgrow()?;
            return self.outgrown.as_mut().map_or(Ok(()), |state| state.select(rows));
        };
        let stay = |place: usize, row: usize| place * self.width + row.min(self.width - 1);
        let mut from: Vec<usize> = (0..text.prompts())
            .flat_map(|place| (0..width).map(move |row| (place, row)))
            .map(|(place, row)| stay(place, row))
            .collect();
        for (&place, block) in kept.iter().zip(rows.chunks(width)) {
            for (row, &chosen) in block.iter().enumerate() {
                from[place * width + row] = self.row(chosen).unwrap_or_else(|| stay(place, row));
            }
        }
        let unchanged = width == self.width && from.iter().enumerate().all(|(row, &chosen)| row == chosen);
        if !unchanged {
            text.reorder(&from, self.length)?;
        }
        (self.places, self.width) = (kept, width);
        Ok(())
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        if let Some(state) = &mut self.outgrown {
            return state.truncate(length);
        }
        self.length = self.length.min(length);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.outgrown = None;
        (self.places, self.width, self.length) = ((0..self.all).collect(), 1, 0);
        Ok(())
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if let Some(text) = self.text.take() {
            self.graphs.lock().texts.insert(self.key, text);
        }
    }
}
