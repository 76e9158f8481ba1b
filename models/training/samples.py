"""The sample screens of the README: held-out screens with a command that the checkpoint answers rightly, and one absent.

    python samples.py ../pocket --rendered build/samples --tapline ../../target/release/tapline

`publish.sh` runs it. `--rendered` is a folder of screens written by kits/render.mjs at seeds from 300,000, with several
of every template wanted. The card must say that these were picked.
"""
import argparse
import io
import json
import subprocess
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer

import batches
import evaluate
import screenspot
from commands import Commander

# File -> (template, taller than wide or not, what the name or icon of the target is, commands to try); None: any.
WANTED = {
    "login": ("login", True, "Sign in", ["sign in"]),
    "settings": ("settings", True, None, None),
    "player": ("player", True, "play", ["tap the play icon", "the play button", "press play"]),
    "mail": ("mail", False, None, None),
    "shop": ("shop", True, None, None),
    "table": ("table", None, None, None),
    "dashboard": ("dashboard", False, None, None),
}
ABSENT = "sign in"  # asked of a screen of another template that has no such thing
LARGEST = 200_000   # bytes of a PNG


def tries(record, wanted):
    """(command, element) pairs to try on a screen."""
    _, _, name, phrases = wanted
    if name is None:
        asked = Commander(record, record["seed"]).take(12, absent=0)
        return [(command.text, record["elements"][command.target]) for command in asked if command.kind in ("text", "icon")]
    found = [e for e in record["elements"] if name in (e["name"], e["icon"] if not e["name"] else None)]
    return [(phrase, found[0]) for phrase in phrases] if len(found) == 1 else []


def annotate(tapline, folder, listed):
    """Small pictures with what the program answers, for the README."""
    out = folder / "annotated"
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    for item in listed:
        if item["bbox"]:
            file = out / item["img_filename"]
            subprocess.run([tapline, "locate", folder / item["img_filename"], item["instruction"], "--out", file], check=True)
            image = Image.open(file).convert("RGB")
            image.thumbnail((900, 640))
            image.quantize(128).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rendered", type=Path, required=True)
    parser.add_argument("--tapline", help="the program, to draw what it answers into samples/annotated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = evaluate.load(args.folder), Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    side = json.loads((args.folder / "preprocessor_config.json").read_text())["size"]["height"]
    folder = args.folder / "samples"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.*"):
        old.unlink()

    def verdicts(image, asked):
        items = [{"kind": "", "kit": "", "data_type": "", "bbox": box} for _, box in asked]
        with torch.no_grad():
            seen = evaluate.features(model, torch.from_numpy(np.array(batches.squash(image, side)))[None])
        found, _ = evaluate.answer(model, seen, [tokenizer.encode(command).ids for command, _ in asked])
        return [evaluate.judge(item, bins, image.size) for item, bins in zip(items, found.tolist())]

    listed, left, kits = [], dict(WANTED), []
    for image, record in screenspot.rendered(args.rendered):
        match = next((file for file, wanted in left.items() if wanted[0] == record["template"]), None)
        if match is None or kits.count(record["kit"]) > 1 or left[match][1] not in (None, image.height > image.width):
            continue
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", optimize=True)
        pairs = tries(record, left[match])
        if not pairs or len(buffer.getvalue()) > LARGEST:
            continue
        boxes = [[e["box"][0], e["box"][1], e["box"][2] - e["box"][0], e["box"][3] - e["box"][1]] for _, e in pairs]
        judged = verdicts(image, [(command, box) for (command, _), box in zip(pairs, boxes)])
        good = [n for n, verdict in enumerate(judged) if verdict["right"] and verdict["overlap"] >= 0.5]
        if not good:
            continue
        absent = not any(item["bbox"] is None for item in listed) and record["template"] != "login"
        absent = absent and "sign" not in {w[0].lower() for w in record["words"]}
        absent = absent and verdicts(image, [(ABSENT, None)])[0]["right"]
        (folder / f"{match}.png").write_bytes(buffer.getvalue())
        command, box = pairs[good[0]][0], boxes[good[0]]
        listed.append({"img_filename": f"{match}.png", "instruction": command, "bbox": [round(v, 1) for v in box],
                       "data_type": "text" if pairs[good[0]][1]["name"] else "icon", "data_source": "chromium",
                       "kit": record["kit"], "template": record["template"], "seed": record["seed"]})
        if absent:
            listed.append(listed[-1] | {"instruction": ABSENT, "bbox": None, "data_type": "text"})
        kits.append(record["kit"])
        del left[match]
        if not left:
            break
    (folder / "samples.json").write_text("[\n" + ",\n".join(json.dumps(item) for item in listed) + "\n]\n")
    print(*listed, sep="\n")
    print("not found:", list(left))
    if args.tapline:
        annotate(args.tapline, folder, listed)


if __name__ == "__main__":
    main()
