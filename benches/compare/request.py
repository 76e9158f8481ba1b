"""What every peer in Python does with a request besides the model: PNG to pixels, command to ids, rules, clock, report.

Needs NumPy, Pillow and tokenizers only, so that a peer without PyTorch does not pay for its import.
"""

import argparse
import io
import json
import statistics
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from tokenizers import Tokenizer


class Preprocessor:
    """PNG to pixels, as preprocessor_config.json says. Normalising by a table is exact and the fastest way."""

    def __init__(self, checkpoint):
        config = json.loads((checkpoint / "preprocessor_config.json").read_text())
        self.size = config["size"]["width"], config["size"]["height"]
        levels = (np.arange(256, dtype=np.float64) * config["rescale_factor"]).astype(np.float32)
        self.table = ((levels - np.float32(config["image_mean"])[:, None])
                      / np.float32(config["image_std"])[:, None])

    def decode(self, content):
        return Image.open(io.BytesIO(content)).convert("RGB")

    def prepare(self, picture):
        """float32 (1, 3, height, width)."""
        bytes_ = np.asarray(picture.resize(self.size, Image.BICUBIC))
        return np.stack([self.table[c][bytes_[..., c]] for c in range(3)])[None]


def prompt_ids(checkpoint, command):
    """The command in the checkpoint's template, if it has one; special tokens in it are ordinary text."""
    path = checkpoint / "locator.toml"
    locator = tomllib.loads(path.read_text()) if path.exists() else {}
    prompt = locator.get("prompt", "{command}").replace("{command}", command.strip())
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(prompt.lower() if locator.get("lowercase") else prompt).ids


@dataclass(frozen=True)
class Rules:
    """Forced ids, trigram rule and beams from generation_config.json; the length from text_config, as ever."""

    bos_token_id: int
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int
    forced_bos_token_id: int
    forced_eos_token_id: int
    no_repeat_ngram_size: int
    num_beams: int
    max_length: int

    @classmethod
    def read(cls, checkpoint, decoding):
        rules = json.loads((checkpoint / "generation_config.json").read_text())
        text = json.loads((checkpoint / "config.json").read_text())["text_config"]
        rules |= {"num_beams": rules["num_beams"] if decoding == "beam" else 1,
                  "max_length": text.get("max_length", 20)}
        return cls(**{name: rules[name] for name in cls.__dataclass_fields__})


class Clock:
    """Milliseconds per stage of one answer."""

    def __init__(self):
        self.stages, self.last = {}, time.perf_counter()

    def done(self, stage):
        now = time.perf_counter()
        self.stages[f"{stage}_ms"], self.last = (now - self.last) * 1000, now

    def finish(self):
        """Text is encoder and decode steps together, as Tapline reports it."""
        self.stages["text_ms"] = self.stages["encoder_ms"] + self.stages["steps_ms"]
        parts = ("decode", "prepare", "vision", "text")
        return self.stages | {"total_ms": sum(self.stages[f"{part}_ms"] for part in parts)}


def peak_mib():
    """The largest resident set so far. Not from getrusage: that one remembers the parent's before `exec`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def arguments(description):
    """The parser of a peer, with what all of them take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--decoding", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--answers", type=int, default=3, help="all but the first are warm")
    return parser


def report(args, locate, imported_ms, load_ms, **about):
    """Answers the request `args.answers` times, each from the PNG's bytes, and prints one JSON document."""
    png = args.image.read_bytes()
    runs = [locate(png) for _ in range(args.answers)]
    ids = {tuple(answer) for answer, _ in runs}
    assert len(ids) == 1, f"repetitions disagree: {ids}"
    stages = [stages for _, stages in runs]
    warm = stages[1:] or stages
    print(json.dumps(about | {
        "threads": args.threads, "decoding": args.decoding, "tokens": list(ids.pop()), "import_ms": imported_ms,
        "load_ms": load_ms, "peak_mib": peak_mib(), "answers": stages,
        "median": {stage: statistics.median(run[stage] for run in warm) for stage in warm[0]}}))
