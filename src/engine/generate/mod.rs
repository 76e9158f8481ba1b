//! Choosing the tokens of an answer: greedy or beam search with Hugging Face's exact semantics, free or held to location
//! tokens. It drives a [`Session`] and knows no model.

mod beam;
mod greedy;
mod rules;
mod score;

use crate::models::{GenerationSettings, Result, Session, manifest::Strategy};
pub use rules::{Grammar, Rules};

/// How the rows of a session are to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How tokens are chosen.
    pub strategy: Strategy,
    /// Only location tokens after the action prefix. Has no effect on a model whose answers have no known form.
    pub constrained: bool,
    /// Further candidates wanted.
    pub alternatives: usize,
}

/// The decoded answer to one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its ids, start token included.
    pub ids: Vec<u32>,
    /// For each id after the start token: its log-probability by the softmax over the whole vocabulary, before any rule.
    pub log_probabilities: Vec<f64>,
    /// Without the constraint the answer would have been another.
    pub changed: bool,
    /// Other answers, likeliest first.
    pub alternatives: Vec<Candidate>,
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// As [`Answer::ids`].
    pub ids: Vec<u32>,
    /// As [`Answer::log_probabilities`].
    pub log_probabilities: Vec<f64>,
}

/// Decodes all rows of a fresh session.
///
/// `grammar` is the shape of the model's answers, where it is known. Constrained plans are held to it; free greedy decoding
/// uses its prefix as a guess that is checked, which saves passes and changes nothing.
///
/// # Errors
/// A device failure.
pub fn generate(
    session: &mut dyn Session,
    rows: usize,
    settings: &GenerationSettings,
    grammar: Option<&Grammar>,
    plan: Plan,
) -> Result<Vec<Answer>> {
    let free = Rules { settings, grammar: None };
    let held = Rules { settings, grammar };
    let rules = if plan.constrained { held } else { free };
    // Candidates come from a search of its own, so that asking for them never changes the answer.
    let others = if plan.alternatives > 0 && grammar.is_some() {
        let found = beam::search(session, rows, &held, plan.alternatives + 1)?;
        session.restart()?;
        found.into_iter().map(|hypotheses| hypotheses.into_iter().map(|h| h.candidate).collect()).collect()
    } else {
        vec![Vec::new(); rows]
    };
    let mut answers = match plan.strategy {
        Strategy::Greedy => greedy::decode(session, rows, &rules, grammar)?,
        Strategy::Beam => beam::search(session, rows, &rules, settings.beams)?
            .into_iter()
            .map(|hypotheses| best_of(hypotheses, grammar.is_none().then_some(plan.alternatives)))
            .collect(),
    };
    for (answer, others) in answers.iter_mut().zip(others) {
        let new: Vec<Candidate> = others.into_iter().filter(|other: &Candidate| other.ids != answer.ids).collect();
        answer.alternatives.extend(new.into_iter().take(plan.alternatives));
    }
    Ok(answers)
}

/// The best hypothesis as the answer; where no grammar leads a search for candidates, the next ones stand in for it.
fn best_of(hypotheses: Vec<beam::Hypothesis>, alternatives: Option<usize>) -> Answer {
    let mut hypotheses = hypotheses.into_iter();
    let Some(best) = hypotheses.next() else {
        return Answer { ids: Vec::new(), log_probabilities: Vec::new(), changed: false, alternatives: Vec::new() };
    };
    Answer {
        ids: best.candidate.ids,
        log_probabilities: best.candidate.log_probabilities,
        changed: best.changed,
        alternatives: hypotheses.take(alternatives.unwrap_or(0)).map(|h| h.candidate).collect(),
    }
}
