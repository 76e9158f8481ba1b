//! The program itself, run as a user runs it: what it prints where, and how it ends.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;

const FIXTURES: [&str; 5] = ["padded-96", "padded-160", "window-3", "tied", "native"];

/// How a run ended.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

/// The program, with nothing of this process's environment that could change what it does.
fn tapline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapline"));
    for (name, _) in std::env::vars() {
        if ["TAPLINE_", "HF_", "RAYON_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("HF_HUB_OFFLINE", "1").env("HF_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn run(arguments: &[&str]) -> Run {
    finish(&mut tapline(arguments))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// One line that says what, one that says what to do, and nothing else.
#[track_caller]
fn assert_failure(run: &Run, code: i32, message: &str) {
    let lines: Vec<&str> = run.err.lines().collect();
    assert!(
        matches!(lines[..], [error, hint] if error.starts_with("error: ") && hint.starts_with("hint: ")),
        "{run:?}"
    );
    assert!(lines[0].contains(message), "{run:?}");
    assert_eq!((run.code, run.out.as_str()), (code, ""), "{run:?}");
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

/// The words whose ids are a case's prompt: the fixtures' tokenizers know `w17` as 17, and put two ids around.
fn words(case: &Value) -> String {
    let ids = case["input_ids"].as_array().unwrap();
    ids[1..ids.len() - 1].iter().map(|id| format!("w{id}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn locate_gives_the_reference_tokens() {
    for name in FIXTURES {
        let (expected, folder) = (expected(name), fixture(name));
        for image in 0..2 {
            let cases: Vec<&Value> =
                expected["cases"].as_array().unwrap().iter().filter(|case| case["image"] == image).collect();
            let commands: Vec<String> = cases.iter().map(|case| words(case)).collect();
            for (decoding, ids) in [("greedy", "greedy_ids"), ("beam", "beam3_ids")] {
                let shot = folder.join(format!("image{image}.png"));
                let mut arguments =
                    vec!["locate", "--model", text(&folder), "--decoding", decoding, "--unconstrained", "--json"];
                arguments.push(text(&shot));
                arguments.extend(commands.iter().map(String::as_str));
                let run = run(&arguments);
                assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
                let answer: Value = serde_json::from_str(&run.out).unwrap();
                assert_eq!(answer["model"], *name);
                for (case, result) in cases.iter().zip(answer["results"].as_array().unwrap()) {
                    assert_eq!(result["tokens"], case[ids], "{name} {decoding} {result}");
                }
            }
        }
    }
}

#[test]
fn traces_are_the_reference_tensors() {
    for name in FIXTURES {
        let (expected, folder) = (expected(name), fixture(name));
        let tolerance = expected["tolerance"].as_f64().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let trace = scratch.path().join("trace.safetensors");
        let (shot, command) = (folder.join("image0.png"), words(&expected["cases"][0]));
        assert_eq!(expected["cases"][0]["image"], 0);
        let arguments = ["locate", "--model", text(&folder), "--decoding", "greedy", "--unconstrained"];
        let run = run(&[&arguments[..], &["--trace", text(&trace), text(&shot), &command]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let traced = candle_core::safetensors::load(&trace, &Device::Cpu).unwrap();
        let reference = candle_core::safetensors::load(folder.join("expected.safetensors"), &Device::Cpu).unwrap();
        let stages = ["resized", "pixel_values", "stage0", "stage1", "stage2", "stage3", "features"];
        let stages = stages.iter().map(|stage| format!("image0.{stage}"));
        for tensor in stages.chain(["encoder", "first_logits", "forced_logits"].map(|part| format!("case0.{part}"))) {
            let (got, want) = (&traced[&tensor], &reference[&tensor]);
            assert_eq!(got.dtype(), want.dtype(), "{name} {tensor}");
            assert_eq!(got.dims(), want.dims(), "{name} {tensor}");
            let exact = matches!(tensor.as_str(), "image0.resized" | "image0.pixel_values");
            let error = largest_difference(got, want);
            assert!(error <= if exact { 0.0 } else { tolerance }, "{name} {tensor}: {error}");
        }
    }
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    let numbers =
        |tensor: &Tensor| tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
    numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn locate_prints_a_line_draws_a_picture_and_repeats() {
    let folder = fixture("padded-96");
    let scratch = tempfile::tempdir().unwrap();
    let (shot, drawn) = (folder.join("image0.png"), scratch.path().join("drawn.png"));
    let model = ["--model", text(&folder)];
    let plain = run(&[&["locate", text(&shot), "w33  w231", "--out", text(&drawn)], &model[..]].concat());
    assert_eq!((plain.code, plain.out.lines().count()), (0, 1), "{plain:?}");
    assert!(plain.out.starts_with("w33 w231 ") && plain.out.ends_with(" ms\n"), "{plain:?}");
    assert_eq!(image::image_dimensions(&drawn).unwrap(), (108, 240));

    let mut command = tapline(&["locate", "-", "w33", "w231", "--json", "--repeat", "2"]);
    let mut child = command
        .env("TAPLINE_MODEL", &folder)
        .env("TAPLINE_SPACE", "thousand")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&std::fs::read(&shot).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["results"].as_array().unwrap().len(), 2);
    assert_eq!((&answer["space"], &answer["screenshot"]["height"]), (&"thousand".into(), &240.into()));
    let repeats = answer["repeats"].as_array().unwrap();
    assert_eq!(repeats.len(), 2);
    assert!(
        repeats.iter().all(|timings| timings["vision_ms"].as_f64().unwrap() > 0.0),
        "the cache is cleared: {answer}"
    );
    assert!(answer["load_ms"].as_f64().unwrap() > 0.0);
}

/// A checkpoint's tensors, to be spoiled.
type Tensors = BTreeMap<String, Tensor>;

/// A copy of a fixture whose weights have been changed.
fn spoiled(change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let (copy, folder) = (tempfile::tempdir().unwrap(), fixture("padded-96"));
    for file in ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json"] {
        std::fs::copy(folder.join(file), copy.path().join(file)).unwrap();
    }
    let loaded = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut tensors: Tensors = loaded.into_iter().collect();
    change(&mut tensors);
    candle_core::safetensors::save(&tensors.into_iter().collect(), copy.path().join("model.safetensors")).unwrap();
    copy
}

fn locate_with(model: &Path) -> Run {
    let shot = fixture("padded-96").join("image0.png");
    run(&["locate", "--model", text(model), text(&shot), "w1"])
}

const TENSOR: &str = "language_model.model.encoder.layers.0.fc1.weight";

#[test]
fn broken_checkpoints_are_one_line_that_names_the_tensor() {
    let missing = spoiled(|tensors| assert!(tensors.remove(TENSOR).is_some()));
    assert_failure(&locate_with(missing.path()), 1, TENSOR);
    let extra = spoiled(|tensors| {
        tensors.insert("surplus.weight".to_owned(), Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap());
    });
    assert_failure(&locate_with(extra.path()), 1, "surplus.weight");
    let misshapen = spoiled(|tensors| {
        let transposed = tensors[TENSOR].t().unwrap().contiguous().unwrap();
        tensors.insert(TENSOR.to_owned(), transposed);
    });
    assert_failure(&locate_with(misshapen.path()), 1, TENSOR);
    let integers = spoiled(|tensors| {
        let counted = tensors[TENSOR].to_dtype(DType::I64).unwrap();
        tensors.insert(TENSOR.to_owned(), counted);
    });
    assert_failure(&locate_with(integers.path()), 1, "I64");
}

#[test]
fn broken_files_are_one_line_that_names_the_file() {
    let copy = spoiled(|_| {});
    let weights = copy.path().join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    for length in [0, 1000, whole.len() - 1] {
        std::fs::write(&weights, &whole[..length]).unwrap();
        assert_failure(&locate_with(copy.path()), 1, "model.safetensors");
    }
    std::fs::remove_file(&weights).unwrap();
    assert_failure(&locate_with(copy.path()), 1, "model.safetensors");
    std::fs::write(copy.path().join("config.json"), r#"{"model_type":"llama"}"#).unwrap();
    assert_failure(&locate_with(copy.path()), 1, "`llama`");
    std::fs::write(copy.path().join("config.json"), "{").unwrap();
    assert_failure(&locate_with(copy.path()), 1, "config.json");
    std::fs::write(copy.path().join("locator.toml"), "name = 1\nx = \"\n").unwrap();
    assert_failure(&locate_with(copy.path()), 1, "locator.toml");
}

#[test]
fn bad_arguments_are_found_before_a_model_is_loaded() {
    let (shot, folder) = (fixture("padded-96").join("image0.png"), fixture("padded-96"));
    let locate = |more: &[&str]| run(&[&["locate", text(&shot), "w1", "--model", text(&folder)], more].concat());
    assert_failure(&locate(&["--out", "drawn.gif"]), 64, "drawn.gif");
    assert_failure(&locate(&["--region", "1,2,3"]), 64, "--region");
    assert_failure(&locate(&["--min-confidence", "2"]), 64, "--min-confidence");
    assert_failure(&locate(&["--device", "gpu"]), 64, "--device");
    assert_failure(&locate(&["--device", "cpu,gpu"]), 64, "--device");
    assert_failure(&locate(&["--trace", "x", "w2"]), 64, "--trace");
    assert_failure(&locate(&["--revision", "main"]), 64, "no revision");
    if cfg!(not(feature = "cuda")) {
        assert_failure(&locate(&["--device", "cuda:0"]), 64, "`cuda` feature");
    }
    assert_failure(&run(&["locate", text(&shot), "w1", "--model", "no-such-model"]), 64, "no-such-model");
    assert_failure(&run(&["locate", text(&shot), "w1", "--model", "tinyclick"]), 1, "HF_HUB_OFFLINE");
    assert_failure(&run(&["pull", "nonsense/"]), 64, "nonsense/");
    assert_failure(&run(&["fly"]), 64, "fly");
    assert_eq!(run(&[]).code, 64);
    assert_eq!(run(&["--help"]).code, 0);
    let help = run(&["locate", "--help"]);
    assert!(help.code == 0 && help.err.is_empty() && help.out.contains("TAPLINE_MIN_CONFIDENCE"), "{help:?}");
}

#[test]
fn bad_screenshots_and_commands_say_what_is_wrong() {
    let folder = fixture("padded-96");
    let locate = |shot: &Path, command: &str| run(&["locate", "--model", text(&folder), text(shot), command]);
    let images = fixture("images");
    assert_failure(&locate(&images.join("truncated.png"), "w1"), 1, "broken");
    assert_failure(&locate(&images.join("not-an-image.txt"), "w1"), 1, "PNG");
    assert_failure(&locate(&images.join("bomb-30000.png"), "w1"), 1, "limit");
    assert_failure(&locate(&images.join("no-such.png"), "w1"), 1, "no-such.png");
    assert_failure(&locate(&folder.join("image0.png"), "  "), 1, "empty");
    let outside = ["--region", "5000,5000,6000,6000"];
    let shot = folder.join("image0.png");
    let run = run(&[&["locate", "--model", text(&folder), text(&shot), "w1"], &outside[..]].concat());
    assert_failure(&run, 1, "region");
}

#[test]
fn serve_prints_where_every_value_comes_from() {
    let run = finish(tapline(&["serve", "--port", "9", "--print-config"]).env("TAPLINE_MAX_BATCH_WAIT", "5ms"));
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    for line in [
        "--port 9  (flag)",
        "--max-batch-wait 5ms  (environment TAPLINE_MAX_BATCH_WAIT)",
        "--hostname 127.0.0.1  (default)",
    ] {
        assert!(run.out.lines().any(|printed| printed == line), "{line}: {}", run.out);
    }
}

#[test]
fn serve_says_when_a_port_is_in_use_and_when_flags_contradict() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_failure(&run(&["serve", "--port", &port]), 1, "is in use");
    assert_failure(&run(&["serve", "--served-model-name", "a,b"]), 64, "names");
    assert_failure(&run(&["serve", "--model", "pocket,pocket"]), 64, "two models");
    assert_failure(&run(&["serve", "--timeout", "2s", "--max-timeout", "1s"]), 64, "--max-timeout");
}

#[test]
fn serve_ends_with_the_reason_when_its_model_does_not_load() {
    let missing = spoiled(|tensors| assert!(tensors.remove(TENSOR).is_some()));
    let run = finish(tapline(&["serve", "--port", "0", "--model", text(missing.path())]).env("TAPLINE_LOG", "off"));
    assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    let lines: Vec<&str> = run.err.lines().collect();
    assert!(lines[0].starts_with("listening on http://127.0.0.1:"), "{run:?}");
    assert!(lines[1].starts_with("error: ") && lines[1].contains(TENSOR) && lines[2].starts_with("hint: "), "{run:?}");
}

#[test]
fn serve_answers_and_ends_on_sigterm() {
    let folder = fixture("padded-96");
    let model = ["--model", text(&folder), "--served-model-name", "tiny"];
    let mut command = tapline(&[&["serve", "--port", "0", "--device", "cpu,cpu"], &model[..]].concat());
    let mut child = command.env("TAPLINE_LOG", "off").stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    talk.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let ready = (0..3000).any(|_| {
        let ready = get("/health/ready").starts_with("HTTP/1.1 200");
        if !ready {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        ready
    });
    assert!(ready);
    assert!(get("/v1/models").contains("\"tiny\""));
    let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn doctor_checks_this_machine_and_the_models_it_is_given() {
    let folder = fixture("padded-96");
    let good = run(&["doctor", "--json", "--model", text(&folder)]);
    let report: Value = serde_json::from_str(&good.out).unwrap();
    let status = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))["status"]
            .clone()
    };
    assert_eq!((status("model pocket"), status(&format!("model {}", text(&folder)))), ("ok".into(), "ok".into()));
    assert_eq!((status("processor") != "fail", status("threads")), (true, "ok".into()));
    assert_eq!(good.code, 0, "{good:?}");

    let broken = spoiled(|tensors| assert!(tensors.remove(TENSOR).is_some()));
    let bad = run(&["doctor", "--model", text(broken.path())]);
    assert_eq!(bad.code, 1);
    assert!(bad.out.lines().any(|line| line.starts_with("fail") && line.contains(TENSOR)), "{bad:?}");
    assert!(bad.err.starts_with("error: ") && bad.err.contains("hint: "), "{bad:?}");
}
