"""The evaluation set in the repository: 240 commands on 40 held-out screens of every source, and a sheet to look at.

    python evaluation_set.py --seen build/small-seen --unseen build/small-unseen --out ../pocket/evaluation

`--seen` and `--unseen` are folders written by kits/render.mjs, of training and of held-out kits, at seeds from 200,000.
Screens are taken in order, whatever the model makes of them; those with too little to ask for or too large a file are
left out.
"""
import argparse
import io
import itertools
import json
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import procedural
import screenspot

COMMANDS = 6
COUNTS = {"procedural": 14, "seen": 13, "unseen": 13}
LARGEST = 260_000  # bytes of a PNG
FIRST_SEED = 200_000
TILE = (300, 330)


def png(image):
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def chosen(screens, count, most_of_a_kit):
    """(record, PNG, items) of the first `count` screens that are fit, spread over the kits."""
    out, kits = [], {}
    for image, record in screens:
        if len(out) == count:
            break
        kit = record["kit"]
        if kits.get(kit, 0) >= most_of_a_kit:
            continue
        items = screenspot.items(record, f"{kit}-{record['seed']}.png", COMMANDS)
        file = png(image)
        if len(items) == COMMANDS and len(file) <= LARGEST:
            kits[kit] = kits.get(kit, 0) + 1
            out.append((record, file, items))
    if len(out) < count:
        raise SystemExit(f"only {len(out)} of {count} screens are fit; render more")
    return out


def sheet(entries):
    """All screens small, with their true boxes; the commands of absent targets are counted below."""
    columns = 8
    rows = -(-len(entries) // columns)
    out = Image.new("RGB", (columns * TILE[0], rows * TILE[1]), (90, 90, 96))
    draw, face = ImageDraw.Draw(out), ImageFont.load_default()
    for n, (record, file, items) in enumerate(entries):
        image = Image.open(io.BytesIO(file)).convert("RGB")
        pen = ImageDraw.Draw(image)
        for item in items:
            if item["bbox"]:
                x, y, width, height = item["bbox"]
                pen.rectangle((x, y, x + width, y + height), outline=(255, 0, 90), width=max(2, image.width // 200))
        image.thumbnail((TILE[0] - 8, TILE[1] - 22))
        x, y = n % columns * TILE[0], n // columns * TILE[1]
        out.paste(image, (x + (TILE[0] - image.width) // 2, y + 4))
        absent = sum(item["bbox"] is None for item in items)
        draw.text((x + 6, y + TILE[1] - 15), f"{record['kit']} {record['template']}, absent {absent}", fill="white", font=face)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seen", type=Path, required=True)
    parser.add_argument("--unseen", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    drawn = (procedural.screen(seed) for seed in itertools.count(FIRST_SEED))
    entries = (chosen(drawn, COUNTS["procedural"], COUNTS["procedural"])
               + chosen(screenspot.rendered(args.seen), COUNTS["seen"], 2)
               + chosen(screenspot.rendered(args.unseen), COUNTS["unseen"], 5))
    (args.out / "images").mkdir(parents=True, exist_ok=True)
    for old in (args.out / "images").iterdir():
        old.unlink()
    for _, file, items in entries:
        (args.out / "images" / items[0]["img_filename"]).write_bytes(file)
    listed = [item for _, _, items in entries for item in items]
    (args.out / screenspot.FILE).write_text("[\n" + ",\n".join(json.dumps(item) for item in listed) + "\n]\n")
    sheet(entries).save(args.out / "contact-sheet.jpg", quality=82)
    print(len(listed), "commands on", len(entries), "screens,", sum(item["bbox"] is None for item in listed), "absent,",
          sum(len(file) for _, file, _ in entries), "bytes")


if __name__ == "__main__":
    main()
