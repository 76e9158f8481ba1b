//! `tapline pull`: brings models into the cache and checks what is there.

use indicatif::HumanBytes;

use super::progress::Progress;
use super::{Failure, print, say};
use crate::hub::{self, HubOptions, Source};
use crate::models::Checkpoint;

/// Flags of `tapline pull`.
#[derive(Debug, clap::Args)]
pub struct Pull {
    /// Models to download: `tinyclick`, or hub ids `owner/name`.
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
    /// Branch, tag or commit. Unset: the pinned commit of a known model, `main` of any other.
    #[arg(long, env = "TAPLINE_REVISION", value_name = "REVISION")]
    revision: Option<String>,
}

impl Pull {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let sources: Result<Vec<Source>, _> =
            self.models.iter().map(|model| Source::parse(model, self.revision.as_deref())).collect();
        let options = HubOptions::from_environment();
        for source in sources? {
            let name = source.name();
            let progress = Progress::new();
            let resolved = hub::resolve(&source, &options, true, &|event| progress.show(event))?;
            let news = match (&source, resolved.downloaded) {
                (Source::Embedded, _) => "is inside this program: there is nothing to download".to_owned(),
                (Source::Folder(_), _) => "is a folder: there is nothing to download".to_owned(),
                (_, 0) => "is here already, and right".to_owned(),
                (_, bytes) => format!("is complete, {} downloaded", HumanBytes(bytes)),
            };
            say(format_args!("{name} {news}"));
            if let Checkpoint::Folder(folder) = resolved.checkpoint {
                print(&format!("{}\n", folder.display()))?;
            }
        }
        Ok(())
    }
}
