#!/usr/bin/env python3
"""A synthetic phone screenshot for speed measurements: ramps, flat boxes, stripes and noise. Equal on every machine.

    python screenshot.py screenshot.png --size 1080x2400 [--photograph]
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "fixtures"))
from florence2.pictures import draw, write_png  # noqa: E402


def photograph(seed, width, height, channels):
    """Soft shapes under the noise of a sensor, everywhere: PNG compresses it badly and decodes it slowly."""
    rng = np.random.default_rng([seed, width, height])
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    picture = np.full((height, width, channels), 128, np.float32)
    for _ in range(24):
        waves, phase = rng.uniform(-0.02, 0.02, 2), rng.uniform(0, 6.28)
        picture += np.sin(x * waves[0] + y * waves[1] + phase)[..., None] * rng.uniform(-16, 16, channels)
    picture += rng.normal(0, 4, picture.shape)
    return picture.clip(0, 255).astype(np.uint8)


def size(text):
    width, height = text.split("x")
    return int(width), int(height)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=size, default=(1080, 2400))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--photograph", action="store_true", help="noise everywhere instead of a screen")
    args = parser.parse_args()
    write_png(args.out, (photograph if args.photograph else draw)(args.seed, *args.size, 3))


if __name__ == "__main__":
    main()
