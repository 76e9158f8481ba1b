//! Downloads: whole, interrupted, wrong, refused, and at the same time.

mod standing;

use std::sync::{Arc, Mutex};

use tapline::hub::{Event, Fetch, Fetched, HubError, HubOptions, Source, Token};
use tapline::models::Checkpoint;
use tapline::models::manifest::HubFile;

use self::standing::{COMMIT, ID, Standing, WEIGHTS, sha256, weights};

async fn fetch(files: &[HubFile], options: &HubOptions) -> Result<Fetched, HubError> {
    Fetch { id: ID, commit: COMMIT, files, verify: false }.run(options, &|_| {}).await
}

fn pinned() -> HubFile {
    let content = weights();
    HubFile {
        path: WEIGHTS.to_owned(),
        sha256: Some(sha256(&content)),
        bytes: Some(content.len() as u64),
        optional: false,
    }
}

fn plain(path: &str, optional: bool) -> HubFile {
    HubFile { path: path.to_owned(), sha256: None, bytes: None, optional }
}

#[tokio::test]
async fn a_fresh_pull_brings_every_file_and_the_next_one_asks_nobody() {
    let standing = Standing::start().await;
    let files = [plain("config.json", false), plain("absent.json", true), pinned()];
    let fetched = fetch(&files, &standing.options()).await.unwrap();
    assert_eq!(fetched.downloaded, 300_002);
    assert_eq!(std::fs::read(standing.file(WEIGHTS).unwrap()).unwrap(), weights());
    assert_eq!(fetched.folder, standing.file("config.json").unwrap().parent().unwrap());
    assert!(standing.file("absent.json").is_none());
    assert!(standing.blobs().contains(&sha256(&weights())), "content is stored under its hash");

    let asked = standing.seen().len();
    let again = fetch(&files, &standing.options()).await.unwrap();
    assert_eq!((again.downloaded, standing.seen().len()), (0, asked), "an absent optional file is remembered, too");
}

#[tokio::test]
async fn a_missing_file_that_is_not_optional_is_named() {
    let standing = Standing::start().await;
    let error = fetch(&[plain("absent.json", false)], &standing.options()).await.unwrap_err();
    assert!(matches!(&error, HubError::NotFound { what, .. } if what.contains("absent.json")), "{error}");
}

#[tokio::test]
async fn a_cut_connection_is_resumed_where_it_broke() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.cut = Some(120_000));
    let once = HubOptions { attempts: 1, ..standing.options() };
    let error = fetch(&[pinned()], &once).await.unwrap_err();
    assert!(matches!(error, HubError::Network { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(standing.file(WEIGHTS).is_none(), "half a file is no file");
    assert_eq!(standing.blobs(), [format!("{}.incomplete", sha256(&weights()))]);
    let arrived =
        std::fs::metadata(standing.cache.path().join("models--owner--model/blobs").join(&standing.blobs()[0]));
    let arrived = arrived.unwrap().len();

    // Two more connections break in the second run, which goes on by itself.
    let fetched = fetch(&[pinned()], &standing.options()).await.unwrap();
    let ranges: Vec<_> =
        standing.seen().into_iter().filter(|seen| seen.server == "storage").map(|seen| seen.range).collect();
    assert_eq!(ranges[..2], [None, Some(format!("bytes={arrived}-"))]);
    assert_eq!(fetched.downloaded + arrived, 300_000, "nothing is sent twice");
    assert_eq!(std::fs::read(standing.file(WEIGHTS).unwrap()).unwrap(), weights());
}

#[tokio::test]
async fn a_storage_that_cannot_resume_sends_it_all_again() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.cut = Some(1000));
    let once = HubOptions { attempts: 1, ..standing.options() };
    fetch(&[pinned()], &once).await.unwrap_err();
    standing.set(|hub| (hub.cut, hub.ignores_ranges) = (None, true));
    fetch(&[pinned()], &standing.options()).await.unwrap();
    assert_eq!(std::fs::read(standing.file(WEIGHTS).unwrap()).unwrap(), weights());
}

#[tokio::test]
async fn passing_failures_are_retried_and_lasting_ones_are_not_for_ever() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.failures = 2);
    let retries = Mutex::new(0);
    let watch = |event: Event<'_>| *retries.lock().unwrap() += usize::from(matches!(event, Event::Retry { .. }));
    let fetch = Fetch { id: ID, commit: COMMIT, files: &[pinned()], verify: false };
    fetch.run(&standing.options(), &watch).await.unwrap();
    assert_eq!(*retries.lock().unwrap(), 2);

    standing.set(|hub| hub.failures = usize::MAX);
    let fetch = Fetch { files: &[plain("config.json", false)], ..fetch };
    let error = fetch.run(&standing.options(), &|_| {}).await.unwrap_err();
    assert!(matches!(error, HubError::Http { status: 503, .. }), "{error}");
}

#[tokio::test]
async fn wrong_content_is_deleted_and_never_loadable() {
    let standing = Standing::start().await;
    let mut forged = weights();
    forged[77] ^= 1;
    standing.set(|hub| hub.forged = Some(forged));
    let error = fetch(&[pinned()], &standing.options()).await.unwrap_err();
    assert!(matches!(error, HubError::Checksum { .. }), "{error}");
    assert!(standing.file(WEIGHTS).is_none());
    assert_eq!(standing.blobs(), [""; 0]);

    standing.set(|hub| hub.forged = None);
    fetch(&[pinned()], &standing.options()).await.unwrap();
}

#[tokio::test]
async fn content_that_is_not_the_pinned_one_is_not_even_downloaded() {
    let standing = Standing::start().await;
    let other = HubFile { sha256: Some(sha256(b"other")), ..pinned() };
    let error = fetch(&[other], &standing.options()).await.unwrap_err();
    assert!(matches!(error, HubError::Checksum { .. }), "{error}");
    let longer = HubFile { bytes: Some(5), ..pinned() };
    let error = fetch(&[longer], &standing.options()).await.unwrap_err();
    assert!(matches!(error, HubError::Length { expected: 5, got: 300_000, .. }), "{error}");
    assert!(standing.seen().iter().all(|seen| seen.server == "hub"));
}

#[tokio::test]
async fn files_in_the_cache_are_checked_when_asked() {
    let standing = Standing::start().await;
    fetch(&[pinned()], &standing.options()).await.unwrap();
    let file = standing.file(WEIGHTS).unwrap();
    let mut damaged = weights();
    damaged[5] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    for known in [pinned(), plain(WEIGHTS, false)] {
        let files = [known];
        let fetch = Fetch { id: ID, commit: COMMIT, files: &files, verify: true };
        let fetched = fetch.run(&standing.options(), &|_| {}).await.unwrap();
        assert_eq!(fetched.downloaded, 300_000);
        assert_eq!(std::fs::read(&file).unwrap(), weights());
        std::fs::write(&file, b"cut short").unwrap();
    }
    // A wrong length is noticed without reading the file.
    assert_eq!(fetch(&[pinned()], &standing.options()).await.unwrap().downloaded, 300_000);
}

#[tokio::test]
async fn another_commit_than_the_pinned_one_is_refused() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.commit = "f".repeat(40));
    let error = fetch(&[pinned()], &standing.options()).await.unwrap_err();
    assert!(matches!(&error, HubError::Revision { expected, .. } if expected == COMMIT), "{error}");
    assert!(standing.file(WEIGHTS).is_none());

    let unknown = "1".repeat(40);
    let fetch = Fetch { id: ID, commit: &unknown, files: &[pinned()], verify: false };
    let error = fetch.run(&standing.options(), &|_| {}).await.unwrap_err();
    assert!(matches!(&error, HubError::NotFound { what, .. } if what.contains("revision")), "{error}");
}

#[tokio::test]
async fn a_closed_model_needs_a_token_which_only_the_hub_sees() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.token = Some("hf_secret"));
    let error = fetch(&[pinned()], &standing.options()).await.unwrap_err();
    assert!(matches!(error, HubError::Denied { status: 401, token: false, .. }), "{error}");
    assert!(error.hint().contains("HF_TOKEN"));
    let wrong = HubOptions { token: Some(Token::new("hf_wrong")), ..standing.options() };
    let error = fetch(&[pinned()], &wrong).await.unwrap_err();
    assert!(matches!(error, HubError::Denied { token: true, .. }), "{error}");
    assert!(!format!("{error:?} {wrong:?}").contains("hf_wrong"));

    let right = HubOptions { token: Some(Token::new("hf_secret")), ..standing.options() };
    fetch(&[pinned()], &right).await.unwrap();
    let storage: Vec<_> = standing.seen().into_iter().filter(|seen| seen.server == "storage").collect();
    assert!(!storage.is_empty() && storage.iter().all(|seen| seen.token.is_none()), "{storage:?}");
}

#[tokio::test]
async fn offline_asks_nobody_and_names_what_is_missing() {
    let standing = Standing::start().await;
    let offline = HubOptions { offline: true, ..standing.options() };
    let error = fetch(&[pinned()], &offline).await.unwrap_err();
    assert!(matches!(&error, HubError::Offline { file, .. } if file == WEIGHTS), "{error}");
    assert_eq!(standing.seen(), []);
    fetch(&[pinned()], &standing.options()).await.unwrap();
    fetch(&[pinned(), plain("absent.json", true)], &offline).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_noticed_before_it_is_full() {
    let standing = Standing::start().await;
    standing.set(|hub| hub.claimed = Some(1 << 60));
    let error = fetch(&[plain(WEIGHTS, false)], &standing.options()).await.unwrap_err();
    assert!(matches!(error, HubError::DiskFull { needed_bytes: Some(_), free: Some(_), .. }), "{error}");
    assert!(standing.file(WEIGHTS).is_none());
}

#[tokio::test]
async fn of_two_pulls_at_once_one_downloads_and_one_waits() {
    let standing = Standing::start().await;
    let files = [pinned()];
    let options = standing.options();
    let (one, other) = tokio::join!(fetch(&files, &options), fetch(&files, &options));
    assert_eq!(one.unwrap().downloaded + other.unwrap().downloaded, 300_000);
    let sent = standing.seen().iter().filter(|seen| seen.server == "storage").count();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn a_branch_becomes_a_commit_and_outlives_the_hub() {
    let standing = Standing::start().await;
    let source = Source::parse(ID, None).unwrap();
    let resolved = source.fetch(&standing.options(), false, &|_| {}).await.unwrap();
    let folder = standing.file(WEIGHTS).unwrap().parent().unwrap().to_owned();
    assert_eq!(resolved.checkpoint, Checkpoint::Folder(folder));
    let hub = resolved.manifest.as_ref().and_then(|manifest| manifest.hub.as_ref()).unwrap();
    assert_eq!((hub.id.as_str(), hub.revision.as_str()), (ID, COMMIT));
    assert!(standing.file("run_me.py").is_none() && standing.file("tokenizer.json").is_some(), "code is never fetched");

    let stale = Mutex::new(false);
    let watch = |event: Event<'_>| *stale.lock().unwrap() |= matches!(event, Event::Stale { .. });
    standing.set(|hub| hub.failures = usize::MAX);
    let cached = source.fetch(&standing.options(), false, &watch).await.unwrap();
    assert_eq!(cached.checkpoint, resolved.checkpoint);
    assert!(*stale.lock().unwrap());
    let offline = HubOptions { offline: true, ..standing.options() };
    assert_eq!(source.fetch(&offline, false, &|_| {}).await.unwrap().checkpoint, resolved.checkpoint);
    let pinned = Source::parse(ID, Some(COMMIT)).unwrap();
    let asked = standing.seen().len();
    assert_eq!(pinned.fetch(&standing.options(), false, &|_| {}).await.unwrap().checkpoint, resolved.checkpoint);
    assert_eq!(standing.seen().len(), asked, "a commit that is here needs no hub");
}

#[tokio::test]
async fn shards_are_those_that_the_index_names() {
    let standing = Standing::start().await;
    let index =
        |second: &str| format!("{{\"weight_map\":{{\"a\":\"model-1.safetensors\",\"b\":\"{second}\"}}}}").into_bytes();
    standing.set(|hub| {
        hub.files.remove(WEIGHTS);
        hub.files.insert("model-1.safetensors", vec![1; 10]);
        hub.files.insert("model-2.safetensors", vec![2; 20]);
        hub.files.insert("model.safetensors.index.json", index("../../../../evil.safetensors"));
    });
    let source = Source::parse(ID, Some(COMMIT)).unwrap();
    let error = source.fetch(&standing.options(), false, &|_| {}).await.unwrap_err();
    assert!(matches!(&error, HubError::Reply { message, .. } if message.contains("evil")), "{error}");

    let again = Standing { cache: Arc::new(tempfile::tempdir().unwrap()), ..standing.clone() };
    again.set(|hub| {
        hub.files.insert("model.safetensors.index.json", index("model-2.safetensors"));
    });
    source.fetch(&again.options(), false, &|_| {}).await.unwrap();
    assert_eq!(std::fs::read(again.file("model-2.safetensors").unwrap()).unwrap(), [2; 20]);
}
