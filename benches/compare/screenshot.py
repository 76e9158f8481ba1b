#!/usr/bin/env python3
"""A synthetic phone screenshot for speed measurements: ramps, flat boxes, stripes and noise. Equal on every machine.

    python screenshot.py screenshot.png --size 1080x2400
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "fixtures"))
from florence2.pictures import draw, write_png  # noqa: E402


def size(text):
    width, height = text.split("x")
    return int(width), int(height)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=size, default=(1080, 2400))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write_png(args.out, draw(args.seed, *args.size, 3))


if __name__ == "__main__":
    main()
