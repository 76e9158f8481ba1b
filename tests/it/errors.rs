//! Every way to ask wrongly has its own code and status, says what to do, and leaves the server serving.

use axum::body::Body;
use axum::http::{Request, header};
use proptest::prelude::*;
use serde_json::{Value, json};
use tapline::engine::EngineOptions;
use tapline::engine::pool::CpuPool;
use tapline::engine::{Handle, simulated};
use tapline::models::LoadError;
use tapline::schedule::{Admission, admission};
use tapline::screenshot::Limits;
use tapline::server::{App, Code, ServerOptions};

use crate::support::{Answer, Server, Setup, ask, base64, locate, multipart, png, raw};

/// A PNG that says it has this size, and ends after saying so.
fn header_only(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
    file
}

fn with(changes: &Value) -> Request<Body> {
    let mut request = ask(1, "go");
    for (name, value) in changes.as_object().unwrap() {
        request[name] = value.clone();
    }
    locate(&request)
}

fn without(field: &str) -> Request<Body> {
    let mut request = ask(1, "go");
    request.as_object_mut().unwrap().remove(field);
    locate(&request)
}

fn text(kind: &str, body: &'static str) -> Request<Body> {
    Request::post("/locate").header(header::CONTENT_TYPE, kind).body(Body::from(body)).unwrap()
}

fn image(file: &[u8]) -> Request<Body> {
    with(&json!({ "image": base64(file) }))
}

type Requests = Vec<(&'static str, Request<Body>)>;

/// Wrong in what they say.
fn contents() -> Requests {
    let good = png(40, 30, 1);
    let (truncated, mut corrupt) = (good[..good.len() / 2].to_vec(), good.clone());
    let middle = corrupt.len() / 2;
    corrupt[middle..middle + 8].fill(0xaa);
    vec![
        ("json: empty body", text("application/json", "")),
        ("json: not json", text("application/json", "{\"command\": go}")),
        ("json: cut off", text("application/json", "{\"command\": \"go\"")),
        ("json: a list", text("application/json", "[1, 2]")),
        (
            "json: not utf-8",
            Request::post("/locate")
                .header("content-type", "application/json")
                .body(Body::from(&b"{\"command\":\"\xff\"}"[..]))
                .unwrap(),
        ),
        ("json: a field twice", text("application/json", "{\"command\":\"a\",\"command\":\"b\"}")),
        ("field: misspelt", with(&json!({ "comands": ["a"] }))),
        ("field: another server's", with(&json!({ "prompt": "a" }))),
        ("field: unlike any", with(&json!({ "temperature": 0 }))),
        ("field: of a later version", with(&json!({ "elements": [] }))),
        ("field: wrong type", with(&json!({ "alternatives": "three" }))),
        ("field: wrong word", with(&json!({ "space": "inches" }))),
        ("field: wrong decoding", with(&json!({ "decoding": "sampling" }))),
        ("alternatives: too many", with(&json!({ "alternatives": 17 }))),
        ("min_confidence: too high", with(&json!({ "min_confidence": 1.5 }))),
        ("timeout_ms: zero", with(&json!({ "timeout_ms": 0 }))),
        ("timeout_ms: too long", with(&json!({ "timeout_ms": 300_001 }))),
        ("region: backwards", with(&json!({ "region": { "x1": 9, "y1": 0, "x2": 3, "y2": 9 } }))),
        ("region: outside", with(&json!({ "region": { "x1": 40, "y1": 0, "x2": 50, "y2": 9 } }))),
        ("region: a corner missing", with(&json!({ "region": { "x1": 9, "y1": 0, "x2": 3 } }))),
        ("model: unknown", with(&json!({ "model": "gpt" }))),
        ("command: none", without("command")),
        ("command: empty", with(&json!({ "command": " \t" }))),
        ("command: 10 kB", with(&json!({ "command": "x".repeat(10_000) }))),
        ("command: a little too long", with(&json!({ "command": "x".repeat(100) }))),
        ("command: both", with(&json!({ "commands": ["a"] }))),
        ("commands: none", locate(&json!({ "image": base64(&good), "commands": [] }))),
        ("commands: one empty", locate(&json!({ "image": base64(&good), "commands": ["a", ""] }))),
        ("commands: too many", locate(&json!({ "image": base64(&good), "commands": vec!["a"; 33] }))),
        ("image: none", without("image")),
        ("image: two", with(&json!({ "screenshot": "00000000000000000000000000000000" }))),
        ("image: not base64", with(&json!({ "image": "screen.png" }))),
        ("image: an address", with(&json!({ "image": "http://localhost/screen.png" }))),
        ("image: a data url without base64", with(&json!({ "image": "data:image/png,abc" }))),
        ("image: no bytes", with(&json!({ "image": "" }))),
        ("image: no pixels", image(&header_only(0, 10))),
        ("image: 30000 x 30000", image(&header_only(30_000, 30_000))),
        ("image: truncated", image(&truncated)),
        ("image: corrupt", image(&corrupt)),
        ("image: header only", image(&header_only(10, 10))),
        ("image: text", image(b"<svg xmlns=''/>")),
        ("screenshot: no id", locate(&json!({ "screenshot": "latest", "command": "go" }))),
        ("screenshot: unknown", locate(&json!({ "screenshot": "0".repeat(32), "command": "go" }))),
    ]
}

/// Wrong in how they say it.
fn forms() -> Requests {
    let good = png(40, 30, 1);
    let command = br#"{"command":"go"}"#.as_slice();
    vec![
        ("raw: empty", raw("?command=go", Body::empty())),
        ("raw: no command", raw("", good.clone())),
        ("raw: unknown parameter", raw("?command=go&spaces=pixels", good.clone())),
        ("raw: wrong value", raw("?command=go&alternatives=many", good.clone())),
        ("raw: a parameter twice", raw("?command=go&model=a&model=b", good.clone())),
        ("raw: commands", raw("?commands=go", good.clone())),
        ("raw: with an id", raw("?command=go&screenshot=0", good.clone())),
        ("raw: wrong region", raw("?command=go&region=1,2,3", good.clone())),
        ("raw: 30000 x 30000", raw("?command=go", header_only(30_000, 30_000))),
        ("parts: no request", multipart(&[("image", "image/png", &good)])),
        ("parts: no image", multipart(&[("request", "application/json", command)])),
        (
            "parts: two images",
            multipart(&[
                ("image", "image/png", &good),
                ("image", "image/png", &good),
                ("request", "application/json", command),
            ]),
        ),
        ("parts: unknown", multipart(&[("file", "image/png", &good)])),
        ("parts: bad json", multipart(&[("request", "application/json", b"go")])),
        ("parts: no boundary", text("multipart/form-data", "x")),
        (
            "parts: cut off",
            text("multipart/form-data; boundary=b", "--b\r\ncontent-disposition: form-data; name=\"image\"\r\n\r\nabc"),
        ),
        ("type: none", Request::post("/locate").body(Body::from("{}")).unwrap()),
        ("type: a form", text("application/x-www-form-urlencoded", "command=go")),
        (
            "type: query beside json",
            Request::post("/locate?command=go")
                .header("content-type", "application/json")
                .body(Body::from("{}"))
                .unwrap(),
        ),
        (
            "body: said to be too long",
            Request::post("/locate")
                .header("content-type", "application/json")
                .header("content-length", "999999999")
                .body(Body::from("{}"))
                .unwrap(),
        ),
        ("body: too long", raw("?command=go", vec![0; 1_000_001])),
        ("route: unknown", Request::get("/locat").body(Body::empty()).unwrap()),
        ("route: wrong method", Request::get("/locate").body(Body::empty()).unwrap()),
    ]
}

fn line(name: &str, answer: &Answer) -> String {
    let body = answer.json();
    let error = &body["error"];
    assert_eq!(body.as_object().unwrap().len(), 1, "{name}");
    assert_eq!(error.as_object().unwrap().len(), 3, "{name}");
    let code = error["code"].as_str().unwrap();
    let known = Code::ALL.iter().find(|known| known.as_str() == code).expect(name);
    assert_eq!(answer.status, known.status(), "{name}");
    let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
    assert!(!message.ends_with('.') && !hint.ends_with('.') && !hint.is_empty(), "{name}");
    format!("{name}\n    {} {code}\n    {message}\n    hint: {hint}\n", answer.status.as_u16())
}

#[tokio::test]
async fn every_fault_of_a_caller_is_told_with_a_hint() {
    let mut setup = Setup::new("errors", simulated::no_hook());
    setup.options.body_bytes = 1_000_000;
    let server = setup.start().await;
    let good = server.locate(&ask(1, "go")).await.results();
    let mut table = String::new();
    for (name, request) in contents().into_iter().chain(forms()) {
        let answer = server.send(request).await;
        table.push_str(&line(name, &answer));
        assert_eq!(server.locate(&ask(1, "go")).await.results(), good, "after {name}");
    }
    assert_eq!((server.app.admission().in_flight(), server.app.admission().admitted_bytes()), (0, 0));
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("errors", table);
    });
}

#[tokio::test]
async fn methods_are_told() {
    let server = Server::plain("methods").await;
    assert_eq!(server.get("/locate").await.header("allow"), "POST");
}

#[tokio::test]
async fn the_pixel_limit_of_the_server_is_kept() {
    let mut setup = Setup::new("pixels", simulated::no_hook());
    setup.options.image = Limits { pixels: 100 };
    let server = setup.start().await;
    assert_eq!(server.send(raw("?command=go", png(11, 10, 1))).await.code(), "image_too_large");
    server.send(raw("?command=go", png(10, 10, 1))).await.results();
}

#[tokio::test]
async fn an_engine_that_loads_or_has_failed_says_so() {
    let pool = CpuPool::new(1, 8).unwrap();
    let (load, wait) = std::sync::mpsc::channel::<()>();
    let engine = Handle::spawn(EngineOptions::new("late"), pool.clone(), move || {
        let _go = wait.recv();
        Err(LoadError::MissingFile { file: "model.safetensors".to_owned() })
    });
    let engine = engine.unwrap();
    let app =
        App::new(vec![engine.clone()], pool, Admission::new(admission::Limits::default()), ServerOptions::default());
    let server = Server::of(app);

    let loading = server.locate(&ask(1, "go")).await;
    assert_eq!(
        (loading.status.as_u16(), loading.code().as_str(), loading.header("retry-after")),
        (503, "loading", "1")
    );
    load.send(()).unwrap();
    engine.ready().await.unwrap_err();
    let failed = server.locate(&ask(1, "go")).await;
    assert_eq!((failed.status.as_u16(), failed.code().as_str()), (503, "engine_failed"));
    assert!(!failed.text().contains("safetensors"), "the cause is for the log and the probes");
    assert_eq!(server.get("/v1/models").await.json()["data"][0]["state"], "stopped");
}

/// A good request with some of its bytes replaced, in one of the three forms.
fn damaged(form: usize, damage: &[(prop::sample::Index, u8)]) -> Request<Body> {
    const KINDS: [&str; 3] = ["application/json", "multipart/form-data; boundary=border", "image/png"];
    let image = png(9, 9, 1);
    let mut body = match form {
        0 => serde_json::to_vec(&json!({ "image": base64(&image), "command": "go", "region": null })).unwrap(),
        1 => [
            b"--border\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\n",
            image.as_slice(),
            b"\r\n--border\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n{\"command\":\"go\"}\r\n--border--\r\n",
        ]
        .concat(),
        _ => image,
    };
    for (at, byte) in damage {
        let at = at.index(body.len());
        body[at] = *byte;
    }
    let path = if form == 2 { "/locate?command=go" } else { "/locate" };
    Request::post(path).header(header::CONTENT_TYPE, KINDS[form]).body(Body::from(body)).unwrap()
}

#[test]
fn damaged_requests_are_the_callers_fault() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::plain("damaged"));
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(600));
    runner
        .run(&(0..3_usize, damage), |(form, damage)| {
            let answer = runtime.block_on(server.send(damaged(form, &damage)));
            prop_assert!(!answer.status.is_server_error(), "{}", answer.text());
            prop_assert!(!damage.is_empty() || answer.status.is_success(), "{}", answer.text());
            Ok(())
        })
        .unwrap();
}
