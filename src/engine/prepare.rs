//! From a request's bytes and words to what the engine runs: found in the cache, or decoded, cropped, resized, normalised;
//! and tokenised. Runs on the CPU pool.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::features::{CachedFeatures, FeatureCache, FeatureKey};
use super::generate::Plan;
use super::screenshots::ScreenshotStore;
use super::{ImageSource, LocateError, Request, ScreenshotId, ScreenshotInfo, Timings};
use crate::geometry::{Pixels, Rect, Region, Size};
use crate::models::{Profile, SharedFeatures};
use crate::prompt::PromptError;
use crate::schedule::Weight;
use crate::screenshot::{self, Limits};
use crate::telemetry::Counter;

/// What the engine does for one request.
#[derive(Debug)]
pub struct Work {
    /// The screenshot.
    pub image: ImageInput,
    /// One prompt for each command.
    pub prompts: Vec<Vec<u32>>,
    /// How to decode all of them.
    pub plan: Plan,
}

impl Weight for Work {
    fn commands(&self) -> usize {
        self.prompts.len()
    }
}

/// A screenshot as the engine takes it.
#[derive(Debug)]
pub enum ImageInput {
    /// Seen before.
    Cached(SharedFeatures),
    /// To be encoded.
    Pixels {
        /// Where its features will be kept.
        key: FeatureKey,
        /// Original size of the whole screenshot.
        size: Size,
        /// (3, height, width) of the model's input size.
        pixels: Vec<f32>,
    },
}

/// A prepared request.
#[derive(Debug)]
pub struct Prepared {
    /// For the engine.
    pub work: Work,
    /// For the reply.
    pub screenshot: ScreenshotInfo,
    /// The part of the screenshot that the model is shown.
    pub region: Region,
    /// `decode` and `prepare` are filled in.
    pub timings: Timings,
}

/// What preparation needs; shared by all requests of an engine.
#[derive(Debug, Clone)]
pub struct Preparer {
    /// Of the model.
    pub profile: Arc<Profile>,
    /// Looked into, never filled here.
    pub cache: Arc<FeatureCache>,
    /// Filled with every screenshot that was decoded.
    pub store: Arc<ScreenshotStore>,
    /// Most pixels of a screenshot.
    pub limits: Limits,
}

impl Preparer {
    /// Pixels that preparing the request will hold, by the image's header.
    ///
    /// # Errors
    /// The image is refused by its header, or there is none under the id.
    pub fn pixels(&self, image: &ImageSource) -> Result<u64, LocateError> {
        match image {
            ImageSource::Bytes(file) => Ok(screenshot::sniff(file, &self.limits)?.size.pixels()),
            ImageSource::Stored(id) => match self.store.get(*id) {
                Some(file) => Ok(screenshot::sniff(&file, &self.limits)?.size.pixels()),
                None => self.whole(*id).map(|_| 0),
            },
        }
    }

    /// Prepares a request.
    ///
    /// # Errors
    /// The image or a command is bad.
    pub fn prepare(&self, request: &Request) -> Result<Prepared, LocateError> {
        let started = Instant::now();
        let prompts = self.tokenize(&request.commands)?;
        let plan = Plan {
            strategy: request.decoding.unwrap_or(self.profile.generation.strategy),
            constrained: request.constrained,
            alternatives: request.alternatives,
        };
        let (id, file) = self.file(&request.image);
        let size = match &file {
            Some(file) => screenshot::sniff(file, &self.limits)?.size,
            None => self.whole(id)?.size,
        };
        let region = cut(request.region, size)?;
        let key = FeatureKey { screenshot: id, region: (region != Region::whole(size)).then_some(region) };
        let mut timings = Timings::default();
        let cached = self.cache.get(&key);
        let result = if cached.is_some() { "hit" } else { "miss" };
        Counter::FeatureCache.add(1, &[("model", &self.profile.card.name), ("result", result)]);
        let image = match (cached, file) {
            (Some(CachedFeatures { features, .. }), _) => ImageInput::Cached(features),
            (None, Some(file)) => {
                let decoding = Instant::now();
                let shot = screenshot::decode(&file, &self.limits)?;
                timings.decode = decoding.elapsed();
                self.store.put(id, &file);
                let shot = if key.region.is_some() { shot.crop(region) } else { shot };
                let rgb = screenshot::resize(shot.rgb(), shot.size(), self.profile.image);
                ImageInput::Pixels { key, size, pixels: self.profile.normalizer.planes(&rgb) }
            }
            // Features of the whole screenshot outlived its file, and the caller asks for another part of it.
            (None, None) => return Err(LocateError::UnknownScreenshot { id: id.to_string() }),
        };
        timings.prepare = started.elapsed().saturating_sub(timings.decode);
        let screenshot = ScreenshotInfo { id, size };
        Ok(Prepared { work: Work { image, prompts, plan }, screenshot, region, timings })
    }

    fn tokenize(&self, commands: &[String]) -> Result<Vec<Vec<u32>>, PromptError> {
        let limit = self.profile.prompt_limit;
        commands
            .iter()
            .map(|command| {
                let ids = self.profile.tokenizer.encode(&self.profile.template.render(command)?)?;
                if ids.len() > limit {
                    return Err(PromptError::CommandTooLong { tokens: ids.len(), limit });
                }
                Ok(ids)
            })
            .collect()
    }

    /// The screenshot's id, and its file where it is sent or still held.
    fn file(&self, image: &ImageSource) -> (ScreenshotId, Option<Bytes>) {
        match image {
            ImageSource::Bytes(file) => (ScreenshotId::of(file), Some(file.clone())),
            ImageSource::Stored(id) => (*id, self.store.get(*id)),
        }
    }

    /// Features of the whole screenshot, all that is left when its file is no longer held.
    fn whole(&self, id: ScreenshotId) -> Result<CachedFeatures, LocateError> {
        self.cache
            .get(&FeatureKey { screenshot: id, region: None })
            .ok_or_else(|| LocateError::UnknownScreenshot { id: id.to_string() })
    }
}

fn cut(region: Option<Rect<Pixels>>, size: Size) -> Result<Region, LocateError> {
    let Some(region) = region else { return Ok(Region::whole(size)) };
    Region::cut(region, size).ok_or(LocateError::InvalidRegion { width: size.width, height: size.height })
}
