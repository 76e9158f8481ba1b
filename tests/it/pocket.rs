//! The embedded model on its evaluation set, `models/pocket/evaluation`, through the engine.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use tapline::engine::pool::CpuPool;
use tapline::engine::{EngineOptions, Handle};
use tapline::models::{Checkpoint, LoadOptions, Precision, load};
use tapline::schedule::Admission;
use tapline::schedule::admission::Limits;
use tapline::server::{App, ServerOptions};

use crate::support::{Server, base64};

/// How far below the committed accuracy a run may be.
const ALLOWED_LOSS: f64 = 0.02;
/// Share of the commands on which f32 and bf16 must say the same.
const AGREEMENT: f64 = 0.97;

/// An item in the shape of `ScreenSpot`; without a box, the target is not on the screen.
#[derive(Deserialize)]
struct Item {
    img_filename: String,
    instruction: String,
    /// x, y, width, height in pixels.
    bbox: Option<[f64; 4]>,
}

/// Commands of one screenshot.
struct Screen {
    path: PathBuf,
    items: Vec<Item>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket/evaluation")
}

fn screens() -> Vec<Screen> {
    let listed = std::fs::read(folder().join("screenspot.json")).unwrap();
    let mut screens: Vec<Screen> = Vec::new();
    for item in serde_json::from_slice::<Vec<Item>>(&listed).unwrap() {
        let path = folder().join("images").join(&item.img_filename);
        match screens.last_mut() {
            Some(last) if last.path == path => last.items.push(item),
            _ => screens.push(Screen { path, items: vec![item] }),
        }
    }
    screens
}

/// Replies to all commands of each screen.
async fn answers(name: &'static str, precision: Precision, screens: &[Screen]) -> Vec<Vec<Value>> {
    let pool = CpuPool::new(2, 64).unwrap();
    let options = LoadOptions { precision, ..LoadOptions::default() };
    let spawn = move || load(&Checkpoint::Embedded, &options);
    let engine = Handle::spawn(EngineOptions::new(name), pool.clone(), spawn).unwrap();
    engine.ready().await.unwrap();
    let server = Server::of(App::new(vec![engine], pool, Admission::new(Limits::default()), ServerOptions::default()));
    let mut out = Vec::new();
    for screen in screens {
        let commands: Vec<_> = screen.items.iter().map(|item| item.instruction.as_str()).collect();
        let image = base64(&std::fs::read(&screen.path).unwrap());
        let results = server.locate(&json!({ "image": image, "commands": commands })).await.results();
        out.push(results.as_array().unwrap().clone());
    }
    out
}

/// The point lies in the box, edges included, or the model abstained where nothing is to be found.
fn right(item: &Item, result: &Value) -> bool {
    let found = result["found"].as_bool().unwrap();
    let Some([x, y, width, height]) = item.bbox else { return !found };
    let inside = |axis: &str, low: f64, extent: f64| {
        let place = result["point"][axis].as_f64().unwrap();
        (low..=low + extent).contains(&place)
    };
    found && inside("x", x, width) && inside("y", y, height)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_model_is_as_good_as_its_card_says() {
    let figures: Value = serde_json::from_slice(&std::fs::read(folder().join("../figures.json")).unwrap()).unwrap();
    let screens = screens();
    let answers = answers("pocket-f32", Precision::F32, &screens).await;
    let verdicts: Vec<bool> = screens
        .iter()
        .zip(&answers)
        .flat_map(|(screen, results)| screen.items.iter().zip(results).map(|(item, result)| right(item, result)))
        .collect();
    assert_eq!(verdicts.len(), 240);
    let accuracy = verdicts.iter().filter(|&&right| right).count() as f64 / verdicts.len() as f64;
    let committed = figures["evaluation"]["groups"]["all"]["share"].as_f64().unwrap();
    assert!(committed > 0.5, "a model that is worth a test");
    assert!(accuracy >= committed - ALLOWED_LOSS, "{accuracy} is right, {committed} is committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn f32_and_bf16_agree() {
    // Every fourth screen: bf16 is widened to f32, and slower than it, on processors without instructions for it.
    let screens: Vec<_> = screens().into_iter().step_by(4).collect();
    let full = answers("pocket-f32-again", Precision::F32, &screens).await;
    let half = answers("pocket-bf16", Precision::Bf16, &screens).await;
    let pairs: Vec<_> = screens
        .iter()
        .zip(full.iter().zip(&half))
        .flat_map(|(screen, (full, half))| screen.items.iter().zip(full.iter().zip(half)))
        .map(|(item, (full, half))| (right(item, full), right(item, half)))
        .collect();
    let same = pairs.iter().filter(|(full, half)| full == half).count() as f64 / pairs.len() as f64;
    assert!(same >= AGREEMENT, "{same} of {} verdicts are the same", pairs.len());
}
