"""Write a trained file as a checkpoint folder in the layout of the original Florence-2 checkpoints.

    python export.py pocket.pt ../pocket
"""
import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import vocabulary as V
from model import HEAD, Pocket

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LOCATOR = f"""\
name = "pocket"
prompt = "{{command}}"
lowercase = true

[answer]
form = "box"
prefix = ""
abstain = [{V.ABSTAIN}, {V.ABSTAIN}, {V.ABSTAIN}, {V.ABSTAIN}]

[decoding]
strategy = "greedy"
"""


def tensors(state):
    """Half precision; the trained names are the checkpoint's. A tied output layer is not stored."""
    out = {name: value.half().contiguous() for name, value in state.items()}
    out["language_model.final_logits_bias"] = torch.zeros(1, V.VOCAB, dtype=torch.half)
    assert all(value.isfinite().all() for value in out.values())
    return out


def config(layout):
    heads = [dim // HEAD for dim in layout.dims]
    vision = dict(
        model_type="davit", dim_embed=list(layout.dims), depths=list(layout.depths), patch_size=list(layout.patch),
        patch_stride=list(layout.stride), patch_padding=list(layout.padding),
        patch_prenorm=[i > 0 for i in range(len(layout.dims))],
        num_heads=heads, num_groups=heads, window_size=layout.window, drop_path_rate=0.0, enable_checkpoint=False,
        projection_dim=layout.d_model, image_feature_source=["spatial_avg_pool", "temporal_avg_pool"],
        image_pos_embed={"type": "learned_abs_2d", "max_pos_embeddings": layout.grid_positions},
        visual_temporal_embedding={"type": "COSINE", "max_temporal_embeddings": layout.temporal_positions})
    text = dict(
        model_type="florence2_language", vocab_size=layout.vocabulary, d_model=layout.d_model,
        encoder_layers=layout.encoder_layers, decoder_layers=layout.decoder_layers,
        num_hidden_layers=layout.encoder_layers, encoder_attention_heads=layout.heads,
        decoder_attention_heads=layout.heads, encoder_ffn_dim=layout.ffn, decoder_ffn_dim=layout.ffn,
        max_position_embeddings=layout.positions, activation_function="gelu", scale_embedding=False,
        normalize_before=False, add_final_layer_norm=False, add_bias_logits=False, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, classif_dropout=0.0, classifier_dropout=0.0, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0, init_std=0.02, is_encoder_decoder=True, use_cache=True, max_length=20, do_sample=False,
        length_penalty=1.0, tie_word_embeddings=layout.tied, **generation())
    return dict(
        architectures=["Florence2ForConditionalGeneration"], model_type="florence2", is_encoder_decoder=True,
        bos_token_id=V.BOS, eos_token_id=V.EOS, pad_token_id=V.PAD, ignore_index=-100, projection_dim=layout.d_model,
        torch_dtype="float16", vocab_size=V.VOCAB, text_config=text, vision_config=vision)


def generation():
    return dict(bos_token_id=V.BOS, pad_token_id=V.PAD, eos_token_id=V.EOS, decoder_start_token_id=V.START,
                forced_bos_token_id=V.BOS, forced_eos_token_id=V.EOS, num_beams=1, no_repeat_ngram_size=0,
                early_stopping=False)


def preprocessor(layout):
    side = {"height": layout.image, "width": layout.image}
    return dict(image_processor_type="CLIPImageProcessor", processor_class="Florence2Processor", do_resize=True, size=side,
                resample=3, do_center_crop=False, crop_size=side, do_rescale=True, rescale_factor=1 / 255,
                do_normalize=True, image_mean=MEAN, image_std=STD, do_convert_rgb=True,
                image_seq_length=1 + layout.grid**2)


def tokenizer():
    """A word is a token; case and punctuation are dropped."""
    locations = {f"<loc_{i}>": V.LOCATION + i for i in range(V.BINS)}
    special = {token: i for i, token in enumerate(V.SPECIALS)} | locations
    added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for token, i in special.items()]
    words = {token: i for i, token in enumerate(V.SPECIALS)} | V.WORD_ID | locations
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer={"type": "Sequence", "normalizers": [
            {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": "[^a-z0-9]+"}, "content": " "}]},
        pre_tokenizer={"type": "WhitespaceSplit"}, decoder=None,
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", V.EOS], "cls": ["<s>", V.BOS],
                        "trim_offsets": True, "add_prefix_space": False},
        model={"type": "WordLevel", "unk_token": "<unk>", "vocab": words})


def write(saved, folder):
    folder.mkdir(parents=True, exist_ok=True)
    layout = saved["layout"]
    model = Pocket(layout)
    model.load_state_dict(saved["model"])
    save_file(tensors(model.state_dict()), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    files = {"config": config(layout), "preprocessor_config": preprocessor(layout), "generation_config": generation(),
             "tokenizer": tokenizer()}
    for name, content in files.items():
        indent = None if name == "tokenizer" else 1
        (folder / f"{name}.json").write_text(json.dumps(content, indent=indent) + "\n")
    (folder / "locator.toml").write_text(LOCATOR)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    write(torch.load(args.trained, weights_only=False, map_location="cpu"), args.folder)
    for path in sorted(args.folder.iterdir()):
        print(f"{path.stat().st_size:>9} {path.name}")


if __name__ == "__main__":
    main()
