//! How tokens lie in memory: one after the other, as parts of larger ones, or at the start of a longer cache.

use candle_core::{Result, Tensor};

/// How (batch, tokens, channels) lies in memory, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    /// From one token to the next.
    pub stride: usize,
    /// Tokens from one row of the batch to the next.
    pub capacity: usize,
}

impl Tokens {
    /// Refuses what is not row after row of evenly spaced tokens.
    pub(super) fn of(name: &str, x: &Tensor) -> Result<Self> {
        let (batch, tokens, channels) = x.dims3()?;
        let [row, token, channel] = *x.stride() else { candle_core::bail!("`{name}` is {:?}", x.dims()) };
        // A step that is never made may be anything.
        let stride = match (batch, tokens) {
            (1, 1) => channels,
            (_, 1) => row,
            _ => token,
        };
        let capacity = if batch == 1 { tokens } else { row / stride.max(1) };
        let even = (channel == 1 || channels == 1) && stride >= channels && (batch == 1 || row == capacity * stride);
        if !even || capacity < tokens {
            candle_core::bail!("`{name}` {:?} lies in memory with the strides {:?}", x.dims(), x.stride());
        }
        Ok(Self { stride, capacity })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    fn tensor(batch: usize, tokens: usize, channels: usize) -> Tensor {
        Tensor::zeros((batch, tokens, channels), DType::F32, &Device::Cpu).unwrap()
    }

    #[test]
    fn parts_of_a_packed_tensor_and_of_a_cache_are_evenly_spaced() {
        let packed = tensor(2, 5, 12);
        for part in 0..3 {
            let part = packed.narrow(2, part * 4, 4).unwrap();
            assert_eq!(Tokens::of("q", &part).unwrap(), Tokens { stride: 12, capacity: 5 });
        }
        let cache = tensor(3, 16, 4).narrow(1, 0, 7).unwrap();
        assert_eq!(Tokens::of("k", &cache).unwrap(), Tokens { stride: 4, capacity: 16 });
        assert_eq!(Tokens::of("q", &tensor(1, 9, 4)).unwrap(), Tokens { stride: 4, capacity: 9 });
        assert_eq!(Tokens::of("q", &tensor(4, 1, 8)).unwrap(), Tokens { stride: 8, capacity: 1 });
        let one_of_each = tensor(3, 1, 12).narrow(2, 4, 4).unwrap();
        assert_eq!(Tokens::of("q", &one_of_each).unwrap(), Tokens { stride: 12, capacity: 1 });
    }

    #[test]
    fn other_layouts_are_refused() {
        let x = tensor(2, 5, 4);
        assert!(Tokens::of("q", &x.transpose(1, 2).unwrap()).is_err());
        assert!(Tokens::of("q", &x.narrow(0, 0, 1).unwrap().broadcast_as((2, 5, 4)).unwrap()).is_err());
    }
}
