//! Ids and positions to embeddings, into a place of a longer tensor: nothing is put together afterwards.

use candle_core::{DType, Result, Tensor};

use super::launch::{Call, expect};
use crate::kernels::catalogue::Kernel;

/// Numbers that one block writes: four for each of its threads.
const NUMBERS: usize = 1024;
const THREADS: u32 = 256;
/// Position p is row p + 2 of a BART's table.
const POSITION_OFFSET: usize = 2;

/// The tables that ids and positions are looked up in.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// (vocabulary, channels).
    pub tokens: &'a Tensor,
    /// (positions + 2, channels).
    pub positions: &'a Tensor,
}

/// `out[row, offset + i] = tokens[ids[row, i]] + positions[first + offset + i + 2]`; out is (rows, tokens, channels), ids
/// is u32 (rows, count), first, where the row begins, is i32 (1), or 0 where there is none.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn embed_into(out: &Tensor, ids: &Tensor, tables: Tables<'_>, first: Option<&Tensor>, offset: usize) -> Result<()> {
    let (rows, out_tokens, channels) = out.dims3()?;
    let ((vocabulary, _), (positions, _)) = (tables.tokens.dims2()?, tables.positions.dims2()?);
    let count = ids.dim(1)?;
    expect("ids", ids, &[rows, count])?;
    expect("tokens", tables.tokens, &[vocabulary, channels])?;
    expect("positions", tables.positions, &[positions, channels])?;
    first.map(|first| expect("first", first, &[1])).transpose()?;
    fits(offset, count, out_tokens, positions)?;
    let dtype = out.dtype();
    let call = Call::new(Kernel::Embed, out)
        .read(ids, DType::U32)
        .read(tables.tokens, dtype)
        .read(tables.positions, dtype)
        .read_or_null(first, DType::I32)
        .write(out, dtype)
        .int(count)
        .int(channels)
        .int(vocabulary)
        .int(positions)
        .int(out_tokens)
        .int(offset);
    // SAFETY: ids has rows x count numbers, the tables vocabulary and positions rows of channels, out rows x out_tokens x
    // channels, of which offset + count tokens exist; the kernel cuts ids and positions that are not in the tables.
    unsafe { call.launch([(count * channels).div_ceil(NUMBERS), rows, 1], [THREADS, 1]) }
}

/// `out[row, i] = x[row, i] + positions[i + 2]`; x is (rows, count, channels), out (rows, tokens, channels), of which the
/// first `count` tokens are written.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn place_into(out: &Tensor, x: &Tensor, positions: &Tensor) -> Result<()> {
    let (rows, out_tokens, channels) = out.dims3()?;
    let (count, table) = (x.dim(1)?, positions.dim(0)?);
    expect("x", x, &[rows, count, channels])?;
    expect("positions", positions, &[table, channels])?;
    fits(0, count, out_tokens, table)?;
    let dtype = out.dtype();
    let call = Call::new(Kernel::Place, out)
        .read(x, dtype)
        .read(positions, dtype)
        .write(out, dtype)
        .int(count)
        .int(channels)
        .int(out_tokens);
    // SAFETY: x has rows x count x channels numbers, positions at least count + 2 rows of channels, out rows x out_tokens x
    // channels, and count <= out_tokens.
    unsafe { call.launch([(count * channels).div_ceil(NUMBERS), rows, 1], [THREADS, 1]) }
}

/// That tokens have a place in the output and a row in the table of positions.
fn fits(offset: usize, count: usize, out_tokens: usize, positions: usize) -> Result<()> {
    let end = offset + count;
    if end > out_tokens || end + POSITION_OFFSET > positions {
        candle_core::bail!("tokens up to {end} in {out_tokens} places and {positions} rows of positions");
    }
    Ok(())
}
