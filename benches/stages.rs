//! Each stage of one request on the embedded model: image file to pixels, pixels to features, command to tokens.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tapline::engine::generate::{Plan, generate};
use tapline::models::manifest::Strategy;
use tapline::models::{Checkpoint, LoadOptions, PromptRow, load};
use tapline::screenshot::{self, Limits};

fn stages(criterion: &mut Criterion) {
    let model = load(&Checkpoint::Embedded, &LoadOptions::default()).expect("the embedded model");
    let profile = &model.profile;
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/models/pocket/samples/login.png");
    let file = std::fs::read(sample).expect("a sample screen");

    let mut group = criterion.benchmark_group("pocket");
    group.bench_function("decode", |bencher| bencher.iter(|| screenshot::decode(black_box(&file), &Limits::default())));
    let shot = screenshot::decode(&file, &Limits::default()).expect("a screenshot");
    let prepare = || {
        let rgb = screenshot::resize(shot.rgb(), shot.size(), profile.image);
        profile.normalizer.planes(&rgb)
    };
    group.bench_function("resize and normalise", |bencher| bencher.iter(prepare));
    let prompt = || profile.tokenizer.encode(&profile.template.render("sign in").expect("a prompt"));
    group.bench_function("tokenise", |bencher| bencher.iter(prompt));

    let (pixels, ids) = (prepare(), prompt().expect("ids"));
    group.bench_function("vision", |bencher| bencher.iter(|| model.locator.encode_images(&[black_box(&pixels)])));
    let features = model.locator.encode_images(&[&pixels]).expect("features").remove(0);
    let grammar = profile.grammar();
    for (name, strategy, constrained) in [
        ("text, greedy, constrained", Strategy::Greedy, true),
        ("text, greedy, free", Strategy::Greedy, false),
        ("text, beams, constrained", Strategy::Beam, true),
    ] {
        let plan = Plan { strategy, constrained, alternatives: 0 };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let row = [PromptRow { features: &features, ids: black_box(&ids) }];
                let mut session = model.locator.begin(&row).expect("a session");
                generate(&mut *session, 1, &profile.generation, grammar.as_ref(), plan).expect("an answer")
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = stages
}
criterion_main!(benches);
