"""The typefaces of the machine, in a fixed order so that a seed always means the same picture."""
from __future__ import annotations

import functools
import glob
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path("/usr/share/fonts/truetype")


@dataclass(frozen=True)
class Family:
    """Files of one family by weight; a family without a medium uses its regular or bold."""

    name: str
    regular: str
    medium: str
    bold: str
    share: float  # how often screens are set in it


def _family(name: str, share: float, regular: str, medium: str, bold: str) -> Family | None:
    found = []
    for pattern in (regular, medium, bold):
        matches = sorted(glob.glob(str(ROOT / pattern)))
        if not matches:
            return None
        found.append(matches[0])
    return Family(name, *found, share)


_NAMED = (
    ("roboto", 5, "roboto/**/Roboto-Regular.ttf", "roboto/**/Roboto-Medium.ttf", "roboto/**/Roboto-Bold.ttf"),
    ("roboto black", 0.4, "roboto/**/Roboto-Medium.ttf", "roboto/**/Roboto-Bold.ttf", "roboto/**/Roboto-Black.ttf"),
    ("roboto condensed", 0.5, "roboto/*/RobotoCondensed-Regular.ttf", "roboto/*/RobotoCondensed-Medium.ttf",
     "roboto/*/RobotoCondensed-Bold.ttf"),
    ("open sans", 3, "open-sans/OpenSans-Regular.ttf", "open-sans/OpenSans-Semibold.ttf",
     "open-sans/OpenSans-Bold.ttf"),
    ("lato", 2.5, "lato/Lato-Regular.ttf", "lato/Lato-Semibold.ttf", "lato/Lato-Bold.ttf"),
    ("lato heavy", 0.5, "lato/Lato-Medium.ttf", "lato/Lato-Bold.ttf", "lato/Lato-Heavy.ttf"),
    ("liberation sans", 4, "liberation/LiberationSans-Regular.ttf", "liberation/LiberationSans-Bold.ttf",
     "liberation/LiberationSans-Bold.ttf"),
    ("liberation serif", 0.8, "liberation/LiberationSerif-Regular.ttf", "liberation/LiberationSerif-Bold.ttf",
     "liberation/LiberationSerif-Bold.ttf"),
    ("liberation narrow", 0.2, "liberation*/LiberationSansNarrow-Regular.ttf",
     "liberation*/LiberationSansNarrow-Bold.ttf", "liberation*/LiberationSansNarrow-Bold.ttf"),
    ("liberation mono", 0.3, "liberation/LiberationMono-Regular.ttf", "liberation/LiberationMono-Bold.ttf",
     "liberation/LiberationMono-Bold.ttf"),
    ("dejavu sans", 1.5, "dejavu/DejaVuSans.ttf", "dejavu/DejaVuSans-Bold.ttf", "dejavu/DejaVuSans-Bold.ttf"),
    ("dejavu condensed", 1, "dejavu/DejaVuSansCondensed.ttf", "dejavu/DejaVuSansCondensed.ttf",
     "dejavu/DejaVuSansCondensed-Bold.ttf"),
    ("dejavu serif", 0.3, "dejavu/DejaVuSerifCondensed.ttf", "dejavu/DejaVuSerifCondensed.ttf",
     "dejavu/DejaVuSerifCondensed-Bold.ttf"),
    ("noto sans", 3, "noto/NotoSans-Regular.ttf", "noto/NotoSans-Medium.ttf", "noto/NotoSans-Bold.ttf"),
    ("noto sans plain", 2, "noto/NotoSans-Regular.ttf", "noto/NotoSans-Bold.ttf", "noto/NotoSans-Bold.ttf"),
    ("noto display", 0.8, "noto/NotoSansDisplay-Regular.ttf", "noto/NotoSansDisplay-Bold.ttf",
     "noto/NotoSansDisplay-Bold.ttf"),
    ("noto serif", 0.6, "noto/NotoSerif-Regular.ttf", "noto/NotoSerif-Bold.ttf", "noto/NotoSerif-Bold.ttf"),
)


@functools.lru_cache(1)
def families() -> tuple[Family, ...]:
    found = tuple(family for family in (_family(*named) for named in _NAMED) if family)
    if not found:
        raise FileNotFoundError(f"no known typeface under {ROOT}: install fonts-roboto, fonts-lato, fonts-noto ...")
    return found


@functools.lru_cache(256)  # an open face takes some 0.1 MB, and is read again in 0.05 ms
def font(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


# Hinting a word takes FreeType 0.4 ms, too long for a page of them. So glyphs are kept as masks, and a word is laid
# out from them; kerning is lost, which at these sizes is less than a pixel.

SMOOTH = 4  # smooth glyphs are drawn this much larger and averaged: no hinting, as on phones and high-density screens


@functools.lru_cache(80_000)
def _glyph(path: str, size: int, smooth: bool, character: str) -> tuple:
    """(advance, left, top, mask or None) relative to the pen on the baseline."""
    scale = SMOOTH if smooth else 1
    face = font(path, size * scale)
    advance = face.getlength(character) / scale
    left, top, right, bottom = face.getbbox(character, anchor="ls")
    if right <= left or bottom <= top:
        return advance, 0, 0, None
    x, y = left // scale, top // scale
    wide, tall = -(-right // scale) - x, -(-bottom // scale) - y
    mask = Image.new("L", (wide * scale, tall * scale))
    ImageDraw.Draw(mask).text((-x * scale, -y * scale), character, fill=255, font=face, anchor="ls")
    if smooth:
        mask = mask.resize((wide, tall), Image.BOX)
    seen = np.asarray(mask) > 40  # edges fainter than this would make boxes loose
    across, down = seen.any(0).nonzero()[0], seen.any(1).nonzero()[0]
    if not len(across):
        return advance, 0, 0, None
    left, top = int(across[0]), int(down[0])
    return advance, x + left, y + top, mask.crop((left, top, int(across[-1]) + 1, int(down[-1]) + 1))


@functools.lru_cache(20_000)
def _word(path: str, size: int, smooth: bool, word: str) -> tuple[float, tuple, tuple]:
    """(advance, ink box, glyphs as (x, y, mask)) relative to the pen on the baseline."""
    pen, placed = 0.0, []
    for character in word:
        advance, left, top, mask = _glyph(path, size, smooth, character)
        if mask is not None:
            placed.append((int(pen + 0.5) + left, top, mask))
        pen += advance
    if not placed:
        return pen, (0, -1, 1, 0), ()
    box = (min(x for x, _, _ in placed), min(y for _, y, _ in placed),
           max(x + mask.width for x, _, mask in placed), max(y + mask.height for _, y, mask in placed))
    return pen, box, tuple(placed)


def stepped(size: float) -> int:
    """Large sizes in steps, so that fewer glyphs have to be kept."""
    step = 1 if size < 16 else 2 if size < 30 else 4
    return max(7, round(size / step) * step)


@dataclass(frozen=True)
class Style:
    """One way to set text."""

    path: str
    size: int
    smooth: bool = False

    def word(self, word: str) -> tuple[float, tuple, tuple]:
        return _word(self.path, self.size, self.smooth, word)

    @property
    def cap(self) -> int:
        """Height of a capital."""
        return -self.word("H")[1][1]

    @property
    def space(self) -> float:
        return _glyph(self.path, self.size, self.smooth, " ")[0]

    def width(self, text: str) -> float:
        words = text.split()
        return sum(self.word(word)[0] for word in words) + self.space * (len(words) - 1)
