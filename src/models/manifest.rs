//! What differs from checkpoint to checkpoint of one architecture, as data: a `locator.toml` in the model's folder, or a
//! built-in manifest for a known hub id.

use serde::{Deserialize, Serialize};

use crate::prompt::AnswerForm;

/// A `locator.toml`. Without one, a folder is served as plain Florence-2 ([`Manifest::plain`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name under which the model is served.
    pub name: String,
    /// The prompt; `{command}` is replaced by the caller's words, white space around them removed.
    #[serde(default = "command_alone")]
    pub prompt: String,
    /// Lower-case the whole prompt.
    #[serde(default)]
    pub lowercase: bool,
    /// What the model's answer looks like.
    #[serde(default)]
    pub answer: AnswerForm,
    /// How answers are decoded unless the caller says otherwise.
    #[serde(default)]
    pub decoding: DecodingDefaults,
    /// Where the weights are, for models that are downloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubSource>,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The likeliest token at each step.
    Greedy,
    /// The likeliest whole answer among a few kept at each step.
    Beam,
}

/// Decoding as the checkpoint's authors ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodingDefaults {
    /// `None`: as the checkpoint's `generation_config.json` says.
    pub strategy: Option<Strategy>,
}

/// A pinned revision on a model hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubSource {
    /// Owner and repository.
    pub id: String,
    /// Full commit hash; never a branch.
    pub revision: String,
    /// The files to fetch.
    pub files: Vec<HubFile>,
}

/// One file of a hub repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// Path in the repository.
    pub path: String,
    /// Expected SHA-256, 64 hexadecimal digits. Without one the hub's own word is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Expected length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The repository may lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

fn command_alone() -> String {
    "{command}".to_owned()
}

impl Manifest {
    /// How a folder without `locator.toml` is served: the command is the prompt as it stands, the answer is whatever
    /// location tokens follow.
    #[must_use]
    pub fn plain(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            prompt: command_alone(),
            lowercase: false,
            answer: AnswerForm::default(),
            decoding: DecodingDefaults::default(),
            hub: None,
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// TOML that does not parse, or an unknown or ill-typed field, with its line.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The manifests that come with Tapline, for models whose weights do not.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN.iter().filter_map(|text| Self::parse(text).ok()).collect()
    }
}

const BUILT_IN: [&str; 1] = [include_str!("../../models/tinyclick.toml")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_manifest_parses_and_is_pinned() {
        assert_eq!(Manifest::built_in().len(), BUILT_IN.len());
        for manifest in Manifest::built_in() {
            let hub = manifest.hub.expect("a built-in manifest is for a hub model");
            assert_eq!(hub.revision.len(), 40, "{} must name a commit, not a branch", hub.id);
            assert!(hub.files.iter().any(|file| file.path.ends_with(".safetensors") && file.sha256.is_some()));
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = Manifest::parse("name = \"x\"\npromt = \"y\"\n").unwrap_err();
        assert!(error.to_string().contains("promt"), "{error}");
    }
}
