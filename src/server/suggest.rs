//! The nearest known word to an unknown one, for hints.

/// The candidate that `word` most likely meant, if any is near: at most a third of its letters away.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(64).map(|letter| letter.to_ascii_lowercase()).collect();
    candidates
        .iter()
        .map(|&candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.len().max(word.len()))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements (Levenshtein) from one word to the other.
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (index, wanted) in to.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, &letter) in from.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["image", "command", "commands", "timeout_ms"];
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("Commands", &known), Some("commands"));
        assert_eq!(nearest("timeout", &known), Some("timeout_ms"));
        assert_eq!(nearest("img", &known), None);
        assert_eq!(nearest("temperature", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest(&"é".repeat(1000), &known), None);
    }
}
