#!/usr/bin/env python3
"""The rival: transformers' built-in Florence-2 on the same checkpoint, screenshot, prompt and decoding.

    python pytorch.py --checkpoint full-size --image screenshot.png --command "open settings" --threads 2

Prints one JSON document: the generated ids, milliseconds per stage of each repetition and their medians, load time and
peak memory. Every repetition starts from the PNG's bytes, as a request to a server does.

The checkpoint is mapped and not copied: the model is built without memory and the tensors of the file are put in place
under their native names. That is the leanest way to load it; `from_pretrained` would refuse the remote layout.
"""

import argparse
import io
import json
import statistics
import sys
import time
import tomllib
from pathlib import Path

STARTED = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors import safe_open  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import Florence2Config, Florence2ForConditionalGeneration, GenerationConfig  # noqa: E402
from transformers.modeling_outputs import BaseModelOutput  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "fixtures"))
from florence2.weights import native_name  # noqa: E402

IMPORT_MS = (time.perf_counter() - STARTED) * 1000


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


def load(checkpoint, attention, device, dtype):
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


class Preprocessor:
    """PNG to pixels, as preprocessor_config.json says. Normalising by a table is exact and the fastest way."""

    def __init__(self, config):
        self.size = config["size"]["width"], config["size"]["height"]
        levels = (np.arange(256, dtype=np.float64) * config["rescale_factor"]).astype(np.float32)
        self.table = ((levels - np.float32(config["image_mean"])[:, None])
                      / np.float32(config["image_std"])[:, None])

    def decode(self, content):
        return Image.open(io.BytesIO(content)).convert("RGB")

    def prepare(self, picture):
        bytes_ = np.asarray(picture.resize(self.size, Image.BICUBIC))
        return torch.from_numpy(np.stack([self.table[c][bytes_[..., c]] for c in range(3)]))[None]


def prompt_ids(checkpoint, command):
    """The command in the checkpoint's template, if it has one; special tokens in it are ordinary text."""
    path = checkpoint / "locator.toml"
    locator = tomllib.loads(path.read_text()) if path.exists() else {}
    prompt = locator.get("prompt", "{command}").replace("{command}", command.strip())
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(prompt.lower() if locator.get("lowercase") else prompt).ids


def decoding_rules(checkpoint, strategy):
    """Forced ids, trigram rule and beams from generation_config.json; the length from text_config, as ever."""
    rules = json.loads((checkpoint / "generation_config.json").read_text())
    text = json.loads((checkpoint / "config.json").read_text())["text_config"]
    keys = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
            "forced_eos_token_id", "no_repeat_ngram_size")
    beams = rules["num_beams"] if strategy == "beam" else 1
    return GenerationConfig(**{key: rules[key] for key in keys}, num_beams=beams, early_stopping=beams > 1,
                            max_length=text.get("max_length", 20), do_sample=False)


class Locator:
    def __init__(self, model, preprocessor, ids, rules):
        self.model, self.preprocessor, self.rules = model, preprocessor, rules
        self.ids = torch.tensor([ids], device=model.device)

    def locate(self, png):
        """One answer from the bytes of a PNG: the ids, and milliseconds per stage."""
        stages, last = {}, time.perf_counter()

        def done(stage):
            nonlocal last
            if self.model.device.type == "cuda":
                torch.cuda.synchronize()
            now = time.perf_counter()
            stages[f"{stage}_ms"], last = (now - last) * 1000, now

        model, text = self.model, self.model.model.language_model
        picture = self.preprocessor.decode(png)
        done("decode")
        pixels = self.preprocessor.prepare(picture)
        done("prepare")
        pixels = pixels.to(model.device, model.dtype)
        features = model.model.get_image_features(pixels).pooler_output
        done("vision")
        embedded = torch.cat([features, model.get_input_embeddings()(self.ids)], dim=1)
        states = text.encoder(inputs_embeds=embedded).last_hidden_state
        done("encoder")
        mask = torch.ones(states.shape[:2], dtype=torch.long, device=model.device)
        answer = model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask,
                                generation_config=self.rules)[0].tolist()
        done("answer")
        stages["text_ms"] = stages["encoder_ms"] + stages["answer_ms"]
        stages["total_ms"] = sum(stages[f"{stage}_ms"] for stage in ("decode", "prepare", "vision", "text"))
        return answer, stages


def peak_mib():
    """The largest resident set so far. Not from getrusage: that one remembers the parent's before `exec`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--decoding", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1, help="repetitions before the measured ones")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile both encoders; give it --warmup 2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    after_import = peak_mib()
    start = time.perf_counter()
    model = load(args.checkpoint, args.attention, args.device, getattr(torch, args.dtype))
    if args.compile:
        model.model.vision_tower.compile()
        model.model.language_model.encoder.compile()
    preprocessor = Preprocessor(json.loads((args.checkpoint / "preprocessor_config.json").read_text()))
    locator = Locator(model, preprocessor, prompt_ids(args.checkpoint, args.command),
                      decoding_rules(args.checkpoint, args.decoding))
    load_ms = (time.perf_counter() - start) * 1000

    png = args.image.read_bytes()
    with torch.inference_mode():
        runs = [locator.locate(png) for _ in range(args.warmup + args.repeats)]
    answers = {tuple(answer) for answer, _ in runs}
    assert len(answers) == 1, f"repetitions disagree: {answers}"
    repeats = [stages for _, stages in runs[args.warmup:]]
    print(json.dumps({
        "torch": torch.__version__, "attention": args.attention, "compiled": args.compile, "threads": args.threads,
        "decoding": args.decoding, "device": args.device, "dtype": args.dtype,
        "prompt_ids": locator.ids[0].tolist(), "tokens": runs[0][0],
        "import_ms": IMPORT_MS, "load_ms": load_ms, "peak_mib_after_import": after_import, "peak_mib": peak_mib(),
        "median": {stage: statistics.median(run[stage] for run in repeats) for stage in repeats[0]},
        "repeats": repeats}))


if __name__ == "__main__":
    main()
