"""Pack rendered screens at the size the network sees, so that training reads them as fast as it can look at them.

    python pack.py build/rendered build/packed
"""
import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from model import Layout
from screenspot import rendered


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rendered", type=Path, help="a folder written by kits/render.mjs")
    parser.add_argument("packed", type=Path)
    parser.add_argument("--side", type=int, default=Layout.image)
    args = parser.parse_args()
    args.packed.mkdir(parents=True, exist_ok=True)
    count = sum(1 for _ in (args.rendered / "screens.jsonl").open())
    pictures = np.lib.format.open_memmap(args.packed / "pictures.npy", "w+", np.uint8, (count, args.side, args.side, 3))
    with (args.packed / "records.jsonl").open("w") as records:
        for n, (image, record) in enumerate(rendered(args.rendered)):
            pictures[n] = np.asarray(image.convert("RGB").resize((args.side, args.side), Image.BICUBIC))
            records.write(json.dumps(record) + "\n")
    print(count, "screens in", args.packed)


if __name__ == "__main__":
    main()
