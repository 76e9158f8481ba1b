//! batched = single, in any order, with any company.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tapline::engine::simulated;
use tapline::schedule::Policy;

use crate::support::{Server, Setup, base64, png};

const COMMANDS: [&str; 5] = ["the menu", "a", "open the settings of this page", "save", "the second red button"];

fn request(seed: u32, command: &str, decoding: &str) -> Value {
    json!({ "image": base64(&png(32, 24, seed)), "command": command, "decoding": decoding, "alternatives": seed % 3 })
}

#[test]
fn answers_do_not_depend_on_the_company() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let alone = runtime.block_on(Server::plain("batch-alone"));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let asked = prop::collection::vec((0..4_u32, 0..COMMANDS.len(), any::<bool>()), 1..10);
    runner
        .run(&(asked, 1..12_usize), |(asked, max_commands)| {
            runtime.block_on(async {
                let mut setup = Setup::new("batch-together", simulated::no_hook());
                // Long enough that those who are asked together also run together.
                setup.policy = Policy { max_commands, max_wait: Duration::from_millis(20) };
                let together = setup.start().await;
                let requests: Vec<_> = asked
                    .iter()
                    .map(|&(seed, command, beam)| {
                        request(seed, COMMANDS[command], if beam { "beam" } else { "greedy" })
                    })
                    .collect();
                let answers: Vec<_> = requests.iter().map(|body| together.locate_meanwhile(body.clone())).collect();
                for (body, answer) in requests.iter().zip(answers) {
                    let expected = alone.locate(body).await.results();
                    prop_assert_eq!(answer.await.unwrap().results(), expected);
                }
                Ok(())
            })
        })
        .unwrap();
}
