//! Sizes, points and rectangles whose type says which coordinate space they are in, and the only conversions between
//! those spaces. It knows no image and no model.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

impl Size {
    /// A size of `width` x `height` pixels.
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    #[must_use]
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// The rectangle that covers the whole image, in its pixels.
    #[must_use]
    pub fn rect(self) -> Rect<Pixels> {
        Rect::new(0.0, 0.0, f64::from(self.width), f64::from(self.height))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A coordinate space. The types that implement it have no values; they mark [`Point`] and [`Rect`].
pub trait Space: sealed::Sealed + Copy + fmt::Debug + PartialEq + 'static {}

macro_rules! spaces {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Space for $name {}
    )+};
}

spaces! {
    /// Pixels of the original screenshot, origin at the top left.
    Pixels,
    /// Fractions of the screenshot's width and height, 0 to 1.
    Normalized,
    /// Thousandths of the screenshot's width and height, 0 to 1000.
    Thousand,
    /// The locator's own quantisation: location token `n` of 1000 along the image (or region) it was shown.
    Bins
}

/// A place in the space `S`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<S: Space> {
    /// From the left edge.
    pub x: f64,
    /// From the top edge.
    pub y: f64,
    space: PhantomData<S>,
}

impl<S: Space> Point<S> {
    /// The point (`x`, `y`).
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, space: PhantomData }
    }
}

/// A rectangle in the space `S`: `x1 <= x2`, `y1 <= y2`, right and bottom edges exclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect<S: Space> {
    /// Left edge.
    pub x1: f64,
    /// Top edge.
    pub y1: f64,
    /// Right edge.
    pub x2: f64,
    /// Bottom edge.
    pub y2: f64,
    space: PhantomData<S>,
}

impl<S: Space> Rect<S> {
    /// The rectangle with these edges; edges given in the wrong order are swapped.
    #[must_use]
    pub fn new(x1: f64, y1: f64, x2: f64, y2: f64) -> Self {
        Self { x1: x1.min(x2), y1: y1.min(y2), x2: x1.max(x2), y2: y1.max(y2), space: PhantomData }
    }

    /// The middle.
    #[must_use]
    pub fn center(self) -> Point<S> {
        Point::new(f64::midpoint(self.x1, self.x2), f64::midpoint(self.y1, self.y2))
    }

    /// Width in units of the space.
    #[must_use]
    pub fn width(self) -> f64 {
        self.x2 - self.x1
    }

    /// Height in units of the space.
    #[must_use]
    pub fn height(self) -> f64 {
        self.y2 - self.y1
    }

    /// Whether `point` lies inside, left and top edge included.
    #[must_use]
    pub fn contains(self, point: Point<S>) -> bool {
        (self.x1..self.x2).contains(&point.x) && (self.y1..self.y2).contains(&point.y)
    }
}

/// Whole pixels of an image: what a crop takes. Never empty, never outside the image it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns and rows.
    pub size: Size,
}

impl Region {
    /// All of an image.
    #[must_use]
    pub const fn whole(size: Size) -> Self {
        Self { x: 0, y: 0, size }
    }

    /// The pixels that `rect` touches, cut to the image. `None` when nothing of it is left, or an edge is not a number.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the casts saturate, which is what is wanted"
    )]
    pub fn cut(rect: Rect<Pixels>, image: Size) -> Option<Self> {
        if [rect.x1, rect.y1, rect.x2, rect.y2].into_iter().any(f64::is_nan) {
            return None;
        }
        let (x1, y1) = (rect.x1.max(0.0).floor() as u32, rect.y1.max(0.0).floor() as u32);
        let x2 = rect.x2.min(f64::from(image.width)).ceil() as u32;
        let y2 = rect.y2.min(f64::from(image.height)).ceil() as u32;
        (x1 < x2 && y1 < y2).then(|| Self { x: x1, y: y1, size: Size::new(x2 - x1, y2 - y1) })
    }
}

/// How a location token becomes a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BinRule {
    /// `trunc((n / 1000) * side)`: the rule of TinyClick's authors, division first.
    #[default]
    Edge,
    /// `((n + 0.5) / 1000) * side`: the middle of the bin, as Florence-2's own quantiser maps back.
    Center,
    /// `(n / 1000) * side`, not truncated.
    Exact,
}

impl BinRule {
    fn along(self, bin: f64, side: u32) -> f64 {
        let side = f64::from(side);
        match self {
            Self::Edge => ((bin / 1000.0) * side).trunc(),
            Self::Center => ((bin + 0.5) / 1000.0) * side,
            Self::Exact => (bin / 1000.0) * side,
        }
    }
}

impl Point<Bins> {
    /// The pixel of the original screenshot that this answer means, when the locator was shown `region` of it.
    #[must_use]
    pub fn to_pixels(self, region: Region, rule: BinRule) -> Point<Pixels> {
        Point::new(
            f64::from(region.x) + rule.along(self.x, region.size.width),
            f64::from(region.y) + rule.along(self.y, region.size.height),
        )
    }
}

impl Rect<Bins> {
    /// The rectangle of the original screenshot that this answer means, when the locator was shown `region` of it.
    #[must_use]
    pub fn to_pixels(self, region: Region, rule: BinRule) -> Rect<Pixels> {
        let from = Point::<Bins>::new(self.x1, self.y1).to_pixels(region, rule);
        let to = Point::<Bins>::new(self.x2, self.y2).to_pixels(region, rule);
        Rect::new(from.x, from.y, to.x, to.y)
    }
}

/// A space whose coordinates are a fixed share of the screenshot's sides, so that a caller can ask for it.
pub trait Scaled: Space {
    /// What the full width of an image of this size is called in the space, and the full height.
    fn extent(image: Size) -> (f64, f64);
}

impl Scaled for Pixels {
    fn extent(image: Size) -> (f64, f64) {
        (f64::from(image.width), f64::from(image.height))
    }
}

impl Scaled for Normalized {
    fn extent(_: Size) -> (f64, f64) {
        (1.0, 1.0)
    }
}

impl Scaled for Thousand {
    fn extent(_: Size) -> (f64, f64) {
        (1000.0, 1000.0)
    }
}

fn scale<A: Scaled, B: Scaled>(image: Size) -> (f64, f64) {
    let (from, to) = (A::extent(image), B::extent(image));
    // An image has no zero side once it is decoded; the guard keeps the conversion total.
    (to.0 / from.0.max(f64::MIN_POSITIVE), to.1 / from.1.max(f64::MIN_POSITIVE))
}

impl<S: Scaled> Point<S> {
    /// The same place in another space of the same image.
    ///
    /// ```
    /// use tapline::geometry::{Normalized, Pixels, Point, Size};
    /// let point = Point::<Pixels>::new(540.0, 600.0).to::<Normalized>(Size::new(1080, 2400));
    /// assert_eq!((point.x, point.y), (0.5, 0.25));
    /// ```
    #[must_use]
    pub fn to<T: Scaled>(self, image: Size) -> Point<T> {
        let (x, y) = scale::<S, T>(image);
        Point::new(self.x * x, self.y * y)
    }
}

impl<S: Scaled> Rect<S> {
    /// The same rectangle in another space of the same image.
    #[must_use]
    pub fn to<T: Scaled>(self, image: Size) -> Rect<T> {
        let (x, y) = scale::<S, T>(image);
        Rect::new(self.x1 * x, self.y1 * y, self.x2 * x, self.y2 * y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: Size = Size::new(1080, 2400);

    #[test]
    fn authors_rule_divides_first_and_truncates() {
        let hundred = Region::whole(Size::new(100, 100));
        assert_eq!(Point::<Bins>::new(290.0, 0.0).to_pixels(hundred, BinRule::Edge).x, 28.0);
        let screen = Region::whole(Size::new(560, 400));
        let point = Point::<Bins>::new(282.0, 528.0).to_pixels(screen, BinRule::Edge);
        assert_eq!((point.x, point.y), (157.0, 211.0));
    }

    #[test]
    fn a_region_shifts_the_answer_back() {
        let region = Region::cut(Rect::new(100.0, 200.0, 300.0, 600.0), PHONE).unwrap();
        let point = Point::<Bins>::new(500.0, 500.0).to_pixels(region, BinRule::Edge);
        assert_eq!((point.x, point.y), (200.0, 400.0));
    }

    #[test]
    fn regions_are_cut_to_the_image_and_never_empty() {
        let cut = Region::cut(Rect::new(-5.0, 2399.5, 10.2, 9999.0), PHONE).unwrap();
        assert_eq!(cut, Region { x: 0, y: 2399, size: Size::new(11, 1) });
        assert_eq!(Region::cut(Rect::new(1080.0, 0.0, 2000.0, 10.0), PHONE), None);
        assert_eq!(Region::cut(Rect::new(5.0, 5.0, 5.0, 9.0), PHONE), None);
        assert_eq!(Region::cut(Rect::new(f64::NAN, 0.0, f64::NAN, 9.0), PHONE), None);
    }

    #[test]
    fn spaces_convert_both_ways() {
        for (x, y) in [(0.0, 0.0), (1079.0, 2399.0), (157.0, 211.0)] {
            let point = Point::<Pixels>::new(x, y);
            let back = point.to::<Thousand>(PHONE).to::<Normalized>(PHONE).to::<Pixels>(PHONE);
            assert!((back.x - x).abs() < 1e-9 && (back.y - y).abs() < 1e-9);
        }
        let rect = Rect::<Normalized>::new(0.1, 0.2, 0.3, 0.4).to::<Pixels>(PHONE);
        assert!((rect.center().x - 216.0).abs() < 1e-9 && rect.contains(rect.center()));
    }
}
