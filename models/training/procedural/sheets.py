"""Reading sheets: as many short labels and icons as fit, each in its own dress, to teach reading."""
from __future__ import annotations

import functools
from random import Random

from PIL import Image

from . import content, fonts, icons
from .canvas import Box, Canvas
from .colours import Colour, hsv, ink_on, luminance, mix, tint_on, tinted, vivid
from .devices import Device, any_device
from .fonts import Style


def _ground(rng: Random) -> Colour:
    kind = rng.random()
    if kind < 0.45:
        return tinted(rng, rng.uniform(0.9, 1))
    if kind < 0.7:
        return tinted(rng, rng.uniform(0.05, 0.25), 0.3)
    if kind < 0.85:
        return hsv(rng.random(), rng.uniform(0.1, 0.3), rng.uniform(0.8, 1))
    return vivid(rng)


@functools.lru_cache(1)
def _words() -> tuple[str, ...]:
    return tuple(content.labels_by_word())


def _piece_label(rng: Random) -> str:
    """Even over words: a word first, then alone or in one of its labels."""
    word = rng.choice(_words())
    label = rng.choice(content.labels_by_word()[word])
    if rng.random() < 0.45 or " " not in label:
        return label
    single = next(part for part in label.split() if part.lower() == word)
    return single[0].upper() + single[1:] if rng.random() < 0.5 else single


class _Sheet:
    def __init__(self, rng: Random, device: Device):
        self.rng, self.device = rng, device
        self.canvas = Canvas(device.width, device.height, (128, 128, 128))
        # Each face is either hinted or smooth here, to halve the number of glyphs that are kept.
        self.faces = [(face, (at + weight) % 3 > 0) for at, family in enumerate(fonts.families())
                      for weight, face in enumerate((family.regular, family.medium, family.bold))
                      for _ in range(round(family.share * 2) or 1)]
        # Squashing makes text on wide screens narrow: larger there, and further apart, or there would be too many.
        self.wide = max(1.0, device.width / device.height) ** 0.5
        self.largest = rng.uniform(9, 12.5) * self.wide ** 0.5  # cap height of most pieces, once squashed
        self.gap = rng.uniform(0.45, 1.1) * self.wide ** 2.5    # between pieces, in ems

    def style(self, size: int) -> Style:
        face, smooth = self.rng.choice(self.faces)
        return Style(face, size, smooth)

    def regions(self, box: Box, depth: int) -> list[Box]:
        """Splits a box in two again and again."""
        x1, y1, x2, y2 = box
        if depth == 0:
            return [box]
        share = self.rng.uniform(0.35, 0.65)
        # a split across width must leave room for the longest labels
        if (x2 - x1) * 1.2 > y2 - y1 and x2 - x1 > 0.6 * self.device.width:
            middle = round(x1 + (x2 - x1) * share)
            halves = (x1, y1, middle, y2), (middle, y1, x2, y2)
        else:
            middle = round(y1 + (y2 - y1) * share)
            halves = (x1, y1, x2, middle), (x1, middle, x2, y2)
        return [part for half in halves for part in self.regions(half, depth - self.rng.choice((1, 1, depth)))]

    def fill(self, box: Box) -> None:
        """Lays pieces in lines from the top left."""
        rng, canvas = self.rng, self.canvas
        ground = _ground(rng)
        canvas.rectangle(box, ground)
        if rng.random() < 0.35:
            other = mix(ground, vivid(rng), rng.uniform(0.05, 0.3))
            if abs(luminance(other) - luminance(ground)) < 0.18:
                canvas.gradient(box, ground, other, rng.random() < 0.5)
                ground = mix(ground, other, 0.5)
        x1, y1, x2, y2 = box
        em = self.device.size_for_cap(8) * self.wide ** 1.6
        y = y1 + rng.uniform(0.2, 0.6) * em
        while True:
            line = round(em * rng.uniform(1.45, 2.3))
            if y + line > y2:
                return
            x = x1 + rng.uniform(0.2, 1.6) * em
            while x < x2 - 2 * em:
                slack = rng.uniform(-0.5, 0.5) * max(0, line - 1.9 * em)
                right = self.piece(x, y + line / 2 + slack, x2 - 0.3 * em, line, ground)
                if right is None:
                    break
                x = right + self.gap * em * rng.uniform(0.5, 1.5)
            y += line + rng.uniform(0.05, 0.3) * em

    def piece(self, x: float, middle: float, limit: float, line: int, ground: Colour) -> float | None:
        """Draws one piece at x; returns where it ends, or None if nothing fitted."""
        rng, device = self.rng, self.device
        kind = rng.choices(("label", "icon", "noise"), (65, 20, 15))[0]
        if kind == "icon":
            name = rng.choice(icons.names())
            size = round(rng.uniform(0.62, 0.98) * min(line, 2 * device.size_for_cap(8)))
            size = min(line, max(size, round(11 * max(device.width, device.height) / 640)))
            pad = rng.randint(2, 4)
            return self.dress(x, middle, limit, line, ground, name, None, size, pad)
        tallest = line / 1.35
        cap = rng.uniform(6, self.largest) if rng.random() < 0.9 else rng.uniform(10, 14)
        size = fonts.stepped(min(device.size_for_cap(cap), tallest))
        style = self.style(size)
        if kind == "label":
            for _ in range(4):
                name = _piece_label(rng)
                shown = content.cased(name, content.any_case(rng))
                if x + style.width(shown) + 1.2 * style.size < limit:
                    return self.dress(x, middle, limit, line, ground, name, (shown, style), size, rng.randint(2, 4))
            return None
        shown = content.number(rng) if rng.random() < 0.5 else content.pseudo_word(rng)
        if rng.random() < 0.4:
            shown = shown.capitalize()
        if x + style.width(shown) > limit:
            return None
        colour = tint_on(rng, ground) if rng.random() < 0.2 else ink_on(rng, ground, rng.uniform(0.6, 1))
        return self.canvas.text(x, middle, shown, style, colour)[2]

    def dress(self, x: float, middle: float, limit: float, line: int, ground: Colour, name: str,
              text: tuple[str, Style] | None, size: int, pad: int) -> float | None:
        """A label or icon, on a patch or bare; always a target."""
        rng, canvas = self.rng, self.canvas
        wide = text[1].width(text[0]) if text else size
        dressed = rng.random() < 0.5
        side = rng.uniform(0.3, 0.7) * size if dressed else pad
        rise = max(1.0, (min(line, size * rng.uniform(1.35, 1.9)) if dressed else size) / 2)
        patch = (round(x), round(middle - rise), round(x + wide + 2 * side), round(middle + rise))
        if patch[2] > limit:
            return None
        if dressed:
            ground = self.patch(patch, ground)
        colour = tint_on(rng, ground) if rng.random() < 0.3 else ink_on(rng, ground, rng.uniform(0.65, 1))
        since = canvas.mark()
        if text:
            core = canvas.text(x + side, middle, text[0], text[1], colour)
            role_name, icon = name, None
        else:
            core = canvas.icon(name, rng.choice(icons.kits_with(name)), x + side + wide / 2, middle, size, colour)
            role_name, icon = "", name
        box = patch if dressed else (core[0] - pad, core[1] - pad, core[2] + pad, core[3] + pad)
        canvas.target("button" if dressed else "link", role_name, box, core, since, icon)
        return max(box[2], core[2])

    def patch(self, box: Box, ground: Colour) -> Colour:
        """Draws a patch; returns the colour inside."""
        rng, canvas = self.rng, self.canvas
        radius = rng.choice((0, 0, rng.randint(3, 9), 99))
        kind = rng.randrange(5)
        if kind == 0:
            canvas.outlined(box, tint_on(rng, ground), ground, radius, rng.choice((1, 1, 2)))
            return ground
        if kind == 1 and radius == 0:
            ground = tinted(rng, rng.uniform(0.7, 0.95))
            canvas.bevel(box, ground)
            return ground
        if kind == 2:
            fill = mix(ground, ink_on(rng, ground), rng.uniform(0.06, 0.2))
        else:
            fill = vivid(rng) if kind < 4 else _ground(rng)
        canvas.rectangle(box, fill, radius)
        return fill


def sheet(seed: int) -> tuple[Image.Image, dict]:
    """A reading sheet and its record."""
    rng = Random(f"sheet {seed}")
    made = _Sheet(rng, any_device(rng))
    for region in made.regions((0, 0, made.device.width, made.device.height), rng.choice((1, 2, 2, 3))):
        made.fill(region)
    theme = "dark" if luminance(made.canvas.image.resize((1, 1)).getpixel((0, 0))) < 0.4 else "light"
    return made.canvas.image, {**made.canvas.record(), "template": "sheet", "theme": theme, "seed": seed}
