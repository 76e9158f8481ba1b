//! Beam search over all prompts of a session at once, as transformers runs it.

use super::score::{highest, log_sum_exp};
use super::{Candidate, Grammar, Rules};
use crate::models::{GenerationSettings, Logits, Result, Session};

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// Its ids and their probabilities.
    pub candidate: Candidate,
    /// Sum of log-probabilities after the rules, by the number of generated ids to the power of the length penalty.
    pub score: f64,
    /// The grammar banned an id that would otherwise have been the best next one somewhere on the way.
    pub changed: bool,
}

#[derive(Debug, Clone)]
struct Beam {
    candidate: Candidate,
    score: f64,
    changed: bool,
}

#[derive(Debug)]
struct Search {
    beams: Vec<Beam>,
    finished: Vec<Hypothesis>,
    /// For the next pass: which of the present beams each new one continues.
    parents: Vec<usize>,
}

/// Decodes `rows` prompts with `width` beams each; the finished answers of each prompt, best first, at most `width`.
pub fn search(session: &mut dyn Session, rows: usize, rules: &Rules<'_>, width: usize) -> Result<Vec<Vec<Hypothesis>>> {
    let settings = rules.settings;
    let width = width.max(1);
    // While only one id can follow, all beams are alike: one row a prompt is fed, and copied at the first real choice.
    let opening = match rules.grammar {
        Some(grammar) => Grammar::opening(grammar, settings),
        None => std::iter::once(settings.start).chain(settings.forced_first).collect(),
    };
    let first = session.decode(&opening.repeat(rows))?;
    let mut searches: Vec<Search> = (0..rows).map(|row| Search::new(&first, row, &opening, rules, width)).collect();
    let mut open: Vec<usize> = (0..rows).collect();
    // Row and position of a beam's logits: at first all beams of a prompt look at its one row.
    let (mut logits, mut position, mut spread) = (first, opening.len() - 1, 1);
    loop {
        for (place, &index) in open.iter().enumerate() {
            let row_of = |beam: usize| place * spread + if spread == 1 { 0 } else { beam };
            searches[index].step(|beam| logits.at(row_of(beam), position), rules, width);
        }
        let going_on: Vec<usize> =
            (0..open.len()).filter(|&place| !searches[open[place]].is_done(settings, width)).collect();
        if going_on.is_empty() {
            break;
        }
        let mut rows = Vec::with_capacity(going_on.len() * width);
        for &place in &going_on {
            let parents = &searches[open[place]].parents;
            rows.extend(parents.iter().map(|&beam| place * spread + if spread == 1 { 0 } else { beam }));
        }
        session.select(&rows)?;
        open = going_on.into_iter().map(|place| open[place]).collect();
        let next: Vec<u32> = open
            .iter()
            .flat_map(|&index| searches[index].beams.iter().filter_map(|beam| beam.candidate.ids.last().copied()))
            .collect();
        logits = session.decode(&next)?;
        (position, spread) = (0, width);
    }
    Ok(searches.into_iter().map(|search| search.finish(settings, width)).collect())
}

impl Search {
    fn new(logits: &Logits, row: usize, opening: &[u32], rules: &Rules<'_>, width: usize) -> Self {
        let mut beam = Beam {
            candidate: Candidate { ids: vec![opening[0]], log_probabilities: Vec::new() },
            score: 0.0,
            changed: false,
        };
        for (position, &id) in opening.iter().enumerate().skip(1) {
            let raw = logits.at(row, position - 1);
            let (scores, total) = ruled(raw, &beam.candidate.ids, rules);
            beam.score += f64::from(scores[id as usize]);
            beam.changed |= rules.grammar.is_some() && changes(raw, &beam.candidate.ids, rules, id);
            beam.candidate.log_probabilities.push(f64::from(raw[id as usize]) - total);
            beam.candidate.ids.push(id);
        }
        // Copies of one beam would all choose alike: only the first may be continued at first.
        let beams =
            (0..width).map(|rank| Beam { score: if rank == 0 { beam.score } else { -1e9 }, ..beam.clone() }).collect();
        Self { beams, finished: Vec::new(), parents: Vec::new() }
    }

    /// Continues every beam by one id.
    fn step<'l>(&mut self, logits: impl Fn(usize) -> &'l [f32], rules: &Rules<'_>, width: usize) {
        let mut candidates: Vec<(f64, usize, u32, f64)> = Vec::with_capacity(width * 2 * width);
        for (rank, beam) in self.beams.iter().enumerate() {
            let raw = logits(rank);
            let (scores, total) = ruled(raw, &beam.candidate.ids, rules);
            for id in highest(&scores, 2 * width) {
                let log_probability = f64::from(raw[id as usize]) - total;
                candidates.push((beam.score + f64::from(scores[id as usize]), rank, id, log_probability));
            }
        }
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        candidates.truncate(2 * width);

        let (mut beams, mut parents) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for (place, &(score, rank, id, log_probability)) in candidates.iter().enumerate() {
            let parent = &self.beams[rank];
            let ends = id == rules.settings.end;
            if (ends && place >= width) || (!ends && beams.len() == width) {
                continue;
            }
            let mut beam = parent.clone();
            beam.score = score;
            beam.changed |= rules.grammar.is_some() && changes(logits(rank), &parent.candidate.ids, rules, id);
            beam.candidate.ids.push(id);
            beam.candidate.log_probabilities.push(log_probability);
            if ends {
                self.finished.push(beam.finish(rules.settings));
            } else {
                beams.push(beam);
                parents.push(rank);
            }
        }
        self.beams = beams;
        self.parents = parents;
        if self.beams.iter().all(|beam| rules.is_settled(&beam.candidate.ids)) {
            for mut beam in std::mem::take(&mut self.beams) {
                beam.candidate.ids.push(rules.settings.end);
                beam.candidate.log_probabilities.push(0.0);
                self.finished.push(beam.finish(rules.settings));
            }
        }
    }

    fn is_done(&self, settings: &GenerationSettings, width: usize) -> bool {
        let Some(best) = self.beams.first() else { return true };
        if best.candidate.ids.len() >= settings.max_length || self.beams.len() < width {
            return true;
        }
        if self.finished.len() < width {
            return false;
        }
        // Without early stopping the search goes on while the best open beam could still beat the worst kept answer.
        let mut scores: Vec<f64> = self.finished.iter().map(|hypothesis| hypothesis.score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        settings.early_stopping || scores[width - 1] >= normalised(best.score, best.candidate.ids.len(), settings)
    }

    fn finish(mut self, settings: &GenerationSettings, width: usize) -> Vec<Hypothesis> {
        if self.finished.len() < width {
            self.finished.extend(self.beams.into_iter().map(|beam| beam.finish(settings)));
        }
        // Placeholders that nobody continued are no answers.
        self.finished.retain(|hypothesis| hypothesis.score > -1e7);
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.finished.truncate(width);
        self.finished
    }
}

impl Beam {
    fn finish(self, settings: &GenerationSettings) -> Hypothesis {
        let score = normalised(self.score, self.candidate.ids.len(), settings);
        Hypothesis { candidate: self.candidate, score, changed: self.changed }
    }
}

/// A sum of log-probabilities made comparable between lengths; the start id is not counted.
fn normalised(score: f64, length: usize, settings: &GenerationSettings) -> f64 {
    let generated = u32::try_from(length - 1).unwrap_or(u32::MAX).max(1);
    score / f64::from(generated).powf(settings.length_penalty)
}

/// Log-probabilities with the rules applied, and the row's log(sum(exp)).
fn ruled(raw: &[f32], ids: &[u32], rules: &Rules<'_>) -> (Vec<f32>, f64) {
    let total = log_sum_exp(raw);
    #[expect(clippy::cast_possible_truncation, reason = "scores are compared in f32, as the reference does")]
    let mut scores: Vec<f32> = raw.iter().map(|&logit| (f64::from(logit) - total) as f32).collect();
    rules.apply(&mut scores, ids);
    (scores, total)
}

/// Whether the best next id without the grammar is one that the grammar bans.
fn changes(raw: &[f32], ids: &[u32], rules: &Rules<'_>, chosen: u32) -> bool {
    let Some(grammar) = rules.grammar else { return false };
    let mut scores = raw.to_vec();
    Rules { settings: rules.settings, grammar: None }.apply(&mut scores, ids);
    let free = super::score::arg_max(&scores);
    match grammar.allowed(ids.len(), rules.settings) {
        super::rules::Allowed::Only(id) => free != id && chosen == id,
        super::rules::Allowed::Location => grammar.locations.bin(free).is_none(),
    }
}
