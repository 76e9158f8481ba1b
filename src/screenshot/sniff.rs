//! Format and size of an image from its first bytes, checked against the limits before a pixel is decoded. It decodes
//! nothing, allocates nothing, and believes no `Content-Type` or file name.
//!
//! The headers are parsed by hand and not by the decoders: these few fields are all that is needed, the answer can come
//! while the upload is still on its way ([`sniff_prefix`]), and a refusal costs microseconds.

use std::fmt;

use super::DecodeError;
use crate::geometry::Size;

/// The longest side that is read: as much as JPEG, GIF and BMP can hold. A PNG may claim 2^31 columns; with the pixel
/// limit alone that would still make the resize's weight table (four weights per source column) larger than the image.
const LONGEST_SIDE: u32 = 65_535;

/// What an image may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Width times height. Decoding needs up to eight bytes per pixel, so this is also the memory limit.
    pub pixels: u64,
}

impl Default for Limits {
    /// 64 megapixels: an 8K screen has 33.
    fn default() -> Self {
        Self { pixels: 64_000_000 }
    }
}

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Portable Network Graphics, animated or not.
    Png,
    /// JPEG, baseline or progressive.
    Jpeg,
    /// WebP, lossy, lossless or animated.
    Webp,
    /// Windows or OS/2 bitmap.
    Bmp,
    /// The version of 1987 or of 1989, animated or not.
    Gif,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Webp => "WebP",
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
        })
    }
}

/// What the first bytes of an image say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// By the magic bytes.
    pub format: Format,
    /// By the header; never zero, never over the limits. For GIF and WebP the size of the canvas.
    pub size: Size,
}

/// Reads the header of a complete file.
///
/// # Errors
/// [`DecodeError::Empty`] for no bytes, [`DecodeError::UnsupportedFormat`] by the magic bytes,
/// [`DecodeError::NoPixels`] and [`DecodeError::TooManyPixels`] by the size in the header, [`DecodeError::Corrupt`] when
/// the header is cut off or makes no sense.
///
/// ```
/// use tapline::geometry::Size;
/// use tapline::screenshot::{Format, Limits, sniff};
/// let gif = b"GIF89a\x38\x04\x60\x09";
/// let header = sniff(gif, &Limits::default())?;
/// assert_eq!((header.format, header.size), (Format::Gif, Size::new(1080, 2400)));
/// # Ok::<(), tapline::screenshot::DecodeError>(())
/// ```
pub fn sniff(bytes: &[u8], limits: &Limits) -> Result<Header, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    match sniff_prefix(bytes, limits)? {
        Some(header) => Ok(header),
        None => Err(match recognize(bytes) {
            Magic::Is(format) => corrupt(format, "it ends within the header"),
            Magic::Unclear | Magic::Unknown => DecodeError::UnsupportedFormat,
        }),
    }
}

/// Reads the header from the first bytes of a file that is still arriving. `None` when the bytes so far do not reach the
/// size; 30 are enough for all but JPEG, whose size comes after metadata of any length. Each call starts over, so call it
/// again when the prefix has doubled, not for every packet.
///
/// # Errors
/// As [`sniff`], apart from [`DecodeError::Empty`]: no prefix is too short.
pub fn sniff_prefix(bytes: &[u8], limits: &Limits) -> Result<Option<Header>, DecodeError> {
    let format = match recognize(bytes) {
        Magic::Is(format) => format,
        Magic::Unclear => return Ok(None),
        Magic::Unknown => return Err(DecodeError::UnsupportedFormat),
    };
    let size = match format {
        Format::Png => png(bytes),
        Format::Jpeg => jpeg(bytes),
        Format::Webp => webp(bytes),
        Format::Bmp => bmp(bytes),
        Format::Gif => Ok(gif(bytes)),
    };
    match size.map_err(|message| corrupt(format, message))? {
        Some(size) => check(format, size, *limits).map(|()| Some(Header { format, size })),
        None => Ok(None),
    }
}

fn corrupt(format: Format, message: &str) -> DecodeError {
    DecodeError::Corrupt { format, message: message.to_owned() }
}

fn check(format: Format, size: Size, limits: Limits) -> Result<(), DecodeError> {
    let Size { width, height } = size;
    if width == 0 || height == 0 {
        return Err(DecodeError::NoPixels { width, height });
    }
    if size.pixels() > limits.pixels {
        return Err(DecodeError::TooManyPixels { width, height, limit: limits.pixels });
    }
    if width.max(height) > LONGEST_SIDE {
        return Err(corrupt(format, "a side is longer than 65535 pixels"));
    }
    Ok(())
}

enum Magic {
    Is(Format),
    /// A prefix of one of them.
    Unclear,
    Unknown,
}

fn recognize(bytes: &[u8]) -> Magic {
    /// Format and its magic bytes; `None` stands for any byte (WebP has the file's length there).
    type Pattern = (Format, &'static [u8], &'static [u8]);
    /// Format, what it starts with, and what stands at byte 8.
    const PATTERNS: [Pattern; 6] = [
        (Format::Png, b"\x89PNG\r\n\x1a\n", b""),
        (Format::Jpeg, b"\xff\xd8\xff", b""),
        (Format::Webp, b"RIFF", b"WEBP"),
        (Format::Bmp, b"BM", b""),
        (Format::Gif, b"GIF87a", b""),
        (Format::Gif, b"GIF89a", b""),
    ];
    let mut magic = Magic::Unknown;
    for (format, start, at_eight) in PATTERNS {
        let rest = bytes.get(8..).unwrap_or_default();
        let (start_fits, rest_fits) = (agree(bytes, start), agree(rest, at_eight));
        if start_fits && rest_fits {
            if bytes.len() >= start.len() && rest.len() >= at_eight.len() {
                return Magic::Is(format);
            }
            magic = Magic::Unclear;
        }
    }
    magic
}

/// Whether the two are equal as far as both go.
fn agree(a: &[u8], b: &[u8]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// The size, or `None` when it lies beyond the bytes given, or what is wrong.
type Parsed = Result<Option<Size>, &'static str>;

fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// The first chunk is IHDR by the PNG specification (11.2.1): width and height are its first two fields.
fn png(bytes: &[u8]) -> Parsed {
    let (Some(length), Some(kind), Some(width), Some(height)) =
        (at(bytes, 8), at::<4>(bytes, 12), at(bytes, 16), at(bytes, 20))
    else {
        return Ok(None);
    };
    if u32::from_be_bytes(length) != 13 || &kind != b"IHDR" {
        return Err("it does not start with an IHDR chunk");
    }
    Ok(Some(Size::new(u32::from_be_bytes(width), u32::from_be_bytes(height))))
}

/// Walks the marker segments (ITU T.81, B.1.1) to the first frame header.
fn jpeg(bytes: &[u8]) -> Parsed {
    let mut offset = 2;
    while let Some((marker, content)) = jpeg_segment(bytes, offset) {
        match marker {
            0xd9 => return Err("it ends before its first frame"),
            0xda => return Err("its first scan comes before its frame header"),
            // Huffman tables, an extension, and arithmetic coding conditions; the others from C0 to CF begin a frame.
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => {
                let (Some(height), Some(width)) = (at(bytes, content + 3), at(bytes, content + 5)) else {
                    return Ok(None);
                };
                return Ok(Some(Size::new(u16::from_be_bytes(width).into(), u16::from_be_bytes(height).into())));
            }
            _ => {}
        }
        match jpeg_segment_length(bytes, marker, content) {
            Some(length) => offset = content + length,
            None => break,
        }
    }
    Ok(None)
}

/// Where the first scan's header of a JPEG begins.
pub(super) fn jpeg_scan(bytes: &[u8]) -> Option<usize> {
    let mut offset = 2;
    loop {
        let (marker, content) = jpeg_segment(bytes, offset)?;
        if marker == 0xda {
            return Some(content);
        }
        offset = content + jpeg_segment_length(bytes, marker, content)?;
    }
}

/// The next marker from `offset` on, and where its segment's length field lies if it has one. Bytes that belong to no
/// segment are skipped, as decoders do; so are fill bytes before a marker.
fn jpeg_segment(bytes: &[u8], offset: usize) -> Option<(u8, usize)> {
    let mut offset = offset + bytes.get(offset..)?.iter().position(|&byte| byte == 0xff)?;
    offset += bytes[offset..].iter().position(|&byte| byte != 0xff)?;
    Some((bytes[offset], offset + 1))
}

/// Bytes of a segment, its length field included. None for markers that stand alone, such as restarts.
fn jpeg_segment_length(bytes: &[u8], marker: u8, content: usize) -> Option<usize> {
    match marker {
        0x00 | 0x01 | 0xd0..=0xd8 => Some(0),
        _ => at(bytes, content).map(|length| usize::from(u16::from_be_bytes(length))),
    }
}

/// The first chunk (RFC 9649): VP8 and VP8L carry the size of the picture, VP8X that of the canvas.
fn webp(bytes: &[u8]) -> Parsed {
    let Some(kind) = at::<4>(bytes, 12) else { return Ok(None) };
    match &kind {
        b"VP8 " => vp8(bytes, 20),
        b"VP8L" => {
            let (Some([signature]), Some(fields)) = (at(bytes, 20), at(bytes, 21)) else { return Ok(None) };
            if signature != 0x2f {
                return Err("its lossless stream has no signature");
            }
            let fields = u32::from_le_bytes(fields);
            Ok(Some(Size::new((fields & 0x3fff) + 1, (fields >> 14 & 0x3fff) + 1)))
        }
        b"VP8X" => {
            // Two fields of 24 bits, each one less than the side.
            let (Some(width), Some(height)) = (at::<3>(bytes, 24), at::<3>(bytes, 27)) else { return Ok(None) };
            let [width, height] =
                [width, height].map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]) + 1);
            Ok(Some(Size::new(width, height)))
        }
        _ => Err("its first chunk is none of VP8, VP8L and VP8X"),
    }
}

/// A VP8 key frame's header (RFC 6386, 9.1) at `offset`.
pub(super) fn vp8(bytes: &[u8], offset: usize) -> Parsed {
    let (Some([tag, ..]), Some(code), Some(width), Some(height)) =
        (at::<3>(bytes, offset), at::<3>(bytes, offset + 3), at(bytes, offset + 6), at(bytes, offset + 8))
    else {
        return Ok(None);
    };
    if tag & 1 != 0 || code != [0x9d, 0x01, 0x2a] {
        return Err("its lossy stream does not start with a key frame");
    }
    // The upper two bits ask for upscaling when shown, which is ignored.
    let (width, height) = (u16::from_le_bytes(width) & 0x3fff, u16::from_le_bytes(height) & 0x3fff);
    Ok(Some(Size::new(width.into(), height.into())))
}

/// The information header's own length, at byte 14, tells OS/2's two-byte fields from Windows' four-byte ones. A negative
/// height means that rows are stored from top to bottom.
fn bmp(bytes: &[u8]) -> Parsed {
    let Some(length) = at(bytes, 14).map(u32::from_le_bytes) else { return Ok(None) };
    match length {
        12 => {
            let (Some(width), Some(height)) = (at(bytes, 18), at(bytes, 20)) else { return Ok(None) };
            Ok(Some(Size::new(u16::from_le_bytes(width).into(), u16::from_le_bytes(height).into())))
        }
        16..=124 => {
            let (Some(width), Some(height)) = (at(bytes, 18), at(bytes, 22)) else { return Ok(None) };
            let width = u32::try_from(i32::from_le_bytes(width)).map_err(|_| "its width is negative")?;
            Ok(Some(Size::new(width, i32::from_le_bytes(height).unsigned_abs())))
        }
        _ => Err("its information header has no known length"),
    }
}

/// The logical screen descriptor follows the six magic bytes.
fn gif(bytes: &[u8]) -> Option<Size> {
    let (width, height) = (at(bytes, 6)?, at(bytes, 8)?);
    Some(Size::new(u16::from_le_bytes(width).into(), u16::from_le_bytes(height).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Limits = Limits { pixels: 64_000_000 };

    fn jpeg_with_metadata(length: u16) -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xe1];
        file.extend(length.to_be_bytes());
        file.resize(file.len() + usize::from(length) - 2, 0xff);
        // A table, a fill byte, then the frame header: 8 bits, 2400 rows, 1080 columns.
        file.extend([0xff, 0xc4, 0, 2, 0xff, 0xff, 0xc2, 0, 17, 8, 0x09, 0x60, 0x04, 0x38, 3]);
        file
    }

    #[test]
    fn every_prefix_says_more_please_until_the_size_is_there() {
        let file = jpeg_with_metadata(5000);
        let header = Header { format: Format::Jpeg, size: Size::new(1080, 2400) };
        for end in 0..file.len() - 1 {
            assert_eq!(sniff_prefix(&file[..end], &DEFAULT), Ok(None), "{end}");
        }
        assert_eq!(sniff_prefix(&file, &DEFAULT), Ok(Some(header)));
        assert_eq!(sniff(&file, &DEFAULT), Ok(header));
        let error = sniff(&file[..4000], &DEFAULT).unwrap_err();
        assert_eq!(error.to_string(), "the JPEG image is broken: it ends within the header");
    }

    #[test]
    fn what_is_no_image_is_refused_at_the_first_byte_that_tells() {
        assert_eq!(sniff(b"", &DEFAULT), Err(DecodeError::Empty));
        assert_eq!(sniff_prefix(b"", &DEFAULT), Ok(None));
        assert_eq!(sniff_prefix(b"RIFF\0\0\0\0WAVE", &DEFAULT), Err(DecodeError::UnsupportedFormat));
        assert_eq!(sniff_prefix(b"RIFF\0\0\0\0WE", &DEFAULT), Ok(None));
        assert_eq!(sniff(b"RIFF", &DEFAULT), Err(DecodeError::UnsupportedFormat));
        assert_eq!(sniff_prefix(b"<html>", &DEFAULT), Err(DecodeError::UnsupportedFormat));
    }

    #[test]
    fn limits_hold_by_the_header_alone() {
        let bomb = b"GIF89a\xff\xff\xff\xff";
        let many = DecodeError::TooManyPixels { width: 65535, height: 65535, limit: 64_000_000 };
        assert_eq!(sniff(bomb, &DEFAULT), Err(many));
        let none = DecodeError::NoPixels { width: 0, height: 9 };
        assert_eq!(sniff(b"GIF89a\0\0\x09\0", &DEFAULT), Err(none));
        let mut wide = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        wide.extend([0, 1, 0, 0, 0, 0, 0, 1]);
        assert!(matches!(sniff(&wide, &DEFAULT), Err(DecodeError::Corrupt { format: Format::Png, .. })));
        let exact = Limits { pixels: 1080 * 2400 };
        assert!(sniff(&jpeg_with_metadata(2), &exact).is_ok());
        assert!(sniff(&jpeg_with_metadata(2), &Limits { pixels: exact.pixels - 1 }).is_err());
    }

    #[test]
    fn bitmaps_may_run_from_top_to_bottom() {
        let mut bitmap = b"BM".to_vec();
        bitmap.resize(14, 0);
        bitmap.extend(40_u32.to_le_bytes());
        bitmap.extend(7_i32.to_le_bytes());
        bitmap.extend((-5_i32).to_le_bytes());
        assert_eq!(sniff(&bitmap, &DEFAULT).unwrap().size, Size::new(7, 5));
        bitmap[22..26].copy_from_slice(&i32::MIN.to_le_bytes());
        assert!(sniff(&bitmap, &DEFAULT).is_err());
    }
}
