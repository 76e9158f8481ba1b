"""Screens and commands in the shape of ScreenSpot: one JSON list, one PNG per screen.

    python screenspot.py --procedural --screens 100 --first-seed 100000 --out build/held-out/procedural
    python screenspot.py --rendered build/rendered --commands 6 --out build/held-out/kits

The same folder serves for measuring, for fine-tuning and for load tests. An item has ScreenSpot's own fields
(`img_filename`, `instruction`, `bbox` as x, y, width, height in pixels, `data_type`, `data_source`) and some of ours:
`bbox` is null where the target is not on the screen (`kind` is then `absent`), and `kit`, `template`, `theme`, `seed`,
`kind` and `area_fraction` say where it comes from.
"""
import argparse
import json
from pathlib import Path

from PIL import Image

import procedural
from commands import ABSENT, Commander

FILE = "screenspot.json"


def items(record, filename, count, absent=ABSENT):
    """Items for one screen, each with a different command; fewer than `count` if there is too little to ask for."""
    out, seen = [], set()
    for command in Commander(record, record["seed"]).take(4 * count, absent):
        same = command.target if command.target is not None else command.text.lower()
        if same in seen or len(out) == count:
            continue
        seen.add(same)
        element = record["elements"][command.target] if command.target is not None else None
        x1, y1, x2, y2 = element["box"] if element else (0, 0, 0, 0)
        box = [round(v, 1) for v in (x1, y1, x2 - x1, y2 - y1)]
        out.append({
            "img_filename": filename, "instruction": command.text, "bbox": box if element else None,
            "data_type": "icon" if command.kind == "icon" or (element and not element["name"]) else "text",
            "data_source": record["source"], "kit": record["kit"], "template": record["template"], "theme": record["theme"],
            "seed": record["seed"], "kind": command.kind,
            "area_fraction": round(box[2] * box[3] / record["width"] / record["height"], 5)})
    return out


def write(folder, screens, count, absent=ABSENT):
    """Writes (picture, record) pairs; returns the number of items."""
    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    listed = []
    for image, record in screens:
        filename = f"{record['kit']}-{record['seed']}.png"
        made = items(record, filename, count, absent)
        if made:
            image.convert("RGB").save(folder / "images" / filename, optimize=True)
            listed += made
    (folder / FILE).write_text("[\n" + ",\n".join(json.dumps(item) for item in listed) + "\n]\n")
    return len(listed)


def read(folder):
    """Items of a folder, each with `path`, the picture's."""
    folder = Path(folder)
    listed = json.loads((folder / FILE).read_text())
    return [item | {"path": folder / "images" / item["img_filename"]} for item in listed]


def rendered(folder):
    """(picture, record) pairs that `kits/render.mjs` wrote."""
    folder = Path(folder)
    for line in (folder / "screens.jsonl").open():
        record = json.loads(line)
        yield Image.open(folder / record["image"]), record


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--procedural", action="store_true", help="draw the screens")
    parser.add_argument("--rendered", type=Path, help="take the screens of a folder written by kits/render.mjs")
    parser.add_argument("--screens", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=100_000)
    parser.add_argument("--commands", type=int, default=6, help="commands for a screen")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    drawn = (procedural.screen(args.first_seed + i) for i in range(args.screens))
    screens = drawn if args.procedural else rendered(args.rendered)
    print(write(args.out, screens, args.commands), "items in", args.out)


if __name__ == "__main__":
    main()
