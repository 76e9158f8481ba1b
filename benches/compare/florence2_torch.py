"""transformers' built-in Florence-2 with the weights of a checkpoint in the remote layout.

The checkpoint is mapped and not copied: the model is built without memory and the tensors of the file are put in place
under their native names. That is the leanest way to load it; `from_pretrained` would refuse the remote layout.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import Florence2Config, Florence2ForConditionalGeneration

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "fixtures"))
from florence2.weights import native_name  # noqa: E402


def native_config(remote, attention):
    """config.json of the remote layout, for the built-in class. Embeddings are not tied: the file decides that."""
    vision, text = dict(remote["vision_config"]), dict(remote["text_config"])
    native_vision = {key: vision[key] for key in ("depths", "patch_size", "patch_stride", "patch_padding",
                                                  "patch_prenorm", "num_heads", "num_groups", "window_size")}
    native_vision |= {"embed_dim": vision["dim_embed"], "projection_dim": remote["projection_dim"],
                      "max_position_embeddings": vision["image_pos_embed"]["max_pos_embeddings"],
                      "max_temporal_embeddings": vision["visual_temporal_embedding"]["max_temporal_embeddings"]}
    native_text = {key: text[key] for key in (
        "vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
        "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings",
        "activation_function", "scale_embedding", "bos_token_id", "pad_token_id", "eos_token_id")}
    native_text |= {"model_type": "bart", "decoder_start_token_id": text.get("decoder_start_token_id", 2),
                    "tie_word_embeddings": False}
    config = Florence2Config(vision_config=native_vision, text_config=native_text, tie_word_embeddings=False,
                             image_token_id=text["vocab_size"])
    config._attn_implementation = attention
    return config


def load(checkpoint, attention="sdpa", device="cpu", dtype=torch.float32):
    config = native_config(json.loads((checkpoint / "config.json").read_text()), attention)
    with torch.device("meta"):
        model = Florence2ForConditionalGeneration(config).eval()
    with safe_open(checkpoint / "model.safetensors", "pt") as file:
        weights = {native_name(name): file.get_tensor(name) for name in file.keys()}
    weights.pop(None, None)  # final_logits_bias, all zeros
    projection = "model.multi_modal_projector.image_projection.weight"
    weights[projection] = weights[projection].T
    shared = weights["model.language_model.shared.weight"]
    weights.setdefault("lm_head.weight", shared)
    for part in ("encoder", "decoder"):
        weights[f"model.language_model.{part}.embed_tokens.weight"] = shared
    model.load_state_dict(weights, strict=True, assign=True)
    left = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    assert not left, f"no values for {left}"
    return model.to(device=device, dtype=dtype)
