"""Checkpoint folders in the remote layout of Florence-2 and TinyClick: reading their sizes and weights, writing them back."""
import json
import os
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer, Tokenizer, processors

from model import Layout, Pocket

MODELS = Path(__file__).parent.parent
SHARED = "language_model.model.shared.weight"
# Copies of the token table that some files hold beside it.
COPIES = ("language_model.model.encoder.embed_tokens.weight", "language_model.model.decoder.embed_tokens.weight")
LOGITS_BIAS = "language_model.final_logits_bias"


@dataclass
class Checkpoint:
    """A network to train, and what is needed to ask it and to write it back."""

    model: Pocket
    tokenizer: Tokenizer
    manifest: dict   # the locator.toml
    folder: Path
    tensors: dict    # as they were in the file


def layout_of(config, preprocessor, tied):
    """The sizes that a config.json of the remote layout and its preprocessor_config.json say."""
    vision, text = config["vision_config"], config["text_config"]
    size = preprocessor["size"]
    if size["height"] != size["width"]:
        raise SystemExit("only square images are supported")
    return Layout(
        image=size["height"], dims=tuple(vision["dim_embed"]), depths=tuple(vision["depths"]),
        patch=tuple(vision["patch_size"]), stride=tuple(vision["patch_stride"]), padding=tuple(vision["patch_padding"]),
        window=vision["window_size"], d_model=text["d_model"], encoder_layers=text["encoder_layers"],
        decoder_layers=text["decoder_layers"], heads=text["encoder_attention_heads"], ffn=text["encoder_ffn_dim"],
        positions=text["max_position_embeddings"], grid_positions=vision["image_pos_embed"]["max_pos_embeddings"],
        temporal_positions=vision["visual_temporal_embedding"]["max_temporal_embeddings"], vocabulary=text["vocab_size"],
        tied=tied)


def find(name):
    """A folder, or `tinyclick` as the newest copy in the hub's cache (`tapline pull tinyclick` puts it there)."""
    if name != "tinyclick":
        return Path(name)
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache/huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / "models--Krystianz--TinyClick/snapshots"
    found = sorted(cache.glob("*"), key=lambda path: path.stat().st_mtime) if cache.is_dir() else []
    if not found:
        raise SystemExit("tinyclick is not downloaded: run `tapline pull tinyclick`, or name its folder")
    return found[-1]


def tokenizer_of(folder):
    """The folder's tokenizer, from tokenizer.json or from its older form: a byte-level BPE in three files."""
    if (folder / "tokenizer.json").exists():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    added = json.loads((folder / "added_tokens.json").read_text())
    bpe.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *sorted(added, key=added.get)])
    ends = [(token, bpe.token_to_id(token)) for token in ("</s>", "<s>")]
    bpe._tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    if any(bpe.token_to_id(token) != number for token, number in added.items()):
        raise SystemExit(f"the tokens of {folder / 'added_tokens.json'} do not follow those of vocab.json")
    return bpe._tokenizer


def load(name):
    """A checkpoint by name or folder; every tensor of the file must find its place, and every place its tensor."""
    folder = find(name)
    tensors = load_file(folder / "model.safetensors")
    read = lambda file: json.loads((folder / file).read_text())
    tied = "language_model.lm_head.weight" not in tensors
    model = Pocket(layout_of(read("config.json"), read("preprocessor_config.json"), tied))
    state = {name: value.float() for name, value in tensors.items() if name not in COPIES}
    if state.pop(LOGITS_BIAS, torch.zeros(1)).any():
        raise SystemExit(f"{LOGITS_BIAS} is not zero, which this training does not support")
    for copy in COPIES:
        if copy in tensors and not tensors[copy].equal(tensors[SHARED]):
            raise SystemExit(f"{copy} differs from {SHARED}, which this training does not support")
    model.load_state_dict(state)
    manifest = folder / "locator.toml"
    if not manifest.exists():
        manifest = MODELS / "tinyclick.toml"
    return Checkpoint(model, tokenizer_of(folder), tomllib.loads(manifest.read_text()),
                      folder, tensors)


def save(checkpoint, folder):
    """Writes the trained weights under the names and in the number formats of the file they came from."""
    folder.mkdir(parents=True, exist_ok=True)
    state = checkpoint.model.state_dict()
    out = {}
    for name, old in checkpoint.tensors.items():
        value = old if name == LOGITS_BIAS else state[SHARED if name in COPIES else name]
        out[name] = value.detach().to(old.dtype).contiguous().clone()
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    for file in checkpoint.folder.iterdir():
        if file.suffix in (".json", ".toml", ".txt") and file.resolve() != (folder / file.name).resolve():
            shutil.copyfile(file, folder / file.name)
    if not (folder / "locator.toml").exists():
        shutil.copyfile(MODELS / "tinyclick.toml", folder / "locator.toml")
