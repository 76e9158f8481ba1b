//! The batch after the present one, taken early so that its screenshots travel to the device while it is busy.

use super::features::{FeatureCache, FeatureKey};
use super::prepare::ImageInput;
use super::queue::Waiting;
use crate::models::{Uploaded, Uploader};

/// A batch that runs next.
pub(super) struct Ahead {
    tickets: Vec<Waiting>,
    upload: Option<Upload>,
}

/// Screenshots that are on their way.
pub(super) struct Upload {
    keys: Vec<FeatureKey>,
    pub images: Uploaded,
}

impl Ahead {
    /// Sends the screenshots of these tickets on their way, those that have no features yet, each once. When that fails, the
    /// batch will fail where its errors have somebody to be told to, or succeed after all.
    pub fn new(tickets: Vec<Waiting>, cache: &FeatureCache, uploader: &dyn Uploader) -> Self {
        let (mut keys, mut all): (Vec<FeatureKey>, Vec<&[f32]>) = (Vec::new(), Vec::new());
        for ticket in tickets.iter().filter(|ticket| !ticket.is_cancelled()) {
            if let ImageInput::Pixels { key, pixels, .. } = &ticket.work.image
                && !keys.contains(key)
                && cache.get(key).is_none()
            {
                keys.push(*key);
                all.push(pixels);
            }
        }
        let upload = (!all.is_empty()).then(|| uploader.upload(&all));
        let upload = match upload.transpose() {
            Ok(images) => images.map(|images| Upload { keys, images }),
            Err(error) => {
                tracing::warn!(%error, "screenshots were not uploaded ahead of their batch");
                None
            }
        };
        Self { tickets, upload }
    }

    /// The tickets, and what is on its way for them.
    pub fn apart(self) -> (Vec<Waiting>, Option<Upload>) {
        (self.tickets, self.upload)
    }

    /// The tickets alone, for another engine.
    pub fn into_tickets(self) -> Vec<Waiting> {
        self.tickets
    }
}

impl Upload {
    /// Whether these screenshots, in this order, are what is on its way. They are not when callers have left meanwhile, or when
    /// the batch before has encoded one of them.
    pub fn is_of<'a>(&self, keys: impl ExactSizeIterator<Item = &'a FeatureKey>) -> bool {
        keys.len() == self.keys.len() && keys.eq(&self.keys)
    }
}
