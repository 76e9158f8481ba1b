//! One tensor added to each item of a batch, such as positions to tokens. On the thread that asks: Candle's own addition wakes
//! a thread of a pool of its own and waits for it, which takes longer than the sum.

use candle_core::{Device, Result, Tensor};

use super::numbers;

/// x + addend for each item of the batch; x is (batch, ...), addend is shaped like one item, with or without a batch of one.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn add_to_each(x: &Tensor, addend: &Tensor) -> Result<Tensor> {
    let item = if addend.rank() == x.rank() { addend.dims().get(1..) } else { Some(addend.dims()) };
    if x.dims().get(1..) != item || (addend.rank() == x.rank() && addend.dim(0)? != 1) {
        candle_core::bail!("{:?} cannot be added to each item of {:?}", addend.dims(), x.dims());
    }
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::add_to_each(x, addend);
    }
    if !super::is_fast(x) || !super::is_fast(addend) {
        return x.broadcast_add(addend);
    }
    let (items, addend) = (x.contiguous()?, addend.contiguous()?);
    let (items, addend) = (numbers(&items)?, numbers(&addend)?);
    let mut out = Vec::with_capacity(items.len());
    for item in items.chunks_exact(addend.len().max(1)) {
        out.extend(item.iter().zip(&*addend).map(|(value, addend)| value + addend));
    }
    Tensor::from_vec(out, x.shape(), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_broadcast_sum() {
        for (batch, tokens, channels) in [(1, 1, 1), (3, 5, 7), (2, 33, 64)] {
            let (x, addend) = (random(&[batch, tokens, channels], 1), random(&[tokens, channels], 2));
            let expected = x.broadcast_add(&addend).unwrap();
            assert_close(&add_to_each(&x, &addend).unwrap(), &expected, 0.0);
            assert_close(&add_to_each(&x, &addend.unsqueeze(0).unwrap()).unwrap(), &expected, 0.0);
        }
    }

    #[test]
    fn refuses_what_is_not_shaped_like_an_item() {
        let x = random(&[2, 3, 4], 1);
        for other in [&[4][..], &[2, 4], &[2, 3, 4]] {
            assert!(add_to_each(&x, &random(other, 2)).is_err(), "{other:?}");
        }
    }
}
