//! The shape of an answer, and finding the place in one.

use serde::{Deserialize, Serialize};

use super::LocationTokens;
use crate::geometry::{BinRule, Bins, Point, Rect};

/// The shape of an answer: an action prefix, then location tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerForm {
    /// How many location tokens make an answer. `None`: whatever follows (plain Florence-2), which cannot be constrained.
    pub form: Option<Form>,
    /// Text between the start of the answer and its first location token, such as `click `.
    pub prefix: String,
    /// Bins of the answer that means "not on this screen". Empty: the model has none.
    pub abstain: Vec<u32>,
    /// How a bin becomes a pixel.
    pub bins: BinRule,
}

impl Default for AnswerForm {
    fn default() -> Self {
        Self { form: None, prefix: String::new(), abstain: Vec::new(), bins: BinRule::Edge }
    }
}

/// What the location tokens of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Two tokens: x, y.
    Point,
    /// Four tokens: x1, y1, x2, y2.
    Box,
}

impl Form {
    /// Location tokens of one answer.
    #[must_use]
    pub const fn tokens(self) -> usize {
        match self {
            Self::Point => 2,
            Self::Box => 4,
        }
    }
}

/// A place as the model names it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Located {
    /// The point, or the middle of the box.
    pub point: Point<Bins>,
    /// The box, where the answer gives one.
    pub bounds: Option<Rect<Bins>>,
}

impl AnswerForm {
    /// Finds the place in an answer's ids (start token included or not), wherever it stands: the first run of adjacent
    /// location tokens that is long enough. A form-less model's answer is a box when four are adjacent, else a point.
    ///
    /// Returns the place and the index in `ids` of its first location token.
    #[must_use]
    pub fn find(&self, ids: &[u32], locations: LocationTokens) -> Option<(Located, usize)> {
        let needed = self.form.map_or(2, Form::tokens);
        let bin = |id: u32| locations.bin(id);
        let start = (0..ids.len())
            .find(|&i| ids.len() - i >= needed && ids[i..i + needed].iter().all(|&id| bin(id).is_some()))?;
        let bins: Vec<f64> = ids[start..].iter().map_while(|&id| bin(id)).take(4).map(f64::from).collect();
        let is_box = bins.len() == 4 && self.form != Some(Form::Point);
        Some((Self::located(if is_box { &bins } else { &bins[..2] }), start))
    }

    /// The place that these bins mean: x, y, or x1, y1, x2, y2.
    #[must_use]
    pub fn located(bins: &[f64]) -> Located {
        match *bins {
            [x1, y1, x2, y2] => {
                let bounds = Rect::new(x1, y1, x2, y2);
                Located { point: bounds.center(), bounds: Some(bounds) }
            }
            [x, y, ..] => Located { point: Point::new(x, y), bounds: None },
            [] | [_] => Located { point: Point::new(0.0, 0.0), bounds: None },
        }
    }

    /// Whether the location tokens of an answer say "not on this screen".
    #[must_use]
    pub fn is_abstention(&self, ids: &[u32], locations: LocationTokens) -> bool {
        !self.abstain.is_empty()
            && ids.iter().filter_map(|&id| locations.bin(id)).take(self.abstain.len()).eq(self.abstain.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINYCLICK: LocationTokens = LocationTokens { first: 50269 };

    fn point_form() -> AnswerForm {
        AnswerForm { form: Some(Form::Point), prefix: "click ".into(), abstain: vec![499, 499], bins: BinRule::Edge }
    }

    #[test]
    fn the_first_adjacent_pair_is_the_point() {
        for (ids, expected) in [
            (&[2, 0, 23008, 1437, 50551, 50797, 2][..], Some((282.0, 528.0, 4))),
            (&[2, 0, 23008, 1437, 50551, 2], None),
            (&[2, 0, 50551, 50797, 2], Some((282.0, 528.0, 2))),
            (&[2, 0, 50551, 23008, 50797, 50269, 2], Some((528.0, 0.0, 4))),
            (&[], None),
            (&[51269, 51268], None),
        ] {
            let found = point_form().find(ids, TINYCLICK).map(|(place, at)| (place.point.x, place.point.y, at));
            assert_eq!(found, expected, "{ids:?}");
        }
    }

    #[test]
    fn four_tokens_are_a_box_and_its_middle() {
        let ids = [2, 0, 50269 + 100, 50269 + 200, 50269 + 300, 50269 + 600, 2];
        for form in [Some(Form::Box), None] {
            let (place, at) = AnswerForm { form, ..AnswerForm::default() }.find(&ids, TINYCLICK).unwrap();
            assert_eq!(
                (place.point, place.bounds, at),
                (Point::new(200.0, 400.0), Some(Rect::new(100.0, 200.0, 300.0, 600.0)), 2)
            );
        }
        let (point, _) = point_form().find(&ids, TINYCLICK).unwrap();
        assert_eq!((point.point, point.bounds), (Point::new(100.0, 200.0), None));
    }

    #[test]
    fn three_tokens_are_no_box() {
        let ids = [2, 0, 50269, 50270, 50271, 2];
        assert_eq!(AnswerForm { form: Some(Form::Box), ..AnswerForm::default() }.find(&ids, TINYCLICK), None);
        assert_eq!(AnswerForm::default().find(&ids, TINYCLICK).unwrap().0.bounds, None);
    }

    #[test]
    fn abstention_is_the_exact_answer_only() {
        let form = point_form();
        assert!(form.is_abstention(&[2, 0, 23008, 1437, 50768, 50768, 2], TINYCLICK));
        assert!(!form.is_abstention(&[2, 0, 23008, 1437, 50768, 50769, 2], TINYCLICK));
        assert!(!form.is_abstention(&[2, 0, 50768, 2], TINYCLICK));
        assert!(!AnswerForm::default().is_abstention(&[50768, 50768], TINYCLICK));
    }
}
