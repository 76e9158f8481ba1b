//! Some columns of a few rows of a matrix in memory: what one task of several writes.

/// Rows that are worked on together. Each is a slice of its own, so that the columns can be shared out among threads
/// although the rows lie one after the other.
pub(super) const ROWS: usize = 48;

/// The same columns of up to [`ROWS`] rows.
pub(super) struct Columns<'a> {
    rows: [&'a mut [f32]; ROWS],
    count: usize,
}

impl<'a> Columns<'a> {
    /// All `width` columns of the rows of `out`, of which there are [`ROWS`] at most.
    pub(super) fn of(out: &'a mut [f32], width: usize) -> Self {
        let count = out.len() / width.max(1);
        let mut rows = out.chunks_exact_mut(width.max(1));
        Self { rows: std::array::from_fn(|_| rows.next().unwrap_or_default()), count }
    }

    /// The columns before `at`, and those from there on.
    pub(super) fn split_at(self, at: usize) -> (Self, Self) {
        let mut right: [&'a mut [f32]; ROWS] = std::array::from_fn(|_| <&mut [f32]>::default());
        let mut places = right.iter_mut();
        let left = self.rows.map(|row| {
            let (left, right) = row.split_at_mut(at.min(row.len()));
            if let Some(place) = places.next() {
                *place = right;
            }
            left
        });
        (Self { rows: left, count: self.count }, Self { rows: right, count: self.count })
    }

    /// The rows.
    pub(super) fn rows(&mut self) -> &mut [&'a mut [f32]] {
        &mut self.rows[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_split_and_written_apart() {
        let mut out = [0.0; 3 * 5];
        let (mut left, right) = Columns::of(&mut out, 5).split_at(2);
        let (mut middle, mut right) = right.split_at(1);
        for (columns, value) in [(&mut left, 1.0), (&mut middle, 2.0), (&mut right, 3.0)] {
            columns.rows().iter_mut().for_each(|row| row.fill(value));
        }
        assert_eq!(out, [1.0, 1.0, 2.0, 3.0, 3.0].repeat(3)[..]);
    }
}
