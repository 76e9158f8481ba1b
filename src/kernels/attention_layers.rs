//! What DaViT's two attention blocks have in common: their layers, checked once and borrowed as numbers for all threads.

use candle_core::Result;

use super::layer_norm::{Norm, Normaliser};
use super::linear::{Layer, bias_of};
use super::number::Number;
use super::packed::Packed;

/// A normalisation, the layer to queries, keys and values, and the projection of what was attended.
pub(super) struct AttentionLayers<'a, N> {
    pub norm: Normaliser<'a>,
    pub qkv: &'a Packed<N>,
    pub qkv_bias: &'a [f32],
    pub proj: &'a Packed<N>,
    pub proj_bias: &'a [f32],
    /// Channels of a head or group.
    pub size: usize,
}

/// Shows `work` the layers of a block of `channels` channels in `parts` heads or groups, whose packed weights are given.
///
/// # Errors
/// Layers that do not fit, or what `work` returns.
pub(super) fn with_layers<N: Number, R>(
    (channels, parts): (usize, usize),
    norm: Norm<'_>,
    (qkv, qkv_layer): (&Packed<N>, Layer<'_>),
    (proj, proj_layer): (&Packed<N>, Layer<'_>),
    work: impl FnOnce(&AttentionLayers<'_, N>) -> Result<R>,
) -> Result<R> {
    let fits = qkv.dims() == (3 * channels, channels) && proj.dims() == (channels, channels);
    if !fits || parts == 0 || !channels.is_multiple_of(parts) {
        candle_core::bail!(
            "layers of {:?} and {:?} for {parts} heads or groups of {channels} channels",
            qkv.dims(),
            proj.dims()
        );
    }
    let norm = norm.slices(channels)?;
    let (qkv_bias, proj_bias) = (bias_of(qkv_layer.bias, 3 * channels)?, bias_of(proj_layer.bias, channels)?);
    let none = vec![0.0; 3 * channels];
    work(&AttentionLayers {
        norm: norm.get(),
        qkv,
        qkv_bias: qkv_bias.as_deref().unwrap_or(&none),
        proj,
        proj_bias: proj_bias.as_deref().unwrap_or_default(),
        size: channels / parts,
    })
}
