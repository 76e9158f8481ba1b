//! A model without weights, for tests and benches of everything around a model: its answers follow from the pixels and the
//! prompt alone, it costs next to nothing, and a hook can hold it up or make it fail.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use candle_core::{Device, Tensor};

use crate::geometry::{BinRule, Size};
use crate::models::manifest::Strategy;
use crate::models::{
    GenerationSettings, LoadError, LoadedModel, Locator, Logits, ModelCard, Precision, Profile, PromptRow, Result,
    Session, VisualFeatures,
};
use crate::prompt::{AnswerForm, Form, Template, Tokenizer};
use crate::screenshot::Normalizer;

/// What the simulated model is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Encode this many screenshots.
    Images(usize),
    /// Answer these prompts.
    Prompts(Vec<Vec<u32>>),
}

/// Called on the engine thread before each event. It may block, panic, or fail the step.
pub type Hook = Arc<dyn Fn(&Event) -> std::result::Result<(), String> + Send + Sync>;

/// First id of the simulated location tokens.
const FIRST_LOCATION: u32 = 64;
const VOCABULARY: usize = FIRST_LOCATION as usize + 1000;
const END: u32 = 2;

/// A simulated model that calls `hook` before each step. Prompts are letters and digits.
///
/// # Errors
/// Never in practice: its tokenizer is built from constants.
pub fn model(name: &str, hook: Hook) -> std::result::Result<LoadedModel, LoadError> {
    let tokenizer = Tokenizer::from_bytes(tokenizer_json().to_string().as_bytes(), "(simulated)")?;
    let profile = Profile {
        card: ModelCard {
            name: name.to_owned(),
            architecture: "simulated",
            source: "simulated".to_owned(),
            revision: None,
            dtype: Precision::F32,
            parameters: 0,
        },
        template: Template::new("{command}", true),
        tokenizer,
        prompt_limit: 64,
        image: Size::new(16, 16),
        normalizer: Normalizer::new([0.5; 3], [0.5; 3]),
        answer: AnswerForm { form: Some(Form::Box), prefix: String::new(), abstain: vec![499; 4], bins: BinRule::Edge },
        generation: GenerationSettings {
            strategy: Strategy::Greedy,
            beams: 3,
            early_stopping: true,
            length_penalty: 1.0,
            max_length: 20,
            no_repeat_ngram: 0,
            start: END,
            forced_first: Some(0),
            forced_last: Some(END),
            end: END,
            pad: 1,
        },
    };
    Ok(LoadedModel { profile: Arc::new(profile), locator: Box::new(Simulated { hook }) })
}

/// A hook that does nothing.
#[must_use]
pub fn no_hook() -> Hook {
    Arc::new(|_| Ok(()))
}

struct Simulated {
    hook: Hook,
}

/// Each row's answer is fixed when it begins: four bins from the pixels and the prompt.
struct Row {
    bins: [u32; 4],
    length: usize,
}

struct Answering {
    all: Vec<[u32; 4]>,
    rows: Vec<Row>,
    /// Of the last pass.
    logits: Vec<f32>,
}

impl Simulated {
    fn announce(&self, event: &Event) -> Result<()> {
        (self.hook)(event).map_err(candle_core::Error::Msg)
    }
}

impl Locator for Simulated {
    fn encode_images(&self, pixels: &[&[f32]]) -> Result<Vec<VisualFeatures>> {
        self.announce(&Event::Images(pixels.len()))?;
        pixels
            .iter()
            .map(|pixels| {
                let mut hasher = DefaultHasher::new();
                pixels.iter().for_each(|value| value.to_bits().hash(&mut hasher));
                // A few bytes are enough to tell screenshots apart, and exact in f32.
                let bytes = hasher.finish().to_le_bytes().map(f32::from);
                Ok(VisualFeatures { tensor: Tensor::new(&bytes, &Device::Cpu)? })
            })
            .collect()
    }

    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Result<Box<dyn Session + 'a>> {
        self.announce(&Event::Prompts(rows.iter().map(|row| row.ids.to_vec()).collect()))?;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            let mut hasher = DefaultHasher::new();
            row.ids.hash(&mut hasher);
            for value in row.features.tensor.to_vec1::<f32>()? {
                value.to_bits().hash(&mut hasher);
            }
            let hash = hasher.finish();
            let part = |shift: u32| u32::try_from((hash >> shift) % 500).unwrap_or(0);
            let (x, y) = (part(0), part(16));
            all.push([x, y, x + 1 + part(32), y + 1 + part(48)]);
        }
        let rows = all.iter().map(|&bins| Row { bins, length: 0 }).collect();
        Ok(Box::new(Answering { all, rows, logits: Vec::new() }))
    }

    fn trace(&self, _: &[f32], _: &[u32], _: &[u32]) -> Result<Vec<(String, Tensor)>> {
        Ok(Vec::new())
    }
}

impl Session for Answering {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>> {
        let positions = ids.len() / self.rows.len().max(1);
        self.logits.clear();
        self.logits.resize(ids.len() * VOCABULARY, 0.0);
        let mut logits = self.logits.chunks_exact_mut(VOCABULARY);
        for row in &mut self.rows {
            for _ in 0..positions {
                row.length += 1;
                let next = match row.length {
                    1 => 0,
                    length @ 2..=5 => FIRST_LOCATION + row.bins[length - 2],
                    _ => END,
                };
                if let Some(values) = logits.next() {
                    values[next as usize] = 20.0;
                }
            }
        }
        Ok(Logits { values: &self.logits, positions, vocabulary: VOCABULARY })
    }

    fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.rows = rows.iter().map(|&row| Row { ..self.rows[row] }).collect();
        Ok(())
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        self.rows.iter_mut().for_each(|row| row.length = row.length.min(length));
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.rows = self.all.iter().map(|&bins| Row { bins, length: 0 }).collect();
        Ok(())
    }
}

/// Letters as tokens, so that different commands have different prompts.
fn tokenizer_json() -> serde_json::Value {
    let special = ["<s>", "<pad>", "</s>", "<unk>"];
    let added = |id: usize, content: &str| {
        serde_json::json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                            "normalized": false, "special": true })
    };
    let mut vocabulary: serde_json::Map<String, serde_json::Value> =
        special.iter().enumerate().map(|(id, text)| ((*text).to_owned(), id.into())).collect();
    for (index, letter) in ('a'..='z').chain('0'..='9').enumerate() {
        vocabulary.insert(letter.to_string(), (index + 4).into());
    }
    let first = FIRST_LOCATION as usize;
    let locations = (0..1000).map(|bin| added(first + bin, &format!("<loc_{bin}>")));
    for bin in 0..1000 {
        vocabulary.insert(format!("<loc_{bin}>"), (first + bin).into());
    }
    let tokens: Vec<_> = special.iter().enumerate().map(|(id, text)| added(id, text)).chain(locations).collect();
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": tokens, "normalizer": null,
        "pre_tokenizer": { "type": "Split", "pattern": { "Regex": "." }, "behavior": "Isolated", "invert": false },
        "post_processor": { "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
                            "trim_offsets": false, "add_prefix_space": false },
        "decoder": null,
        "model": { "type": "WordLevel", "unk_token": "<unk>", "vocab": vocabulary }
    })
}
