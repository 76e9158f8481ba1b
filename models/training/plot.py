"""The training log as a picture: what was learned, over the screens seen.

    python plot.py training-log.csv training-log.png
"""
import argparse
import csv

from PIL import Image, ImageDraw, ImageFont

SIZE, EDGE = (900, 520), (60, 30, 190, 40)  # left, top, right, bottom margins
LINES = {"named_words": (40, 110, 220), "named_icons": (230, 130, 20), "right": (20, 140, 70), "absent": (190, 40, 60),
         "false_abstentions": (130, 90, 170)}


def points(rows):
    """(screens seen, row), counted on over runs that each begin at nothing."""
    before, last = 0, 0
    for row in rows:
        seen = int(row["images"])
        before += last if seen < last else 0
        last = seen
        yield before + seen, row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("picture")
    args = parser.parse_args()
    with open(args.log, newline="") as file:
        rows = list(points(csv.DictReader(file)))
    most = rows[-1][0]
    image = Image.new("RGB", SIZE, "white")
    draw, face = ImageDraw.Draw(image), ImageFont.load_default()
    wide, tall = SIZE[0] - EDGE[0] - EDGE[2], SIZE[1] - EDGE[1] - EDGE[3]
    at = lambda seen, share: (EDGE[0] + wide * seen / most, EDGE[1] + tall * (1 - share))
    for tenth in range(0, 11, 2):
        draw.line((at(0, tenth / 10), at(most, tenth / 10)), fill=(225, 225, 225))
        draw.text((EDGE[0] - 36, at(0, tenth / 10)[1] - 6), f"{tenth * 10} %", fill="black", font=face)
    stage = None
    for seen, row in rows:
        if row["stage"] != stage:
            stage = row["stage"]
            draw.line((at(seen, 0), at(seen, 1)), fill=(200, 200, 200))
            draw.text((at(seen, 1)[0] + 3, EDGE[1] - 14), stage, fill=(90, 90, 90), font=face)
    for n, (name, colour) in enumerate(LINES.items()):
        for watched in sorted({row["watched"] for _, row in rows}):
            line = [at(seen, float(row[name])) for seen, row in rows
                    if row["watched"] == watched and row[name] not in ("", "nan")]
            if len(line) > 1:
                draw.line(line, fill=colour, width=2)
        draw.text((SIZE[0] - EDGE[2] + 12, EDGE[1] + 18 * n), name.replace("_", " "), fill=colour, font=face)
    draw.text((EDGE[0], SIZE[1] - 24), f"screens seen, up to {most:,}; a line for each source watched", fill="black", font=face)
    image.save(args.picture, optimize=True)


if __name__ == "__main__":
    main()
