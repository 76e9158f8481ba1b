//! The way of an image file to the model's input, against golden values made with Pillow 10.2 and `NumPy`.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tapline::geometry::{Rect, Region, Size};
use tapline::screenshot::{DecodeError, Limits, Normalizer, Screenshot, decode, resize, sniff, sniff_prefix};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(path)
}

fn read(path: &str) -> Vec<u8> {
    fs::read(fixture(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key}"))
}

fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|number| number.try_into().ok()).unwrap_or_else(|| panic!("no number in {value}"))
}

fn size(pair: &Value) -> Size {
    Size::new(number(&pair[0]), number(&pair[1]))
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// The input of a resize case, by the formulas that `resize.json` states.
fn picture(kind: &str, size: Size, seed: u32) -> Vec<u8> {
    let bytes = (0..size.height).flat_map(|y| (0..size.width).flat_map(move |x| (0..3).map(move |c| (x, y, c))));
    let byte = |(i, (x, y, c)): (u32, (u32, u32, u32))| match kind {
        "noise" => {
            let mut h = i.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
            h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
            h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
            (h ^ h >> 16) & 255
        }
        "ramp" => (7 * x + 13 * y + 85 * c + seed) & 255,
        "glyphs" if (x / 3 + y / 5 * 7 + seed).is_multiple_of(4) => 0,
        "glyphs" => 255 - 40 * c,
        _ => panic!("no generator for {kind}"),
    };
    (0..).zip(bytes).map(|place| u8::try_from(byte(place)).expect("below 256")).collect()
}

#[test]
fn resize_equals_pillow_bit_for_bit() {
    let golden = json("resize/resize.json");
    let cases = list(&golden, "cases");
    assert!(cases.len() >= 12);
    for case in cases {
        let (from, to) = (size(&case["from"]), size(&case["to"]));
        let what = format!("{} {from} to {to}", text(case, "kind"));
        let input = picture(text(case, "kind"), from, number(&case["seed"]));
        assert_eq!(sha256(&input), text(case, "input_sha256"), "the input of {what}");
        let output = resize(&input, from, to);
        let first: Vec<u32> = output.iter().take(16).copied().map(u32::from).collect();
        assert_eq!(first, list(case, "first_bytes").iter().map(number).collect::<Vec<_>>(), "{what}");
        assert_eq!(sha256(&output), text(case, "sha256"), "{what}");
    }
}

#[test]
fn resize_is_the_same_on_any_pool() {
    let (from, to) = (Size::new(211, 397), Size::new(96, 96));
    let input = picture("noise", from, 5);
    let once = resize(&input, from, to);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        assert_eq!(pool.install(|| resize(&input, from, to)), once, "{threads} threads");
    }
}

#[test]
fn normalise_equals_numpy_bit_for_bit() {
    let golden = json("resize/normalise.json");
    let every_level: Vec<u8> = (0..=255).flat_map(|level| [level; 3]).collect();
    let planes = Normalizer::new(MEAN, STD).planes(&every_level);
    for (plane, bits) in planes.chunks(256).zip(list(&golden, "bits")) {
        for (value, bits) in plane.iter().zip(bits.as_array().expect("a list")) {
            assert_eq!(format!("{:08x}", value.to_bits()), bits.as_str().expect("hexadecimal"));
        }
    }
}

#[test]
fn the_models_input_is_the_references_bit_for_bit() {
    let normalizer = Normalizer::new(MEAN, STD);
    for folder in ["padded-96", "tied", "window-3"] {
        let bytes = read(&format!("{folder}/expected.safetensors"));
        let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
        let expected = json(&format!("{folder}/expected.json"));
        let side = number(&expected["image_size"]);
        for (index, image) in list(&expected, "images").iter().enumerate() {
            let file = format!("{folder}/{}", text(image, "file"));
            let screenshot = decode(&read(&file), &Limits::default()).expect(&file);
            assert_eq!(screenshot.size(), Size::new(number(&image["width"]), number(&image["height"])), "{file}");
            let resized = resize(screenshot.rgb(), screenshot.size(), Size::new(side, side));
            let reference = tensors.tensor(&format!("image{index}.resized")).expect("the resized picture");
            assert!(resized == reference.data(), "{file} resized");
            if let Ok(reference) = tensors.tensor(&format!("image{index}.pixel_values")) {
                let values: Vec<u8> = normalizer.planes(&resized).into_iter().flat_map(f32::to_le_bytes).collect();
                assert!(values == reference.data(), "{file} normalised");
            } else {
                assert_ne!(index, 0, "the first picture of {folder} has its normalised values");
            }
        }
    }
}

#[test]
fn every_encoding_decodes_to_what_pillow_makes_of_it() {
    use base64::Engine;
    let golden = json("images/images.json");
    for case in list(&golden, "good") {
        let file = text(case, "file");
        let content = read(&format!("images/{file}"));
        let expected = Size::new(number(&case["width"]), number(&case["height"]));
        assert_eq!(sniff(&content, &Limits::default()).map(|header| header.size), Ok(expected), "{file}");
        let screenshot = decode(&content, &Limits::default()).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(screenshot.size(), expected, "{file}");
        if let Some(tolerance) = case["tolerance"].as_u64() {
            let rgb = base64::engine::general_purpose::STANDARD.decode(text(case, "rgb_base64")).expect("base64");
            assert_eq!(rgb.len(), screenshot.rgb().len(), "{file}");
            let furthest = rgb.iter().zip(screenshot.rgb()).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default();
            assert!(u64::from(furthest) <= tolerance, "{file} is {furthest} levels off, allowed are {tolerance}");
        } else {
            assert_eq!(sha256(screenshot.rgb()), text(case, "sha256"), "{file}");
        }
    }
}

#[test]
fn every_hostile_file_is_refused_with_the_right_reason() {
    let golden = json("images/images.json");
    for case in list(&golden, "hostile") {
        let file = text(case, "file");
        let error = decode(&read(&format!("images/{file}")), &Limits::default()).expect_err(file);
        let refusal = match error {
            DecodeError::Empty | DecodeError::UnsupportedFormat => "unsupported",
            DecodeError::TooManyPixels { .. } => "too_many_pixels",
            DecodeError::NoPixels { .. } | DecodeError::Corrupt { .. } => "corrupt",
            other => panic!("{file}: {other}"),
        };
        let expected = text(case, "refusal");
        assert!(expected == "any" || expected == refusal, "{file} is {expected}: {error}");
    }
}

/// What a server does while the upload is on its way: the answer never changes as more bytes come.
#[test]
fn every_prefix_agrees_with_the_whole_file() {
    let golden = json("images/images.json");
    for case in list(&golden, "good").iter().chain(list(&golden, "hostile")) {
        let file = text(case, "file");
        let content = read(&format!("images/{file}"));
        let whole = sniff(&content, &Limits::default());
        let mut settled = None;
        for end in 0..=content.len() {
            match (sniff_prefix(&content[..end], &Limits::default()), &settled) {
                (Ok(None), None) => {}
                (Ok(None), Some(before)) => panic!("{file}: {before:?} is taken back at {end}"),
                (Ok(Some(header)), _) => settled = Some(Ok(header)),
                (Err(error), _) => settled = Some(Err(error)),
            }
            if let Some(settled) = &settled {
                assert_eq!(*settled, whole, "{file} at {end}");
            }
        }
    }
}

#[test]
fn a_cut_off_picture_is_corrupt_wherever_it_is_cut() {
    for file in [
        "rgb.png",
        "rgba.png",
        "interlaced.png",
        "rgb.jpg",
        "progressive.jpg",
        "lossless.webp",
        "rgb.bmp",
        "static.gif",
    ] {
        let content = read(&format!("images/{file}"));
        for end in [content.len() / 4, content.len() / 2, content.len() * 3 / 4] {
            assert!(decode(&content[..end], &Limits::default()).is_err(), "{file} cut at {end} of {}", content.len());
        }
    }
}

#[test]
fn a_crop_holds_the_pixels_of_its_region() {
    let size = Size::new(24, 18);
    let whole = decode(&read("images/rgb.png"), &Limits::default()).expect("a good file");
    let region = Region::cut(Rect::new(3.0, 2.0, 11.0, 7.0), size).expect("inside");
    let crop = whole.crop(region);
    assert_eq!(crop.size(), Size::new(8, 5));
    assert!(crop.rgb().chunks(3).all(|pixel| pixel == [235, 90, 40]), "the orange box");
    assert_eq!(whole.crop(Region::whole(size)), whole);
    assert_eq!(Screenshot::from_rgb(crop.size(), crop.rgb().to_vec()), Some(crop));
}
