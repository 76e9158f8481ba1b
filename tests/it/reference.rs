//! TinyClick's real tokenizer, prompts, tensor names and sizes. They are third-party data and not in this repository: these
//! tests look for them in the folder that `TAPLINE_REFERENCE_DATA` names, say so where it is absent, and skip.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use tapline::models::florence2::names::Layout;
use tapline::models::manifest::Manifest;
use tapline::models::{Checkpoint, LoadOptions, PromptRow, load};
use tapline::prompt::{LocationTokens, PromptError, Template, Tokenizer};

/// The folder, or `None` after saying that the test is skipped.
fn reference() -> Option<PathBuf> {
    let folder = std::env::var_os("TAPLINE_REFERENCE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from)
        .join("tinyclick");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: there is no {}; set TAPLINE_REFERENCE_DATA", folder.display());
    None
}

fn json_of(folder: &Path, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap()).unwrap()
}

fn tinyclick() -> Manifest {
    Manifest::built_in().into_iter().find(|manifest| manifest.name == "tinyclick").unwrap()
}

#[derive(Deserialize)]
struct Vector {
    text: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Prompt {
    command: String,
    #[serde(rename = "prompt")]
    text: String,
    ids: Vec<u32>,
}

#[test]
fn the_tokenizer_gives_the_authors_ids() {
    let Some(folder) = reference() else { return };
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    assert_eq!(tokenizer.locations(), Some(LocationTokens { first: 50269 }));
    let added = json_of(&folder, "tokenizer.json")["added_tokens"].take();
    let special: Vec<&str> = added.as_array().unwrap().iter().filter_map(|token| token["content"].as_str()).collect();
    let vectors: Vec<Vector> =
        serde_json::from_value(json_of(&folder, "tokenizer-vectors.json")["vectors"].take()).unwrap();
    let mut compared = 0;
    // The vectors were made with special tokens recognised, which a user's words never are: those texts differ on purpose.
    for vector in vectors.iter().filter(|vector| !special.iter().any(|special| vector.text.contains(special))) {
        assert_eq!(tokenizer.encode(&vector.text).unwrap(), vector.ids, "{:?}", vector.text);
        compared += 1;
    }
    assert!(compared > 150, "only {compared} texts were compared");
}

#[test]
fn prompts_are_the_authors_and_never_hold_a_users_special_token() {
    let Some(folder) = reference() else { return };
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let manifest = tinyclick();
    let template = Template::new(manifest.prompt, manifest.lowercase);
    let prompts: Vec<Prompt> = serde_json::from_value(json_of(&folder, "prompt-ids.json")["prompts"].take()).unwrap();
    for Prompt { command, text: prompt, ids } in &prompts {
        match template.render(command) {
            Ok(text) => {
                assert_eq!(&text, prompt);
                assert_eq!(&tokenizer.encode(&text).unwrap(), ids, "{command:?}");
            }
            // The authors ask about nothing at all; we tell the caller.
            Err(error) => {
                assert!(error == PromptError::EmptyCommand && command.trim().is_empty(), "{command:?}: {error}");
            }
        }
    }
    assert!(prompts.len() >= 40);
    assert_eq!(tokenizer.encode_bare("click ").unwrap(), [23008, 1437]);
}

#[test]
fn the_older_form_of_the_tokenizer_is_the_same() {
    let Some(folder) = reference() else { return };
    let whole = json_of(&folder, "tokenizer.json");
    let old = tempfile::tempdir().unwrap();
    let write = |file: &str, content: String| std::fs::write(old.path().join(file), content).unwrap();
    write("vocab.json", whole["model"]["vocab"].to_string());
    let merge = |merge: &Value| match merge {
        Value::Array(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        other => other.as_str().unwrap().to_owned(),
    };
    let merges: Vec<String> = whole["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    write("merges.txt", format!("#version: 0.2\n{}\n", merges.join("\n")));
    let added: serde_json::Map<String, Value> = whole["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|token| token["id"].as_u64() > Some(50264))
        .map(|token| (token["content"].as_str().unwrap().to_owned(), token["id"].clone()))
        .collect();
    write("added_tokens.json", Value::Object(added).to_string());

    let (new, old) = (Tokenizer::from_folder(&folder).unwrap(), Tokenizer::from_folder(old.path()).unwrap());
    assert_eq!(new.locations(), old.locations());
    for text in ["what to do to execute the command? click on the ok button", "  two  spaces", "é 漢字 <loc_5> </s>"]
    {
        assert_eq!(new.encode(text).unwrap(), old.encode(text).unwrap(), "{text:?}");
    }
    let answer = [2, 0, 23008, 1437, 50551, 50797, 2];
    assert_eq!(old.decode(&answer), "</s><s>click <loc_282><loc_528></s>");
    assert_eq!(new.decode(&answer), old.decode(&answer));
}

/// The 667 tensors of TinyClick: name, shape, name in the other layout.
fn tensors(folder: &Path) -> Vec<(String, Vec<usize>, String)> {
    let text = std::fs::read_to_string(folder.join("tinyclick_remote_keys.txt")).unwrap();
    text.lines()
        .map(|line| {
            let mut fields = line.split('\t');
            let mut field = || fields.next().unwrap().to_owned();
            let (name, shape, native) = (field(), field(), field());
            (name, serde_json::from_str(&shape).unwrap(), native)
        })
        .collect()
}

#[test]
fn every_tensor_name_of_tinyclick_is_translated() {
    let Some(folder) = reference() else { return };
    let tensors = tensors(&folder);
    assert_eq!(tensors.len(), 667);
    for (remote, _, native) in tensors.iter().filter(|(_, _, native)| native != "-") {
        assert_eq!(&Layout::Remote.name(native), remote);
    }
}

#[test]
fn a_checkpoint_of_tinyclicks_size_loads_strictly_and_answers() {
    let Some(folder) = reference() else { return };
    let model = tempfile::tempdir().unwrap();
    let at = |file: &str| model.path().join(file);
    for (from, to) in [
        ("config_reconstructed.json", "config.json"),
        ("generation_config.json", "generation_config.json"),
        ("tokenizer.json", "tokenizer.json"),
    ] {
        std::fs::copy(folder.join(from), at(to)).unwrap();
    }
    let side = json!({ "size": { "width": 768, "height": 768 }, "image_mean": [0.485, 0.456, 0.406],
                       "image_std": [0.229, 0.224, 0.225], "resample": 3, "do_center_crop": false });
    std::fs::write(at("preprocessor_config.json"), side.to_string()).unwrap();
    std::fs::write(at("locator.toml"), toml_of_tinyclick()).unwrap();

    // All zeros: the file is a header and a hole, so a gigabyte of it costs nothing on the disk.
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape, _) in tensors(&folder) {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }));
    }
    let header = Value::Object(header).to_string();
    let mut file = std::fs::File::create(at("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len((8 + header.len() + end) as u64).unwrap();

    let loaded = load(&Checkpoint::Folder(model.path().to_owned()), &LoadOptions::default()).unwrap();
    assert_eq!(loaded.profile.card.parameters, 270_957_657, "parameters and buffers, as the published file has them");
    assert_eq!((loaded.profile.prompt_limit, loaded.profile.generation.beams), (447, 3));
    let grammar = loaded.profile.grammar().unwrap();
    assert_eq!((grammar.prefix, grammar.count), (vec![23008, 1437], 2));
    // The text model alone; the image encoder at this size has its turn in benches/compare.
    let tensor = candle_core::Tensor::zeros((577, 768), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
    let features = tapline::models::VisualFeatures { tensor };
    let row = PromptRow { features: &features, ids: &[0, 12196, 7, 2] };
    let mut session = loaded.locator.begin(&[row]).unwrap();
    let logits = session.decode(&[2, 0]).unwrap();
    assert_eq!((logits.positions, logits.vocabulary), (2, 51289));
    assert!(logits.last(0).iter().all(|logit| *logit == 0.0), "zero weights can say nothing else");
}

fn toml_of_tinyclick() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tinyclick.toml");
    std::fs::read_to_string(path).unwrap()
}
