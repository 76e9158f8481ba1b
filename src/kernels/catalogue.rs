//! The kernels by name: module, function, and the kinds of their parameters, as `kernels/README.md` has them.

use candle_core::DType;

/// A kernel of `kernels/*.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    ResizeHorizontal,
    ResizeVertical,
    Depthwise,
    WindowAttention,
    ChannelAttentionLogits,
    ChannelAttentionSoftmax,
    ChannelAttentionApply,
    LayerNorm,
    Bias,
    BiasGelu,
    BiasResidual,
    Attention,
    AttentionFew,
    Patches,
    BestLocation,
    Highest,
    Reorder,
    Append,
    Embed,
    Place,
    ImageTokens,
}

/// What the name of a kernel ends in: one function for each number format.
pub(super) const SUFFIXES: [&str; 3] = ["_f32", "_bf16", "_f16"];

/// Where a kernel is found and what it takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The file, without its ending.
    pub module: &'static str,
    /// The function, without the number format.
    pub function: &'static str,
    /// Whether there is one function for each number format.
    pub formats: bool,
    /// A letter for each parameter: `p` a pointer, `i` an `int`, `l` a `long long`, `f` a `float`.
    pub parameters: &'static str,
}

impl Kernel {
    pub(super) const ALL: [Self; 21] = [
        Self::ResizeHorizontal,
        Self::ResizeVertical,
        Self::Depthwise,
        Self::WindowAttention,
        Self::ChannelAttentionLogits,
        Self::ChannelAttentionSoftmax,
        Self::ChannelAttentionApply,
        Self::LayerNorm,
        Self::Bias,
        Self::BiasGelu,
        Self::BiasResidual,
        Self::Attention,
        Self::AttentionFew,
        Self::Patches,
        Self::BestLocation,
        Self::Highest,
        Self::Reorder,
        Self::Append,
        Self::Embed,
        Self::Place,
        Self::ImageTokens,
    ];

    pub(super) const fn entry(self) -> Entry {
        let (module, function, formats, parameters) = match self {
            Self::ResizeHorizontal => ("resize", "resize_horizontal", false, "pppppiii"),
            Self::ResizeVertical => ("resize", "resize_vertical", true, "ppppppii"),
            Self::Depthwise => ("depthwise", "depthwise", true, "ppppiii"),
            Self::WindowAttention => ("window_attention", "window_attention", true, "pppiiiiif"),
            Self::ChannelAttentionLogits => ("channel_attention", "channel_attention_logits", true, "ppiiif"),
            Self::ChannelAttentionSoftmax => ("channel_attention", "channel_attention_softmax", false, "ppiii"),
            Self::ChannelAttentionApply => ("channel_attention", "channel_attention_apply", true, "pppiii"),
            Self::LayerNorm => ("layer_norm", "layer_norm", true, "pppppppiif"),
            Self::Bias => ("bias", "bias", true, "ppli"),
            Self::BiasGelu => ("bias", "bias_gelu", true, "ppli"),
            Self::BiasResidual => ("bias", "bias_residual", true, "pppli"),
            Self::Attention => ("attention", "attention", true, "ppppppiiiiiiif"),
            Self::AttentionFew => ("attention", "attention_few", true, "ppppppiiiiiiif"),
            Self::Patches => ("patches", "patches", true, "ppliiiiiiiii"),
            Self::BestLocation => ("location", "best_location", false, "ppppi"),
            Self::Highest => ("location", "highest", false, "pppii"),
            Self::Reorder => ("reorder", "reorder", true, "ppppiii"),
            Self::Append => ("cache", "append", true, "pppiiii"),
            Self::Embed => ("embed", "embed", true, "pppppiiiiii"),
            Self::Place => ("embed", "place", true, "pppiii"),
            Self::ImageTokens => ("image_tokens", "image_tokens", true, "pppii"),
        };
        Entry { module, function, formats, parameters }
    }

    /// Whether tensors may have more numbers than an `int` counts.
    pub(super) const fn counts_in_64_bits(self) -> bool {
        matches!(self, Self::Bias | Self::BiasGelu | Self::BiasResidual | Self::Patches)
    }

    /// The place of the function for tensors of this type, in the order of [`SUFFIXES`]; `None`: there is none.
    pub(super) const fn format(self, dtype: DType) -> Option<usize> {
        match dtype {
            _ if !self.entry().formats => Some(0),
            DType::F32 => Some(0),
            DType::BF16 => Some(1),
            DType::F16 => Some(2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of a function's parameters, from its source.
    fn parameters(source: &str, entry: Entry) -> Option<String> {
        // Functions for each format are made by a macro, the others begin their line.
        let name =
            if entry.formats { format!("{}_##suffix(", entry.function) } else { format!("\n{}(", entry.function) };
        let (_, after) = source.split_once(&name)?;
        let (list, _) = after.split_once(')')?;
        let kind = |parameter: &str| match parameter {
            pointer if pointer.contains('*') => 'p',
            long if long.contains("long long ") => 'l',
            float if float.contains("float ") => 'f',
            int if int.contains("int ") => 'i',
            _ => '?',
        };
        Some(list.split(',').map(kind).collect())
    }

    #[test]
    fn every_kernel_takes_what_it_is_given() {
        for (place, kernel) in Kernel::ALL.into_iter().enumerate() {
            assert_eq!(kernel as usize, place, "{kernel:?} is not in its place");
            let entry = kernel.entry();
            let file = format!("{}/kernels/{}.cu", env!("CARGO_MANIFEST_DIR"), entry.module);
            let source = fs_err::read_to_string(file).expect("a source");
            assert_eq!(parameters(&source, entry).as_deref(), Some(entry.parameters), "{}", entry.function);
            assert_eq!(kernel.counts_in_64_bits(), entry.parameters.contains('l'), "{}", entry.function);
        }
    }

    #[test]
    fn formats_are_those_of_the_suffixes() {
        let formats = [DType::F32, DType::BF16, DType::F16, DType::U8].map(|dtype| Kernel::Bias.format(dtype));
        assert_eq!(formats, [Some(0), Some(1), Some(2), None]);
        assert_eq!((Kernel::ResizeHorizontal.format(DType::U8), SUFFIXES.len()), (Some(0), 3));
    }
}
