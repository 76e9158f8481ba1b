//! What may follow: Hugging Face's three logits rules, and the grammar of a locator's answer.

use std::ops::Range;

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

    /// Ids of an answer before its end.
    #[must_use]
    pub fn length(&self, settings: &GenerationSettings) -> usize {
        1 + usize::from(settings.forced_first.is_some()) + self.prefix.len() + self.count
    }
}

impl Rules<'_> {
    /// Nothing but the end can follow: what the model thinks of it is not worth a pass.
    #[must_use]
    pub fn is_settled(&self, ids: &[u32]) -> bool {
        self.grammar
            .is_some_and(|grammar| ids.len() == grammar.length(self.settings) && ids.last() != Some(&self.settings.end))
    }

    /// Without the grammar.
    #[must_use]
    pub const fn free(&self) -> Self {
        Self { settings: self.settings, grammar: None }
    }

    /// More ids than an answer ever has.
    #[must_use]
    pub fn longest(&self) -> usize {
        let held = self.grammar.map_or(0, |grammar| grammar.length(self.settings));
        self.settings.max_length.max(held) + 1
    }

    /// What may follow `ids`. `banned` is overwritten and keeps the list of single ids that may not.
    ///
    /// In transformers' order: no n-gram twice, forced first id, forced last id; a forced id's score becomes 0. The grammar
    /// comes last: an id that it forces scores 0 too, location tokens keep their scores, so that answers are ranked by their
    /// location tokens alone.
    #[must_use]
    pub fn ruling<'b>(&self, ids: &[u32], banned: &'b mut Vec<u32>) -> Ruling<'b> {
        let settings = self.settings;
        find_repeated(ids, settings.no_repeat_ngram, banned);
        let mut ruling = Ruling { banned, ..Ruling::free() };
        for (length, forced) in [(1, settings.forced_first), (settings.max_length - 1, settings.forced_last)] {
            if forced.is_some() && ids.len() == length {
                ruling.forced = forced;
            }
        }
        match self.grammar.map(|grammar| (grammar, grammar.allowed(ids.len(), settings))) {
            Some((_, Allowed::Only(id))) => ruling.forced = Some(id),
            Some((grammar, Allowed::Location)) => ruling.range = grammar.locations.ids(),
            None => {}
        }
        ruling
    }
}

/// What the rules make of scores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling<'b> {
    forced: Option<u32>,
    range: Range<u32>,
    banned: &'b [u32],
}

/// Whether the rules leave one id only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// They do not.
    None,
    /// This one.
    Only(u32),
    /// One that may not follow either: nothing may.
    Impossible,
}

impl Ruling<'_> {
    /// Anything may follow.
    #[must_use]
    pub const fn free() -> Self {
        Self { forced: None, range: 0..u32::MAX, banned: &[] }
    }

    /// Whether an id is forced.
    #[must_use]
    pub fn forced(&self) -> Forced {
        match self.forced {
            None => Forced::None,
            Some(id) if self.range.contains(&id) => Forced::Only(id),
            Some(_) => Forced::Impossible,
        }
    }

    /// Where nothing is forced: the ids outside which nothing may follow.
    #[must_use]
    pub fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Where nothing is forced: whether this id of the range may not follow.
    #[must_use]
    pub fn bans(&self, id: u32) -> bool {
        self.banned.contains(&id)
    }

    /// The score of an id that scores so much before the rules.
    #[must_use]
    pub fn score(&self, id: u32, score: f32) -> f32 {
        match self.forced() {
            Forced::Only(forced) if forced == id => 0.0,
            Forced::None if self.range.contains(&id) && !self.bans(id) => score,
            Forced::None | Forced::Only(_) | Forced::Impossible => f32::NEG_INFINITY,
        }
    }
}

/// With n - 1 ids at the end that stood before: whatever followed them then may not follow now.
fn find_repeated(ids: &[u32], n: usize, banned: &mut Vec<u32>) {
    banned.clear();
    if n == 0 || ids.len() + 1 < n {
        return;
    }
    let tail = &ids[ids.len() + 1 - n..];
    banned.extend(ids.windows(n).filter(|window| &window[..n - 1] == tail).map(|window| window[n - 1]));
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

    /// The rules as transformers applies them, one after the other to all scores.
    pub fn apply(rules: &Rules<'_>, scores: &mut [f32], ids: &[u32]) {
        let settings = rules.settings;
        let set = |scores: &mut [f32], id: u32, value: f32| {
            if let Some(score) = scores.get_mut(id as usize) {
                *score = value;
            }
        };
        let force = |scores: &mut [f32], id: u32| {
            scores.fill(f32::NEG_INFINITY);
            set(scores, id, 0.0);
        };
        let n = settings.no_repeat_ngram;
        if n > 0 && ids.len() + 1 >= n {
            for window in ids.windows(n).filter(|window| window[..n - 1] == ids[ids.len() + 1 - n..]) {
                set(scores, window[n - 1], f32::NEG_INFINITY);
            }
        }
        for (length, forced) in [(1, settings.forced_first), (settings.max_length - 1, settings.forced_last)] {
            if let Some(id) = forced.filter(|_| ids.len() == length) {
                force(scores, id);
            }
        }
        let Some(grammar) = rules.grammar else { return };
        match grammar.allowed(ids.len(), settings) {
            Allowed::Only(id) => force(scores, id),
            Allowed::Location => {
                for (id, score) in scores.iter_mut().enumerate() {
                    if grammar.locations.bin(u32::try_from(id).unwrap()).is_none() {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }

    fn allowed_ids(rules: &Rules<'_>, ids: &[u32]) -> Vec<u32> {
        let mut banned = Vec::new();
        let ruling = rules.ruling(ids, &mut banned);
        (0..12).filter(|&id| ruling.score(id, -1.5) > f32::NEG_INFINITY).collect()
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
