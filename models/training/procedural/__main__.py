"""A contact sheet to look at: `python -m procedural --out sheet.png --boxes --first-seed N` in models/training."""
import argparse
import time

from PIL import Image, ImageDraw

import procedural

ROLE_COLOURS = {
    "button": "red", "link": "blue", "tab": "magenta", "row": "green", "field": "orange", "checkbox": "cyan",
    "radio": "teal", "switch": "purple", "select": "brown", "slider": "olive", "menu": "navy", "chip": "deeppink",
    "card": "gold"}


def boxed(image: Image.Image, record: dict) -> Image.Image:
    """Words in grey, icons in lime, elements in the colour of their role with the core dotted in."""
    draw = ImageDraw.Draw(image)
    for entry in record["words"]:
        draw.rectangle(entry[1:5], outline="gray")
    for entry in record["icons"]:
        draw.rectangle(entry[1:5], outline="lime")
    for element in record["elements"]:
        draw.rectangle(element["box"], outline=ROLE_COLOURS[element["role"]], width=2)
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="sheet.png")
    parser.add_argument("--boxes", action="store_true")
    parser.add_argument("--kind", choices=("screen", "sheet"), default="screen")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--tall", type=int, default=800, help="height of a picture on the contact sheet")
    arguments = parser.parse_args()
    pictures, x, y, edge = [], 0, 0, 0
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.count):
        started = time.perf_counter()
        image, record = getattr(procedural, arguments.kind)(seed)
        spent = 1000 * (time.perf_counter() - started)
        print(f"{seed}: {record['template']} {image.size} {len(record['elements'])} elements "
              f"{len(record['words'])} words {len(record['icons'])} icons {spent:.0f} ms")
        if arguments.boxes:
            image = boxed(image, record)
        image.thumbnail((10000, arguments.tall), Image.LANCZOS)
        if x and x + image.width > 2400:
            x, y = 0, y + arguments.tall + 8
        pictures.append((image, x, y))
        x += image.width + 8
        edge = max(edge, x)
    out = Image.new("RGB", (edge, y + arguments.tall), "white")
    for image, left, top in pictures:
        out.paste(image, (left, top))
    out.save(arguments.out)


if __name__ == "__main__":
    main()
