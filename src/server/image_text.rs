//! An image that came as text: base64 in any of its usual spellings, or a `data:` URL. It looks at no pixel.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};

use super::error::{ApiError, Code};

const TOLERANT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, TOLERANT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, TOLERANT);

const HINT: &str = "send the image file as base64, with or without `data:image/png;base64,` in front";

/// The bytes of the image file.
///
/// # Errors
/// [`Code::InvalidBase64`], or [`Code::InvalidRequest`] for an address, which is not fetched.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, ApiError> {
    let text = text.trim_ascii();
    let scheme = |name: &str| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    if scheme("http://") || scheme("https://") || scheme("file:") {
        return Err(ApiError::invalid("`image` is an address, and images are not fetched", HINT));
    }
    let payload = if scheme("data:") { of_data_url(text)? } else { text };
    decode_base64(payload)
        .map_err(|error| ApiError::new(Code::InvalidBase64, format!("`image` is not base64: {}", told(&error)), HINT))
}

fn told(error: &DecodeError) -> String {
    match *error {
        DecodeError::InvalidByte(at, byte) | DecodeError::InvalidLastSymbol(at, byte) => {
            format!("it has `{}` at position {at}", byte.escape_ascii())
        }
        DecodeError::InvalidLength(length) => format!("{length} characters are no whole number of bytes"),
        DecodeError::InvalidPadding => "its padding is wrong".to_owned(),
    }
}

fn of_data_url(url: &str) -> Result<&str, ApiError> {
    let wrong = |what: &str| ApiError::new(Code::InvalidBase64, format!("`image` is a `data:` URL {what}"), HINT);
    let (head, payload) = url.split_once(',').ok_or_else(|| wrong("without a comma"))?;
    let encoding = head.rsplit(';').next().unwrap_or_default();
    if !encoding.trim_ascii().eq_ignore_ascii_case("base64") {
        return Err(wrong("that is not base64"));
    }
    Ok(payload)
}

fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    // Encoders for mail break lines; copying is only needed for theirs.
    let joined: String;
    let text = if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        joined = text.split_ascii_whitespace().collect();
        &joined
    } else {
        text
    };
    let engine = if text.bytes().any(|byte| matches!(byte, b'-' | b'_')) { &URL_SAFE } else { &STANDARD };
    engine.decode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_spelling_is_read() {
        let bytes = [0xfb, 0xef, 0xff, 0x00];
        for text in [
            "++//AA==",
            "++//AA",
            "--__AA==",
            "--__AA",
            " ++//\r\nAA==\n",
            "data:image/png;base64,++//AA==",
            "DATA:image/png;charset=utf-8;BASE64,--__AA",
            "data:;base64,++//AA",
        ] {
            assert_eq!(decode(text).unwrap(), bytes, "{text:?}");
        }
        assert!(decode("").unwrap().is_empty());
    }

    #[test]
    fn the_rest_is_refused_by_kind() {
        for text in ["++/?", "A", "++//AA=A", "data:image/png;base64", "data:image/svg+xml,<svg/>", "screen.png", "ü"]
        {
            assert_eq!(decode(text).unwrap_err().code, Code::InvalidBase64, "{text:?}");
        }
        for text in ["http://localhost/a.png", "HTTPS://example.com/a.png", "file:///etc/passwd"] {
            assert_eq!(decode(text).unwrap_err().code, Code::InvalidRequest, "{text:?}");
        }
    }
}
