//! Which rows a session has: how many for each prompt, and how many ids they have been fed. It holds no numbers of the model.

use candle_core::Result;

/// The rows of a session. Rows of one prompt lie together, equally many for each.
#[derive(Debug, Clone)]
pub(super) struct RowGroups {
    /// The prompts that are left, by their place among those the session began with.
    prompts: Vec<usize>,
    /// What `prompts` are put together in.
    next: Vec<usize>,
    all: usize,
    width: usize,
    length: usize,
}

impl RowGroups {
    /// One row for each prompt.
    pub(super) fn new(prompts: usize) -> Self {
        let all: Vec<usize> = (0..prompts).collect();
        Self { next: all.clone(), prompts: all, all: prompts, width: 1, length: 0 }
    }

    /// The prompts that are left, in the order of their rows.
    pub(super) fn prompts(&self) -> &[usize] {
        &self.prompts
    }

    /// Rows of each prompt.
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// All rows.
    pub(super) fn count(&self) -> usize {
        self.prompts.len() * self.width
    }

    /// Ids each row has been fed.
    pub(super) const fn length(&self) -> usize {
        self.length
    }

    pub(super) const fn set_length(&mut self, length: usize) {
        self.length = length;
    }

    /// Ids of each row among `ids` for all.
    pub(super) fn new_ids(&self, ids: usize) -> Result<usize> {
        let rows = self.count();
        if rows == 0 || ids == 0 || !ids.is_multiple_of(rows) {
            candle_core::bail!("{ids} ids for {rows} rows");
        }
        Ok(ids / rows)
    }

    /// Makes the rows copies of these present rows. On an error nothing has changed.
    pub(super) fn select(&mut self, rows: &[usize]) -> Result<()> {
        let old = self.width;
        let prompt = |row: &usize| row / old;
        let width = rows.iter().take_while(|row| Some(prompt(row)) == rows.first().map(prompt)).count();
        let together = |(index, group): (usize, &[usize])| {
            let own = prompt(&group[0]);
            let before = &rows[..index * width];
            let (all, none) = (group.iter().all(|row| prompt(row) == own), before.iter().all(|row| prompt(row) != own));
            group.len() == width && all && none
        };
        if width == 0 || !rows.chunks(width).enumerate().all(together) || rows.iter().any(|&row| row >= self.count()) {
            candle_core::bail!("rows {rows:?} of {} do not keep the {old} rows of each prompt together", self.count());
        }
        self.next.clear();
        self.next.extend(rows.iter().step_by(width).map(|row| self.prompts[prompt(row)]));
        std::mem::swap(&mut self.prompts, &mut self.next);
        self.width = width;
        Ok(())
    }

    /// All prompts, one row each, fed nothing.
    pub(super) fn restart(&mut self) {
        self.prompts.clear();
        self.prompts.extend(0..self.all);
        (self.width, self.length) = (1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_with_their_prompts() {
        let mut rows = RowGroups::new(3);
        rows.set_length(4);
        rows.select(&[0, 0, 1, 1, 2, 2]).unwrap();
        assert_eq!((rows.prompts(), rows.width(), rows.count()), (&[0, 1, 2][..], 2, 6));
        rows.select(&[5, 4, 4, 1, 0, 1]).unwrap();
        assert_eq!((rows.prompts(), rows.width()), (&[2, 0][..], 3));
        rows.select(&[3]).unwrap();
        assert_eq!((rows.prompts(), rows.width(), rows.length()), (&[0][..], 1, 4));
        rows.restart();
        assert_eq!((rows.prompts(), rows.count(), rows.length()), (&[0, 1, 2][..], 3, 0));
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut rows = RowGroups::new(2);
        rows.select(&[0, 0, 1, 1]).unwrap();
        for wrong in [&[][..], &[0, 1, 2], &[0, 2, 2], &[0, 2, 1, 3], &[4], &[0, 1, 2, 4]] {
            assert!(rows.select(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((rows.prompts(), rows.width()), (&[0, 1][..], 2));
        assert!(rows.new_ids(3).is_err() && rows.new_ids(0).is_err());
        assert_eq!(rows.new_ids(8).unwrap(), 2);
    }
}
