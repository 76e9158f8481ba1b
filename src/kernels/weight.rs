//! The weight of a linear layer as its device wants it.

use candle_core::{DType, Result, Tensor};

use super::number::{Bf16, Number};
use super::numbers_of;
use super::packed::Packed;

/// A weight (out, in).
#[derive(Debug)]
pub struct Weight(pub(super) Form);

/// How a weight lies in memory: packed on the CPU, as it is for everything else.
#[derive(Debug)]
pub(super) enum Form {
    /// In panels of f32.
    F32(Packed<f32>),
    /// In panels of bfloat16. What is multiplied with it is rounded to bfloat16; sums and everything else are in f32.
    Bf16(Packed<Bf16>),
    /// (out, in).
    Plain(Tensor),
}

/// Numbers as a checkpoint's file has them: little-endian, wherever they lie.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    /// 32-bit floats.
    F32(&'a [[u8; 4]]),
    /// bfloat16.
    Bf16(&'a [[u8; 2]]),
    /// 16-bit floats.
    F16(&'a [[u8; 2]]),
}

impl Weight {
    /// From (out, in), packed in the tensor's own format.
    ///
    /// # Errors
    /// Another number of dimensions, or a device failure.
    pub fn new(weight: Tensor) -> Result<Self> {
        let (out, inner) = weight.dims2()?;
        if !weight.device().is_cpu() || out * inner == 0 {
            return Ok(Self(Form::Plain(if weight.is_contiguous() { weight } else { weight.contiguous()? })));
        }
        let weight = weight.contiguous()?;
        match weight.dtype() {
            DType::F32 => Ok(Self(Form::F32(Packed::new(&numbers_of::<f32>(&weight)?, out, inner, |number| number)))),
            DType::BF16 => {
                let number = |number: half::bf16| Bf16(number.to_bits());
                Ok(Self(Form::Bf16(Packed::new(&numbers_of::<half::bf16>(&weight)?, out, inner, number))))
            }
            _ => Ok(Self(Form::Plain(weight))),
        }
    }

    /// Packs `out` rows of `inner` numbers for the CPU straight from a file, without another copy of them. `None`: there is
    /// no packed form of this format.
    #[must_use]
    pub fn pack(stored: Stored<'_>, (out, inner): (usize, usize), format: DType) -> Option<Self> {
        match format {
            _ if out * inner == 0 => None,
            DType::F32 => Some(Self(Form::F32(pack(stored, out, inner)))),
            DType::BF16 => Some(Self(Form::Bf16(pack(stored, out, inner)))),
            _ => None,
        }
    }
}

fn pack<N: Number>(stored: Stored<'_>, out: usize, inner: usize) -> Packed<N> {
    match stored {
        Stored::F32(numbers) => Packed::new(numbers, out, inner, |bytes| N::from_f32(f32::from_le_bytes(bytes))),
        Stored::Bf16(numbers) => {
            Packed::new(numbers, out, inner, |bytes| N::from_f32(half::bf16::from_le_bytes(bytes).to_f32()))
        }
        Stored::F16(numbers) => {
            Packed::new(numbers, out, inner, |bytes| N::from_f32(half::f16::from_le_bytes(bytes).to_f32()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::super::{After, Layer, linear};
    use super::*;

    #[test]
    fn packed_from_a_file_is_packed_from_a_tensor() {
        let (x, weight) = (random(&[3, 37], 1), random(&[41, 37], 2));
        let run = |weight: &Weight| linear(&x, Layer { weight, bias: None }, After::Nothing).unwrap();
        for stored in [DType::F32, DType::BF16, DType::F16] {
            let weight = weight.to_dtype(stored).unwrap();
            let numbers = weight.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let long: Vec<[u8; 4]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
            let brain: Vec<[u8; 2]> =
                numbers.iter().map(|number| half::bf16::from_f32(*number).to_le_bytes()).collect();
            let half: Vec<[u8; 2]> = numbers.iter().map(|number| half::f16::from_f32(*number).to_le_bytes()).collect();
            let file = match stored {
                DType::F32 => Stored::F32(&long),
                DType::BF16 => Stored::Bf16(&brain),
                _ => Stored::F16(&half),
            };
            for format in [DType::F32, DType::BF16] {
                let packed = Weight::pack(file, (41, 37), format).unwrap();
                let expected = Weight::new(weight.to_dtype(DType::F32).unwrap().to_dtype(format).unwrap()).unwrap();
                assert_close(&run(&packed), &run(&expected), 0.0);
            }
            assert!(Weight::pack(file, (41, 37), DType::F16).is_none());
        }
    }

    #[test]
    fn refuses_other_shapes() {
        assert!(Weight::new(random(&[2, 3, 4], 1)).is_err());
        assert!(matches!(Weight::new(random(&[2, 3], 1).to_dtype(DType::F16).unwrap()).unwrap().0, Form::Plain(_)));
    }
}
