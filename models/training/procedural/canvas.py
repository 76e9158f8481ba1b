"""A picture that remembers what was written on it: every word, every icon, every target."""
from __future__ import annotations

import functools

from PIL import Image, ImageDraw

from . import icons
from .colours import Colour, mix
from .fonts import Style

Box = tuple[float, float, float, float]


def union(boxes: list[Box]) -> Box:
    return (min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes))


def overlap(first: Box, second: Box) -> float:
    """Area in common."""
    wide = min(first[2], second[2]) - max(first[0], second[0])
    tall = min(first[3], second[3]) - max(first[1], second[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


@functools.lru_cache(256)
def _corner(radius: int) -> tuple[Image.Image, ...]:
    """Smooth masks of the four corners of a rounded box, clockwise from the top left."""
    scale = 4
    disc = Image.new("L", (2 * radius * scale,) * 2)
    ImageDraw.Draw(disc).ellipse((0, 0, 2 * radius * scale - 1, 2 * radius * scale - 1), fill=255)
    disc = disc.resize((2 * radius,) * 2, Image.BOX)
    return tuple(disc.crop((x, y, x + radius, y + radius))
                 for x, y in ((0, 0), (radius, 0), (radius, radius), (0, radius)))


class Canvas:
    def __init__(self, width: int, height: int, ground: Colour):
        self.width, self.height = width, height
        self.image = Image.new("RGB", (width, height), ground)
        self.draw = ImageDraw.Draw(self.image)
        self.elements: list[dict | None] = []
        self.words: list[list] = []
        self.icons: list[list] = []

    # Shapes

    def rectangle(self, box: Box, fill: Colour, radius: float = 0, corners: str = "1111") -> None:
        """A filled box with smooth corners where `corners` says 1 (clockwise from the top left)."""
        x1, y1, x2, y2 = (round(v) for v in box)
        if x2 <= x1 or y2 <= y1:
            return
        radius = int(min(radius, (x2 - x1) // 2, (y2 - y1) // 2))
        if radius < 2:
            self.draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=fill)
            return
        if x2 - x1 > 2 * radius:
            self.draw.rectangle((x1 + radius, y1, x2 - radius - 1, y2 - 1), fill=fill)
        if y2 - y1 > 2 * radius:
            self.draw.rectangle((x1, y1 + radius, x2 - 1, y2 - radius - 1), fill=fill)
        places = ((x1, y1), (x2 - radius, y1), (x2 - radius, y2 - radius), (x1, y2 - radius))
        for place, mask, rounded in zip(places, _corner(radius), corners):
            if rounded == "1":
                self.image.paste(fill, place, mask)
            else:
                self.draw.rectangle((*place, place[0] + radius - 1, place[1] + radius - 1), fill=fill)

    def outlined(self, box: Box, line: Colour, fill: Colour, radius: float = 0, width: int = 1) -> None:
        self.rectangle(box, line, radius)
        x1, y1, x2, y2 = (round(v) for v in box)
        self.rectangle((x1 + width, y1 + width, x2 - width, y2 - width), fill, radius - width)

    def disc(self, x: float, y: float, radius: float, fill: Colour) -> None:
        self.rectangle((x - radius, y - radius, x + radius, y + radius), fill, radius)

    def bevel(self, box: Box, face: Colour, sunken: bool = False) -> None:
        """The raised or sunken edge of old desktops."""
        x1, y1, x2, y2 = (round(v) for v in box)
        bright, dark = mix(face, (255, 255, 255), 0.8), mix(face, (0, 0, 0), 0.5)
        if sunken:
            bright, dark = dark, bright
        self.draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=face)
        self.draw.line((x1, y2 - 1, x1, y1, x2 - 1, y1), fill=bright)
        self.draw.line((x2 - 1, y1, x2 - 1, y2 - 1, x1, y2 - 1), fill=dark)

    def shadow(self, box: Box, ground: Colour, radius: float = 0, depth: int = 3) -> None:
        """A soft edge below a card: nested boxes, each a little darker than the ground."""
        x1, y1, x2, y2 = box
        for step in range(depth, 0, -1):
            shade = mix(ground, (0, 0, 0), 0.16 * (depth + 1 - step) / depth)
            self.rectangle((x1 - step / 2, y1 - step / 2, x2 + step / 2, y2 + step), shade, radius + step / 2)

    def gradient(self, box: Box, first: Colour, last: Colour, across: bool = False,
                 radius: float = 0) -> None:
        x1, y1, x2, y2 = (round(v) for v in box)
        if x2 <= x1 or y2 <= y1:
            return
        ramp = Image.new("RGB", (2, 1) if across else (1, 2))
        ramp.putdata((first, last))
        if across:  # stretched along the short axis last: one strip is interpolated, the rest are copies
            ramp = ramp.resize((x2 - x1, 1), Image.BILINEAR, (0.5, 0, 1.5, 1)).resize((x2 - x1, y2 - y1), Image.NEAREST)
        else:
            ramp = ramp.resize((1, y2 - y1), Image.BILINEAR, (0, 0.5, 1, 1.5)).resize((x2 - x1, y2 - y1), Image.NEAREST)
        radius = int(min(radius, (x2 - x1) // 2, (y2 - y1) // 2))
        if radius < 2:
            self.image.paste(ramp, (x1, y1))
            return
        mask, wide, tall = Image.new("L", ramp.size, 255), x2 - x1, y2 - y1
        places = ((0, 0), (wide - radius, 0), (wide - radius, tall - radius), (0, tall - radius))
        for place, corner in zip(places, _corner(radius)):
            mask.paste(corner, place)
        self.image.paste(ramp, (x1, y1), mask)

    # Marks that are remembered

    def mark(self) -> tuple[int, int]:
        """Where the record stands; what is drawn after it can be given to an element."""
        return len(self.words), len(self.icons)

    def text(self, x: float, middle: float, text: str, style: Style, fill: Colour, align: str = "left") -> Box:
        """Writes a line whose capitals are centred on `middle`; returns its ink box."""
        if align != "left":
            x -= style.width(text) / (2 if align == "centre" else 1)
        baseline, space = round(middle + style.cap / 2), style.space
        boxes, paste = [], self.image.im.paste  # the image's own paste spends longer on checks than on pasting
        for word in text.split():
            advance, (left, top, right, bottom), glyphs = style.word(word)
            at = round(x)
            for dx, dy, mask in glyphs:
                gx, gy = at + dx, baseline + dy
                paste(fill, (gx, gy, gx + mask.width, gy + mask.height), mask.im)
            box = (at + left, baseline + top, at + right, baseline + bottom)
            self.words.append([word, *box, -1])
            boxes.append(box)
            x += advance + space
        return union(boxes)

    def icon(self, name: str, kit: str, x: float, y: float, size: float, fill: Colour) -> Box:
        """Draws an icon centred on (x, y); returns its ink box."""
        mask = icons.mask(kit, name, max(6, round(size)))
        left, top = round(x - mask.width / 2), round(y - mask.height / 2)
        self.image.paste(fill, (left, top), mask)
        box = (left, top, left + mask.width, top + mask.height)
        self.icons.append([name, *box, -1])
        return box

    def target(self, role: str, name: str, box: Box, core: Box, since: tuple[int, int],
               icon: str | None = None) -> int:
        """Adds an element that owns the words and icons drawn since the mark and still free."""
        index = len(self.elements)
        self.elements.append({"role": role, "name": name, "icon": icon, "box": list(box), "core": list(core)})
        for entry in self.words[since[0]:] + self.icons[since[1]:]:
            if entry[5] < 0:
                entry[5] = index
        return index

    # What lies above hides what lies below

    def cover(self, box: Box) -> None:
        """Forgets what an opaque box about to be drawn hides; half-hidden words are forgotten too."""
        self.words = [word for word in self.words if not overlap(word[1:5], box)]
        self.icons = [icon for icon in self.icons if not overlap(icon[1:5], box)]
        for index, element in enumerate(self.elements):
            if not element:
                continue
            x1, y1, x2, y2 = element["box"]
            centre = ((x1 + x2) / 2 - 0.5, (y1 + y2) / 2 - 0.5, (x1 + x2) / 2 + 0.5, (y1 + y2) / 2 + 0.5)
            hidden = overlap(element["box"], box) > 0.35 * area(element["box"])
            if hidden or overlap(element["core"], box) or overlap(centre, box):
                self._drop(index)

    def dim(self, share: float, towards: Colour = (0, 0, 0)) -> None:
        """Greys out the page: it can be read but no longer be used."""
        self.image.paste(Image.blend(self.image, Image.new("RGB", self.image.size, towards), share))
        for index in range(len(self.elements)):
            self._drop(index)

    def _drop(self, index: int) -> None:
        self.elements[index] = None
        for entry in self.words + self.icons:
            if entry[5] == index:
                entry[5] = -1

    def record(self) -> dict:
        """Boxes clipped to the canvas, in whole pixels; what is outside is left out."""
        def clipped(box):
            x1, y1, x2, y2 = (round(v) for v in box)
            return [max(0, x1), max(0, y1), min(self.width, x2), min(self.height, y2)]

        renumbered, elements = {-1: -1}, []
        for index, element in enumerate(self.elements):
            renumbered[index] = -1
            if not element:
                continue
            box, core = clipped(element["box"]), clipped(element["core"])
            if min(box[2] - box[0], box[3] - box[1], core[2] - core[0], core[3] - core[1]) > 0:
                renumbered[index] = len(elements)
                elements.append({**element, "box": box, "core": core})

        def kept(entries):
            out = []
            for name, *box, owner in entries:
                box = clipped(box)
                if box[2] > box[0] and box[3] > box[1]:
                    out.append([name, *box, renumbered[owner]])
            return out

        return {"width": self.width, "height": self.height, "source": "procedural", "kit": "procedural",
                "elements": elements, "words": kept(self.words), "icons": kept(self.icons)}
