//! Choosing among a row of logits where it lies: nothing is copied, and only what stands out is looked at one by one.

use super::rules::{Forced, Ruling};
use crate::kernels::logits::{first_above, log_sum_exp};

/// Log-probability of one id by the softmax over all.
pub fn log_probability(logits: &[f32], id: u32) -> f64 {
    logits.get(id as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit) - log_sum_exp(logits))
}

/// The id of the highest score under the rules, the lowest id of equals; NaN counts as lowest. 0 where nothing may follow.
pub fn arg_max(logits: &[f32], ruling: &Ruling<'_>) -> u32 {
    match ruling.forced() {
        Forced::Only(id) if (id as usize) < logits.len() => return id,
        Forced::Only(_) | Forced::Impossible => return 0,
        Forced::None => {}
    }
    let mut best = (0, f32::NEG_INFINITY);
    for_each_above(logits, ruling, best.1, |id, logit| {
        best = (id, logit);
        logit
    });
    best.0
}

/// The ids of the `count` highest scores under the rules into `kept`, best first, the lower id first among equals. Scores
/// are log-probabilities in f32, as the reference compares them: `total` is the row's log-sum-exp. Ids that may not follow
/// come last, with a score of minus infinity.
pub fn highest(logits: &[f32], total: f64, ruling: &Ruling<'_>, count: usize, kept: &mut Vec<(f32, u32)>) {
    kept.clear();
    if let Forced::Only(id) = ruling.forced() {
        kept.extend(((id as usize) < logits.len()).then_some((0.0, id)));
    } else if ruling.forced() == Forced::None {
        // A logit no higher than that of the last one kept has no higher score, and its id is higher: it is not kept.
        for_each_above(logits, ruling, f32::NEG_INFINITY, |id, logit| {
            let score = score(logit, total);
            let place = kept.partition_point(|&(other, _)| other >= score);
            if place < count && score > f32::NEG_INFINITY {
                kept.truncate(count - 1);
                kept.insert(place, (score, id));
            }
            match kept.last() {
                Some(&(_, last)) if kept.len() == count => logits[last as usize],
                _ => f32::NEG_INFINITY,
            }
        });
    }
    let mut rest = 0..u32::try_from(logits.len()).unwrap_or(u32::MAX);
    let found = kept.len();
    while kept.len() < count
        && let Some(id) = rest.next()
    {
        if kept[..found].iter().all(|&(_, other)| other != id) {
            kept.push((f32::NEG_INFINITY, id));
        }
    }
}

/// A log-probability in f32.
#[expect(clippy::cast_possible_truncation, reason = "scores are compared in f32, as the reference does")]
pub fn score(logit: f32, total: f64) -> f32 {
    (f64::from(logit) - total) as f32
}

/// Shows `look` each id that may follow and whose logit is above the threshold, from the lowest id up. `look` returns the
/// next threshold, no lower than the last.
fn for_each_above(logits: &[f32], ruling: &Ruling<'_>, mut threshold: f32, mut look: impl FnMut(u32, f32) -> f32) {
    let range = ruling.range();
    let logits = &logits[..logits.len().min(range.end as usize)];
    let mut from = range.start as usize;
    while let Some(place) = first_above(logits, from, threshold) {
        let id = u32::try_from(place).unwrap_or(u32::MAX);
        if !ruling.bans(id) {
            threshold = look(id, logits[place]);
        }
        from = place + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::{apply, settings};
    use super::super::rules::{Grammar, Rules};
    use super::*;
    use crate::models::GenerationSettings;
    use crate::prompt::LocationTokens;
    use proptest::prelude::*;

    fn free() -> Ruling<'static> {
        Ruling::free()
    }

    #[test]
    fn probabilities_sum_to_one_and_survive_large_logits() {
        let logits = [1000.0, 999.0, -1000.0];
        let sum: f64 = (0..3).map(|id| log_probability(&logits, id).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        assert!((log_probability(&logits, 0) - -0.313_261_687_518).abs() < 1e-6);
        assert_eq!(log_probability(&logits, 7), f64::NEG_INFINITY);
    }

    #[test]
    fn the_lower_id_wins_among_equals() {
        assert_eq!(arg_max(&[f32::NAN, 1.0, 3.0, 3.0], &free()), 2);
        assert_eq!(arg_max(&[f32::NEG_INFINITY; 2], &free()), 0);
        let mut kept = Vec::new();
        let mut ids = |logits: &[f32], count| {
            highest(logits, 0.0, &free(), count, &mut kept);
            kept.iter().map(|&(_, id)| id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0], 3), [1, 3, 4]);
        assert_eq!(ids(&[1.0, 2.0], 5), [1, 0]);
        assert_eq!(ids(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY], 2), [1, 0]);
        // Different logits, the same score in f32.
        let total = 1e6;
        let close = [1.0, 1.0 + f32::EPSILON, 0.5];
        assert_eq!(score(close[0], total), score(close[1], total));
        highest(&close, total, &free(), 1, &mut kept);
        assert_eq!(kept[0].1, 0);
    }

    /// Few different logits, so that there are many ties.
    fn logits() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec((-3i8..=3).prop_map(f32::from), 1..700)
    }

    proptest! {
        #[test]
        fn equals_applying_the_rules_to_a_copy_and_sorting_it(
            logits in logits(),
            ids in prop::collection::vec(0u32..6, 1..9),
            ngram in 0usize..4,
            count in 1usize..8,
            first in 0u32..600,
            held in any::<bool>(),
        ) {
            let settings = GenerationSettings { no_repeat_ngram: ngram, ..settings() };
            let grammar = Grammar { prefix: vec![4], count: 3, locations: LocationTokens { first } };
            let rules = Rules { settings: &settings, grammar: held.then_some(&grammar) };
            let total = log_sum_exp(&logits);
            let mut scores: Vec<f32> = logits.iter().map(|&logit| score(logit, total)).collect();
            apply(&rules, &mut scores, &ids);
            let mut order: Vec<u32> = (0..u32::try_from(logits.len()).unwrap()).collect();
            order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));

            let (mut banned, mut kept) = (Vec::new(), Vec::new());
            let ruling = rules.ruling(&ids, &mut banned);
            highest(&logits, total, &ruling, count, &mut kept);
            let expected: Vec<_> = order.iter().take(count).map(|&id| (scores[id as usize], id)).collect();
            prop_assert_eq!(&kept, &expected);
            for (id, &score) in scores.iter().enumerate() {
                let id = u32::try_from(id).unwrap();
                prop_assert_eq!(ruling.score(id, super::score(logits[id as usize], total)), score);
            }
            let best = if scores[order[0] as usize] > f32::NEG_INFINITY { order[0] } else { 0 };
            prop_assert_eq!(arg_max(&logits, &ruling), best);
        }
    }
}
