#!/usr/bin/env python3
"""PNG of 1080x2400 to the model's input: Tapline against Pillow with the reference's image processors, in turns.

    python preprocess.py

Peers start from the PNG's bytes too. Pillow decodes for both; transformers' CLIPImageProcessorPil resizes with Pillow,
CLIPImageProcessor with torchvision. `Pillow + table` is the leanest way we know in Python, as the peers of compare.py do it.
All on one thread; Tapline then on more, with independent screenshots at once, as its server prepares them.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers.models.clip.image_processing_clip import CLIPImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from request import Preprocessor
from screenshot import draw, photograph

PICTURES = {"screenshot": draw, "photographic noise": photograph}
CONFIG = {"size": {"width": 768, "height": 768}, "resample": 3, "do_center_crop": False, "rescale_factor": 1 / 255,
          "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
AT_ONCE = 8


class Tapline:
    """The bench `prepare`, which measures itself on order."""

    def __init__(self):
        command = ["cargo", "bench", "--quiet", "--bench", "prepare", "--", "--worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        cwd=Path(__file__).resolve().parent)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        reply = self.process.stdout.readline()
        if not reply:
            raise SystemExit("cargo bench --bench prepare failed")
        return float(reply)

    def milliseconds(self, path, threads=1, count=1):
        return self.ask(path, threads, count)

    def numbers(self, path, out):
        self.ask(path, ">", out)
        return np.fromfile(out, np.float32).reshape(3, 768, 768)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def reference(processor):
    return lambda png: np.asarray(processor(Image.open(io.BytesIO(png)), return_tensors="pt").pixel_values[0])


def peers(folder):
    (folder / "preprocessor_config.json").write_text(json.dumps(CONFIG))
    lean = Preprocessor(folder)
    return {"Pillow + CLIPImageProcessorPil": reference(CLIPImageProcessorPil(**CONFIG)),
            "Pillow + CLIPImageProcessor (torchvision)": reference(CLIPImageProcessor(**CONFIG)),
            "Pillow + table": lambda png: lean.prepare(lean.decode(png))[0]}


def compare(name, path, rivals, tapline, repeats, folder):
    png = path.read_bytes()
    ours = tapline.numbers(path, folder / "numbers")
    largest = {rival: float(np.abs(run(png) - ours).max()) for rival, run in rivals.items()}
    times = {rival: [] for rival in ("Tapline", *rivals)}
    for _ in range(repeats):
        times["Tapline"].append(tapline.milliseconds(path))
        for rival, run in rivals.items():
            start = time.perf_counter()
            run(png)
            times[rival].append((time.perf_counter() - start) * 1000)
    medians = {rival: statistics.median(values) for rival, values in times.items()}
    print(f"\n{name}, {len(png):,} bytes, one thread, medians of {repeats}:\n\n"
          "| | ms | Tapline / this | largest difference |\n|---|---:|---:|---:|")
    for rival, median in medians.items():
        difference = f"{largest[rival]:.1e}" if rival in largest else "–"
        print(f"| {rival} | {median:.1f} | {medians['Tapline'] / median:.2f} | {difference} |")
    rows = {threads: [] for threads in (1, 2)}
    for _ in range(repeats):
        for threads, values in rows.items():
            values.append(tapline.milliseconds(path, threads, AT_ONCE))
    one, two = (statistics.median(values) for values in rows.values())
    print(f"\n{AT_ONCE} at once: {one:.2f} ms each on one thread, {two:.2f} ms on two, {one / two:.2f} times as many")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=31)
    args = parser.parse_args()
    torch.set_num_threads(1)
    busy, tapline = os.getloadavg()[0], Tapline()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rivals = peers(folder)
        print(f"load {busy:.1f} before the first run")
        for picture, make in PICTURES.items():
            path = folder / f"{make.__name__}.png"
            # By Pillow, since its rows are filtered as those of a phone's screenshots are.
            Image.fromarray(make(1, 1080, 2400, 3)).save(path)
            compare(picture, path, rivals, tapline, args.repeats, folder)
    tapline.close()


if __name__ == "__main__":
    main()
