//! The decoder's caches of keys and values, in buffers that stay where they are: what a graph captured keeps being right.
//! How far they are filled lies on the device too.

use candle_core::{DType, Result, Tensor};

use super::launch::{Call, expect};
use super::tokens::Tokens;
use crate::kernels::catalogue::Kernel;

/// Numbers that one block copies: four for each of its threads.
const NUMBERS: usize = 1024;
const THREADS: u32 = 256;

/// Writes each row's new tokens behind what its cache holds: `cache[row, length + i] = new[row, i]`, while there is room.
/// cache is (rows, capacity, channels); new is (rows, count, channels), evenly spaced tokens such as a part of (rows,
/// count, 3 channels); length is i32 (1), and is not changed.
///
/// # Errors
/// Shapes, types or layouts that do not fit, or a device failure.
pub fn append_into(cache: &Tensor, new: &Tensor, length: &Tensor) -> Result<()> {
    let (rows, capacity, channels) = cache.dims3()?;
    let count = new.dim(1)?;
    expect("new", new, &[rows, count, channels])?;
    expect("length", length, &[1])?;
    let Tokens { stride, capacity: between_rows } = Tokens::of("new", new)?;
    if between_rows != count {
        candle_core::bail!("`new` has {count} tokens of {between_rows} in each row: all must be new");
    }
    let dtype = cache.dtype();
    let call = Call::new(Kernel::Append, cache)
        .read_strided(new, dtype)
        .write(cache, dtype)
        .read(length, DType::I32)
        .int(count)
        .int(capacity)
        .int(channels)
        .int(stride);
    // SAFETY: cache has rows x capacity x channels numbers, new rows x count tokens of `channels` numbers, `stride`
    // apart, length one; the kernel leaves out what would lie beyond the capacity.
    unsafe { call.launch([(count * channels).div_ceil(NUMBERS), rows, 1], [THREADS, 1]) }
}

/// Makes the rows of all layers' caches copies of present rows: `out[layer, row, t] = caches[layer, from[row], t]` for
/// each filled t. caches and out are different buffers, (layers, row capacity, capacity, channels); from is i32 (rows),
/// each below the row capacity, length i32 (1).
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn reorder_into(out: &Tensor, caches: &Tensor, from: &Tensor, length: &Tensor) -> Result<()> {
    let (layers, row_capacity, capacity, channels) = caches.dims4()?;
    let rows = from.dim(0)?;
    expect("out", out, caches.dims())?;
    expect("from", from, &[rows])?;
    expect("length", length, &[1])?;
    if rows > row_capacity {
        candle_core::bail!("{rows} rows in caches of {row_capacity}");
    }
    let dtype = caches.dtype();
    let call = Call::new(Kernel::Reorder, caches)
        .read(caches, dtype)
        .write(out, dtype)
        .read(from, DType::I32)
        .read(length, DType::I32)
        .int(row_capacity)
        .int(capacity)
        .int(channels);
    // SAFETY: caches and out have layers x row_capacity x capacity x channels numbers, from has rows <= row_capacity,
    // length one; the kernel stops at the capacity, and the rows of `from` exist, as its documentation asks for.
    unsafe { call.launch([(capacity * channels).div_ceil(NUMBERS), rows, layers], [THREADS, 1]) }
}
