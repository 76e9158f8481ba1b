//! From a decoded answer to a place in the caller's pixels.

use super::generate::{Answer, Candidate, Grammar};
use super::{Alternative, BoxSource, Grounding};
use crate::geometry::{Pixels, Point, Region, Size};
use crate::models::Profile;
use crate::prompt::Located;

impl Profile {
    /// The shape of this model's answers in ids, when it is known and the tokenizer has location tokens.
    #[must_use]
    pub fn grammar(&self) -> Option<Grammar> {
        let (form, locations) = (self.answer.form?, self.tokenizer.locations()?);
        let prefix = if self.answer.prefix.is_empty() {
            Vec::new()
        } else {
            self.tokenizer.encode_bare(&self.answer.prefix).ok()?
        };
        Some(Grammar { prefix, count: form.tokens(), locations })
    }

    /// What an answer means on a screenshot of which the model was shown `region`. `found` says whether there is a place
    /// at all and the model did not abstain; the caller's own threshold comes on top.
    #[must_use]
    pub fn ground(&self, command: &str, answer: Answer, region: Region) -> Grounding {
        let place = self.place(&answer.ids, &answer.log_probabilities, region);
        let abstained =
            self.tokenizer.locations().is_some_and(|locations| self.answer.is_abstention(&answer.ids, locations));
        let alternatives =
            answer.alternatives.iter().filter_map(|candidate| self.alternative(candidate, region)).collect();
        let raw = self.tokenizer.decode(answer.ids.get(1..).unwrap_or_default());
        let confidence = place.as_ref().map(|place| place.confidence);
        let shown = place.filter(|_| !abstained);
        let bounds = shown.as_ref().and_then(|place| place.bounds);
        Grounding {
            command: command.to_owned(),
            found: shown.is_some(),
            point: shown.as_ref().map(|place| place.point),
            bounds,
            box_source: if bounds.is_some() { BoxSource::Model } else { BoxSource::None },
            confidence,
            alternatives,
            raw,
            tokens: answer.ids,
            constrained: answer.changed,
        }
    }

    fn alternative(&self, candidate: &Candidate, region: Region) -> Option<Alternative> {
        let locations = self.tokenizer.locations()?;
        if self.answer.is_abstention(&candidate.ids, locations) {
            return None;
        }
        self.place(&candidate.ids, &candidate.log_probabilities, region)
    }

    fn place(&self, ids: &[u32], log_probabilities: &[f64], region: Region) -> Option<Alternative> {
        let (Located { point, bounds }, at) = self.answer.find(ids, self.tokenizer.locations()?)?;
        let count = if bounds.is_some() { 4 } else { 2 };
        // Probabilities stand for ids after the start token, so the id at `at` has the one before.
        let certainty: f64 = log_probabilities.iter().skip(at.saturating_sub(1)).take(count).sum();
        let rule = self.answer.bins;
        let bounds = bounds.map(|bounds| bounds.to_pixels(region, rule));
        let point = match bounds {
            // The middle of the box in pixels, on a whole pixel where the rule gives whole pixels.
            Some(bounds) => within(bounds.center(), region),
            None => point.to_pixels(region, rule),
        };
        Some(Alternative { point, bounds, confidence: certainty.exp() })
    }
}

/// The pixel under a point, never the one after the last.
fn within(point: Point<Pixels>, region: Region) -> Point<Pixels> {
    let Size { width, height } = region.size;
    let clamp = |value: f64, first: u32, count: u32| {
        value.trunc().clamp(f64::from(first), f64::from(first) + f64::from(count.saturating_sub(1)))
    };
    Point::new(clamp(point.x, region.x, width), clamp(point.y, region.y, height))
}
