//! Tensor names of the two layouts in which Florence-2 checkpoints are written.

/// How a checkpoint names its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As transformers' built-in class: the names this program uses.
    Native,
    /// As the code beside `microsoft/Florence-2-*` on the hub, and so TinyClick.
    Remote,
}

impl Layout {
    /// The layout of a file that has these tensors; `None` when it is no Florence-2 checkpoint.
    pub fn of(has: impl Fn(&str) -> bool) -> Option<Self> {
        [Self::Native, Self::Remote]
            .into_iter()
            .find(|layout| has(&layout.name("model.vision_tower.convs.0.conv.weight")))
    }

    /// What a tensor of the native layout is called in this one.
    #[must_use]
    pub fn name(self, native: &str) -> String {
        match self {
            Self::Native => native.to_owned(),
            Self::Remote => remote(native),
        }
    }

    /// The image projection is stored as (channels, `d_model`) rather than (`d_model`, channels).
    #[must_use]
    pub const fn transposes_projection(self) -> bool {
        matches!(self, Self::Remote)
    }
}

fn remote(native: &str) -> String {
    const PROJECTOR: &str = "model.multi_modal_projector.";
    if let Some(rest) = native.strip_prefix("model.language_model.") {
        return format!("language_model.model.{rest}");
    }
    if native.starts_with("lm_head.") || native == "final_logits_bias" {
        return format!("language_model.{native}");
    }
    if let Some(rest) = native.strip_prefix(PROJECTOR) {
        return match rest {
            "image_projection.weight" => "image_projection".to_owned(),
            rest => rest.replace("image_position_embed", "image_pos_embed"),
        };
    }
    let Some(rest) = native.strip_prefix("model.") else { return native.to_owned() };
    if rest.starts_with("vision_tower.convs.") {
        return rest.replace(".conv.", ".proj.");
    }
    let attention = if rest.contains(".spatial_block.") { "window_attn" } else { "channel_attn" };
    rest.replace(".conv1.", ".conv1.fn.dw.")
        .replace(".conv2.", ".conv2.fn.dw.")
        .replace(".norm1.", &format!(".{attention}.norm."))
        .replace(".norm2.", ".ffn.norm.")
        .replace(".qkv.", ".fn.qkv.")
        .replace("_attn.proj.", "_attn.fn.proj.")
        .replace(".fc1.", ".fn.net.fc1.")
        .replace(".fc2.", ".fn.net.fc2.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_tensor_has_its_remote_name() {
        for (native, expected) in [
            ("model.vision_tower.convs.0.conv.bias", "vision_tower.convs.0.proj.bias"),
            ("model.vision_tower.convs.1.norm.weight", "vision_tower.convs.1.norm.weight"),
            (
                "model.vision_tower.blocks.2.8.channel_block.conv2.weight",
                "vision_tower.blocks.2.8.channel_block.conv2.fn.dw.weight",
            ),
            (
                "model.vision_tower.blocks.0.0.spatial_block.norm1.bias",
                "vision_tower.blocks.0.0.spatial_block.window_attn.norm.bias",
            ),
            (
                "model.vision_tower.blocks.0.0.channel_block.norm1.bias",
                "vision_tower.blocks.0.0.channel_block.channel_attn.norm.bias",
            ),
            (
                "model.vision_tower.blocks.0.0.spatial_block.window_attn.proj.weight",
                "vision_tower.blocks.0.0.spatial_block.window_attn.fn.proj.weight",
            ),
            (
                "model.vision_tower.blocks.0.0.channel_block.channel_attn.qkv.weight",
                "vision_tower.blocks.0.0.channel_block.channel_attn.fn.qkv.weight",
            ),
            (
                "model.vision_tower.blocks.0.0.spatial_block.ffn.fc1.weight",
                "vision_tower.blocks.0.0.spatial_block.ffn.fn.net.fc1.weight",
            ),
            (
                "model.vision_tower.blocks.0.0.spatial_block.norm2.weight",
                "vision_tower.blocks.0.0.spatial_block.ffn.norm.weight",
            ),
            ("model.multi_modal_projector.image_projection.weight", "image_projection"),
            ("model.multi_modal_projector.image_proj_norm.bias", "image_proj_norm.bias"),
            (
                "model.multi_modal_projector.image_position_embed.row_embeddings.weight",
                "image_pos_embed.row_embeddings.weight",
            ),
            (
                "model.multi_modal_projector.visual_temporal_embed.pos_idx_to_embed",
                "visual_temporal_embed.pos_idx_to_embed",
            ),
            ("model.language_model.shared.weight", "language_model.model.shared.weight"),
            ("model.language_model.decoder.layers.0.fc1.weight", "language_model.model.decoder.layers.0.fc1.weight"),
            ("lm_head.weight", "language_model.lm_head.weight"),
        ] {
            assert_eq!(Layout::Remote.name(native), expected);
            assert_eq!(Layout::Native.name(native), native);
        }
    }
}
