"""Procedural screens: a seed gives a picture and the elements on it.

    python screens.py --out sheet.png        # a contact sheet to look at

A screen is a stack of bands (a header, buttons, list rows, lines of chips, icons or coloured shapes, a tab bar) in
one or two columns. No name appears twice on a screen, so that "press save" has one answer.
"""
import argparse
import functools
import random
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import glyphs
import vocabulary as V

FONTS = Path("/usr/share/fonts/truetype")
FACES = (
    "roboto/unhinted/RobotoTTF/Roboto-Medium.ttf", "open-sans/OpenSans-Semibold.ttf",
    "roboto/unhinted/RobotoTTF/Roboto-Regular.ttf", "open-sans/OpenSans-Regular.ttf",
    "roboto/unhinted/RobotoTTF/Roboto-Bold.ttf", "open-sans/OpenSans-Bold.ttf",
    "lato/Lato-Regular.ttf", "lato/Lato-Bold.ttf", "liberation/LiberationSans-Regular.ttf",
    "liberation/LiberationSans-Bold.ttf")
SIZES = ((360, 480), (400, 400), (480, 360), (360, 560), (560, 360), (360, 640), (640, 400))
PALETTE = {
    "red": (220, 40, 40), "orange": (245, 130, 20), "yellow": (245, 215, 40), "green": (40, 160, 70),
    "blue": (35, 90, 220), "purple": (125, 50, 175), "pink": (245, 120, 180), "gray": (135, 135, 135)}


@dataclass(frozen=True)
class Domain:
    """How wide the world is. Training widens it; the card states the last one."""

    labels: int = 24         # of V.LABELS, from the front
    faces: int = 1           # of FACES, from the front
    sizes: int = 3           # of SIZES, from the front
    cases: float = 0.0       # share of labels not in Title case
    smallest: float = 0.042  # type size, as a share of the height (and 0.8 of it of the width)
    spread: float = 1.4      # largest type over smallest


@dataclass(frozen=True)
class Element:
    name: str      # its label, or the name of its shape or icon
    role: str      # one of V.ROLES
    colour: str    # one of V.COLOURS, or "" where colour says nothing
    box: tuple     # what to point at, in pixels
    core: tuple    # where its name is to be seen, in pixels


@functools.lru_cache(4096)
def font(face, size):
    return ImageFont.truetype(str(FONTS / face), size)


class Screen:
    """One picture in the making."""

    def __init__(self, seed, domain):
        self.rng = rng = random.Random(seed)
        self.domain, self.elements = domain, []
        self.width, self.height = rng.choice(SIZES[:domain.sizes])
        self.dark = rng.random() < 0.35
        self.ground = self.around((24, 24, 28), 20) if self.dark else self.around((242, 242, 242), 13)
        self.ink = self.around((225, 225, 225), 25) if self.dark else self.around((35, 35, 40), 30)
        self.image = Image.new("RGB", (self.width, self.height), self.ground)
        self.draw = ImageDraw.Draw(self.image)
        self.face = rng.choice(FACES[:domain.faces])
        self.least = max(domain.smallest * self.height, 0.8 * domain.smallest * self.width)
        self.labels = rng.sample(V.LABELS[:domain.labels], domain.labels)
        self.drawn = {name: rng.sample(words, len(words)) for name, words in (("icon", V.ICONS), ("shape", V.SHAPES))}
        self.used = set()

    def around(self, colour, spread):
        return tuple(max(0, min(255, c + self.rng.randint(-spread, spread))) for c in colour)

    def mix(self, share):
        """A colour between ground and ink."""
        return tuple(round(g + (i - g) * share) for g, i in zip(self.ground, self.ink))

    def type_size(self):
        return round(self.least * self.rng.uniform(1, self.domain.spread))

    def add(self, name, role, colour, box, core):
        self.used.add(name)
        self.elements.append(Element(name, role, colour, tuple(box), tuple(core)))

    def label(self, room, size):
        """A label not yet on the screen that fits: (name, as shown, width), or None."""
        for _ in range(8):
            if not self.labels:
                return None
            name = self.labels.pop()
            if name in self.used:
                continue
            shown = name.title()
            if self.rng.random() < self.domain.cases:
                shown = self.rng.choice([name, name.upper()])
            wide = font(self.face, size).getlength(shown)
            if wide <= room:
                return name, shown, wide
            self.labels.insert(0, name)
        return None

    def text(self, x, middle, shown, size, fill):
        """Writes around a middle line; returns the inked box."""
        face = font(self.face, size)
        self.draw.text((x, middle), shown, font=face, fill=fill, anchor="lm")
        return self.draw.textbbox((x, middle), shown, font=face, anchor="lm")

    def glyph(self, name, x, y, size, fill):
        self.image.paste(fill, (round(x), round(y)), glyphs.mask(name, round(size)))
        return (round(x), round(y), round(x) + round(size), round(y) + round(size))

    def filling(self):
        """A button's fill: (colour name or "", fill, text colour)."""
        name = self.rng.choice(V.COLOURS)
        fill = self.around(PALETTE[name], 14)
        light = name in ("yellow", "orange", "pink")
        return name, fill, self.around((20, 20, 20), 15) if light else (255, 255, 255)

    # Each band draws at y between left and right, and returns its height, or 0 if it had no room.

    def button(self, left, right, y):
        size = self.type_size()
        tall = round(size * self.rng.uniform(1.7, 2.3))
        found = self.label(right - left - size, size)
        if not found:
            return 0
        name, shown, wide = found
        span = right - left if self.rng.random() < 0.4 else min(right - left, wide + size * self.rng.uniform(1, 3))
        x = left + self.rng.random() * (right - left - span)
        box, colour, ink = (x, y, x + span, y + tall), "", self.ink
        radius = self.rng.choice([0, 5, tall // 2])
        if self.rng.random() < 0.25:
            self.draw.rounded_rectangle(box, radius, outline=self.mix(0.8), width=2)
        else:
            colour, fill, ink = self.filling()
            self.draw.rounded_rectangle(box, radius, fill=fill)
        core = self.text(x + (span - wide) / 2, y + tall / 2, shown, size, ink)
        self.add(name, "button", colour, box, core)
        return tall

    def row(self, left, right, y):
        size = self.type_size()
        tall, x = round(size * self.rng.uniform(1.8, 2.4)), left + 4
        if self.rng.random() < 0.3:
            self.draw.ellipse((x, y + tall * 0.2, x + tall * 0.6, y + tall * 0.8), fill=self.mix(self.rng.uniform(0.2, 0.6)))
            x += tall * 0.6 + size * 0.5
        found = self.label(right - x - 4, size)
        if not found:
            return 0
        name, shown, wide = found
        core = self.text(x, y + tall / 2, shown, size, self.ink)
        if self.rng.random() < 0.3 and x + wide + size < right:
            self.draw.line([(right - size * 0.6, y + tall * 0.35), (right - size * 0.3, y + tall * 0.5),
                            (right - size * 0.6, y + tall * 0.65)], fill=self.mix(0.5), width=2)
        self.draw.line((left, y + tall, right, y + tall), fill=self.mix(0.25))
        self.add(name, "row", "", (left, y, right, y + tall), core)
        return tall

    def chips(self, left, right, y):
        size, x, count = self.type_size(), left, 0
        tall = round(size * self.rng.uniform(1.5, 1.9))
        while count < 4:
            found = self.label(right - x - size * 1.2, size)
            if not found:
                break
            name, shown, wide = found
            box = (x, y, x + wide + size * 1.2, y + tall)
            self.draw.rounded_rectangle(box, tall // 2, fill=self.mix(self.rng.uniform(0.08, 0.2)))
            core = self.text(x + size * 0.6, y + tall / 2, shown, size, self.ink)
            self.add(name, "chip", "", box, core)
            x, count = box[2] + size * self.rng.uniform(0.4, 1), count + 1
            if self.rng.random() < 0.2:
                break
        return tall if count else 0

    def icons(self, left, right, y):
        size = self.type_size() * self.rng.uniform(1.2, 1.8)
        x, any_drawn = left + self.rng.uniform(0, size), False
        while x + size < right and self.drawn["icon"] and self.rng.random() < 0.85:
            name = self.drawn["icon"].pop()
            if name in self.used:
                continue
            core = self.glyph(name, x, y, size, self.ink)
            self.add(name, "icon", "", (core[0] - 3, core[1] - 3, core[2] + 3, core[3] + 3), core)
            x, any_drawn = x + size * self.rng.uniform(1.5, 2.6), True
        return round(size) if any_drawn else 0

    def shapes(self, left, right, y):
        size = self.type_size() * self.rng.uniform(1.3, 2.4)
        x, any_drawn = left + self.rng.uniform(0, size), False
        taken = {(e.name, e.colour) for e in self.elements}
        while x + size < right and self.rng.random() < 0.85:
            name, colour = self.rng.choice(V.SHAPES), self.rng.choice(V.COLOURS)
            if (name, colour) in taken:
                continue
            taken.add((name, colour))
            core = self.glyph(name, x, y, size, self.around(PALETTE[colour], 14))
            self.add(name, "shape", colour, core, core)
            x, any_drawn = x + size * self.rng.uniform(1.25, 2.4), True
        return round(size) if any_drawn else 0

    def header(self):
        size = self.type_size()
        tall, fill, ink = round(size * self.rng.uniform(2, 2.6)), self.mix(0.08), self.ink
        if self.rng.random() < 0.5:
            _, fill, ink = self.filling()
        self.draw.rectangle((0, 0, self.width, tall), fill=fill)
        x = size * 0.5
        if self.rng.random() < 0.6:
            name = self.rng.choice(("arrow", "menu", "close", "home"))
            core = self.glyph(name, x, (tall - size) / 2, size, ink)
            self.add(name, "icon", "", (0, 0, tall, tall), core)
            x += size * 2
        found = self.label(self.width - x - size * 2.5, size)
        if found:
            name, shown, wide = found
            core = self.text(x, tall / 2, shown, size, ink)
            self.add(name, "title", "", (core[0] - 3, core[1] - 3, core[2] + 3, core[3] + 3), core)
        if self.rng.random() < 0.5:
            name = self.rng.choice(("search", "user", "bell", "plus"))
            if name not in self.used:
                core = self.glyph(name, self.width - size * 1.6, (tall - size) / 2, size, ink)
                self.add(name, "icon", "", (core[0] - 4, core[1] - 4, core[2] + 4, core[3] + 4), core)
        return tall

    def tab_bar(self):
        """Three or four tabs at the bottom; returns its height."""
        size, count = round(self.least), self.rng.choice([2, 3, 3, 4])
        each, tall = self.width / count, round(self.least * self.rng.uniform(1.8, 2.4))
        top = self.height - tall
        self.draw.rectangle((0, top, self.width, self.height), fill=self.mix(0.1))
        for i in range(count):
            found = self.label(each - 6, size)
            if found:
                name, shown, wide = found
                core = self.text((i + 0.5) * each - wide / 2, top + tall / 2, shown, size, self.ink)
                self.add(name, "tab", "", (i * each, top, (i + 1) * each, self.height), core)
        return tall

    def compose(self):
        rng, top, bottom = self.rng, 0, self.height
        if rng.random() < 0.6:
            top = self.header()
        if rng.random() < 0.45:
            bottom -= self.tab_bar()
        columns = 2 if self.width > 450 and rng.random() < 0.6 else 1
        full = rng.uniform(0.4, 1)  # some screens are sparse
        bands = (self.button, self.row, self.chips, self.icons, self.shapes)
        for column in range(columns):
            left = column * self.width / columns + rng.uniform(6, 22)
            right = (column + 1) * self.width / columns - rng.uniform(6, 22)
            y = top + rng.randint(6, 24)
            while y < bottom - self.least * 2.6:
                band = rng.choices(bands, (3, 3, 2, 1.5, 2.5))[0]
                y += band(left, right, y) if rng.random() < full else round(self.least)
                y += rng.randint(5, 20)
        # What reaches below the body would lie under the tab bar.
        self.elements = [e for e in self.elements if e.role == "tab" or e.box[3] <= bottom]
        return self.image, self.elements


def screen(seed, domain=Domain()):
    """(picture at its own size, elements) of a seed; never without an element."""
    while True:
        made = Screen(seed, domain)
        image, elements = made.compose()
        if elements:
            return image, elements
        seed += 1_000_000_007


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="sheet.png")
    parser.add_argument("--boxes", action="store_true", help="draw the boxes and cores too")
    parser.add_argument("--size", type=int, default=384)
    args = parser.parse_args()
    sheet = Image.new("RGB", (4 * args.size, 2 * args.size))
    for i in range(8):
        image, elements = screen(i)
        if args.boxes:
            draw = ImageDraw.Draw(image)
            for e in elements:
                draw.rectangle(e.box, outline=(255, 0, 0))
                draw.rectangle(e.core, outline=(0, 200, 0))
        sheet.paste(image.resize((args.size, args.size), Image.BICUBIC), (i % 4 * args.size, i // 4 * args.size))
    sheet.save(args.out)


if __name__ == "__main__":
    main()
