//! What a decode step is made of, on plain f32 numbers in memory that the caller keeps: nothing here allocates after
//! loading. A step has few rows, so layers are shared out among threads by their outputs and attention by its heads. The
//! same operations on tensors, in the modules beside this one, are the reference.

mod columns;
mod history;
mod linear;
mod memory;

use candle_core::{DType, Result, Tensor};

use super::{Norm, numbers, numbers_of};

pub use history::History;
pub use linear::{Finish, StepLinear};
pub use memory::{Memory, attend};

/// Products worth a task of their own: some microseconds.
const TASK: usize = 1 << 18;

/// Token and position for each of `ids`: out is (ids, channels). Row by row, `new` ids each; the first of a row stands at
/// row `first` of the position table.
///
/// # Errors
/// An id or a position that its table does not have, or tables that are not on the CPU: tokens in f32 or bfloat16, positions in
/// f32.
pub fn embed(
    tokens: &Tensor,
    positions: &Tensor,
    ids: &[u32],
    new: usize,
    first: usize,
    out: &mut [f32],
) -> Result<()> {
    let (_, channels) = tokens.dims2()?;
    let places = positions.dim(0)?;
    if new == 0 || first + new > places || out.len() != ids.len() * channels {
        candle_core::bail!("{new} ids from position {first} on, of {places} positions, into {} numbers", out.len());
    }
    match tokens.dtype() {
        DType::BF16 => embed_from::<half::bf16>(&numbers_of(tokens)?, &numbers(positions)?, (ids, new, first), out),
        _ => embed_from::<f32>(&numbers(tokens)?, &numbers(positions)?, (ids, new, first), out),
    }
}

fn embed_from<T: Copy + Into<f32>>(
    tokens: &[T],
    positions: &[f32],
    (ids, new, first): (&[u32], usize, usize),
    out: &mut [f32],
) -> Result<()> {
    let channels = out.len() / ids.len().max(1);
    let words = tokens.len() / channels.max(1);
    for (index, (&id, out)) in ids.iter().zip(out.chunks_exact_mut(channels)).enumerate() {
        let id = id as usize;
        if id >= words {
            candle_core::bail!("id {id} of {words}");
        }
        let place = first + index % new;
        let (token, position) = (&tokens[id * channels..], &positions[place * channels..]);
        for (out, (&token, position)) in out.iter_mut().zip(token.iter().zip(position)) {
            *out = token.into() + position;
        }
    }
    Ok(())
}

/// [`layer_norm`](super::layer_norm()) of the rows of x into out, on this thread.
///
/// # Errors
/// Shapes that do not fit.
pub fn normalise(x: &[f32], norm: Norm<'_>, out: &mut [f32]) -> Result<()> {
    let channels = norm.weight.elem_count();
    if channels == 0 || x.len() != out.len() || !x.len().is_multiple_of(channels) {
        candle_core::bail!("layer norm of {channels} channels from {} to {} numbers", x.len(), out.len());
    }
    norm.slices(channels)?.get().rows(out, x);
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn embeds_tokens_at_their_positions() {
        let (tokens, positions) = (random(&[7, 5], 1), random(&[9, 5], 2));
        let mut out = vec![0.0; 4 * 5];
        embed(&tokens, &positions, &[6, 0, 3, 3], 2, 4, &mut out).unwrap();
        let ids = Tensor::new(&[6u32, 0, 3, 3], &Device::Cpu).unwrap();
        let places = Tensor::new(&[4u32, 5, 4, 5], &Device::Cpu).unwrap();
        let expected = tokens.index_select(&ids, 0).unwrap() + positions.index_select(&places, 0).unwrap();
        assert_close(&Tensor::from_vec(out.clone(), (4, 5), &Device::Cpu).unwrap(), &expected.unwrap(), 0.0);
        assert!(embed(&tokens, &positions, &[7, 0, 3, 3], 2, 4, &mut out).is_err(), "there is no id 7");
        assert!(embed(&tokens, &positions, &[6, 0, 3, 3], 2, 8, &mut out).is_err(), "there is no position 9");
    }

    #[test]
    fn normalises_as_on_tensors() {
        let (x, w, b) = (random(&[3, 33], 1), random(&[33], 2), random(&[33], 3));
        let norm = Norm { weight: &w, bias: &b, epsilon: 1e-5 };
        let mut out = vec![0.0; 3 * 33];
        normalise(&numbers(&x).unwrap(), norm, &mut out).unwrap();
        let expected = crate::kernels::layer_norm(&x, norm).unwrap();
        assert_close(&Tensor::from_vec(out, (3, 33), &Device::Cpu).unwrap(), &expected, 0.0);
        assert!(normalise(&[0.0; 34], norm, &mut [0.0; 34]).is_err());
    }
}
