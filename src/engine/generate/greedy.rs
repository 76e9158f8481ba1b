//! The likeliest id at each step, all rows of a session at once.

use super::rules::Ruling;
use super::score::{arg_max, log_probability};
use super::{Answer, Grammar, Rules};
use crate::models::{Result, Session};

/// Decodes `rows` rows. `guess` is the expected shape of the answers: its opening is fed in one pass, and where the rules
/// are free, only as much of it is kept as the rows would have chosen themselves. After the opening nothing is allocated.
pub fn decode(
    session: &mut dyn Session,
    rows: usize,
    rules: &Rules<'_>,
    guess: Option<&Grammar>,
) -> Result<Vec<Answer>> {
    let settings = rules.settings;
    let opening = guess.map_or_else(|| vec![settings.start], |grammar| grammar.opening(settings));
    let mut answers: Vec<Answer> = (0..rows).map(|_| started(settings.start, rules.longest())).collect();
    let mut chooser = Chooser { rules, banned: Vec::with_capacity(rules.longest()) };
    // Rows of the session that are still open, by the answer they belong to; and by their place, those that stay so.
    let (mut open, mut staying): (Vec<usize>, Vec<usize>) = ((0..rows).collect(), Vec::with_capacity(rows));
    let mut next = Vec::with_capacity(rows);

    let logits = session.decode(&opening.repeat(rows))?;
    // The opening as each row would have chosen it: agreed is how many ids of it all rows agree with.
    let mut agreed = opening.len();
    for row in 0..rows {
        let own =
            (1..opening.len()).take_while(|&i| chooser.choose(logits.at(row, i - 1), &opening[..i]) == opening[i]);
        agreed = agreed.min(1 + own.count());
    }
    for (row, answer) in answers.iter_mut().enumerate() {
        for (position, &id) in opening[1..agreed].iter().enumerate() {
            chooser.take(answer, logits.at(row, position), id);
        }
        chooser.extend(answer, logits.at(row, agreed - 1));
    }
    if agreed < opening.len() {
        session.truncate(agreed)?;
    }

    loop {
        staying.clear();
        staying.extend((0..open.len()).filter(|&row| {
            let ids = &answers[open[row]].ids;
            ids.last() != Some(&settings.end) && ids.len() < settings.max_length && !rules.is_settled(ids)
        }));
        if staying.len() < open.len() {
            for (place, &row) in staying.iter().enumerate() {
                open[place] = open[row];
            }
            open.truncate(staying.len());
            if !open.is_empty() {
                session.select(&staying)?;
            }
        }
        if open.is_empty() {
            break;
        }
        next.clear();
        next.extend(open.iter().filter_map(|&index| answers[index].ids.last().copied()));
        let logits = session.decode(&next)?;
        for (row, &index) in open.iter().enumerate() {
            chooser.extend(&mut answers[index], logits.at(row, 0));
        }
    }
    for answer in &mut answers {
        if rules.is_settled(&answer.ids) {
            answer.ids.push(settings.end);
            answer.log_probabilities.push(0.0);
        }
    }
    Ok(answers)
}

/// An answer with room for all its ids.
fn started(start: u32, longest: usize) -> Answer {
    let (mut ids, log_probabilities) = (Vec::with_capacity(longest), Vec::with_capacity(longest));
    ids.push(start);
    Answer { ids, log_probabilities, changed: false, alternatives: Vec::new() }
}

/// Chooses by the rules.
struct Chooser<'a> {
    rules: &'a Rules<'a>,
    /// Of the last choice.
    banned: Vec<u32>,
}

impl Chooser<'_> {
    fn choose(&mut self, logits: &[f32], ids: &[u32]) -> u32 {
        arg_max(logits, &self.rules.ruling(ids, &mut self.banned))
    }

    /// Appends the likeliest id.
    fn extend(&mut self, answer: &mut Answer, logits: &[f32]) {
        let id = self.choose(logits, &answer.ids);
        self.take(answer, logits, id);
    }

    /// Appends an id, and notes whether the row would have chosen another without the grammar.
    fn take(&mut self, answer: &mut Answer, logits: &[f32], id: u32) {
        if self.rules.grammar.is_some() {
            let free: Ruling<'_> = self.rules.free().ruling(&answer.ids, &mut self.banned);
            answer.changed |= arg_max(logits, &free) != id;
        }
        answer.ids.push(id);
        answer.log_probabilities.push(log_probability(logits, id));
    }
}
