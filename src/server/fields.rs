//! The fields of a request to `/locate`, from JSON or from query parameters, each with its type and nothing more checked.

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde_json::error::Category;

use super::error::{ApiError, Code};
use super::response::SpaceName;
use super::suggest::nearest;
use crate::engine::Want;
use crate::models::manifest::Strategy;

/// What a request may say. A field that is `null` counts as left out.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    /// The image, as base64 or a `data:` URL.
    pub image: Option<String>,
    /// Instead of an image: the id that an earlier reply gave.
    pub screenshot: Option<String>,
    /// What to find.
    pub command: Option<String>,
    /// Instead of `command`: several, answered in order.
    pub commands: Option<Vec<String>>,
    /// Which model; needed only when several are served.
    pub model: Option<String>,
    /// The space of the answer's coordinates.
    pub space: Option<SpaceName>,
    /// Search only here; in pixels of the whole screenshot, whatever `space` says.
    pub region: Option<RegionField>,
    /// A point or a box.
    pub want: Option<Want>,
    /// Greedy or beam search.
    pub decoding: Option<Strategy>,
    /// Let the model answer freely instead of only in its answer's form.
    pub unconstrained: Option<bool>,
    /// How many further candidates to give.
    pub alternatives: Option<usize>,
    /// Answers less certain than this are reported as not found.
    pub min_confidence: Option<f64>,
    /// Time for the answer.
    pub timeout_ms: Option<u64>,
}

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegionField {
    pub x1: f64,
    pub y1: f64,
    pub x2: f64,
    pub y2: f64,
}

/// The names of all fields, for hints.
const NAMES: [&str; 13] = [
    "image",
    "screenshot",
    "command",
    "commands",
    "model",
    "space",
    "region",
    "want",
    "decoding",
    "unconstrained",
    "alternatives",
    "min_confidence",
    "timeout_ms",
];
/// Fields of the API that this version does not have yet.
const LATER: [&str; 2] = ["elements", "refine"];
/// What other servers call the same thing.
const SYNONYMS: [(&str, &str); 10] = [
    ("img", "image"),
    ("image_url", "image"),
    ("image_base64", "image"),
    ("screenshot_id", "screenshot"),
    ("prompt", "command"),
    ("instruction", "command"),
    ("query", "command"),
    ("text", "command"),
    ("crop", "region"),
    ("constrained", "unconstrained"),
];

const JSON_HINT: &str = "send a JSON object such as `{\"image\":\"<base64>\",\"command\":\"the search field\"}`";

impl Fields {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// [`Code::MalformedJson`], [`Code::UnknownField`] or [`Code::InvalidRequest`], naming the field.
    pub(super) fn from_json(json: &[u8]) -> Result<Self, ApiError> {
        // A list would pass for an object whose fields have no names.
        if json.trim_ascii_start().starts_with(b"[") && serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok() {
            return Err(ApiError::invalid("the request is JSON but not an object", JSON_HINT));
        }
        serde_json::from_slice(json).map_err(|error| Self::explain(json, &error))
    }

    /// Why the JSON was not taken. Reads it once more, so that the good path pays nothing for good messages.
    fn explain(json: &[u8], error: &serde_json::Error) -> ApiError {
        if json.iter().all(u8::is_ascii_whitespace) {
            return ApiError::new(Code::MalformedJson, "the request is empty", JSON_HINT);
        }
        let malformed = |error: &serde_json::Error| {
            ApiError::new(Code::MalformedJson, format!("the request is not JSON: {error}"), JSON_HINT)
        };
        if error.classify() != Category::Data {
            return malformed(error);
        }
        let fields = match serde_json::from_slice::<serde_json::Value>(json) {
            Ok(serde_json::Value::Object(fields)) => fields,
            Ok(_) => return ApiError::invalid("the request is JSON but not an object", JSON_HINT),
            Err(error) => return malformed(&error),
        };
        if let Some(name) = fields.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return unknown(name);
        }
        for (name, value) in fields {
            let alone = serde_json::Value::Object(std::iter::once((name.clone(), value)).collect());
            if let Err(error) = serde_json::from_value::<Self>(alone) {
                return ApiError::invalid(format!("`{name}` is wrong: {error}"), expected(&name));
            }
        }
        // Each field alone is good, so one of them is there twice, which a parsed object no longer shows.
        ApiError::invalid(format!("the request is wrong: {error}"), "send each field once")
    }

    /// Reads query parameters, which have the names of the JSON fields.
    ///
    /// # Errors
    /// [`Code::UnknownField`] or [`Code::InvalidRequest`], naming the parameter.
    pub(super) fn from_query(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let mut fields = Self::default();
        let mut commands = Vec::new();
        for (name, value) in pairs {
            let fresh = match name.as_str() {
                // Several commands are several parameters, since a command may hold any character.
                "command" => {
                    commands.push(value);
                    true
                }
                "commands" => {
                    return Err(ApiError::invalid("`commands` is no query parameter", "repeat `command` instead"));
                }
                "image" | "screenshot" => {
                    return Err(ApiError::invalid(
                        format!("`{name}` is given although the body is the image"),
                        "send one of the two; to ask about a stored screenshot, send JSON",
                    ));
                }
                "model" => fields.model.replace(value).is_none(),
                "space" => fields.space.replace(word(&name, &value)?).is_none(),
                "region" => fields.region.replace(region(&value)?).is_none(),
                "want" => fields.want.replace(word(&name, &value)?).is_none(),
                "decoding" => fields.decoding.replace(word(&name, &value)?).is_none(),
                "unconstrained" => fields.unconstrained.replace(parse(&name, &value)?).is_none(),
                "alternatives" => fields.alternatives.replace(parse(&name, &value)?).is_none(),
                "min_confidence" => fields.min_confidence.replace(parse(&name, &value)?).is_none(),
                "timeout_ms" => fields.timeout_ms.replace(parse(&name, &value)?).is_none(),
                _ => return Err(unknown(&name)),
            };
            if !fresh {
                return Err(ApiError::invalid(format!("`{name}` is given twice"), "send each parameter once"));
            }
        }
        if commands.len() > 1 {
            fields.commands = Some(commands);
        } else {
            fields.command = commands.pop();
        }
        Ok(fields)
    }
}

/// A caller's word as it is repeated to it: cut, on one line.
pub(super) fn shown(word: &str) -> String {
    word.chars().take(64).flat_map(char::escape_debug).collect()
}

/// A field that there is not.
fn unknown(name: &str) -> ApiError {
    let meant = SYNONYMS.iter().find(|(other, _)| *other == name).map(|(_, field)| *field);
    let hint = match meant.or_else(|| nearest(name, &NAMES)) {
        _ if LATER.contains(&name) => format!("`{name}` is not supported by this version; leave it out"),
        Some(field) => format!("did you mean `{field}`?"),
        None => format!("the fields are: {}", NAMES.join(", ")),
    };
    ApiError::new(Code::UnknownField, format!("there is no field `{}`", shown(name)), hint)
}

/// What a field of this name takes.
fn expected(name: &str) -> &'static str {
    match name {
        "image" => "send the image file as one base64 string",
        "screenshot" => "send the `screenshot.id` of an earlier reply",
        "command" => "send one string; several go into `commands`",
        "commands" => "send a list of strings",
        "model" => "send the name of a model from `GET /v1/models`",
        "space" => "send `pixels`, `normalized` or `thousand`",
        "region" => "send `{\"x1\":0,\"y1\":0,\"x2\":100,\"y2\":100}` (as a query parameter `0,0,100,100`), in pixels",
        "want" => "send `point` or `box`",
        "decoding" => "send `greedy` or `beam`",
        "unconstrained" => "send `true` or `false`",
        "alternatives" => "send how many to give, a whole number",
        "min_confidence" => "send a number from 0 to 1",
        "timeout_ms" => "send whole milliseconds",
        _ => JSON_HINT,
    }
}

fn wrong(name: &str, value: &str) -> ApiError {
    ApiError::invalid(format!("`{name}` cannot be `{}`", shown(value)), expected(name))
}

fn parse<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, ApiError> {
    value.parse().map_err(|_| wrong(name, value))
}

/// A value that JSON would have as one of a few words.
fn word<'de, T: Deserialize<'de>>(name: &str, value: &'de str) -> Result<T, ApiError> {
    let deserializer: serde::de::value::StrDeserializer<'de, serde::de::value::Error> = value.into_deserializer();
    T::deserialize(deserializer).map_err(|_| wrong(name, value))
}

fn region(value: &str) -> Result<RegionField, ApiError> {
    let edges: Option<Vec<f64>> = value.split(',').map(|edge| edge.trim().parse().ok()).collect();
    match edges.as_deref() {
        Some(&[x1, y1, x2, y2]) => Ok(RegionField { x1, y1, x2, y2 }),
        _ => Err(wrong("region", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Result<Fields, ApiError> {
        Fields::from_query(query.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn every_name_is_a_field_and_every_field_has_a_name() {
        for name in NAMES {
            assert_eq!(
                Fields::from_json(format!("{{\"{name}\":null}}").as_bytes()).unwrap(),
                Fields::default(),
                "{name}"
            );
            assert_ne!(expected(name), JSON_HINT, "{name}");
        }
        let error = serde_json::from_str::<Fields>("{\"?\":0}").unwrap_err().to_string();
        assert_eq!(error.matches('`').count() / 2 - 1, NAMES.len(), "{error}");
        assert!(SYNONYMS.iter().all(|(_, field)| NAMES.contains(field)));
    }

    #[test]
    fn query_and_json_say_the_same() {
        let json = br#"{"commands":["a","b,c"],"model":"m","space":"thousand","region":{"x1":1,"y1":2,"x2":3.5,"y2":4},
            "want":"box","decoding":"beam","unconstrained":true,"alternatives":3,"min_confidence":0.5,"timeout_ms":9}"#;
        let query = [
            ("command", "a"),
            ("model", "m"),
            ("space", "thousand"),
            ("region", "1, 2,3.5,4"),
            ("want", "box"),
            ("decoding", "beam"),
            ("unconstrained", "true"),
            ("alternatives", "3"),
            ("min_confidence", "0.5"),
            ("timeout_ms", "9"),
            ("command", "b,c"),
        ];
        assert_eq!(pairs(&query).unwrap(), Fields::from_json(json).unwrap());
    }

    #[test]
    fn faults_name_the_field() {
        let message = |json: &str| {
            let error = Fields::from_json(json.as_bytes()).unwrap_err();
            format!("{}: {} ({})", error.code.as_str(), error.message, error.hint)
        };
        assert!(message("").starts_with("malformed_json: the request is empty"));
        assert!(message("{\"command\": ").starts_with("malformed_json: the request is not JSON"));
        assert!(message("[]").starts_with("invalid_request: the request is JSON but not an object"));
        assert!(message("{\"alternatives\":\"x\"}").starts_with("invalid_request: `alternatives` is wrong"));
        assert!(message("{\"space\":\"inches\"}").contains("send `pixels`, `normalized` or `thousand`"));
        assert!(message("{\"region\":{\"x1\":0}}").starts_with("invalid_request: `region` is wrong"));
        assert!(message("{\"command\":\"a\",\"command\":\"b\"}").contains("duplicate field"));
        assert_eq!(
            message("{\"comand\":\"a\"}"),
            "unknown_field: there is no field `comand` (did you mean `command`?)"
        );
        assert!(message("{\"prompt\":\"a\"}").contains("did you mean `command`?"));
        assert!(message("{\"refine\":true}").contains("not supported by this version"));
        for query in [("space", "x"), ("region", "1,2,3"), ("alternatives", "-1"), ("commands", "a"), ("image", "a")] {
            assert_eq!(pairs(&[query]).unwrap_err().code, Code::InvalidRequest, "{query:?}");
        }
        assert_eq!(pairs(&[("model", "a"), ("model", "b")]).unwrap_err().code, Code::InvalidRequest);
        assert_eq!(pairs(&[("xyz", "a")]).unwrap_err().code, Code::UnknownField);
    }
}
