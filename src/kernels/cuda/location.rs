//! The best tokens of each row of logits, with their log-probabilities over the whole vocabulary.

use candle_core::{DType, Result, Tensor};

use super::launch::{Call, empty, expect};
use crate::kernels::catalogue::Kernel;

const THREADS: u32 = 1024;

/// Tokens chosen for each row, best first, on the device.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// i32 (rows, choices).
    pub ids: Tensor,
    /// f32 (rows, choices): log-softmax over the whole vocabulary, at the ids.
    pub log_probabilities: Tensor,
}

impl Chosen {
    /// Room for choices, on the device of `like`.
    ///
    /// # Errors
    /// No rows or choices, or a device failure.
    pub fn room(rows: usize, choices: usize, like: &Tensor) -> Result<Self> {
        let ids = empty((rows, choices), DType::I32, like.device())?;
        Ok(Self { ids, log_probabilities: empty((rows, choices), DType::F32, like.device())? })
    }
}

/// For each row of logits, f32 (rows, vocabulary), the best id of its range and the best of all; `ranges` is i32 (rows,
/// 2): first id and end of each. The lowest of equals is taken, and a NaN only where there is nothing else.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn best_location(logits: &Tensor, ranges: &Tensor) -> Result<Chosen> {
    let chosen = Chosen::room(logits.dim(0)?, 2, logits)?;
    best_location_into(&chosen, logits, ranges)?;
    Ok(chosen)
}

/// As [`best_location`], into tensors that are there.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn best_location_into(chosen: &Chosen, logits: &Tensor, ranges: &Tensor) -> Result<()> {
    let (rows, vocabulary) = logits.dims2()?;
    expect("ranges", ranges, &[rows, 2])?;
    expect("ids", &chosen.ids, &[rows, 2])?;
    expect("log_probabilities", &chosen.log_probabilities, &[rows, 2])?;
    let call = Call::new(Kernel::BestLocation, logits)
        .read(logits, DType::F32)
        .read(ranges, DType::I32)
        .write(&chosen.ids, DType::I32)
        .write(&chosen.log_probabilities, DType::F32)
        .int(vocabulary);
    // SAFETY: logits has rows x vocabulary numbers, the others rows x 2 each; the kernel cuts ranges to the vocabulary.
    unsafe { call.launch([rows, 1, 1], [THREADS, 1]) }
}

/// The `count` best ids of each row of logits, f32 (rows, vocabulary), the lower id first among equals.
///
/// # Errors
/// A count of nothing or beyond the vocabulary, logits that are not contiguous, or a device failure.
pub fn highest(logits: &Tensor, count: usize) -> Result<Chosen> {
    let chosen = Chosen::room(logits.dim(0)?, count, logits)?;
    highest_into(&chosen, logits)?;
    Ok(chosen)
}

/// As [`highest`], as many as there is room for, into tensors that are there.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn highest_into(chosen: &Chosen, logits: &Tensor) -> Result<()> {
    let (rows, vocabulary) = logits.dims2()?;
    let count = chosen.ids.dim(1)?;
    expect("ids", &chosen.ids, &[rows, count])?;
    expect("log_probabilities", &chosen.log_probabilities, &[rows, count])?;
    if count > vocabulary {
        candle_core::bail!("the {count} best of {vocabulary} ids");
    }
    let call = Call::new(Kernel::Highest, logits)
        .read(logits, DType::F32)
        .write(&chosen.ids, DType::I32)
        .write(&chosen.log_probabilities, DType::F32)
        .int(vocabulary)
        .int(count);
    // SAFETY: logits has rows x vocabulary numbers, the others rows x count, and count <= vocabulary.
    unsafe { call.launch([rows, 1, 1], [THREADS, 1]) }
}
