//! From the bytes of an image file to a model's input: sniff and check, decode, resize, normalise. It knows no model.

pub mod decode;
pub mod normalize;
pub mod resize;
pub mod sniff;
pub mod taps;

pub use decode::{Screenshot, decode};
pub use normalize::Normalizer;
pub use resize::resize;
pub use sniff::{Format, Header, Limits, sniff, sniff_prefix};
pub use taps::Taps;

/// Why an image cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No image at all.
    #[error("the image is empty")]
    Empty,
    /// The bytes are not those of a format that is read. Send PNG, JPEG, WebP, BMP or GIF.
    #[error("the image is not PNG, JPEG, WebP, BMP or GIF")]
    UnsupportedFormat,
    /// More pixels than allowed, by the header. Send a smaller screenshot, or raise the limit.
    #[error("the image is {width}x{height}, more than the limit of {limit} pixels")]
    TooManyPixels {
        /// By the header.
        width: u32,
        /// By the header.
        height: u32,
        /// Most pixels allowed.
        limit: u64,
    },
    /// A side of zero pixels.
    #[error("the image has no pixels ({width}x{height})")]
    NoPixels {
        /// By the header.
        width: u32,
        /// By the header.
        height: u32,
    },
    /// The format is known, its content is broken.
    #[error("the {format} image is broken: {message}")]
    Corrupt {
        /// What it claims to be.
        format: Format,
        /// What the decoder met.
        message: String,
    },
}
