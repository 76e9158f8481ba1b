//! Arithmetic on a row of logits.

/// log(sum(exp(logits))), in f64 from the largest down so that nothing overflows.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if !most.is_finite() {
        return most;
    }
    most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln()
}

/// Log-probability of one id by the softmax over all.
pub fn log_probability(logits: &[f32], id: u32) -> f64 {
    logits.get(id as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit) - log_sum_exp(logits))
}

/// The id of the highest score, the lowest id of equals. NaN counts as lowest.
pub fn arg_max(scores: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &score) in scores.iter().enumerate() {
        if score > best.1 {
            best = (id, score);
        }
    }
    u32::try_from(best.0).unwrap_or(u32::MAX)
}

/// Ids of the `count` highest scores, best first, the lower id first among equals.
pub fn highest(scores: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..u32::try_from(scores.len()).unwrap_or(u32::MAX)).collect();
    let order = |&a: &u32, &b: &u32| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_survive_large_logits() {
        let logits = [1000.0, 999.0, -1000.0];
        let sum: f64 = (0..3).map(|id| log_probability(&logits, id).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert!((log_probability(&logits, 0) - -0.313_261_687_518).abs() < 1e-9);
        assert_eq!(log_probability(&logits, 7), f64::NEG_INFINITY);
    }

    #[test]
    fn the_lower_id_wins_among_equals() {
        assert_eq!(arg_max(&[f32::NAN, 1.0, 3.0, 3.0]), 2);
        assert_eq!(highest(&[1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0], 3), [1, 3, 4]);
        assert_eq!(highest(&[1.0, 2.0], 5), [1, 0]);
    }
}
