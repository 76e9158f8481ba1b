//! What happens once for each size of batch, such as loading kernels and recording graphs, before the first request.

use std::time::Instant;

use super::generate::{self, Plan};
use crate::models::{LoadedModel, PromptRow, Result, VisualFeatures};

/// Answers empty screenshots in batches of every shape that the model asks for, as requests that say nothing about decoding are
/// answered.
pub(super) fn warm_up(model: &LoadedModel, largest: usize) -> Result<()> {
    let (locator, profile) = (&*model.locator, &*model.profile);
    let shapes = locator.shapes(largest);
    if shapes.is_empty() {
        return Ok(());
    }
    let started = Instant::now();
    locator.warming_up(true);
    let blank = vec![0.0; 3 * profile.image.width as usize * profile.image.height as usize];
    let grammar = profile.grammar();
    let plan = Plan { strategy: profile.generation.strategy, constrained: grammar.is_some(), alternatives: 0 };
    for shape in &shapes {
        let features: Vec<VisualFeatures> = locator.encode_images(&vec![blank.as_slice(); shape.rows])?;
        locator.synchronize()?;
        let ids = vec![profile.generation.end; shape.prompt];
        let rows: Vec<PromptRow<'_>> = features.iter().map(|features| PromptRow { features, ids: &ids }).collect();
        let mut session = locator.begin(&rows)?;
        generate::generate(&mut *session, rows.len(), &profile.generation, grammar.as_ref(), plan)?;
        drop(session);
        locator.synchronize()?;
    }
    locator.warming_up(false);
    tracing::info!(batches = shapes.len(), milliseconds = started.elapsed().as_millis(), "warmed up");
    Ok(())
}
