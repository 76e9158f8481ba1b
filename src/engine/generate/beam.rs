//! Beam search over all prompts of a session at once, as transformers runs it. All memory is taken at the beginning: beams
//! that end or are dropped give theirs to those that go on.

use super::rules::Allowed;
use super::score::{arg_max, highest, score};
use super::{Candidate, Grammar, Rules};
use crate::kernels::logits::log_sum_exp;
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

/// An answer on its way: as [`Hypothesis`], but the score is the sum.
type Beam = Hypothesis;

#[derive(Debug)]
struct Search {
    /// Best first.
    beams: Vec<Beam>,
    /// The best `width` of those that have ended, best first, with their final scores.
    finished: Vec<Hypothesis>,
    /// For the next pass: which of the present beams each new one continues.
    parents: Vec<usize>,
    /// What the next beams are put together in, and beams that nobody needs.
    next: Vec<Beam>,
    spare: Vec<Beam>,
}

/// A beam and an id that may continue it.
#[derive(Debug, Clone, Copy)]
struct Continuation {
    score: f64,
    rank: usize,
    id: u32,
    log_probability: f64,
}

/// What every step needs, whose ever it is.
struct Chooser<'a> {
    rules: &'a Rules<'a>,
    width: usize,
    continuations: Vec<Continuation>,
    /// For each beam, its best next id without the grammar.
    free: Vec<u32>,
    kept: Vec<(f32, u32)>,
    banned: Vec<u32>,
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
    let mut chooser = Chooser::new(rules, width);
    let (mut next, mut selected) = (Vec::with_capacity(rows * width), Vec::with_capacity(rows * width));
    let first = session.decode(&opening.repeat(rows))?;
    let mut searches: Vec<Search> = (0..rows)
        .map(|row| {
            let mut search = Search::new(first, row, &opening, &mut chooser);
            search.step(|_| first.at(row, opening.len() - 1), &mut chooser);
            search
        })
        .collect();
    let mut open: Vec<usize> = (0..rows).collect();
    // Rows of each prompt: at first all beams of a prompt come from its one row.
    let mut spread = 1;
    loop {
        selected.clear();
        let mut going_on = 0;
        for place in 0..open.len() {
            let index = open[place];
            if searches[index].is_done(settings, width) {
                continue;
            }
            let row_of = |&beam: &usize| place * spread + if spread == 1 { 0 } else { beam };
            selected.extend(searches[index].parents.iter().map(row_of));
            open[going_on] = index;
            going_on += 1;
        }
        open.truncate(going_on);
        if open.is_empty() {
            break;
        }
        session.select(&selected)?;
        next.clear();
        for &index in &open {
            next.extend(searches[index].beams.iter().filter_map(|beam| beam.candidate.ids.last().copied()));
        }
        let logits = session.decode(&next)?;
        spread = width;
        for (place, &index) in open.iter().enumerate() {
            searches[index].step(|beam| logits.at(place * width + beam, 0), &mut chooser);
        }
    }
    Ok(searches.into_iter().map(|search| search.finish(settings, width)).collect())
}

impl<'a> Chooser<'a> {
    fn new(rules: &'a Rules<'a>, width: usize) -> Self {
        Self {
            rules,
            width,
            continuations: Vec::with_capacity(2 * width * width),
            free: Vec::with_capacity(width),
            kept: Vec::with_capacity(2 * width),
            banned: Vec::with_capacity(rules.longest()),
        }
    }

    /// The best next id without the grammar, where there is one.
    fn free(&mut self, logits: &[f32], ids: &[u32]) -> u32 {
        match self.rules.grammar {
            Some(_) => arg_max(logits, &self.rules.free().ruling(ids, &mut self.banned)),
            None => 0,
        }
    }

    /// Finds the best continuations of all beams, best first.
    fn weigh<'l>(&mut self, beams: &[Beam], logits: &impl Fn(usize) -> &'l [f32]) {
        self.continuations.clear();
        self.free.clear();
        for (rank, beam) in beams.iter().enumerate() {
            let (logits, ids) = (logits(rank), &beam.candidate.ids);
            let total = log_sum_exp(logits);
            let free = self.free(logits, ids);
            self.free.push(free);
            let ruling = self.rules.ruling(ids, &mut self.banned);
            highest(logits, total, &ruling, 2 * self.width, &mut self.kept);
            self.continuations.extend(self.kept.iter().map(|&(score, id)| {
                let log_probability = f64::from(logits[id as usize]) - total;
                Continuation { score: beam.score + f64::from(score), rank, id, log_probability }
            }));
        }
        let better = |a: &Continuation, b: &Continuation| {
            b.score.total_cmp(&a.score).then(a.rank.cmp(&b.rank)).then(a.id.cmp(&b.id))
        };
        self.continuations.sort_unstable_by(better);
        self.continuations.truncate(2 * self.width);
    }
}

impl Search {
    fn new(logits: Logits<'_>, row: usize, opening: &[u32], chooser: &mut Chooser<'_>) -> Self {
        let (rules, width) = (chooser.rules, chooser.width);
        // Beams, the next ones, as many that have ended, and one more while it is decided whether it stays.
        let mut spare: Vec<Beam> = (0..=3 * width).map(|_| Beam::with_room(rules.longest())).collect();
        let mut beam = spare.pop().unwrap_or_else(|| Beam::with_room(0));
        beam.candidate.ids.push(opening[0]);
        for (position, &id) in opening.iter().enumerate().skip(1) {
            let raw = logits.at(row, position - 1);
            let free = chooser.free(raw, &beam.candidate.ids);
            beam.changed |= changes(rules, free, beam.candidate.ids.len(), id);
            let (logit, total) = (raw[id as usize], log_sum_exp(raw));
            let ruling = rules.ruling(&beam.candidate.ids, &mut chooser.banned);
            beam.score += f64::from(ruling.score(id, score(logit, total)));
            beam.candidate.push(id, f64::from(logit) - total);
        }
        let (mut beams, next) = (Vec::with_capacity(width), Vec::with_capacity(width));
        for _ in 1..width {
            // Copies of one beam would all choose alike: only the first may be continued at first.
            let mut copy = spare.pop().unwrap_or_else(|| Beam::with_room(0));
            copy.copy(&beam);
            copy.score = -1e9;
            beams.push(copy);
        }
        beams.insert(0, beam);
        let finished = Vec::with_capacity(width + 1);
        Self { beams, finished, parents: Vec::with_capacity(width), next, spare }
    }

    /// Continues every beam by one id.
    fn step<'l>(&mut self, logits: impl Fn(usize) -> &'l [f32], chooser: &mut Chooser<'_>) {
        let (rules, width) = (chooser.rules, chooser.width);
        chooser.weigh(&self.beams, &logits);
        self.parents.clear();
        for (place, &Continuation { score, rank, id, log_probability }) in chooser.continuations.iter().enumerate() {
            let ends = id == rules.settings.end;
            if (ends && place >= width) || (!ends && self.next.len() == width) {
                continue;
            }
            let mut beam = self.spare.pop().unwrap_or_else(|| Beam::with_room(rules.longest()));
            beam.copy(&self.beams[rank]);
            beam.score = score;
            beam.changed |= changes(rules, chooser.free[rank], beam.candidate.ids.len(), id);
            beam.candidate.push(id, log_probability);
            if ends {
                self.keep(beam, rules.settings, width);
            } else {
                self.next.push(beam);
                self.parents.push(rank);
            }
        }
        self.spare.append(&mut self.beams);
        std::mem::swap(&mut self.beams, &mut self.next);
        if self.beams.iter().all(|beam| rules.is_settled(&beam.candidate.ids)) {
            while !self.beams.is_empty() {
                let mut beam = self.beams.remove(0);
                beam.candidate.push(rules.settings.end, 0.0);
                self.keep(beam, rules.settings, width);
            }
        }
    }

    /// Puts a beam that has ended in its place among the others, behind those that are as good, and lets the worst go.
    fn keep(&mut self, mut beam: Beam, settings: &GenerationSettings, width: usize) {
        beam.score = normalised(beam.score, beam.candidate.ids.len(), settings);
        let place = self.finished.partition_point(|other| other.score.total_cmp(&beam.score).is_ge());
        self.finished.insert(place, beam);
        if self.finished.len() > width {
            self.spare.extend(self.finished.pop());
        }
    }

    fn is_done(&self, settings: &GenerationSettings, width: usize) -> bool {
        let Some(best) = self.beams.first() else { return true };
        if best.candidate.ids.len() >= settings.max_length || self.beams.len() < width {
            return true;
        }
        // Without early stopping the search goes on while the best open beam could still beat the worst kept answer.
        self.finished.get(width - 1).is_some_and(|worst| {
            settings.early_stopping || worst.score >= normalised(best.score, best.candidate.ids.len(), settings)
        })
    }

    fn finish(mut self, settings: &GenerationSettings, width: usize) -> Vec<Hypothesis> {
        if self.finished.len() < width {
            for beam in std::mem::take(&mut self.beams) {
                self.keep(beam, settings, width);
            }
        }
        // Placeholders that nobody continued are no answers.
        self.finished.retain(|hypothesis| hypothesis.score > -1e7);
        self.finished
    }
}

impl Beam {
    /// Nothing yet, with room for so many ids.
    fn with_room(longest: usize) -> Self {
        let (ids, log_probabilities) = (Vec::with_capacity(longest), Vec::with_capacity(longest));
        Self { candidate: Candidate { ids, log_probabilities }, score: 0.0, changed: false }
    }

    /// Becomes what another beam is, in its own memory.
    fn copy(&mut self, other: &Self) {
        self.candidate.ids.clone_from(&other.candidate.ids);
        self.candidate.log_probabilities.clone_from(&other.candidate.log_probabilities);
        (self.score, self.changed) = (other.score, other.changed);
    }
}

impl Candidate {
    fn push(&mut self, id: u32, log_probability: f64) {
        self.ids.push(id);
        self.log_probabilities.push(log_probability);
    }
}

/// A sum of log-probabilities made comparable between lengths; the start id is not counted.
fn normalised(score: f64, length: usize, settings: &GenerationSettings) -> f64 {
    let generated = u32::try_from(length - 1).unwrap_or(u32::MAX).max(1);
    score / f64::from(generated).powf(settings.length_penalty)
}

/// Whether `free`, the best next id after `length` ids without the grammar, is one that the grammar bans, and `chosen` is
/// what stands in for it.
fn changes(rules: &Rules<'_>, free: u32, length: usize, chosen: u32) -> bool {
    rules.grammar.is_some_and(|grammar| match grammar.allowed(length, rules.settings) {
        Allowed::Only(id) => free != id && chosen == id,
        Allowed::Location => grammar.locations.bin(free).is_none(),
    })
}
