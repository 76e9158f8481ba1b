#!/usr/bin/env python3
"""Write a random checkpoint of TinyClick's exact size: 667 tensors, 270.8 M parameters, 1.08 GB in float32.

    python full_size.py --out full-size --seed 1 --locator --tokenizer tokenizer.json

Time and memory depend on the shapes of the weights and not on their values, so that speed can be measured without the
real ones. Answers are meaningless, but two correct programs give the same. Weights come from the recipe of the test
fixtures, which keeps activations sane. They are written while they are drawn: peak memory is that of the largest
tensor, not that of the file.
"""

import argparse
import json
import math
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "fixtures"))
from florence2.config import (generation_config, model_config, preprocessor_config,  # noqa: E402
                              word_per_id_tokenizer)
from florence2.shape import REAL_VOCAB, Shape  # noqa: E402
from florence2.weights import Weights  # noqa: E402

LOCATION_TOKENS, FIRST_LOCATION = 1000, 50269
TENSORS, PARAMETERS, BUFFERS = 667, 270_803_968, 153_689

# Without TinyClick's tokenizer: constrained answers are a point, two ids shorter than TinyClick's.
POINT = """\
name = "full-size"

[answer]
form = "point"
"""

LOCATOR = """\
name = "tinyclick"
prompt = "What to do to execute the command? {command}"
lowercase = true

[answer]
form = "point"
prefix = "click "
abstain = [499, 499]

[decoding]
strategy = "beam"
"""


@dataclass(frozen=True)
class BaseShape(Shape):
    """Florence-2-base, of which TinyClick is a fine-tune."""

    dims: tuple = (128, 256, 512, 1024)
    depths: tuple = (1, 1, 9, 1)
    d_model: int = 768
    layers: tuple = (6, 6)
    heads: tuple = (12, 12)
    ffn: tuple = (3072, 3072)
    vocab: int = REAL_VOCAB
    window: int = 12
    image_size: int = 768

    text_positions = 1024


def to_bfloat16(tensor):
    """Round to nearest even; NumPy has no such type, so the bits stand in a u16."""
    bits = tensor.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


DTYPES = {
    "f32": ("F32", lambda tensor: tensor),
    "f16": ("F16", lambda tensor: tensor.astype(np.float16)),
    "bf16": ("BF16", to_bfloat16),
}


class StreamedWeights(Weights):
    """Weights that go to a safetensors file one by one. The header, which needs all of them, gets room at the front."""

    HEADER_ROOM = 1 << 17

    def __init__(self, path, shape, seed, dtype):
        self.tag, self.cast = DTYPES[dtype]
        self.header, self.length = {"__metadata__": {"format": "pt"}}, 0
        with open(path, "wb") as self.file:
            self.file.seek(8 + self.HEADER_ROOM)
            super().__init__(shape, seed, attempt=0)
            text = json.dumps(self.header, separators=(",", ":")).encode()
            assert len(text) <= self.HEADER_ROOM
            self.file.seek(0)
            self.file.write(struct.pack("<Q", self.HEADER_ROOM) + text.ljust(self.HEADER_ROOM))

    def keep(self, name, tensor):
        content = np.ascontiguousarray(self.cast(tensor))
        self.file.write(content)
        offsets = [self.length, self.length + content.nbytes]
        self.header[name] = {"dtype": self.tag, "shape": list(tensor.shape), "data_offsets": offsets}
        self.length += content.nbytes


def location_tokenizer():
    """The word w17 is id 17, as in the fixtures, and `<loc_0>` to `<loc_999>` are special tokens at their real ids."""
    tokenizer = word_per_id_tokenizer(REAL_VOCAB)
    vocab = tokenizer["model"]["vocab"]
    for n in range(LOCATION_TOKENS):
        id = FIRST_LOCATION + n
        del vocab[f"w{id}"]
        vocab[f"<loc_{n}>"] = id
        tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=id, content=f"<loc_{n}>"))
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--tokenizer", type=Path, help="copy this tokenizer.json instead of making a word-per-id one")
    parser.add_argument("--locator", action="store_true", help="write TinyClick's locator.toml, for its tokenizer")
    args = parser.parse_args()

    shape = BaseShape()
    args.out.mkdir(parents=True, exist_ok=True)
    weights = StreamedWeights(args.out / "model.safetensors", shape, args.seed, args.dtype)
    shapes = [entry["shape"] for name, entry in weights.header.items() if name != "__metadata__"]
    assert len(shapes) == TENSORS and sum(map(math.prod, shapes)) == PARAMETERS + BUFFERS

    files = {"config.json": model_config(shape, native=False, tied=False),
             "generation_config.json": generation_config(shape),
             "preprocessor_config.json": preprocessor_config(shape)}
    if args.tokenizer:
        shutil.copyfile(args.tokenizer, args.out / "tokenizer.json")
    else:
        files["tokenizer.json"] = location_tokenizer()
    for name, content in files.items():
        (args.out / name).write_text(json.dumps(content, indent=1) + "\n")
    (args.out / "locator.toml").write_text(LOCATOR if args.locator else POINT)
    for path in sorted(args.out.iterdir()):
        print(f"{path.stat().st_size:>13,} {path.name}")


if __name__ == "__main__":
    main()
