//! What may follow: Hugging Face's three logits rules, and the grammar of a locator's answer.

use crate::models::GenerationSettings;
use crate::prompt::LocationTokens;

/// The shape of a locator's answer in ids: an action prefix, a fixed number of location tokens, the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grammar {
    /// Ids between the forced first id and the first location token.
    pub prefix: Vec<u32>,
    /// Location tokens of one answer.
    pub count: usize,
    /// Which ids they are.
    pub locations: LocationTokens,
}

/// What the grammar lets stand at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// This id alone.
    Only(u32),
    /// Any location token.
    Location,
}

/// Everything that bears on the next id.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Of the checkpoint.
    pub settings: &'a GenerationSettings,
    /// Of a constrained answer.
    pub grammar: Option<&'a Grammar>,
}

impl Grammar {
    /// What may follow `length` ids, the start token counted, in an answer that begins with `forced_first` if it must.
    #[must_use]
    pub fn allowed(&self, length: usize, settings: &GenerationSettings) -> Allowed {
        let mut index = length.saturating_sub(1);
        if let Some(first) = settings.forced_first {
            if index == 0 {
                return Allowed::Only(first);
            }
            index -= 1;
        }
        match self.prefix.get(index) {
            Some(&id) => Allowed::Only(id),
            None if index < self.prefix.len() + self.count => Allowed::Location,
            None => Allowed::Only(settings.end),
        }
    }

    /// The ids that every answer begins with: start, forced first, prefix.
    #[must_use]
    pub fn opening(&self, settings: &GenerationSettings) -> Vec<u32> {
        std::iter::once(settings.start).chain(settings.forced_first).chain(self.prefix.iter().copied()).collect()
    }
}

impl Rules<'_> {
    /// Nothing but the end can follow: what the model thinks of it is not worth a pass.
    #[must_use]
    pub fn is_settled(&self, ids: &[u32]) -> bool {
        self.grammar.is_some_and(|grammar| {
            ids.len() == grammar.opening(self.settings).len() + grammar.count && ids.last() != Some(&self.settings.end)
        })
    }

    /// Sets the score of every id that may not follow `ids` to minus infinity.
    ///
    /// In transformers' order: no n-gram twice, forced first id, forced last id; a forced id's score becomes 0. The grammar
    /// comes last: an id that it forces scores 0 too, location tokens keep their scores, so that answers are ranked by their
    /// location tokens alone.
    pub fn apply(&self, scores: &mut [f32], ids: &[u32]) {
        let settings = self.settings;
        ban_repeated(scores, ids, settings.no_repeat_ngram);
        for (length, forced) in [(1, settings.forced_first), (settings.max_length - 1, settings.forced_last)] {
            if let Some(id) = forced.filter(|_| ids.len() == length) {
                scores.fill(f32::NEG_INFINITY);
                set(scores, id, 0.0);
            }
        }
        let Some(grammar) = self.grammar else { return };
        match grammar.allowed(ids.len(), settings) {
            Allowed::Only(id) => {
                scores.fill(f32::NEG_INFINITY);
                set(scores, id, 0.0);
            }
            Allowed::Location => {
                let range = grammar.locations.ids();
                for (id, score) in scores.iter_mut().enumerate() {
                    if !range.contains(&u32::try_from(id).unwrap_or(u32::MAX)) {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// With n - 1 ids at the end that stood before: whatever followed them then may not follow now.
fn ban_repeated(scores: &mut [f32], ids: &[u32], n: usize) {
    if n == 0 || ids.len() + 1 < n {
        return;
    }
    let tail = &ids[ids.len() + 1 - n..];
    for window in ids.windows(n) {
        if &window[..n - 1] == tail {
            set(scores, window[n - 1], f32::NEG_INFINITY);
        }
    }
}

fn set(scores: &mut [f32], id: u32, value: f32) {
    if let Some(score) = scores.get_mut(id as usize) {
        *score = value;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::models::manifest::Strategy;

    pub fn settings() -> GenerationSettings {
        GenerationSettings {
            strategy: Strategy::Greedy,
            beams: 3,
            early_stopping: true,
            length_penalty: 1.0,
            max_length: 8,
            no_repeat_ngram: 3,
            start: 2,
            forced_first: Some(0),
            forced_last: Some(2),
            end: 2,
            pad: 1,
        }
    }

    fn allowed_ids(rules: &Rules<'_>, ids: &[u32]) -> Vec<usize> {
        let mut scores = vec![-1.5; 12];
        rules.apply(&mut scores, ids);
        (0..12).filter(|&id| scores[id] > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn first_and_last_ids_are_forced() {
        let settings = settings();
        let rules = Rules { settings: &settings, grammar: None };
        assert_eq!(allowed_ids(&rules, &[2]), [0]);
        assert_eq!(allowed_ids(&rules, &[2, 0, 5, 6, 7, 8, 9]), [2]);
        assert_eq!(allowed_ids(&rules, &[2, 0]).len(), 12);
    }

    #[test]
    fn a_trigram_is_never_repeated() {
        let settings = settings();
        let rules = Rules { settings: &settings, grammar: None };
        assert!(!allowed_ids(&rules, &[2, 0, 5, 2, 0]).contains(&5), "the start id counts");
        assert!(allowed_ids(&rules, &[2, 0, 5, 0, 2]).contains(&5));
        let none = GenerationSettings { no_repeat_ngram: 0, ..settings.clone() };
        assert_eq!(allowed_ids(&Rules { settings: &none, grammar: None }, &[2, 0, 5, 2, 0]).len(), 12);
        let single = GenerationSettings { no_repeat_ngram: 1, ..settings };
        assert!(!allowed_ids(&Rules { settings: &single, grammar: None }, &[2, 0]).contains(&0));
    }

    #[test]
    fn a_grammar_leaves_exactly_one_shape() {
        let settings = GenerationSettings { max_length: 20, ..settings() };
        let locations = LocationTokens { first: 10 };
        let grammar = Grammar { prefix: vec![4, 5], count: 2, locations };
        let rules = Rules { settings: &settings, grammar: Some(&grammar) };
        assert_eq!(grammar.opening(&settings), [2, 0, 4, 5]);
        for (ids, expected) in [
            (&[2][..], &[0][..]),
            (&[2, 0], &[4]),
            (&[2, 0, 4], &[5]),
            (&[2, 0, 4, 5], &[10, 11]),
            (&[2, 0, 4, 5, 10], &[10, 11]),
            (&[2, 0, 4, 5, 10, 11], &[2]),
        ] {
            assert_eq!(allowed_ids(&rules, ids), expected, "{ids:?}");
        }
    }
}
