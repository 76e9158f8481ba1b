//! Draws answers on a screenshot: a box around the element and a crosshair where to press. It writes no file.

use std::io::Cursor;
use std::path::Path;

use image::{ImageFormat, Rgb, RgbImage};

use super::Failure;
use crate::engine::Grounding;
use crate::screenshot::Screenshot;

/// Bright on dark screens, and edged with [`EDGE`] to show on bright ones.
const COLOURS: [Rgb<u8>; 4] = [Rgb([255, 45, 85]), Rgb([0, 200, 255]), Rgb([255, 204, 0]), Rgb([52, 199, 89])];
const EDGE: Rgb<u8> = Rgb([16, 16, 16]);

/// The format that a file's name asks for.
///
/// # Errors
/// It is none that can be written.
pub(super) fn format_of(path: &Path) -> Result<ImageFormat, Failure> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match extension.as_str() {
        "png" => Ok(ImageFormat::Png),
        "jpg" | "jpeg" => Ok(ImageFormat::Jpeg),
        _ => Err(Failure::usage(
            format!("`--out {}`: the format is not known by this name", path.display()),
            "give it a name that ends in .png or .jpg",
        )),
    }
}

/// The screenshot with the answers drawn on it, as a file of this format.
///
/// # Errors
/// The picture cannot be encoded.
pub(super) fn annotate(shot: &Screenshot, answers: &[Grounding], format: ImageFormat) -> Result<Vec<u8>, Failure> {
    let failed = |what: &str| Failure::other(format!("the annotated screenshot cannot be made: {what}"), "try .png");
    let size = shot.size();
    let picture = RgbImage::from_raw(size.width, size.height, shot.rgb().to_vec());
    let mut canvas = Canvas {
        picture: picture.ok_or_else(|| failed("it has another size"))?,
        line: line_of(size.width.max(size.height)),
    };
    for (answer, colour) in answers.iter().zip(COLOURS.iter().cycle()).filter(|(answer, _)| answer.found) {
        if let Some(bounds) = answer.bounds {
            canvas.frame([bounds.x1, bounds.y1, bounds.x2, bounds.y2].map(whole), *colour);
        }
        if let Some(point) = answer.point {
            canvas.crosshair(whole(point.x), whole(point.y), *colour);
        }
    }
    let mut file = Cursor::new(Vec::new());
    canvas.picture.write_to(&mut file, format).map_err(|error| failed(&error.to_string()))?;
    Ok(file.into_inner())
}

/// Line width: 2 pixels, more on screens whose pictures are looked at scaled down.
fn line_of(longest: u32) -> i64 {
    i64::from(longest / 1000 + 1).max(2)
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and whatever lies outside is not drawn")]
fn whole(coordinate: f64) -> i64 {
    coordinate.round() as i64
}

struct Canvas {
    picture: RgbImage,
    line: i64,
}

impl Canvas {
    /// Four bars around a rectangle, so that what is inside stays visible.
    fn frame(&mut self, [x1, y1, x2, y2]: [i64; 4], colour: Rgb<u8>) {
        for (colour, grow) in [(EDGE, 1), (colour, 0)] {
            let (out, inside) = (self.line + grow, -grow);
            let (left, top, right, bottom) = (x1 - out, y1 - out, x2 + out, y2 + out);
            self.fill([left, top, right, y1 - inside], colour);
            self.fill([left, y2 + inside, right, bottom], colour);
            self.fill([left, top, x1 - inside, bottom], colour);
            self.fill([x2 + inside, top, right, bottom], colour);
        }
    }

    /// Four arms around a pixel, with a gap so that the pixel itself stays visible.
    fn crosshair(&mut self, x: i64, y: i64, colour: Rgb<u8>) {
        let (arm, gap) = (self.line * 8, self.line * 2);
        for (colour, grow) in [(EDGE, 1), (colour, 0)] {
            let (from, to, half) = (gap - grow, arm + grow, self.line / 2 + grow);
            let (near, far) = (-half, self.line - self.line / 2 + grow);
            self.fill([x - to, y + near, x - from, y + far], colour);
            self.fill([x + from, y + near, x + to, y + far], colour);
            self.fill([x + near, y - to, x + far, y - from], colour);
            self.fill([x + near, y + from, x + far, y + to], colour);
        }
    }

    /// Fills a rectangle, right and bottom edges exclusive, as far as it lies on the picture.
    fn fill(&mut self, [x1, y1, x2, y2]: [i64; 4], colour: Rgb<u8>) {
        let clip = |value: i64, side: u32| u32::try_from(value.clamp(0, side.into())).unwrap_or(side);
        let (width, height) = self.picture.dimensions();
        for y in clip(y1, height)..clip(y2, height) {
            for x in clip(x1, width)..clip(x2, width) {
                self.picture.put_pixel(x, y, colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(side: u32) -> Canvas {
        Canvas { picture: RgbImage::from_pixel(side, side, Rgb([255, 255, 255])), line: 2 }
    }

    #[test]
    fn frames_surround_and_never_cover() {
        let mut canvas = canvas(40);
        canvas.frame([10, 10, 20, 20], COLOURS[0]);
        let at = |x, y| *canvas.picture.get_pixel(x, y);
        assert_eq!((at(15, 9), at(15, 8), at(15, 7)), (COLOURS[0], COLOURS[0], EDGE));
        assert_eq!((at(15, 10), at(15, 11)), (EDGE, Rgb([255, 255, 255])), "a dark line inside, then the element");
        assert_eq!((at(20, 15), at(21, 15), at(22, 15)), (COLOURS[0], COLOURS[0], EDGE));
        assert_eq!(at(15, 15), Rgb([255, 255, 255]));
    }

    #[test]
    fn nothing_outside_is_drawn_and_the_pixel_itself_stays() {
        let mut canvas = canvas(31);
        canvas.frame([-100, -100, 100, 100], EDGE);
        canvas.crosshair(15, 15, COLOURS[1]);
        canvas.crosshair(i64::from(u32::MAX), -5, COLOURS[1]);
        assert_eq!(*canvas.picture.get_pixel(15, 15), Rgb([255, 255, 255]));
        assert_eq!((*canvas.picture.get_pixel(5, 15), *canvas.picture.get_pixel(15, 25)), (COLOURS[1], COLOURS[1]));
        assert_eq!(*canvas.picture.get_pixel(5, 13), EDGE);
        assert_eq!(*canvas.picture.get_pixel(5, 5), Rgb([255, 255, 255]));
    }

    #[test]
    fn the_name_says_the_format() {
        assert_eq!(format_of(Path::new("a.PNG")).ok(), Some(ImageFormat::Png));
        assert_eq!(format_of(Path::new("a.jpeg")).ok(), Some(ImageFormat::Jpeg));
        for bad in ["a", "a.gif", "png", ".png"] {
            assert_eq!(format_of(Path::new(bad)).map_err(|failure| failure.code()), Err(64), "{bad}");
        }
    }
}
