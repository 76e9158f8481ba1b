"""Shapes and icons, drawn large and shrunk so that their edges are smooth. Masks are cached by name and size."""
import functools
import math

from PIL import Image, ImageDraw

OVERSAMPLE = 4


def _regular(points, inner=None, turn=-90.0):
    """Corners of a regular polygon or, with an inner radius, of a star, in the unit square."""
    count = points * (2 if inner else 1)
    out = []
    for i in range(count):
        radius = 0.5 if not inner or i % 2 == 0 else inner
        angle = math.radians(turn + 360.0 * i / count)
        out.append((0.5 + radius * math.cos(angle), 0.5 + radius * math.sin(angle)))
    return out


def _heart():
    out = []
    for i in range(40):
        t = 2 * math.pi * i / 40
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        out.append((0.5 + x / 34, 0.46 - y / 34))
    return out


class _Pen:
    """Draws in the unit square; fill 0 erases."""

    def __init__(self, size):
        self.side = size * OVERSAMPLE
        self.image = Image.new("L", (self.side, self.side), 0)
        self.draw = ImageDraw.Draw(self.image)

    def _at(self, values):
        return [v * (self.side - 1) for v in values]

    def disc(self, box, fill=255):
        self.draw.ellipse(self._at(box), fill=fill)

    def block(self, box, fill=255):
        self.draw.rectangle(self._at(box), fill=fill)

    def poly(self, points, fill=255):
        self.draw.polygon([tuple(self._at(p)) for p in points], fill=fill)

    def line(self, *points, width=0.12, fill=255):
        at = [tuple(self._at(p)) for p in points]
        self.draw.line(at, fill=fill, width=max(1, round(width * self.side)), joint="curve")


def _draw(pen, name):
    if name == "circle":
        pen.disc((0, 0, 1, 1))
    elif name == "square":
        pen.block((0.04, 0.04, 0.96, 0.96))
    elif name == "triangle":
        pen.poly([(0.5, 0.03), (1, 0.95), (0, 0.95)])
    elif name == "diamond":
        pen.poly([(0.5, 0), (0.95, 0.5), (0.5, 1), (0.05, 0.5)])
    elif name == "star":
        pen.poly(_regular(5, 0.2))
    elif name == "heart":
        pen.poly(_heart())
    elif name == "ring":
        pen.disc((0, 0, 1, 1))
        pen.disc((0.24, 0.24, 0.76, 0.76), 0)
    elif name == "moon":
        pen.disc((0, 0, 1, 1))
        pen.disc((0.34, -0.08, 1.2, 0.78), 0)
    elif name == "home":
        pen.poly([(0.5, 0.04), (1, 0.5), (0, 0.5)])
        pen.block((0.16, 0.48, 0.84, 0.96))
        pen.block((0.42, 0.62, 0.58, 0.97), 0)
    elif name == "search":
        pen.disc((0, 0, 0.72, 0.72))
        pen.disc((0.13, 0.13, 0.59, 0.59), 0)
        pen.line((0.6, 0.6), (0.95, 0.95), width=0.16)
    elif name == "menu":
        for y in (0.12, 0.43, 0.74):
            pen.block((0.02, y, 0.98, y + 0.13))
    elif name == "plus":
        pen.block((0.43, 0.04, 0.57, 0.96))
        pen.block((0.04, 0.43, 0.96, 0.57))
    elif name == "check":
        pen.line((0.06, 0.52), (0.38, 0.82), (0.94, 0.2), width=0.15)
    elif name == "close":
        pen.line((0.1, 0.1), (0.9, 0.9), width=0.15)
        pen.line((0.9, 0.1), (0.1, 0.9), width=0.15)
    elif name == "mail":
        pen.block((0, 0.14, 1, 0.86))
        pen.line((0.03, 0.2), (0.5, 0.58), (0.97, 0.2), width=0.09, fill=0)
    elif name == "user":
        pen.disc((0.28, 0.02, 0.72, 0.46))
        pen.disc((0.06, 0.54, 0.94, 1.5))
    elif name == "lock":
        pen.disc((0.24, 0.02, 0.76, 0.62))
        pen.disc((0.36, 0.14, 0.64, 0.6), 0)
        pen.block((0.12, 0.42, 0.88, 0.98))
    elif name == "bell":
        pen.disc((0.2, 0.06, 0.8, 0.7))
        pen.block((0.2, 0.38, 0.8, 0.74))
        pen.block((0.06, 0.7, 0.94, 0.8))
        pen.disc((0.4, 0.76, 0.6, 0.98))
    elif name == "pause":
        pen.block((0.14, 0.06, 0.4, 0.94))
        pen.block((0.6, 0.06, 0.86, 0.94))
    elif name == "arrow":
        pen.line((0.04, 0.5), (0.96, 0.5), width=0.13)
        pen.line((0.46, 0.1), (0.06, 0.5), (0.46, 0.9), width=0.13)
    else:
        raise KeyError(name)


@functools.lru_cache(4096)
def mask(name, size):
    """The glyph as an L mask of size x size pixels."""
    pen = _Pen(size)
    _draw(pen, name)
    return pen.image.resize((size, size), Image.BOX)
