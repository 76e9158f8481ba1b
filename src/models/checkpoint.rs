//! The files of a checkpoint, wherever they are: a folder on disk, or the small model inside this program.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::weights::{Weights, WeightsError};
use crate::prompt::{Tokenizer, TokenizerError};

/// Where a model's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// `config.json`, `tokenizer.json`, one or more `*.safetensors`, and perhaps `locator.toml`.
    Folder(PathBuf),
    /// The `pocket` model inside this program.
    Embedded,
}

/// A file of a checkpoint cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{file}` cannot be read: {message}")]
pub struct FileError {
    /// Its path.
    pub file: String,
    /// What the system said.
    pub message: String,
}

macro_rules! pocket {
    ($($name:literal),+) => {
        [$(($name, include_bytes!(concat!("../../models/pocket/", $name)).as_slice())),+]
    };
}

/// The files of the embedded model, by name.
static POCKET: [(&str, &[u8]); 6] = pocket![
    "config.json",
    "preprocessor_config.json",
    "generation_config.json",
    "tokenizer.json",
    "locator.toml",
    "model.safetensors"
];

impl Checkpoint {
    /// How the file is called in messages.
    #[must_use]
    pub fn describe(&self, file: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(file).display().to_string(),
            Self::Embedded => format!("(embedded pocket)/{file}"),
        }
    }

    /// The content of a small file; `None` when the checkpoint has no such file.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read(&self, file: &str) -> Result<Option<Cow<'static, [u8]>>, FileError> {
        match self {
            Self::Embedded => Ok(POCKET.iter().find(|(name, _)| *name == file).map(|&(_, bytes)| bytes.into())),
            Self::Folder(folder) => match fs_err::read(folder.join(file)) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.is_dir() => Ok(None),
                Err(error) => Err(FileError { file: self.describe(file), message: error.to_string() }),
            },
        }
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// It is absent or broken.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        match self {
            Self::Folder(folder) => Tokenizer::from_folder(folder),
            Self::Embedded => {
                let bytes =
                    POCKET.iter().find(|(name, _)| *name == "tokenizer.json").map_or(&[][..], |&(_, bytes)| bytes);
                Tokenizer::from_bytes(bytes, &self.describe("tokenizer.json"))
            }
        }
    }

    /// The weights, opened but not yet read.
    ///
    /// # Errors
    /// There are none, or a file is no safetensors file.
    pub fn weights(&self) -> Result<Weights, WeightsError> {
        match self {
            Self::Folder(folder) => Weights::open(&safetensors_of(folder)?),
            Self::Embedded => {
                let bytes =
                    POCKET.iter().find(|(name, _)| *name == "model.safetensors").map_or(&[][..], |&(_, bytes)| bytes);
                Weights::from_static(bytes, &self.describe("model.safetensors"))
            }
        }
    }
}

/// `model.safetensors`, or all the shards beside each other, in order of name.
fn safetensors_of(folder: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let single = folder.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![single]);
    }
    let unreadable = |error: std::io::Error| WeightsError::Unreadable {
        file: folder.display().to_string(),
        message: error.to_string(),
    };
    let mut shards = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("model-") && name.ends_with(".safetensors") {
            shards.push(path);
        }
    }
    shards.sort();
    if shards.is_empty() {
        let message = "there is no model.safetensors in it".to_owned();
        return Err(WeightsError::Unreadable { file: folder.display().to_string(), message });
    }
    Ok(shards)
}
