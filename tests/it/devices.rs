//! Several engines behind one queue: all take part, everything is answered, and a dying one takes nothing with it but its own
//! batch. The engines are simulated models on the CPU; what is tested is what stands before them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use axum::http::StatusCode;
use tapline::engine::pool::CpuPool;
use tapline::engine::simulated::{self, Event, Hook};
use tapline::engine::{EngineOptions, Handle, Load, State};
use tapline::models::{
    BatchShape, LoadedModel, Locator, PromptRow, Result as Computed, Session, Uploaded, Uploader, VisualFeatures,
};
use tapline::schedule::{Admission, Policy, admission};
use tapline::server::{App, ServerOptions};

use crate::support::{Gate, PATIENCE, Server, ask, until, until_inside};

/// A model whose engines do as these hooks say.
fn engines(name: &'static str, hooks: Vec<Hook>) -> (Handle, CpuPool) {
    let loads = hooks.into_iter().map(|hook| -> Load { Box::new(move || simulated::model(name, hook)) }).collect();
    spawn(name, loads)
}

fn spawn(name: &str, loads: Vec<Load>) -> (Handle, CpuPool) {
    let pool = CpuPool::new(2, 64).unwrap();
    let policy = Policy { max_commands: 1, ..Policy::default() };
    let handle = Handle::spawn_each(EngineOptions { policy, ..EngineOptions::new(name) }, pool.clone(), loads).unwrap();
    (handle, pool)
}

async fn serve((handle, pool): (Handle, CpuPool)) -> Server {
    handle.ready().await.unwrap();
    let admission = Admission::new(admission::Limits::default());
    Server::of(App::new(vec![handle], pool, admission, ServerOptions::default()))
}

#[tokio::test]
async fn a_free_engine_answers_while_another_is_held_up() {
    let (mut gate, held) = Gate::new();
    // The first step of all, on whichever engine, is held up; the others run.
    let first = Arc::new(Mutex::new(Some(held)));
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let hook: Hook = Arc::new({
        let threads = Arc::clone(&threads);
        move |event| {
            threads.lock().unwrap().insert(std::thread::current().name().unwrap_or_default().to_owned());
            let held = first.lock().unwrap().take();
            held.map_or(Ok(()), |held| held(event))
        }
    });
    let server = serve(engines("two", vec![Arc::clone(&hook), hook])).await;
    let alone = Server::plain("two-alone").await;
    let waiting = server.locate_meanwhile(ask(0, "go"));
    gate.event().await;
    for seed in 1..12 {
        let body = ask(seed, "go");
        let answer = tokio::time::timeout(PATIENCE, server.locate(&body)).await.expect("the other engine is idle");
        assert_eq!(answer.results(), alone.locate(&body).await.results());
    }
    assert!(!waiting.is_finished());
    drop(gate);
    assert_eq!(waiting.await.unwrap().results(), alone.locate(&ask(0, "go")).await.results());
    let threads = threads.lock().unwrap();
    assert_eq!(*threads, HashSet::from(["engine-two-0".to_owned(), "engine-two-1".to_owned()]));
}

#[tokio::test]
async fn all_is_answered_by_all_engines_together() {
    let server = serve(engines("three", vec![simulated::no_hook(); 3])).await;
    let alone = Server::plain("three-alone").await;
    let asked: Vec<_> = (0..60).map(|seed| (seed, server.locate_meanwhile(ask(seed % 20, "go")))).collect();
    for (seed, answer) in asked {
        assert_eq!(answer.await.unwrap().results(), alone.locate(&ask(seed % 20, "go")).await.results());
    }
    until_inside(&server, 0).await;
}

#[tokio::test]
async fn a_dying_engine_takes_only_its_own_batch_with_it() {
    // Each engine announces its step and waits for what to do.
    let (announce, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let all_go_well = Arc::new(AtomicBool::new(false));
    let hook: Hook = Arc::new({
        let all_go_well = Arc::clone(&all_go_well);
        move |_: &Event| {
            if all_go_well.load(Ordering::SeqCst) {
                return Ok(());
            }
            let (verdict, wait) = mpsc::channel();
            announce.send(verdict).unwrap();
            wait.recv().unwrap_or(Ok(()))
        }
    });
    let server = serve(engines("dying", vec![Arc::clone(&hook), hook])).await;
    let broken = server.locate_meanwhile(ask(1, "go"));
    let verdict = steps.recv().await.unwrap();
    let running = server.locate_meanwhile(ask(2, "go"));
    let survivor = steps.recv().await.unwrap();
    let queued: Vec<_> = (3..9).map(|seed| server.locate_meanwhile(ask(seed, "go"))).collect();
    until_inside(&server, 8).await;
    let queue = "tapline_queue_pushed_total{model=\"dying\"} 8\n";
    until("all are queued", || tapline::telemetry::render(|| ()).contains(queue)).await;

    verdict.send(Err("DriverError(CUDA_ERROR_ECC_UNCORRECTABLE)".to_owned())).unwrap();
    assert_eq!(broken.await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    let ready = server.get("/health/ready").await.json();
    assert!(ready["models"][0]["cause"].as_str().unwrap().contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{ready}");
    assert_eq!(server.locate(&ask(10, "go")).await.status, StatusCode::SERVICE_UNAVAILABLE, "nothing new is taken");

    // The other one finishes what was accepted.
    all_go_well.store(true, Ordering::SeqCst);
    drop(survivor);
    for answer in std::iter::once(running).chain(queued) {
        tokio::time::timeout(PATIENCE, answer).await.expect("a request is lost").unwrap().results();
    }
    until_inside(&server, 0).await;
}

#[tokio::test]
async fn ready_when_all_are_and_stopped_when_one_does_not_load() {
    let (go, wait) = mpsc::channel::<bool>();
    let slow: Load = Box::new(move || match wait.recv() {
        Ok(true) => simulated::model("late", simulated::no_hook()),
        _ => Err(tapline::models::LoadError::MissingFile { file: "weights of the second".into() }),
    });
    let quick: Load = Box::new(|| simulated::model("late", simulated::no_hook()));
    let (handle, _pool) = spawn("late", vec![quick, slow]);
    assert!(matches!(handle.state(), State::Loading));
    go.send(true).unwrap();
    handle.ready().await.unwrap();

    let (no_go, wait) = mpsc::channel::<bool>();
    let broken: Load = Box::new(move || {
        let _told = wait.recv();
        Err(tapline::models::LoadError::MissingFile { file: "weights of the second".into() })
    });
    let quick: Load = Box::new(|| simulated::model("never", simulated::no_hook()));
    let (handle, _pool) = spawn("never", vec![quick, broken]);
    drop(no_go);
    let error = handle.ready().await.unwrap_err();
    assert!(error.to_string().contains("weights of the second"), "{error}");
}

/// A simulated model that also uploads ahead and warms up, and writes down what it does.
struct Uploading {
    inner: Box<dyn Locator>,
    log: Arc<Mutex<Vec<String>>>,
    places: Mutex<Vec<Vec<Vec<f32>>>>,
    /// Called before screenshots of requests are encoded.
    encoding: Hook,
    is_warm: AtomicBool,
}

impl Uploading {
    fn model(name: &str, encoding: Hook, log: Arc<Mutex<Vec<String>>>) -> LoadedModel {
        let LoadedModel { profile, locator } = simulated::model(name, simulated::no_hook()).unwrap();
        let places = Mutex::default();
        LoadedModel {
            profile,
            locator: Box::new(Self { inner: locator, log, places, encoding, is_warm: AtomicBool::new(false) }),
        }
    }

    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }
}

impl Locator for Uploading {
    fn encode_images(&self, pixels: &[&[f32]]) -> Computed<Vec<VisualFeatures>> {
        self.note(format!("encode {}", pixels.len()));
        if self.is_warm.load(Ordering::SeqCst) {
            (self.encoding)(&Event::Images(pixels.len())).map_err(candle_core::Error::Msg)?;
        }
        self.inner.encode_images(pixels)
    }

    fn begin<'a>(&'a self, rows: &[PromptRow<'_>]) -> Computed<Box<dyn Session + 'a>> {
        self.note(format!("text {}", rows.len()));
        self.inner.begin(rows)
    }

    fn shapes(&self, largest: usize) -> Vec<BatchShape> {
        (1..=largest).map(|rows| BatchShape { rows, prompt: 4 }).collect()
    }

    fn warming_up(&self, on: bool) {
        self.is_warm.store(!on, Ordering::SeqCst);
        self.note(if on { "warming up" } else { "warm" });
    }

    fn synchronize(&self) -> Computed<()> {
        self.note("synchronize");
        Ok(())
    }

    fn uploader(&self) -> Option<&dyn Uploader> {
        Some(self)
    }

    fn trace(&self, pixels: &[f32], ids: &[u32], answer: &[u32]) -> Computed<Vec<(String, candle_core::Tensor)>> {
        self.inner.trace(pixels, ids, answer)
    }
}

impl Uploader for Uploading {
    fn upload(&self, pixels: &[&[f32]]) -> Computed<Uploaded> {
        self.note(format!("upload {}", pixels.len()));
        let mut places = self.places.lock().unwrap();
        places.push(pixels.iter().map(|pixels| pixels.to_vec()).collect());
        Ok(Uploaded { place: places.len() - 1, images: pixels.len() })
    }

    fn encode(&self, images: Uploaded) -> Computed<Vec<VisualFeatures>> {
        self.note(format!("encode uploaded {}", images.images));
        let places = self.places.lock().unwrap();
        let pixels: Vec<&[f32]> = places[images.place].iter().map(Vec::as_slice).collect();
        self.inner.encode_images(&pixels)
    }
}

#[tokio::test]
async fn the_next_batch_is_uploaded_while_the_present_one_runs() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let (mut gate, held) = Gate::new();
    let load: Load = Box::new({
        let log = Arc::clone(&log);
        move || Ok(Uploading::model("ahead", held, log))
    });
    let server = serve(spawn("ahead", vec![load])).await;
    let warm = ["warming up", "encode 1", "synchronize", "text 1", "synchronize", "warm"];
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), warm, "before it is ready");
    let alone = Server::plain("ahead-alone").await;

    let first = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    let second = server.locate_meanwhile(ask(2, "go"));
    // Taken out of the queue: it waits in the hands of the thread that makes batches.
    let popped = "tapline_queue_popped_total{model=\"ahead\"} 2\n";
    until("the second batch is formed", || tapline::telemetry::render(|| ()).contains(popped)).await;
    drop(gate);
    assert_eq!(first.await.unwrap().results(), alone.locate(&ask(1, "go")).await.results());
    assert_eq!(second.await.unwrap().results(), alone.locate(&ask(2, "go")).await.results());
    // The same screenshot again has its features: there is nothing to upload or to encode.
    server.locate(&ask(2, "again")).await.results();
    let log = log.lock().unwrap();
    let (before, after) = log.split_at(log.iter().position(|step| step == "encode uploaded 1").expect("not used"));
    assert_eq!(before, ["encode 1", "upload 1", "synchronize", "text 1"]);
    assert_eq!(after, ["encode uploaded 1", "synchronize", "text 1", "synchronize", "text 1"]);
}
