//! From the bytes of an image file to RGB. It fetches nothing, rotates nothing by EXIF, and converts no colour profile:
//! the models were trained on what Pillow's `convert("RGB")` gives, which does none of this either.
//!
//! * Alpha is dropped, not blended; the colour under a transparent pixel stays what it is.
//! * Grey is replicated, palettes are expanded, CMYK becomes RGB as `(255 - C) * (255 - K) / 255`.
//! * Of 16-bit samples the high byte is taken, not rounded. (Pillow does so for colour, but clips 16-bit grey to white.)
//! * Of an animation the first frame is taken.

use std::any::Any;
use std::fmt;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::{ColorType, ImageDecoder, ImageFormat, ImageReader};

use super::sniff::{self, Format, Header, Limits};
use super::{DecodeError, sniff::sniff};
use crate::geometry::{Region, Size};

/// Memory that a decoder may take on top of eight bytes per pixel: for metadata it reads although nobody asks for it.
const SLACK: u64 = 4 << 20;

/// A decoded screenshot: (height, width, 3) bytes, row by row, and never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Screenshot {
    size: Size,
    rgb: Vec<u8>,
}

impl fmt::Debug for Screenshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the pixels: there are millions.
        write!(f, "Screenshot({})", self.size)
    }
}

impl Screenshot {
    /// A screenshot from (height, width, 3) bytes. `None` when their number does not fit `size`, or there are none.
    #[must_use]
    pub fn from_rgb(size: Size, rgb: Vec<u8>) -> Option<Self> {
        let length = size.pixels().checked_mul(3)?;
        (length > 0 && rgb.len() as u64 == length).then_some(Self { size, rgb })
    }

    /// Width and height of the original, which answers are given in.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// (height, width, 3) bytes.
    #[must_use]
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// (height, width, 3) bytes, without a copy.
    #[must_use]
    pub fn into_rgb(self) -> Vec<u8> {
        self.rgb
    }

    /// The pixels of `region` as a screenshot of their own. A region made for a larger image is cut to this one, and
    /// moved to its last row or column when it lies beyond, so that a pixel is always left.
    #[must_use]
    pub fn crop(&self, region: Region) -> Self {
        let (x, width) = span(region.x, region.size.width, self.size.width);
        let (y, height) = span(region.y, region.size.height, self.size.height);
        let stride = self.size.width as usize * 3;
        let rows = self.rgb.chunks_exact(stride).skip(y as usize).take(height as usize);
        let columns = x as usize * 3..(x + width) as usize * 3;
        let mut rgb = Vec::with_capacity(columns.len() * height as usize);
        rows.for_each(|row| rgb.extend_from_slice(&row[columns.clone()]));
        Self { size: Size::new(width, height), rgb }
    }
}

/// First and number of the pixels on one axis, cut to `side` and never none.
fn span(first: u32, length: u32, side: u32) -> (u32, u32) {
    let first = first.min(side - 1);
    (first, length.clamp(1, side - first))
}

/// Decodes a PNG, JPEG, WebP, BMP or GIF.
///
/// The header is checked against `limits` first. Decoding takes up to eight bytes per pixel for a moment (an animated
/// WebP ten; pictures a few pixels high more, since JPEG and WebP pad to blocks), three when it is done. A decoder that
/// panics is caught, which needs `panic = "unwind"`.
///
/// # Errors
/// Those of [`sniff()`], and [`DecodeError::Corrupt`] when the content does not hold what the header says. A file that was
/// cut off is corrupt, even where a decoder would make up the rest.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Screenshot, DecodeError> {
    let header = sniff(bytes, limits)?;
    // Unwind safe: the decoder and its buffer are made within the closure, and the bytes are only read.
    let rgb = catch_unwind(AssertUnwindSafe(|| pixels(bytes, header)))
        .unwrap_or_else(|panic| Err(format!("the decoder failed: {}", words(&*panic))));
    rgb.and_then(|rgb| Screenshot::from_rgb(header.size, rgb).ok_or_else(|| "it decodes to another size".to_owned()))
        .map_err(|message| DecodeError::Corrupt { format: header.format, message })
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("unknown cause")
}

/// (height, width, 3) bytes, or what is wrong.
fn pixels(bytes: &[u8], header: Header) -> Result<Vec<u8>, String> {
    let format = match header.format {
        Format::Png => ImageFormat::Png,
        Format::Jpeg => ImageFormat::Jpeg,
        Format::Webp => ImageFormat::WebP,
        Format::Bmp => ImageFormat::Bmp,
        Format::Gif => ImageFormat::Gif,
    };
    match header.format {
        Format::Jpeg if !reaches_its_end(bytes) => return Err("the file ends before the picture does".to_owned()),
        Format::Webp if !fits_its_canvas(bytes, header.size) => return Err("a frame exceeds the canvas".to_owned()),
        Format::Jpeg | Format::Webp | Format::Png | Format::Bmp | Format::Gif => {}
    }
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(header.size.width);
    limits.max_image_height = Some(header.size.height);
    limits.max_alloc = Some(header.size.pixels() * 8 + SLACK);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    if decoder.dimensions() != (header.size.width, header.size.height) {
        return Err("its decoder finds another size than its header says".to_owned());
    }
    let color = decoder.color_type();
    // At most 64 megapixels of eight bytes by default; fresh zeroed pages cost nothing until they are written.
    let mut content = vec![0; usize::try_from(decoder.total_bytes()).map_err(|error| error.to_string())?];
    decoder.read_image(&mut content).map_err(|error| error.to_string())?;
    to_rgb(content, color).ok_or_else(|| format!("pixels of the type {color:?} are not read"))
}

/// Whether a JPEG has its end marker. Its decoder fills up what is missing with grey and reports nothing, but a model must
/// not be asked about half a screenshot; Pillow refuses such files as well.
fn reaches_its_end(bytes: &[u8]) -> bool {
    const END: [u8; 2] = [0xff, 0xd9];
    // Metadata may hold a whole thumbnail, so the search starts at the first scan. From there on the two bytes cannot meet
    // by chance: a 0 follows every ff of a scan. The shortcut serves all files to which nothing was appended.
    bytes.ends_with(&END)
        || sniff::jpeg_scan(bytes).is_some_and(|scan| bytes[scan..].windows(2).any(|pair| pair == END))
}

/// Whether no lossy frame of a WebP is larger than the canvas. Its decoder takes memory by the frame's own header and
/// compares afterwards, so that a canvas of one pixel could cost half a gigabyte.
fn fits_its_canvas(bytes: &[u8], canvas: Size) -> bool {
    // Every place where the decoder could find a frame, whatever it makes of the chunks around.
    let places = bytes.windows(4).enumerate().filter(|(_, kind)| kind == b"VP8 ");
    places
        .filter_map(|(place, _)| sniff::vp8(bytes, place + 8).ok().flatten())
        .all(|frame| frame.width <= canvas.width && frame.height <= canvas.height)
}

/// The colour of each pixel as three bytes. In place wherever a pixel does not grow. `None` for types that no format here
/// decodes to.
fn to_rgb(mut content: Vec<u8>, color: ColorType) -> Option<Vec<u8>> {
    /// Where the high byte of a sample lies that the decoder has left in the machine's byte order.
    const HIGH: usize = if cfg!(target_endian = "little") { 1 } else { 0 };
    match color {
        ColorType::Rgb8 => {}
        ColorType::Rgba8 => drop_alpha(&mut content),
        ColorType::L8 => content = replicate::<1>(&content, 0),
        ColorType::La8 => content = replicate::<2>(&content, 0),
        ColorType::L16 => content = replicate::<2>(&content, HIGH),
        ColorType::La16 => keep::<4>(&mut content, [HIGH; 3]),
        ColorType::Rgb16 => keep::<6>(&mut content, [HIGH, 2 + HIGH, 4 + HIGH]),
        ColorType::Rgba16 => keep::<8>(&mut content, [HIGH, 2 + HIGH, 4 + HIGH]),
        _ => return None,
    }
    Some(content)
}

/// One byte of each `STRIDE` three times.
fn replicate<const STRIDE: usize>(content: &[u8], offset: usize) -> Vec<u8> {
    let (pixels, _) = content.as_chunks::<STRIDE>();
    let mut rgb = vec![0; pixels.len() * 3];
    for (out, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *out = [pixel[offset]; 3];
    }
    rgb
}

/// Three bytes of each `STRIDE`, moved to the front.
fn keep<const STRIDE: usize>(content: &mut Vec<u8>, offsets: [usize; 3]) {
    let pixels = content.len() / STRIDE;
    for pixel in 0..pixels {
        let kept = offsets.map(|offset| content[pixel * STRIDE + offset]);
        content[pixel * 3..pixel * 3 + 3].copy_from_slice(&kept);
    }
    content.truncate(pixels * 3);
    content.shrink_to_fit();
}

/// As [`keep`] for RGBA, the pixel type of most screenshots: four pixels at a time, as whole words.
fn drop_alpha(content: &mut Vec<u8>) {
    let word = |bytes: &[u8; 16], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
    let pixels = content.len() / 4;
    let mut done = 0;
    while let Some(four) = content[done * 4..].first_chunk() {
        let (a, b, c, d) = (word(four, 0), word(four, 4), word(four, 8), word(four, 12));
        let out = &mut content[done * 3..done * 3 + 12];
        out[..4].copy_from_slice(&(a | b << 24).to_le_bytes());
        out[4..8].copy_from_slice(&(b >> 8 | c << 16).to_le_bytes());
        out[8..].copy_from_slice(&(c >> 16 | d << 8).to_le_bytes());
        done += 4;
    }
    for pixel in done..pixels {
        content.copy_within(pixel * 4..pixel * 4 + 3, pixel * 3);
    }
    content.truncate(pixels * 3);
    content.shrink_to_fit();
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "bytes of noise")]
mod tests {
    use image::{ExtendedColorType, ImageEncoder, codecs};
    use proptest::prelude::*;

    use super::*;

    const SMALL: Limits = Limits { pixels: 10_000 };

    fn png(bytes: &[u8], size: Size, color: ExtendedColorType) -> Vec<u8> {
        let mut file = Vec::new();
        codecs::png::PngEncoder::new(&mut file).write_image(bytes, size.width, size.height, color).unwrap();
        file
    }

    /// A file of each format, 9x5.
    fn files() -> Vec<Vec<u8>> {
        let size = Size::new(9, 5);
        let rgba: Vec<u8> = (0..9 * 5 * 4).map(|i: u8| i.wrapping_mul(7)).collect();
        let rgb = &rgba[..9 * 5 * 3];
        let (mut jpeg, mut webp, mut bmp, mut gif) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        codecs::jpeg::JpegEncoder::new(&mut jpeg).write_image(rgb, 9, 5, ExtendedColorType::Rgb8).unwrap();
        codecs::webp::WebPEncoder::new_lossless(&mut webp).write_image(&rgba, 9, 5, ExtendedColorType::Rgba8).unwrap();
        codecs::bmp::BmpEncoder::new(&mut bmp).write_image(rgb, 9, 5, ExtendedColorType::Rgb8).unwrap();
        codecs::gif::GifEncoder::new(&mut gif).encode(&rgba, 9, 5, ExtendedColorType::Rgba8).unwrap();
        vec![png(rgb, size, ExtendedColorType::Rgb8), png(&rgba, size, ExtendedColorType::Rgba8), jpeg, webp, bmp, gif]
    }

    fn check(bytes: &[u8]) {
        if let Ok(screenshot) = decode(bytes, &SMALL) {
            assert!(screenshot.size().pixels() <= SMALL.pixels);
            assert_eq!(screenshot.rgb().len() as u64, screenshot.size().pixels() * 3);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_bytes_panic_or_exceed_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            check(&bytes);
        }

        #[test]
        fn no_bytes_behind_known_magic_panic(format in 0_usize..6, tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = files().swap_remove(format);
            file.truncate(file.len().min(34));
            file.extend(tail);
            check(&file);
        }

        #[test]
        fn no_mutation_of_a_good_file_panics(
            format in 0_usize..6,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            keep in any::<prop::sample::Index>(),
            cut in any::<bool>(),
        ) {
            let mut file = files().swap_remove(format);
            for (place, byte) in changes {
                let place = place.index(file.len());
                file[place] = byte;
            }
            if cut {
                file.truncate(keep.index(file.len()));
            }
            check(&file);
        }

        #[test]
        fn alpha_is_dropped_and_nothing_else(width in 1_u32..24, height in 1_u32..4, seed in any::<u32>()) {
            let size = Size::new(width, height);
            let rgba: Vec<u8> = (0..width * height * 4).map(|i| (i.wrapping_mul(seed | 1) >> 11) as u8).collect();
            let rgb: Vec<u8> = rgba.chunks(4).flat_map(|pixel| pixel[..3].to_vec()).collect();
            let from_rgba = decode(&png(&rgba, size, ExtendedColorType::Rgba8), &SMALL).unwrap();
            prop_assert_eq!(from_rgba.rgb(), &rgb[..]);
            let from_rgb = decode(&png(&rgb, size, ExtendedColorType::Rgb8), &SMALL).unwrap();
            prop_assert_eq!(from_rgb, from_rgba);
        }
    }

    #[test]
    fn every_format_decodes() {
        for file in files() {
            assert_eq!(decode(&file, &SMALL).unwrap().size(), Size::new(9, 5));
        }
    }

    #[test]
    fn a_jpeg_needs_its_end_and_may_go_on_after_it() {
        let mut file = files().swap_remove(2);
        let whole = decode(&file, &SMALL).unwrap();
        file.extend(b"appended by a camera \xff\xda");
        assert_eq!(decode(&file, &SMALL).unwrap(), whole);
        let end = file.windows(2).rposition(|pair| pair == [0xff, 0xd9]).unwrap();
        assert!(matches!(decode(&file[..end], &SMALL), Err(DecodeError::Corrupt { format: Format::Jpeg, .. })));
    }

    #[test]
    fn a_frame_larger_than_its_canvas_is_refused_before_it_is_decoded() {
        let frame = [&b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a"[..], &[0xff, 0x3f, 0xff, 0x3f]].concat();
        assert!(!fits_its_canvas(&frame, Size::new(1, 1)));
        assert!(fits_its_canvas(&frame, Size::new(16383, 16383)));
    }

    #[test]
    fn a_panic_says_what_it_said() {
        let panic = catch_unwind(|| panic!("index {} of 3", 7)).unwrap_err();
        assert_eq!(words(&*panic), "index 7 of 3");
    }

    #[test]
    fn a_screenshot_has_pixels_and_a_crop_too() {
        assert_eq!(Screenshot::from_rgb(Size::new(0, 9), Vec::new()), None);
        assert_eq!(Screenshot::from_rgb(Size::new(1, 1), vec![1, 2]), None);
        assert_eq!(Screenshot::from_rgb(Size::new(u32::MAX, u32::MAX), Vec::new()), None);
        let screenshot = Screenshot::from_rgb(Size::new(2, 2), (0..12).collect()).unwrap();
        let beyond = Region { x: 9, y: 1, size: Size::new(5, 5) };
        assert_eq!(screenshot.crop(beyond).into_rgb(), [9, 10, 11]);
        assert_eq!(format!("{screenshot:?}"), "Screenshot(2x2)");
    }
}
