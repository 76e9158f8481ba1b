//! The likeliest id at each step, all rows of a session at once.

use super::{Answer, Grammar, Rules};
use crate::engine::generate::score::{arg_max, log_probability};
use crate::models::{Logits, Result, Session};

/// Decodes `rows` rows. `guess` is the expected shape of the answers: its opening is fed in one pass, and where the rules
/// are free, only as much of it is kept as the rows would have chosen themselves.
pub fn decode(
    session: &mut dyn Session,
    rows: usize,
    rules: &Rules<'_>,
    guess: Option<&Grammar>,
) -> Result<Vec<Answer>> {
    let settings = rules.settings;
    let opening = guess.map_or_else(|| vec![settings.start], |grammar| grammar.opening(settings));
    let logits = session.decode(&opening.repeat(rows))?;
    let mut answers = vec![
        Answer {
            ids: vec![settings.start],
            log_probabilities: Vec::new(),
            changed: false,
            alternatives: Vec::new()
        };
        rows
    ];
    // The opening as each row would have chosen it: agreed is how many ids of it all rows agree with.
    let mut agreed = opening.len();
    for row in 0..rows {
        let own = (1..opening.len()).take_while(|&i| choose(&logits, row, i - 1, &opening[..i], rules) == opening[i]);
        agreed = agreed.min(1 + own.count());
    }
    for (row, answer) in answers.iter_mut().enumerate() {
        for (position, &id) in opening[1..agreed].iter().enumerate() {
            take(answer, &logits, row, position, id, rules);
        }
    }
    if agreed < opening.len() {
        session.truncate(agreed)?;
    }

    // Rows of the session that are still open, by the answer they belong to.
    let mut open: Vec<usize> = (0..rows).collect();
    let (mut logits, mut position) = (logits, agreed - 1);
    loop {
        for (row, &index) in open.iter().enumerate() {
            let answer = &mut answers[index];
            let id = choose(&logits, row, position, &answer.ids, rules);
            take(answer, &logits, row, position, id, rules);
        }
        let going_on: Vec<usize> = (0..open.len())
            .filter(|&row| {
                let ids = &answers[open[row]].ids;
                ids.last() != Some(&settings.end) && ids.len() < settings.max_length && !rules.is_settled(ids)
            })
            .collect();
        if going_on.len() < open.len() {
            open = going_on.iter().map(|&row| open[row]).collect();
            if !open.is_empty() {
                session.select(&going_on)?;
            }
        }
        if open.is_empty() {
            break;
        }
        let next: Vec<u32> = open.iter().filter_map(|&index| answers[index].ids.last().copied()).collect();
        logits = session.decode(&next)?;
        position = 0;
    }
    for answer in &mut answers {
        if rules.is_settled(&answer.ids) {
            answer.ids.push(settings.end);
            answer.log_probabilities.push(0.0);
        }
    }
    Ok(answers)
}

fn choose(logits: &Logits, row: usize, position: usize, ids: &[u32], rules: &Rules<'_>) -> u32 {
    let mut scores = logits.at(row, position).to_vec();
    rules.apply(&mut scores, ids);
    arg_max(&scores)
}

/// Appends an id, and notes whether the row would have chosen another without the grammar.
fn take(answer: &mut Answer, logits: &Logits, row: usize, position: usize, id: u32, rules: &Rules<'_>) {
    let raw = logits.at(row, position);
    if rules.grammar.is_some() {
        let free = Rules { settings: rules.settings, grammar: None };
        answer.changed |= choose(logits, row, position, &answer.ids, &free) != id;
    }
    answer.ids.push(id);
    answer.log_probabilities.push(log_probability(raw, id));
}
