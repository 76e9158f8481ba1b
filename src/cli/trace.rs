//! Writes what every stage of a model computes for one screenshot and command, under the names that the fixture scripts
//! use, so that a port or a checkpoint can be compared with the reference tensor by tensor.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use candle_core::{Device, Tensor};

use super::Failure;
use crate::engine::LocateError;
use crate::geometry::{Pixels, Rect, Region};
use crate::models::{self, Checkpoint, LoadOptions, LoadedModel};
use crate::screenshot::{self, Limits};

/// What to trace.
pub(super) struct Input<'a> {
    /// The image file.
    pub image: &'a Bytes,
    /// The part of it that the model is shown.
    pub region: Option<Rect<Pixels>>,
    /// The caller's words.
    pub command: &'a str,
    /// The answer, start token included: all but its last id are fed to the decoder.
    pub tokens: &'a [u32],
}

/// Loads the model on this thread and writes its tensors.
pub(super) fn write(
    path: &Path,
    checkpoint: &Checkpoint,
    load: &LoadOptions,
    input: &Input<'_>,
) -> Result<(), Failure> {
    let model = models::load(checkpoint, load)?;
    let tensors = tensors(&model, input)?;
    candle_core::safetensors::save(&tensors, path).map_err(|error| {
        Failure::other(format!("`{}` cannot be written: {error}", path.display()), "is there room for it?")
    })
}

fn tensors(model: &LoadedModel, input: &Input<'_>) -> Result<HashMap<String, Tensor>, Failure> {
    let broken = |error: candle_core::Error| Failure::device(error, "`tapline doctor` says what this machine can run");
    let profile = &model.profile;
    let shot = screenshot::decode(input.image, &Limits::default())?;
    let size = shot.size();
    let shot = match input.region {
        None => shot,
        Some(region) => {
            let outside = LocateError::InvalidRegion { width: size.width, height: size.height };
            shot.crop(Region::cut(region, size).ok_or(outside)?)
        }
    };
    let resized = screenshot::resize(shot.rgb(), shot.size(), profile.image);
    let pixels = profile.normalizer.planes(&resized);
    let ids = profile.tokenizer.encode(&profile.template.render(input.command)?)?;
    let fed = input.tokens.split_last().map_or(&[][..], |(_, fed)| fed);
    let traced = model.locator.trace(&pixels, &ids, fed).map_err(broken)?;
    let shape = (profile.image.height as usize, profile.image.width as usize, 3);
    let resized = Tensor::from_vec(resized, shape, &Device::Cpu).map_err(broken)?;
    Ok(traced.into_iter().chain([("image0.resized".to_owned(), resized)]).collect())
}
