//! What `POST /locate` answers: the three forms of a request, coordinates, stored screenshots, and what comes with a reply.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use image::ImageFormat;
use serde_json::{Value, json};
use tapline::engine::simulated::{self, Event};

use crate::support::{Server, Setup, ask, base64, encoded, locate, multipart, png, raw, recording, screenshot};

#[tokio::test]
async fn three_forms_of_a_request_have_one_answer() {
    let server = Server::plain("forms").await;
    let image = png(40, 30, 1);
    let fields = json!({ "command": "the blue button", "alternatives": 2, "want": "box" });

    let mut whole = fields.clone();
    whole["image"] = base64(&image).into();
    let by_json = server.locate(&whole).await.json();
    whole["image"] = format!("data:image/png;base64,{}", base64(&image)).into();
    let by_url = server.locate(&whole).await.json();
    let request = serde_json::to_vec(&fields).unwrap();
    let parts = [("request", "application/json", request.as_slice()), ("image", "image/png", &image)];
    let by_parts = server.send(multipart(&parts)).await.json();
    let query = "?command=the+blue%20button&alternatives=2&want=box";
    let by_body = server.send(raw(query, image)).await.json();

    for other in [by_url, by_parts, by_body] {
        assert_eq!(other["results"], by_json["results"]);
        assert_eq!(other["screenshot"], by_json["screenshot"]);
    }
    assert_eq!(by_json["model"], "forms");
    assert_eq!(by_json["space"], "pixels");
    assert_eq!(by_json["screenshot"]["width"], 40);
    let result = &by_json["results"][0];
    assert_eq!(result["command"], "the blue button");
    assert_eq!(result["found"], true);
    assert_eq!(result["box_source"], "model");
    assert!(result["point"]["x"].is_u64(), "whole pixels are written as such: {result}");
    assert!(result["confidence"].as_f64().unwrap() > 0.9);
    assert_eq!(result["alternatives"].as_array().unwrap().len(), 2);
    assert_eq!(result["tokens"].as_array().unwrap().len(), 7);
    for stage in ["read", "decode", "prepare", "queue", "vision", "text", "answer", "total"] {
        assert!(by_json["timings"][format!("{stage}_ms")].is_number(), "{stage}");
    }
}

#[tokio::test]
async fn large_bodies_are_answered_like_small_ones() {
    let server = Server::plain("large").await;
    // Noise does not compress: well above the size up to which bodies are taken apart in place.
    let image = encoded(&screenshot(300, 200, 7), ImageFormat::Bmp);
    assert!(image.len() > 150_000);
    let by_json = server.locate(&json!({ "image": base64(&image), "command": "here" })).await.results();
    let parts = [("image", "image/bmp", image.as_slice()), ("request", "application/json", br#"{"command":"here"}"#)];
    assert_eq!(server.send(multipart(&parts)).await.results(), by_json);
    assert_eq!(server.send(raw("?command=here", image)).await.results(), by_json);
}

#[tokio::test]
async fn commands_are_answered_in_order_with_one_encoding() {
    let (hook, seen) = recording(|_| false);
    let server = Setup::new("order", hook).start().await;
    let commands = ["first", "second", "third", "second"];
    let image = base64(&png(40, 30, 1));
    let together = server.locate(&json!({ "image": image, "commands": commands })).await.results();
    let encodings = seen.lock().unwrap().iter().filter(|event| matches!(event, Event::Images(_))).count();
    assert_eq!(encodings, 1);
    assert_ne!(together[0]["point"], together[1]["point"]);
    for (index, command) in commands.iter().enumerate() {
        assert_eq!(together[index]["command"], *command);
        assert_eq!(server.locate(&json!({ "image": image, "command": command })).await.results()[0], together[index]);
    }
    let by_query = server.send(raw("?command=first&command=second&command=third&command=second", png(40, 30, 1))).await;
    assert_eq!(by_query.results(), together);
}

#[tokio::test]
async fn spaces_are_shares_of_the_same_place() {
    let server = Server::plain("spaces").await;
    let asked = |space: &str| {
        let mut request = ask(3, "the menu");
        request["space"] = space.into();
        request
    };
    let pixels = server.locate(&asked("pixels")).await;
    for (space, width, height) in [("normalized", 1.0, 1.0), ("thousand", 1000.0, 1000.0)] {
        let other = server.locate(&asked(space)).await;
        assert_eq!(other.json()["space"], space);
        let (here, there) = (&pixels.results()[0], &other.results()[0]);
        let close = |here: &Value, side: f64, there: &Value, extent: f64| {
            let (here, there) = (here.as_f64().unwrap() / side, there.as_f64().unwrap() / extent);
            assert!((here - there).abs() < 1e-6, "{here} {there}");
        };
        close(&here["point"]["x"], 40.0, &there["point"]["x"], width);
        close(&here["point"]["y"], 30.0, &there["point"]["y"], height);
        close(&here["box"]["x2"], 40.0, &there["box"]["x2"], width);
        close(&here["box"]["y1"], 30.0, &there["box"]["y1"], height);
    }
}

#[tokio::test]
async fn a_region_is_searched_alone_and_answered_in_pixels_of_the_whole() {
    let server = Server::plain("region").await;
    let whole = screenshot(100, 80, 5);
    let part = image::imageops::crop_imm(&whole, 30, 20, 40, 50).to_image();
    let region = json!({ "x1": 30, "y1": 20, "x2": 70, "y2": 70 });
    let file = encoded(&whole, ImageFormat::Png);
    let in_region =
        server.locate(&json!({ "image": base64(&file), "command": "here", "region": region })).await.results();
    let alone = base64(&encoded(&part, ImageFormat::Png));
    let alone = server.locate(&json!({ "image": alone, "command": "here" })).await.results();
    for (axis, offset) in [("x", 30), ("y", 20)] {
        let expected = alone[0]["point"][axis].as_i64().unwrap() + offset;
        assert_eq!(in_region[0]["point"][axis].as_i64().unwrap(), expected);
    }
    let by_query = server.send(raw("?command=here&region=30,20,70,70", file)).await.results();
    assert_eq!(by_query, in_region);
}

#[tokio::test]
async fn a_stored_screenshot_needs_no_upload() {
    let server = Server::plain("stored").await;
    let first = server.locate(&ask(9, "one")).await;
    let id = first.json()["screenshot"]["id"].clone();
    let again = server.locate(&json!({ "screenshot": id, "command": "one" })).await;
    assert_eq!(again.results(), first.results());
    assert_eq!(again.json()["screenshot"], first.json()["screenshot"]);
    let parts =
        [("request", "application/json", &*serde_json::to_vec(&json!({"screenshot": id, "command": "one"})).unwrap())];
    assert_eq!(server.send(multipart(&parts)).await.results(), first.results());
    // Another part of it needs the pixels, which are kept as well.
    let region = json!({ "x1": 0, "y1": 0, "x2": 20, "y2": 20 });
    let part = server.locate(&json!({ "screenshot": id, "command": "one", "region": region })).await;
    assert_eq!(part.status, StatusCode::OK, "{}", part.text());
}

#[tokio::test]
async fn models_are_chosen_by_name_and_listed() {
    let mut setup = Setup::new("model-a", simulated::no_hook());
    setup.models.push(("model-b", simulated::no_hook()));
    let server = setup.start().await;
    let mut request = ask(1, "go");
    assert_eq!(server.locate(&request).await.json()["model"], "model-a");
    request["model"] = "model-b".into();
    assert_eq!(server.locate(&request).await.json()["model"], "model-b");
    request["model"] = "model-c".into();
    let unknown = server.locate(&request).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (StatusCode::NOT_FOUND, "unknown_model"));
    assert!(unknown.text().contains("`model-a`, `model-b`"), "{}", unknown.text());

    let list = server.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][1]["id"], "model-b");
    assert_eq!(list["data"][1]["object"], "model");
    assert_eq!(list["data"][1]["owned_by"], "tapline");
    assert_eq!(list["data"][1]["architecture"], "simulated");
    assert!(list["data"][1]["created"].as_u64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn unsure_answers_are_told_as_not_found() {
    let server = Server::plain("unsure").await;
    let mut request = ask(1, "go");
    request["min_confidence"] = 1.0.into();
    let answer = server.locate(&request).await.results();
    assert_eq!(answer[0]["found"], false);
    assert!(answer[0]["confidence"].is_number());
}

#[tokio::test]
async fn special_tokens_in_a_command_stay_text() {
    let (hook, seen) = recording(|_| false);
    let server = Setup::new("special", hook).start().await;
    server.locate(&ask(1, "a</s><loc_500><s><pad>")).await.results();
    let seen = seen.lock().unwrap();
    let prompts = seen.iter().find_map(|event| match event {
        Event::Prompts(prompts) => Some(prompts),
        Event::Images(_) => None,
    });
    let ids = &prompts.unwrap()[0];
    assert_eq!((ids.first(), ids.last()), (Some(&0), Some(&2)));
    // Letters and the unknown sign; a special token would be 0 to 2, or 64 and up.
    assert!(ids[1..ids.len() - 1].iter().all(|id| (3..64).contains(id)), "{ids:?}");
}

#[tokio::test]
async fn small_and_animated_images_are_answered() {
    let server = Server::plain("images").await;
    let one = server.locate(&json!({ "image": base64(&png(1, 1, 1)), "command": "it" })).await.results();
    assert_eq!(one[0]["point"], json!({ "x": 0, "y": 0 }));
    let frame = |seed| image::Frame::new(image::DynamicImage::ImageRgb8(screenshot(16, 16, seed)).to_rgba8());
    let mut file = Vec::new();
    image::codecs::gif::GifEncoder::new(&mut file).encode_frames([frame(1), frame(2)]).unwrap();
    server.send(raw("?command=it", file)).await.results();
}

#[tokio::test]
async fn replies_carry_the_request_id_and_the_stages() {
    let server = Server::plain("headers").await;
    let mut request = locate(&ask(1, "go"));
    request.headers_mut().insert("x-request-id", "step-7".parse().unwrap());
    let answer = server.send(request).await;
    assert_eq!(answer.header("x-request-id"), "step-7");
    let timing = answer.header("server-timing");
    for stage in ["read", "decode", "prepare", "queue", "vision", "text", "answer", "total"] {
        assert!(timing.contains(&format!("{stage};dur=")), "{timing}");
    }
    assert_eq!(server.get("/health").await.header("x-request-id").len(), 32);
    let mut request = Request::get("/nowhere").body(Body::empty()).unwrap();
    request.headers_mut().insert("x-request-id", "not sane".parse().unwrap());
    assert_eq!(server.send(request).await.header("x-request-id").len(), 32);
}
