//! Florence-2: a DaViT image encoder and a BART text model that reads image tokens before words
//! (<https://arxiv.org/abs/2311.06242>). Serves the plain models and their fine-tunes, TinyClick among them.

mod bart;
pub mod config;
mod davit;
mod locator;
pub mod names;
#[cfg(feature = "cuda")]
mod recorded;
mod tensors;

use std::sync::Arc;

use candle_core::Device;
use serde::Deserialize;
use serde_json::Value;

use self::config::Config;
use self::locator::Florence2;
use self::names::Layout;
use self::tensors::Source;
use super::checkpoint::Checkpoint;
use super::manifest::{Manifest, Strategy};
use super::registry::{self, GenerationSettings, LoadError, LoadOptions, LoadedModel, ModelCard, Profile};
use super::weights::WeightsError;
use crate::geometry::Size;
use crate::prompt::Template;
use crate::screenshot::Normalizer;

/// `preprocessor_config.json`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Preprocessor {
    size: Size,
    image_mean: [f32; 3],
    image_std: [f32; 3],
    resample: Option<u32>,
    do_center_crop: Option<bool>,
}

/// Pillow's number for bicubic.
const BICUBIC: u32 = 3;

/// Runs `work` where `device` computes: on a CPU that is one of the pool's threads, so that the kernels share out their work
/// among threads that are awake, instead of waking one for each kernel and waiting for it.
fn compute<T: Send>(device: &Device, work: impl FnOnce() -> T + Send) -> T {
    if device.is_cpu() { rayon::scope(|_| work()) } else { work() }
}

/// Loads a Florence-2 checkpoint.
pub(super) fn load(
    checkpoint: &Checkpoint,
    json: &Value,
    manifest: Manifest,
    options: &LoadOptions,
) -> Result<LoadedModel, LoadError> {
    let in_file = |file: &str, message: String| LoadError::Config { file: checkpoint.describe(file), message };
    let config = Config::from_json(json).map_err(|message| in_file("config.json", message))?;
    let preprocessor: Preprocessor = registry::read_json(checkpoint, "preprocessor_config.json")?;
    let side = preprocessor.check(&config).map_err(|message| in_file("preprocessor_config.json", message))?;
    let tokenizer = checkpoint.tokenizer()?;
    let generation = generation(checkpoint, json, &manifest)?;

    let mut weights = checkpoint.weights()?;
    let parameters = weights.values();
    let Some(layout) = Layout::of(|name| weights.has(name)) else {
        return Err(
            WeightsError::Missing { tensor: Layout::Remote.name("model.vision_tower.convs.0.conv.weight") }.into()
        );
    };
    let mut source = Source::new(&mut weights, layout, options.precision, &options.device);
    let davit = davit::Davit::new(&config.vision, config.text.d_model, side, &mut source)?;
    let room = generation.max_length;
    let bart = bart::Bart::new(&config.text, config.vocabulary, room, &mut source, &options.device)?;
    weights.finish()?;

    let grid = config.vision.grid(side);
    let image_tokens = 1 + grid * grid;
    let source = match checkpoint {
        Checkpoint::Embedded => "embedded".to_owned(),
        Checkpoint::Folder(folder) => folder.display().to_string(),
    };
    let card = ModelCard {
        name: options.name.clone().unwrap_or(manifest.name),
        architecture: "florence2",
        source: manifest.hub.as_ref().map_or(source, |hub| hub.id.clone()),
        revision: manifest.hub.map(|hub| hub.revision),
        dtype: options.precision,
        parameters,
    };
    let pad = generation.pad;
    #[cfg(feature = "cuda")]
    let (settings, name) = (
        recorded::Settings { pad, width: generation.beams, room: generation.max_length, wanted: options.graphs },
        card.name.clone(),
    );
    let profile = Profile {
        card,
        template: Template::new(manifest.prompt, manifest.lowercase),
        tokenizer,
        prompt_limit: config.text.max_position_embeddings.saturating_sub(image_tokens),
        image: preprocessor.size,
        normalizer: Normalizer::new(preprocessor.image_mean, preprocessor.image_std),
        answer: manifest.answer,
        generation,
    };
    let locator = Florence2::new(davit, bart, side, pad, options.device.clone());
    #[cfg(feature = "cuda")]
    let locator = if options.device.is_cuda() {
        locator.with_graphs(recorded::Graphs::new(&name, &options.device, settings))
    } else {
        locator
    };
    Ok(LoadedModel { profile: Arc::new(profile), locator: Box::new(locator) })
}

impl Preprocessor {
    /// The side of the network's input.
    fn check(&self, config: &Config) -> Result<usize, String> {
        let Size { width, height } = self.size;
        if width != height {
            return Err(format!("size is {width}x{height}; only square inputs are supported"));
        }
        if self.resample.is_some_and(|resample| resample != BICUBIC) {
            return Err(format!("resample is {:?}; only {BICUBIC} (bicubic) is supported", self.resample));
        }
        if self.do_center_crop == Some(true) {
            return Err("do_center_crop is true; only false is supported".to_owned());
        }
        let grid = config.vision.grid(width as usize);
        if grid == 0 || grid > config.vision.grid_positions {
            return Err(format!(
                "an input of {width} pixels makes a grid of {grid}, but there are {} positions",
                config.vision.grid_positions
            ));
        }
        Ok(width as usize)
    }
}

/// The decoding rules: from `generation_config.json`, and what that leaves out from `text_config`, as the original code reads
/// them.
fn generation(checkpoint: &Checkpoint, config: &Value, manifest: &Manifest) -> Result<GenerationSettings, LoadError> {
    let own: Value = match checkpoint.read("generation_config.json")? {
        Some(_) => registry::read_json(checkpoint, "generation_config.json")?,
        None => Value::Null,
    };
    let find = |field: &str| {
        [&own, &config["text_config"], config].into_iter().map(|part| &part[field]).find(|value| !value.is_null())
    };
    let number = |field: &str| find(field).and_then(Value::as_u64);
    let id = |field: &str| number(field).and_then(|id| u32::try_from(id).ok());
    let count = |field: &str, default: usize| number(field).and_then(|n| usize::try_from(n).ok()).unwrap_or(default);
    let beams = count("num_beams", 1).max(1);
    Ok(GenerationSettings {
        strategy: manifest.decoding.strategy.unwrap_or(if beams > 1 { Strategy::Beam } else { Strategy::Greedy }),
        // A caller may ask for beam search of a model that decodes greedily.
        beams: if beams > 1 { beams } else { 3 },
        early_stopping: find("early_stopping").and_then(Value::as_bool).unwrap_or(beams == 1),
        length_penalty: find("length_penalty").and_then(Value::as_f64).unwrap_or(1.0),
        max_length: count("max_length", 20).max(2),
        no_repeat_ngram: count("no_repeat_ngram_size", 0),
        start: id("decoder_start_token_id").unwrap_or(2),
        forced_first: id("forced_bos_token_id"),
        forced_last: id("forced_eos_token_id"),
        end: id("eos_token_id").unwrap_or(2),
        pad: id("pad_token_id").unwrap_or(1),
    })
}
