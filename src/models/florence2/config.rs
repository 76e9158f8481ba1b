//! The sizes of a Florence-2 network, from either dialect of its `config.json`.

use serde::Deserialize;
use serde_json::Value;

/// The whole network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Image encoder.
    pub vision: VisionConfig,
    /// Text model.
    pub text: TextConfig,
    /// Ids below this may be chosen. A converted checkpoint has room for an image token and padding above.
    pub vocabulary: usize,
}

/// DaViT, and the projection of its output to the text model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisionConfig {
    /// Stages, in order.
    pub stages: Vec<StageConfig>,
    /// Side of an attention window, in tokens.
    pub window: usize,
    /// Hidden channels of an MLP by its channels.
    pub mlp_ratio: usize,
    /// Rows of each of the two position tables.
    pub grid_positions: usize,
    /// Rows of the temporal table, of which a still image uses the first.
    pub temporal_positions: usize,
}

/// One stage of DaViT: a convolution, then blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageConfig {
    /// Channels.
    pub channels: usize,
    /// Blocks, each a spatial and a channel block.
    pub depth: usize,
    /// Heads of window attention.
    pub heads: usize,
    /// Groups of channel attention.
    pub groups: usize,
    /// Side of the convolution's kernel.
    pub patch: usize,
    /// Its stride.
    pub stride: usize,
    /// Its padding.
    pub padding: usize,
    /// Normalise before the convolution rather than after it.
    pub norm_first: bool,
}

/// BART.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TextConfig {
    /// Rows of the token tables.
    pub vocab_size: usize,
    /// Channels.
    pub d_model: usize,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// Heads of the encoder.
    pub encoder_attention_heads: usize,
    /// Heads of the decoder.
    pub decoder_attention_heads: usize,
    /// Hidden channels of the encoder's MLPs.
    pub encoder_ffn_dim: usize,
    /// Hidden channels of the decoder's MLPs.
    pub decoder_ffn_dim: usize,
    /// Longest sequence; the position tables have two rows more.
    pub max_position_embeddings: usize,
}

/// Vision fields, those that differ between the dialects under both names.
#[derive(Debug, Deserialize)]
struct RawVision {
    #[serde(alias = "dim_embed")]
    embed_dim: Vec<usize>,
    depths: Vec<usize>,
    num_heads: Vec<usize>,
    num_groups: Vec<usize>,
    patch_size: Vec<usize>,
    patch_stride: Vec<usize>,
    patch_padding: Vec<usize>,
    patch_prenorm: Vec<bool>,
    window_size: usize,
    // Remote dialect.
    image_pos_embed: Option<RawPositions>,
    visual_temporal_embedding: Option<RawTemporal>,
    image_feature_source: Option<Vec<String>>,
    // Native dialect.
    max_position_embeddings: Option<usize>,
    max_temporal_embeddings: Option<usize>,
    mlp_ratio: Option<f64>,
    qkv_bias: Option<bool>,
    activation_function: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawPositions {
    r#type: String,
    max_pos_embeddings: usize,
}

#[derive(Debug, Deserialize)]
struct RawTemporal {
    r#type: String,
    max_temporal_embeddings: usize,
}

/// What a network of this kind may also say, and what this program can do of it.
const TEXT_SWITCHES: [(&str, bool); 4] = [
    ("scale_embedding", false),
    ("normalize_before", false),
    ("add_final_layer_norm", false),
    ("add_bias_logits", false),
];

impl Config {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// A sentence that names the field that is missing, of the wrong kind, or not understood.
    pub fn from_json(config: &Value) -> Result<Self, String> {
        let part = |name: &str| config.get(name).cloned().ok_or_else(|| format!("`{name}` is missing"));
        let vision: RawVision =
            serde_json::from_value(part("vision_config")?).map_err(|error| format!("vision_config: {error}"))?;
        let raw_text = part("text_config")?;
        let text: TextConfig =
            serde_json::from_value(raw_text.clone()).map_err(|error| format!("text_config: {error}"))?;
        for (switch, value) in TEXT_SWITCHES {
            match raw_text.get(switch) {
                None => {}
                Some(found) if found.as_bool() == Some(value) => {}
                Some(found) => return Err(format!("text_config.{switch} is {found}; only {value} is supported")),
            }
        }
        if let Some(activation) = raw_text.get("activation_function").and_then(Value::as_str)
            && activation != "gelu"
        {
            return Err(format!("text_config.activation_function is `{activation}`; only `gelu` is supported"));
        }
        let vision = vision.check()?;
        for (side, heads) in [("encoder", text.encoder_attention_heads), ("decoder", text.decoder_attention_heads)] {
            if heads == 0 || !text.d_model.is_multiple_of(heads) {
                return Err(format!(
                    "text_config.{side}_attention_heads is {heads}, which does not divide {}",
                    text.d_model
                ));
            }
        }
        let image_token = config.get("image_token_id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
        let vocabulary = image_token.unwrap_or(text.vocab_size).min(text.vocab_size);
        Ok(Self { vision, text, vocabulary })
    }
}

impl RawVision {
    fn check(self) -> Result<VisionConfig, String> {
        let stages = self.embed_dim.len();
        let lengths = [
            ("depths", self.depths.len()),
            ("num_heads", self.num_heads.len()),
            ("num_groups", self.num_groups.len()),
            ("patch_size", self.patch_size.len()),
            ("patch_stride", self.patch_stride.len()),
            ("patch_padding", self.patch_padding.len()),
            ("patch_prenorm", self.patch_prenorm.len()),
        ];
        if let Some((field, length)) = lengths.into_iter().find(|&(_, length)| length != stages || stages == 0) {
            return Err(format!("vision_config.{field} has {length} entries for {stages} stages"));
        }
        let only = |field: &str, found: Option<&str>, supported: &str| match found {
            Some(other) if other != supported => {
                Err(format!("vision_config.{field} is `{other}`; only `{supported}` is supported"))
            }
            _ => Ok(()),
        };
        only("image_pos_embed.type", self.image_pos_embed.as_ref().map(|p| p.r#type.as_str()), "learned_abs_2d")?;
        only(
            "visual_temporal_embedding.type",
            self.visual_temporal_embedding.as_ref().map(|t| t.r#type.as_str()),
            "COSINE",
        )?;
        only("activation_function", self.activation_function.as_deref(), "gelu")?;
        if let Some(source) = &self.image_feature_source
            && source != &["spatial_avg_pool", "temporal_avg_pool"]
        {
            return Err(format!(
                "vision_config.image_feature_source is {source:?}; only [\"spatial_avg_pool\", \"temporal_avg_pool\"] is supported"
            ));
        }
        if self.qkv_bias == Some(false) {
            return Err("vision_config.qkv_bias is false; only true is supported".to_owned());
        }
        let ratio = self.mlp_ratio.unwrap_or(4.0);
        if ratio.fract() != 0.0 || !(1.0..=64.0).contains(&ratio) {
            return Err(format!("vision_config.mlp_ratio is {ratio}; only whole numbers are supported"));
        }
        let required =
            |field: &str, value: Option<usize>| value.ok_or_else(|| format!("vision_config.{field} is missing"));
        let remote_positions = self.image_pos_embed.map(|positions| positions.max_pos_embeddings);
        let remote_temporal = self.visual_temporal_embedding.map(|temporal| temporal.max_temporal_embeddings);
        let stages: Vec<StageConfig> = (0..stages)
            .map(|i| StageConfig {
                channels: self.embed_dim[i],
                depth: self.depths[i],
                heads: self.num_heads[i],
                groups: self.num_groups[i],
                patch: self.patch_size[i],
                stride: self.patch_stride[i],
                padding: self.patch_padding[i],
                norm_first: self.patch_prenorm[i],
            })
            .collect();
        for (i, stage) in stages.iter().enumerate() {
            let fits = |parts: usize| parts > 0 && stage.channels % parts == 0;
            if !fits(stage.heads) || !fits(stage.groups) || stage.stride == 0 || stage.patch == 0 {
                return Err(format!("vision_config: the sizes of stage {i} do not fit together: {stage:?}"));
            }
        }
        if self.window_size == 0 {
            return Err("vision_config.window_size is 0".to_owned());
        }
        Ok(VisionConfig {
            stages,
            window: self.window_size,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
            mlp_ratio: ratio as usize,
            grid_positions: required("max_position_embeddings", self.max_position_embeddings.or(remote_positions))?,
            temporal_positions: required("max_temporal_embeddings", self.max_temporal_embeddings.or(remote_temporal))?,
        })
    }
}

impl VisionConfig {
    /// Side of the last stage's grid for an input of `side` pixels.
    #[must_use]
    pub fn grid(&self, side: usize) -> usize {
        self.stages.iter().fold(side, |side, stage| stage.window().positions(side))
    }

    /// Channels of the last stage.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.channels)
    }
}

impl StageConfig {
    /// Where the stage's convolution looks.
    #[must_use]
    pub const fn window(&self) -> crate::kernels::Window {
        crate::kernels::Window { kernel: self.patch, stride: self.stride, padding: self.padding }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remote() -> Value {
        json!({
            "model_type": "florence2",
            "vision_config": {
                "model_type": "", "dim_embed": [32, 64], "depths": [1, 1], "num_heads": [1, 2], "num_groups": [1, 2],
                "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [false, true],
                "window_size": 12, "image_feature_source": ["spatial_avg_pool", "temporal_avg_pool"],
                "image_pos_embed": { "type": "learned_abs_2d", "max_pos_embeddings": 50 },
                "visual_temporal_embedding": { "type": "COSINE", "max_temporal_embeddings": 100 } },
            "text_config": {
                "vocab_size": 256, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
                "decoder_attention_heads": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80,
                "max_position_embeddings": 64, "scale_embedding": false } })
    }

    #[test]
    fn both_dialects_say_the_same() {
        let mut native = remote();
        let vision = native["vision_config"].as_object_mut().unwrap();
        for remote_only in ["image_feature_source", "image_pos_embed", "visual_temporal_embedding"] {
            vision.remove(remote_only);
        }
        let dims = vision.remove("dim_embed").unwrap();
        vision.insert("embed_dim".into(), dims);
        vision.insert("max_position_embeddings".into(), 50.into());
        vision.insert("max_temporal_embeddings".into(), 100.into());
        vision.insert("mlp_ratio".into(), 4.0.into());
        let remote = Config::from_json(&remote()).unwrap();
        assert_eq!(Config::from_json(&native).unwrap(), remote);
        assert_eq!((remote.vision.grid(96), remote.vocabulary), (12, 256));
        native["image_token_id"] = 250.into();
        assert_eq!(Config::from_json(&native).unwrap().vocabulary, 250);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (place, value, named) in [
            ("/vision_config/image_pos_embed/type", json!("sinusoidal"), "image_pos_embed.type"),
            ("/vision_config/image_feature_source", json!(["last_frame"]), "image_feature_source"),
            ("/vision_config/depths", json!([1]), "depths"),
            ("/vision_config/num_heads", json!([3, 2]), "stage 0"),
            ("/text_config/scale_embedding", json!(true), "scale_embedding"),
            ("/text_config/d_model", json!("64"), "text_config"),
            ("/text_config/encoder_attention_heads", json!(7), "encoder_attention_heads"),
        ] {
            let mut config = remote();
            *config.pointer_mut(place).unwrap() = value;
            let message = Config::from_json(&config).unwrap_err();
            assert!(message.contains(named), "{message}");
        }
        let mut config = remote();
        config["text_config"].as_object_mut().unwrap().remove("encoder_layers");
        assert!(Config::from_json(&config).unwrap_err().contains("encoder_layers"), "no default is ever taken");
    }
}
