//! Choosing ids from logits.

use super::library::{Buffer, Launch};
use super::{random, values};

/// log(sum(exp(logits))), numbers only.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().filter(|x| !x.is_nan()).map(|x| (f64::from(*x) - f64::from(most)).exp()).sum();
    f64::from(most) + sum.ln()
}

/// The ids of a range, the best first, the lowest of equals; what is not a number counts as the least there is.
fn ranked(logits: &[f32], range: std::ops::Range<usize>) -> Vec<usize> {
    let value = |id: usize| if logits[id].is_nan() { f32::NEG_INFINITY } else { logits[id] };
    let mut ids: Vec<usize> = range.collect();
    // Zero and minus zero are equals.
    ids.sort_by(|&a, &b| value(b).partial_cmp(&value(a)).unwrap().then(a.cmp(&b)));
    ids
}

/// Rows of logits: random ones, ones with ties and infinities and NaNs, and large ones.
fn rows(vocabulary: usize) -> Vec<Vec<f32>> {
    let noise = values(&random(&[4, vocabulary], 7));
    let mut rows: Vec<Vec<f32>> = noise.chunks(vocabulary).map(<[f32]>::to_vec).collect();
    rows[0].iter_mut().for_each(|x| *x *= 10.0);
    rows[1].iter_mut().for_each(|x| *x = (*x * 2.0).round());
    rows[2].iter_mut().for_each(|x| *x = *x * 100.0 + 3e4);
    for (id, x) in rows[3].iter_mut().enumerate() {
        if id % 5 == 1 {
            *x = f32::NAN;
        } else if id % 7 == 2 {
            *x = f32::NEG_INFINITY;
        }
    }
    rows
}

#[test]
fn the_best_id_of_a_range_and_of_all_with_their_probabilities() {
    for vocabulary in [1, 2, 3, 31, 1000, 1023, 1024, 1025, 4099] {
        let rows = rows(vocabulary);
        let logits = Buffer::of(&rows.concat());
        for (first, end) in
            [(0, vocabulary), (vocabulary / 2, vocabulary), (vocabulary - 1, vocabulary), (0, 1), (0, 9 * vocabulary)]
        {
            let range = [i32::try_from(first).unwrap(), i32::try_from(end).unwrap()];
            let (ids, log_probabilities) = (Buffer::words(rows.len() * 2), Buffer::words(rows.len() * 2));
            Launch::new("best_location")
                .buffer(&logits)
                .buffer(&Buffer::of(&range.repeat(rows.len())))
                .buffer(&ids)
                .buffer(&log_probabilities)
                .int(vocabulary)
                .run([rows.len(), 1, 1], [1024, 1]);
            let (ids, log_probabilities) = (ids.read::<i32>(), log_probabilities.read::<f32>());
            for (place, row) in rows.iter().enumerate() {
                let best = [ranked(row, first..end.min(vocabulary))[0], ranked(row, 0..vocabulary)[0]];
                for (i, id) in best.into_iter().enumerate() {
                    assert_eq!(
                        usize::try_from(ids[place * 2 + i]).unwrap(),
                        id,
                        "row {place} of {vocabulary} in {first}..{end}"
                    );
                    check(log_probabilities[place * 2 + i], row, id);
                }
            }
        }
    }
}

#[test]
fn the_highest_ids_in_order_with_their_probabilities() {
    for vocabulary in [1, 2, 3, 31, 1023, 1024, 1025, 4099] {
        let rows = rows(vocabulary);
        let logits = Buffer::of(&rows.concat());
        for count in [1, 2, 6, 16, 32].map(|count: usize| count.min(vocabulary)) {
            let (ids, log_probabilities) = (Buffer::words(rows.len() * count), Buffer::words(rows.len() * count));
            Launch::new("highest")
                .buffer(&logits)
                .buffer(&ids)
                .buffer(&log_probabilities)
                .int(vocabulary)
                .int(count)
                .run([rows.len(), 1, 1], [1024, 1]);
            let (ids, log_probabilities) = (ids.read::<u32>(), log_probabilities.read::<f32>());
            for (place, row) in rows.iter().enumerate() {
                for (rank, id) in ranked(row, 0..vocabulary).into_iter().take(count).enumerate() {
                    assert_eq!(ids[place * count + rank] as usize, id, "row {place} of {vocabulary}, rank {rank}");
                    check(log_probabilities[place * count + rank], row, id);
                }
            }
        }
    }
}

/// The log-softmax of an id over the whole row.
#[track_caller]
fn check(got: f32, row: &[f32], id: usize) {
    let logit = if row[id].is_nan() { f32::NEG_INFINITY } else { row[id] };
    let expected = f64::from(logit) - log_sum_exp(row);
    // Where the whole row is minus infinity there are no probabilities.
    if row.iter().all(|x| x.is_nan() || *x == f32::NEG_INFINITY) {
        return;
    }
    if expected == f64::NEG_INFINITY {
        assert_eq!(got, f32::NEG_INFINITY);
    } else {
        assert!((f64::from(got) - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{got}, not {expected}");
    }
}
