//! What `--model` may be: a known name, a hub id, or a folder; and from there to files that can be loaded.

use std::path::{Path, PathBuf};

use super::fetch::pause;
use super::remote::{Remote, Revision};
use super::{Event, Fetch, HubError, HubOptions, Repository, Watch};
use crate::models::manifest::{HubFile, HubSource};
use crate::models::{Checkpoint, Manifest};

/// Files fetched for a model without a manifest, besides its weights. Code is never among them.
const SMALL_FILES: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "locator.toml",
];
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The `pocket` model inside this program.
    Embedded,
    /// A folder on this machine; the hub is never asked.
    Folder(PathBuf),
    /// A model that comes with a manifest, at the pinned revision.
    Known {
        /// How it is asked.
        manifest: Box<Manifest>,
        /// Its files.
        hub: HubSource,
    },
    /// Any other repository of the hub, or a known one at another revision.
    Hub {
        /// Owner and repository.
        id: String,
        /// Branch, tag or commit.
        revision: String,
        /// How it is asked unless it brings a `locator.toml`, if that is known.
        manifest: Option<Box<Manifest>>,
    },
}

/// A model whose files are on this machine.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The files.
    pub checkpoint: Checkpoint,
    /// How it is asked; `None`: as the checkpoint itself says.
    pub manifest: Option<Manifest>,
    /// Bytes that had to be downloaded.
    pub downloaded: u64,
}

impl Source {
    /// Reads what was given as `--model` and `--revision`. A known name wins over a folder of that name (`./tinyclick` is
    /// the folder), and a folder over a hub id.
    ///
    /// # Errors
    /// It is none of them, or a revision was asked of what has none.
    pub fn parse(model: &str, revision: Option<&str>) -> Result<Self, HubError> {
        let embedded = model == "pocket";
        if embedded || (!is_known(model) && Path::new(model).is_dir()) {
            return match revision {
                Some(_) => Err(HubError::NoRevision { model: model.to_owned() }),
                None if embedded => Ok(Self::Embedded),
                None => Ok(Self::Folder(PathBuf::from(model))),
            };
        }
        if revision.is_some_and(|revision| !is_path(revision)) {
            return Err(HubError::NotFound { id: model.to_owned(), what: "such revision".to_owned() });
        }
        for manifest in Manifest::built_in() {
            let Some(hub) = manifest.hub.clone().filter(|hub| manifest.name == model || hub.id == model) else {
                continue;
            };
            let manifest = Box::new(manifest);
            return Ok(match revision {
                // The pinned lengths and hashes say nothing about the files of another commit.
                Some(revision) if revision != hub.revision => {
                    Self::Hub { id: hub.id, revision: revision.to_owned(), manifest: Some(manifest) }
                }
                _ => Self::Known { manifest, hub },
            });
        }
        if is_id(model) {
            let revision = revision.unwrap_or("main").to_owned();
            return Ok(Self::Hub { id: model.to_owned(), revision, manifest: None });
        }
        Err(HubError::UnknownModel { model: model.to_owned() })
    }

    /// The name that the model is served under unless told otherwise.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Embedded => "pocket".to_owned(),
            Self::Known { manifest, .. } | Self::Hub { manifest: Some(manifest), .. } => manifest.name.clone(),
            Self::Hub { id, manifest: None, .. } => id.clone(),
            Self::Folder(folder) => own_manifest(folder).map_or_else(|| folder_name(folder), |manifest| manifest.name),
        }
    }

    /// Brings the model's files into the cache where they are not there yet. `verify` hashes those that are, too.
    ///
    /// # Errors
    /// [`HubError`] says what stands in the way.
    pub async fn fetch(&self, options: &HubOptions, verify: bool, watch: Watch<'_>) -> Result<Resolved, HubError> {
        match self {
            Self::Embedded => Ok(Resolved { checkpoint: Checkpoint::Embedded, manifest: None, downloaded: 0 }),
            Self::Folder(folder) => {
                Ok(Resolved { checkpoint: Checkpoint::Folder(folder.clone()), manifest: None, downloaded: 0 })
            }
            Self::Known { manifest, hub } => {
                let fetch = Fetch { id: &hub.id, commit: &hub.revision, files: &hub.files, verify };
                let fetched = fetch.run(options, watch).await?;
                let manifest = Manifest { hub: Some(hub.clone()), ..(**manifest).clone() };
                Ok(Resolved {
                    checkpoint: Checkpoint::Folder(fetched.folder),
                    manifest: Some(manifest),
                    downloaded: fetched.downloaded,
                })
            }
            Self::Hub { id, revision, manifest } => {
                let otherwise = manifest.as_ref().map_or_else(|| Manifest::plain(id), |manifest| (**manifest).clone());
                let repository = Repository::new(&options.cache, id);
                let fetched = fetch_branch(id, revision, options, verify, watch).await?;
                let folder = repository.snapshot(&fetched.commit);
                // A broken `locator.toml` is for the loader to complain about.
                let broken = folder.join("locator.toml").exists();
                let manifest = own_manifest(&folder).or((!broken).then_some(otherwise));
                let hub = Some(HubSource { id: id.clone(), revision: fetched.commit, files: Vec::new() });
                Ok(Resolved {
                    checkpoint: Checkpoint::Folder(folder),
                    manifest: manifest.map(|manifest| Manifest { hub, ..manifest }),
                    downloaded: fetched.downloaded,
                })
            }
        }
    }
}

/// [`Source::fetch`] for callers outside any async runtime, such as an engine's own thread.
///
/// # Errors
/// As [`Source::fetch`].
pub fn resolve(source: &Source, options: &HubOptions, verify: bool, watch: Watch<'_>) -> Result<Resolved, HubError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(source.fetch(options, verify, watch))
}

/// What a branch turned out to be.
struct Branch {
    commit: String,
    downloaded: u64,
}

/// Brings the files of a repository about which nothing is known beforehand.
async fn fetch_branch(
    id: &str,
    revision: &str,
    options: &HubOptions,
    verify: bool,
    watch: Watch<'_>,
) -> Result<Branch, HubError> {
    let repository = Repository::new(&options.cache, id);
    let known = if is_commit(revision) { Some(revision.to_owned()) } else { repository.commit_of(revision) };
    let complete = known.as_deref().is_some_and(|commit| missing(&repository, commit).is_none());
    let here = |commit: String| Ok(Branch { commit, downloaded: 0 });
    if options.offline {
        let file = known.as_deref().and_then(|commit| missing(&repository, commit));
        return match (known, file) {
            (Some(commit), None) => here(commit),
            (_, file) => Err(HubError::Offline {
                id: id.to_owned(),
                file: file.unwrap_or_else(|| format!("refs/{revision}")),
                cache: options.cache.clone(),
            }),
        };
    }
    if let Some(commit) = known.clone().filter(|_| complete && is_commit(revision) && !verify) {
        return here(commit);
    }
    let remote = Remote::new(options)?;
    let found = match ask(&remote, id, revision, options, watch).await {
        Ok(found) => found,
        Err(error) if error.is_unreachable() && complete => {
            let commit = known.clone().unwrap_or_default();
            watch(Event::Stale { revision, commit: &commit });
            return here(commit);
        }
        Err(error) => return Err(error),
    };
    if !is_commit(&found.sha) || (is_commit(revision) && found.sha != revision) {
        return Err(HubError::Revision { id: id.to_owned(), expected: revision.to_owned(), got: found.sha });
    }
    let commit = found.sha.as_str();
    let has = |file: &str| found.siblings.iter().any(|sibling| sibling.rfilename == file);
    let wanted = |path: &str| HubFile { path: path.to_owned(), sha256: None, bytes: None, optional: false };
    let mut files: Vec<HubFile> = SMALL_FILES.iter().filter(|file| has(file)).map(|file| wanted(file)).collect();
    let mut downloaded = 0;
    let mut fetch = async |files: &[HubFile]| -> Result<(), HubError> {
        downloaded += Fetch { id, commit, files, verify }.run(options, watch).await?.downloaded;
        Ok(())
    };
    if has(WEIGHTS) {
        files.push(wanted(WEIGHTS));
    } else if has(INDEX) {
        fetch(&[wanted(INDEX)]).await?;
        files.extend(shards(&repository.snapshot(commit))?.iter().map(|shard| wanted(shard)));
    } else {
        return Err(HubError::NotFound { id: id.to_owned(), what: format!("file `{WEIGHTS}`") });
    }
    fetch(&files).await?;
    if !is_commit(revision) && known.as_deref() != Some(commit) {
        repository.remember(revision, commit)?;
    }
    Ok(Branch { commit: commit.to_owned(), downloaded })
}

async fn ask(
    remote: &Remote<'_>,
    id: &str,
    revision: &str,
    options: &HubOptions,
    watch: Watch<'_>,
) -> Result<Revision, HubError> {
    let mut failed = 0;
    loop {
        match remote.revision(id, revision).await {
            Err(error) if error.is_transient() => pause(options, &mut failed, error, watch).await?,
            result => return result,
        }
    }
}

/// The first file that a snapshot lacks to be loaded.
fn missing(repository: &Repository, commit: &str) -> Option<String> {
    let has = |file: &str| repository.file(commit, file).is_some();
    let lacking = |file: &str| (!has(file)).then(|| file.to_owned());
    if let Some(file) = lacking("config.json") {
        return Some(file);
    }
    let tokenizer = has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
    if !tokenizer {
        return Some("tokenizer.json".to_owned());
    }
    if has(WEIGHTS) {
        return None;
    }
    match shards(&repository.snapshot(commit)) {
        Ok(shards) => shards.iter().find_map(|shard| lacking(shard)),
        Err(_) => Some(WEIGHTS.to_owned()),
    }
}

/// The files that a snapshot's index names.
fn shards(snapshot: &Path) -> Result<Vec<String>, HubError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let bytes = fs_err::read(snapshot.join(INDEX))?;
    let senseless = |message: String| HubError::Reply { url: INDEX.to_owned(), message };
    let index: Index = serde_json::from_slice(&bytes).map_err(|error| senseless(error.to_string()))?;
    let shards: std::collections::BTreeSet<String> = index.weight_map.into_values().collect();
    match shards.iter().find(|shard| !is_path(shard) || !shard.ends_with(".safetensors")) {
        Some(shard) => Err(senseless(format!("it names the file `{shard}`"))),
        None => Ok(shards.into_iter().collect()),
    }
}

/// The last part of a folder's path, also of `.`.
fn folder_name(folder: &Path) -> String {
    let folder = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or("model".into(), |name| name.to_string_lossy()).into_owned()
}

fn own_manifest(folder: &Path) -> Option<Manifest> {
    Manifest::parse(&fs_err::read_to_string(folder.join("locator.toml")).ok()?).ok()
}

fn is_known(model: &str) -> bool {
    Manifest::built_in().iter().any(|manifest| manifest.name == model)
}

/// A full commit hash.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `owner/name`.
fn is_id(text: &str) -> bool {
    text.split('/').count() == 2 && is_path(text)
}

/// A relative path that stays below where it starts, of characters that need no quoting in an address. Ids, branches and
/// shards become folders and files.
fn is_path(text: &str) -> bool {
    text.split('/').all(|part| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_names_folders_or_ids() {
        assert_eq!(Source::parse("pocket", None).unwrap(), Source::Embedded);
        let Source::Known { hub, .. } = Source::parse("tinyclick", None).unwrap() else { panic!("it is known") };
        assert_eq!(Source::parse(&hub.id, None).unwrap(), Source::parse("tinyclick", None).unwrap());
        let other = Source::parse("owner/name", None).unwrap();
        assert_eq!(other, Source::Hub { id: "owner/name".into(), revision: "main".into(), manifest: None });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        assert_eq!(Source::parse(&path, None).unwrap(), Source::Folder(folder.path().to_owned()));
        for bad in ["", "nothing", "./nothing", "a/b/c", "../x", "a/..", "a/b?c"] {
            assert!(matches!(Source::parse(bad, None), Err(HubError::UnknownModel { .. })), "{bad}");
        }
    }

    #[test]
    fn another_revision_keeps_the_prompt_and_lifts_the_pins() {
        assert!(matches!(Source::parse("pocket", Some("main")), Err(HubError::NoRevision { .. })));
        let other = Source::parse("tinyclick", Some("main")).unwrap();
        assert!(matches!(&other, Source::Hub { revision, manifest: Some(manifest), .. }
            if revision == "main" && manifest.lowercase));
        assert_eq!(other.name(), "tinyclick");
        let Source::Known { hub, .. } = Source::parse("tinyclick", None).unwrap() else { panic!("it is known") };
        assert!(matches!(Source::parse("tinyclick", Some(&hub.revision)), Ok(Source::Known { .. })));
        assert!(Source::parse("owner/name", Some("../../x")).is_err());
        assert!(matches!(Source::parse("owner/name", Some("refs/pr/1")), Ok(Source::Hub { .. })));
    }

    #[test]
    fn a_folder_is_called_as_its_manifest_says() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::Folder(folder.path().to_owned());
        assert_eq!(source.name(), folder.path().file_name().unwrap().to_string_lossy());
        fs_err::write(folder.path().join("locator.toml"), "name = \"mine\"").unwrap();
        assert_eq!(source.name(), "mine");
    }
}
