//! Text to ids and back. What a user types is text, whatever it looks like: it never becomes a special token.

use std::path::Path;

use tokenizers::AddedToken;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::roberta::RobertaProcessing;

use super::PromptError;

/// A model's tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    locations: Option<LocationTokens>,
}

/// The ids of `<loc_0>` to `<loc_999>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocationTokens {
    /// The id of `<loc_0>`; the others follow.
    pub first: u32,
}

impl LocationTokens {
    /// How many there are.
    pub const COUNT: u32 = 1000;

    /// The bin that an id names, if it is a location token.
    #[must_use]
    pub fn bin(self, id: u32) -> Option<u32> {
        id.checked_sub(self.first).filter(|&bin| bin < Self::COUNT)
    }

    /// All their ids.
    #[must_use]
    pub const fn ids(self) -> std::ops::Range<u32> {
        self.first..self.first + Self::COUNT
    }
}

/// Why a tokenizer file cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the tokenizer `{file}` cannot be read: {message}")]
pub struct TokenizerError {
    file: String,
    message: String,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, given as its bytes; `file` is its name for messages.
    ///
    /// # Errors
    /// [`TokenizerError`] when it is no tokenizer, or its location tokens are not in order.
    pub fn from_bytes(bytes: &[u8], file: &str) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| TokenizerError::new(file, error))?;
        Self::new(inner, file)
    }

    /// Reads `tokenizer.json` of a model folder, or where that is absent its older form in three files: `vocab.json`,
    /// `merges.txt` and, if it is there, `added_tokens.json`.
    ///
    /// # Errors
    /// As [`Tokenizer::from_bytes`], and when neither form is there.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let whole = folder.join("tokenizer.json");
        let name = whole.display().to_string();
        match fs_err::read(&whole) {
            Ok(bytes) => Self::from_bytes(&bytes, &name),
            Err(_) if folder.join("vocab.json").is_file() => Self::from_three_files(folder),
            Err(error) => Err(TokenizerError::new(&name, error)),
        }
    }

    /// The tokenizer of `RoBERTa`, BART and Florence-2: byte-level BPE between `<s>` and `</s>`.
    fn from_three_files(folder: &Path) -> Result<Self, TokenizerError> {
        let (vocab, merges) = (folder.join("vocab.json"), folder.join("merges.txt"));
        let name = vocab.display().to_string();
        let bpe = BPE::from_file(&name, &merges.display().to_string())
            .build()
            .map_err(|error| TokenizerError::new(&name, error))?;
        let mut inner = tokenizers::Tokenizer::new(bpe);
        inner.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
        inner.with_decoder(Some(ByteLevel::default()));
        let marker = |text: &str| inner.token_to_id(text).map(|id| (text.to_owned(), id));
        let (Some(start), Some(end)) = (marker("<s>"), marker("</s>")) else {
            return Err(TokenizerError::new(&name, "it has no <s> and </s>"));
        };
        inner.with_post_processor(Some(RobertaProcessing::new(end, start).add_prefix_space(false)));
        let special = ["<s>", "<pad>", "</s>", "<unk>"].map(|text| AddedToken::from(text, true));
        inner.add_special_tokens(special).map_err(|error| TokenizerError::new(&name, error))?;
        inner
            .add_special_tokens([AddedToken::from("<mask>", true).lstrip(true)])
            .map_err(|error| TokenizerError::new(&name, error))?;
        let added = folder.join("added_tokens.json");
        if let Ok(bytes) = fs_err::read(&added) {
            let name = added.display().to_string();
            let tokens: std::collections::HashMap<String, u32> =
                serde_json::from_slice(&bytes).map_err(|error| TokenizerError::new(&name, error))?;
            let mut tokens: Vec<_> = tokens.into_iter().collect();
            tokens.sort_by_key(|&(_, id)| id);
            let in_order = tokens.into_iter().map(|(text, _)| AddedToken::from(text, true).normalized(false));
            inner.add_special_tokens(in_order).map_err(|error| TokenizerError::new(&name, error))?;
        }
        Self::new(inner, &name)
    }

    /// Wraps a tokenizer that is ready; `file` is its name for messages.
    fn new(mut inner: tokenizers::Tokenizer, file: &str) -> Result<Self, TokenizerError> {
        // A user's words are text: `</s>` or `<loc_5>` in them must not end a prompt or name a place.
        inner.set_encode_special_tokens(true);
        inner.with_truncation(None).map_err(|error| TokenizerError::new(file, error))?;
        inner.with_padding(None);
        let locations = match inner.token_to_id("<loc_0>") {
            None => None,
            Some(first) => {
                let in_order = (0..LocationTokens::COUNT)
                    .all(|bin| inner.token_to_id(&format!("<loc_{bin}>")) == Some(first + bin));
                if !in_order {
                    return Err(TokenizerError::new(file, "<loc_0> to <loc_999> do not have consecutive ids"));
                }
                Some(LocationTokens { first })
            }
        };
        Ok(Self { inner, locations })
    }

    /// The location tokens, if this tokenizer has them.
    #[must_use]
    pub fn locations(&self) -> Option<LocationTokens> {
        self.locations
    }

    /// The ids of a whole prompt, with the special tokens that the model expects around it.
    ///
    /// # Errors
    /// [`PromptError::Tokenizer`] when the tokenizer has no id for some of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        self.encode_with(text, true)
    }

    /// The ids of a piece of an answer, with nothing around it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_bare(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<u32>, PromptError> {
        let encoding = self
            .inner
            .encode_fast(text, special)
            .map_err(|error| PromptError::Tokenizer { message: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of an answer, special tokens kept, since location tokens are special too.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, false).unwrap_or_default()
    }
}

impl TokenizerError {
    fn new(file: &str, message: impl std::fmt::Display) -> Self {
        Self { file: file.to_owned(), message: message.to_string() }
    }
}
