//! Taking a network's tensors out of a checkpoint by their native names, and the layers that are made of them.

use candle_core::{DType, Device, Tensor};

use super::names::Layout;
use crate::kernels::{self, After, Layer, Norm, Weight};
use crate::models::weights::{Weights, WeightsError};
use crate::models::{Precision, Result};

/// Florence-2 uses this everywhere.
const LAYER_NORM_EPSILON: f32 = 1e-5;

/// A checkpoint being taken apart.
pub struct Source<'a> {
    weights: &'a mut Weights,
    layout: Layout,
    device: &'a Device,
    precision: Precision,
}

/// A place in the checkpoint: `vb.pp("blocks").pp(0)` style paths, so that loading reads like the list of tensors.
pub struct Path<'s, 'a> {
    source: &'s mut Source<'a>,
    prefix: String,
}

/// A linear layer: weight (out, in) and bias (out).
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Tensor,
}

/// Layer normalisation: weight and bias (channels), in f32.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl<'a> Source<'a> {
    /// All tensors of `weights`, to be computed with in `precision` on `device`.
    pub const fn new(weights: &'a mut Weights, layout: Layout, precision: Precision, device: &'a Device) -> Self {
        Self { weights, layout, device, precision }
    }

    /// The type of everything between two products, and of biases. A CPU has no use for bfloat16 there: it would have to
    /// widen every number before it can do anything with it.
    pub fn dtype(&self) -> DType {
        match self.precision {
            Precision::Bf16 if self.device.is_cpu() => DType::F32,
            precision => precision.dtype(),
        }
    }

    /// The type of the matrices that products are made with.
    pub const fn weight_dtype(&self) -> DType {
        self.precision.dtype()
    }

    /// The type of the matrix that logits are made with: f32, since logits in half the digits would put neighbouring places on
    /// top of each other. Packed bfloat16 gives its sums in f32.
    pub fn logits_dtype(&self) -> DType {
        if self.device.is_cpu() && self.precision == Precision::Bf16 { DType::BF16 } else { DType::F32 }
    }

    /// How the checkpoint names its tensors.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// A tensor by its full native name.
    pub fn tensor(&mut self, native: &str, shape: &[usize], dtype: DType) -> std::result::Result<Tensor, WeightsError> {
        self.weights.take(&self.layout.name(native), shape, dtype, self.device)
    }

    /// The first `out` rows of a matrix by its full native name, as a weight.
    pub fn weight(
        &mut self,
        native: &str,
        shape: [usize; 2],
        out: usize,
        dtype: DType,
    ) -> std::result::Result<Weight, WeightsError> {
        self.weights.take_weight(&self.layout.name(native), shape, out, dtype, self.device)
    }

    /// Whether the checkpoint has a tensor of this full native name.
    pub fn has(&self, native: &str) -> bool {
        self.weights.has(&self.layout.name(native))
    }

    /// The place `prefix`.
    pub fn at(&mut self, prefix: &str) -> Path<'_, 'a> {
        Path { source: self, prefix: prefix.to_owned() }
    }
}

impl<'a> Path<'_, 'a> {
    /// One step further.
    pub fn pp(&mut self, step: impl std::fmt::Display) -> Path<'_, 'a> {
        let prefix = format!("{}.{step}", self.prefix);
        Path { source: &mut *self.source, prefix }
    }

    /// The tensor `name` here, in the type of everything between two products.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> std::result::Result<Tensor, WeightsError> {
        let dtype = self.source.dtype();
        self.source.tensor(&format!("{}.{name}", self.prefix), shape, dtype)
    }

    /// The tensor `name` here, in the type of the matrices that products are made with.
    pub fn matrix(&mut self, name: &str, shape: &[usize]) -> std::result::Result<Tensor, WeightsError> {
        let dtype = self.source.weight_dtype();
        self.source.tensor(&format!("{}.{name}", self.prefix), shape, dtype)
    }

    /// The tensor `name` here, in f32 whatever is computed with.
    pub fn tensor_f32(&mut self, name: &str, shape: &[usize]) -> std::result::Result<Tensor, WeightsError> {
        self.source.tensor(&format!("{}.{name}", self.prefix), shape, DType::F32)
    }

    /// The weight of a linear layer here.
    pub fn weight(&mut self, inner: usize, out: usize) -> std::result::Result<Weight, WeightsError> {
        let dtype = self.source.weight_dtype();
        self.source.weight(&format!("{}.weight", self.prefix), [out, inner], out, dtype)
    }

    /// A linear layer here.
    pub fn linear(&mut self, inner: usize, out: usize) -> std::result::Result<Linear, WeightsError> {
        Ok(Linear { weight: self.weight(inner, out)?, bias: self.tensor("bias", &[out])? })
    }

    /// A layer normalisation here.
    pub fn layer_norm(&mut self, channels: usize) -> std::result::Result<LayerNorm, WeightsError> {
        Ok(LayerNorm { weight: self.tensor_f32("weight", &[channels])?, bias: self.tensor_f32("bias", &[channels])? })
    }
}

impl Linear {
    /// A layer of these tensors.
    pub fn new(weight: Tensor, bias: Tensor) -> Result<Self> {
        Ok(Self { weight: Weight::new(weight)?, bias })
    }

    /// A layer of this weight (out, in) and bias (out).
    pub const fn of(weight: Weight, bias: Tensor) -> Self {
        Self { weight, bias }
    }

    /// As the kernels take it.
    pub const fn layer(&self) -> Layer<'_> {
        Layer { weight: &self.weight, bias: Some(&self.bias) }
    }

    /// (..., in) to (..., out).
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernels::linear(x, self.layer(), After::Nothing)
    }
}

impl LayerNorm {
    /// As the kernels take it.
    pub const fn norm(&self) -> Norm<'_> {
        Norm { weight: &self.weight, bias: &self.bias, epsilon: LAYER_NORM_EPSILON }
    }

    /// Over the last dimension, in f32.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernels::layer_norm(x, self.norm())
    }
}

/// A tensor was there and could not be brought into the shape that is computed with.
pub fn failed(tensor: &str, error: &candle_core::Error) -> WeightsError {
    WeightsError::Device { tensor: tensor.to_owned(), message: error.to_string() }
}
