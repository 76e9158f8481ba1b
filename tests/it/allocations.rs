//! From one decode step to the next nothing is allocated: not by the decoder, not by whoever chooses the tokens, and on no
//! thread that takes part.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapline::engine::generate::{Grammar, Plan, generate};
use tapline::models::manifest::Strategy;
use tapline::models::{
    Checkpoint, GenerationSettings, LoadOptions, LoadedModel, Logits, PromptRow, Result, Session, load,
};
use tapline::prompt::LocationTokens;
use tapline::screenshot;

/// The system's allocator, which counts for those threads that ask it to.
struct Counting;

thread_local! {
    static COUNTER: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn count() {
        // A thread that is ending has no counter any more.
        if let Ok(Some(counter)) = COUNTER.try_with(Cell::get) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is passed on as it is to the system's allocator; counting allocates nothing, since the thread-local
// needs no initialisation and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// A session that notes how many allocations there have been whenever it is asked for a step.
struct Watched<'a> {
    inner: Box<dyn Session + 'a>,
    counter: &'static AtomicUsize,
    /// At the entry of each pass, the first one with its many ids included; and rows of it.
    passes: Vec<(usize, usize)>,
}

impl Session for Watched<'_> {
    fn decode(&mut self, ids: &[u32]) -> Result<Logits<'_>> {
        assert!(self.passes.len() < self.passes.capacity(), "noting a pass allocates nothing");
        self.passes.push((self.counter.load(Ordering::Relaxed), ids.len()));
        self.inner.decode(ids)
    }

    fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.inner.select(rows)
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        self.inner.truncate(length)
    }

    fn restart(&mut self) -> Result<()> {
        self.inner.restart()
    }
}

/// Counts on the threads of a pool in which all of the model runs.
fn passes(
    model: &LoadedModel,
    rows: &[PromptRow<'_>],
    settings: &GenerationSettings,
    grammar: Option<&Grammar>,
    plan: Plan,
) -> Vec<(usize, usize)> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let counter: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    pool.install(|| {
        // Once before, so that what threads set up for themselves at first is there.
        for counted in [false, true] {
            let inner = model.locator.begin(rows).unwrap();
            let mut session = Watched { inner, counter, passes: Vec::with_capacity(100) };
            rayon::broadcast(|_| COUNTER.set(counted.then_some(counter)));
            generate(&mut session, rows.len(), settings, grammar, plan).unwrap();
            rayon::broadcast(|_| COUNTER.set(None));
            if counted {
                assert!(counter.load(Ordering::Relaxed) > 0, "the opening allocates, and is counted");
                return session.passes;
            }
        }
        unreachable!("the second turn returns")
    })
}

/// Asserts that from the second step on, up to the entry of the last one, nothing was allocated.
fn assert_quiet(passes: &[(usize, usize)], what: &str) {
    let steps = &passes[2..];
    assert!(steps.len() >= 2, "{what}: only {} passes", passes.len());
    assert!(steps.iter().all(|&(count, _)| count == steps[0].0), "{what}: {passes:?}");
}

fn features(model: &LoadedModel, files: &[&str]) -> Vec<tapline::models::VisualFeatures> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let planes = |file: &&str| {
        let bytes = std::fs::read(root.join(file)).unwrap();
        let shot = screenshot::decode(&bytes, &screenshot::Limits::default()).unwrap();
        model.profile.normalizer.planes(&screenshot::resize(shot.rgb(), shot.size(), model.profile.image))
    };
    let pixels: Vec<Vec<f32>> = files.iter().map(planes).collect();
    model.locator.encode_images(&pixels.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

const GREEDY: Plan = Plan { strategy: Strategy::Greedy, constrained: false, alternatives: 0 };
const BEAM: Plan = Plan { strategy: Strategy::Beam, ..GREEDY };

#[test]
fn steps_allocate_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/window-3");
    let model = load(&Checkpoint::Folder(folder), &LoadOptions::default()).unwrap();
    let features = features(&model, &["tests/fixtures/window-3/image0.png", "tests/fixtures/window-3/image1.png"]);
    let rows: Vec<PromptRow<'_>> =
        features.iter().map(|features| PromptRow { features, ids: &[0, 9, 8, 7, 2] }).collect();
    // Long answers: nothing ends before the last id is forced.
    let settings = GenerationSettings { end: 1_000_000, ..model.profile.generation.clone() };
    let grammar = Grammar { prefix: vec![9, 8], count: 5, locations: LocationTokens { first: 100 } };
    for (plan, what) in [(GREEDY, "greedy"), (BEAM, "beams")] {
        assert_quiet(&passes(&model, &rows, &settings, None, plan), what);
        let held = Plan { constrained: true, ..plan };
        assert_quiet(&passes(&model, &rows, &settings, Some(&grammar), held), &format!("{what}, constrained"));
    }
    // Answers that end one by one: rows leave.
    let passes = passes(&model, &rows, &model.profile.generation, None, BEAM);
    assert_quiet(&passes, "beams that end");
}

#[test]
fn steps_on_several_threads_allocate_nothing() {
    let model = load(&Checkpoint::Embedded, &LoadOptions::default()).unwrap();
    let features = features(&model, &["tests/fixtures/window-3/image0.png"]);
    let ids = model.profile.tokenizer.encode("open settings").unwrap();
    // So many rows that the layers are worth sharing out.
    let rows: Vec<PromptRow<'_>> = (0..16).map(|_| PromptRow { features: &features[0], ids: &ids }).collect();
    let grammar = model.profile.grammar().unwrap();
    for strategy in [Strategy::Greedy, Strategy::Beam] {
        let plan = Plan { strategy, constrained: true, alternatives: 0 };
        let passes = passes(&model, &rows, &model.profile.generation, Some(&grammar), plan);
        assert_quiet(&passes, &format!("{strategy:?}"));
    }
}
