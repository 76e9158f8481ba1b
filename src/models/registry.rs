//! From a checkpoint to a model that can run: which architecture it is, how it is asked, and what it answers.

use std::sync::Arc;

use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

use super::Locator;
use super::checkpoint::{Checkpoint, FileError};
use super::device::DeviceError;
use super::florence2;
use super::manifest::{Manifest, Strategy};
use super::weights::WeightsError;
use crate::geometry::Size;
use crate::prompt::{AnswerForm, Template, Tokenizer, TokenizerError};
use crate::screenshot::Normalizer;

/// A model ready to run.
pub struct LoadedModel {
    /// What callers of the model need to know; shared by every thread.
    pub profile: Arc<Profile>,
    /// The weights; owned by one thread.
    pub locator: Box<dyn Locator>,
}

/// How to ask a model and how to read its answers.
#[derive(Debug)]
pub struct Profile {
    /// What the model is, for people.
    pub card: ModelCard,
    /// The sentence it is asked in.
    pub template: Template,
    /// Text to ids.
    pub tokenizer: Tokenizer,
    /// Most ids of a prompt.
    pub prompt_limit: usize,
    /// The size its screenshots are squashed to.
    pub image: Size,
    /// Bytes to its input numbers.
    pub normalizer: Normalizer,
    /// The shape of its answers.
    pub answer: AnswerForm,
    /// The rules of its decoding.
    pub generation: GenerationSettings,
}

/// What a model is, for people and for `/v1/models`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelCard {
    /// The name it is served under.
    pub name: String,
    /// `florence2`.
    pub architecture: &'static str,
    /// Folder, hub id, or `embedded`.
    pub source: String,
    /// The hub commit, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Number format of the computation.
    pub dtype: Precision,
    /// Values in its weights.
    pub parameters: u64,
}

/// Number format of the computation. Layer normalisation, softmax, channel-attention logits and the final logits are in f32
/// always; on a CPU, bfloat16 is only what products read, and everything between them is f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats: the reference's numbers.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// 16-bit floats.
    F16,
}

impl Precision {
    /// Candle's name for it.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

/// The rules by which tokens are chosen, from `generation_config.json` and `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationSettings {
    /// Greedy or beam search when the caller does not say.
    pub strategy: Strategy,
    /// Beams kept.
    pub beams: usize,
    /// Stop as soon as as many answers as beams are finished.
    pub early_stopping: bool,
    /// Exponent of the length by which a beam's score is divided.
    pub length_penalty: f64,
    /// Most ids of an answer, the start id counted.
    pub max_length: usize,
    /// No sequence of this many ids twice; 0: no such rule.
    pub no_repeat_ngram: usize,
    /// The id that the decoder starts from.
    pub start: u32,
    /// The id that an answer must begin with.
    pub forced_first: Option<u32>,
    /// The id that an answer of full length must end with.
    pub forced_last: Option<u32>,
    /// The id that ends an answer.
    pub end: u32,
    /// The id that fills up shorter prompts of a batch.
    pub pad: u32,
}

/// Why a model cannot be loaded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file is absent.
    #[error("`{file}` is missing")]
    MissingFile {
        /// Its path.
        file: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A configuration file says something that this program does not understand.
    #[error("`{file}`: {message}")]
    Config {
        /// Its path.
        file: String,
        /// What is wrong, and with which field.
        message: String,
    },
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The weights do not fit the configuration.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where it runs.
    pub device: Device,
    /// Number format.
    pub precision: Precision,
    /// Serve it under this name instead of its own.
    pub name: Option<String>,
    /// Use this manifest instead of the checkpoint's own.
    pub manifest: Option<Manifest>,
    /// Record CUDA graphs of every size of batch and replay them. Means nothing on a CPU.
    pub graphs: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { device: Device::Cpu, precision: Precision::F32, name: None, manifest: None, graphs: true }
    }
}

/// Loads a checkpoint. Call it on the thread that will own the model.
///
/// # Errors
/// [`LoadError`] names the file, field or tensor that stands in the way.
pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    let manifest = match &options.manifest {
        Some(manifest) => manifest.clone(),
        None => own_manifest(checkpoint)?,
    };
    let config: serde_json::Value = read_json(checkpoint, "config.json")?;
    let architecture = config.get("model_type").and_then(serde_json::Value::as_str).unwrap_or_default();
    match architecture {
        "florence2" => florence2::load(checkpoint, &config, manifest, options),
        other => Err(LoadError::Config {
            file: checkpoint.describe("config.json"),
            message: format!("model_type is `{other}`; this program runs `florence2`"),
        }),
    }
}

fn own_manifest(checkpoint: &Checkpoint) -> Result<Manifest, LoadError> {
    let Some(bytes) = checkpoint.read("locator.toml")? else {
        let name = match checkpoint {
            Checkpoint::Folder(folder) => {
                folder.file_name().map_or("model".into(), |name| name.to_string_lossy()).into_owned()
            }
            Checkpoint::Embedded => "pocket".to_owned(),
        };
        return Ok(Manifest::plain(name));
    };
    let broken = |message: String| LoadError::Config { file: checkpoint.describe("locator.toml"), message };
    let text = std::str::from_utf8(&bytes).map_err(|error| broken(error.to_string()))?;
    Manifest::parse(text).map_err(|error| broken(error.to_string()))
}

/// Reads a JSON file that must be there.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(checkpoint: &Checkpoint, file: &str) -> Result<T, LoadError> {
    let Some(bytes) = checkpoint.read(file)? else {
        return Err(LoadError::MissingFile { file: checkpoint.describe(file) });
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| LoadError::Config { file: checkpoint.describe(file), message: error.to_string() })
}
