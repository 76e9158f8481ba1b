"""Glyphs of icon fonts by canonical name, as cached masks.

The sets held out for testing (Font Awesome, Ionicons) are not here on purpose: never add them.
"""
from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

TRAINING = Path(__file__).resolve().parent.parent
KITS = Path(os.environ.get("TAPLINE_KITS") or TRAINING / "kits" / "node_modules")

_CODEPOINT_RULE = re.compile(r"\.(?:ti|mdi)-([a-z0-9-]+)::?before\s*{\s*content:\s*\"\\([0-9a-fA-F]+)\"")
SETS = {  # name: (font, where its codepoints are)
    "bootstrap": ("bootstrap-icons/font/fonts/bootstrap-icons.woff", "bootstrap-icons/font/bootstrap-icons.json"),
    "tabler": ("@tabler/icons-webfont/dist/fonts/tabler-icons.ttf", "@tabler/icons-webfont/dist/tabler-icons.css"),
    "lucide": ("lucide-static/font/lucide.ttf", "lucide-static/font/codepoints.json"),
    "mdi": ("@mdi/font/fonts/materialdesignicons-webfont.ttf", "@mdi/font/css/materialdesignicons.css"),
}


def _kit_file(name: str) -> Path:
    path = KITS / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: run `npm install` in models/training/kits, "
                                "or set TAPLINE_KITS to a node_modules folder that has it")
    return path


@functools.lru_cache(1)
def _mapping() -> dict:
    return json.loads((TRAINING / "icons.json").read_text())


@functools.lru_cache(1)
def names() -> tuple[str, ...]:
    return tuple(_mapping())


@functools.lru_cache(1)
def by_spoken() -> dict[str, str]:
    """Canonical name by what people call the icon, so that "Delete" gets a bin."""
    return {spoken: name for name, entry in reversed(_mapping().items()) for spoken in entry["spoken"]}


@functools.lru_cache(len(SETS))
def _codepoints(kit: str) -> dict[str, str]:
    """Character by canonical name, for the glyphs that the set has."""
    source = _kit_file(SETS[kit][1])
    text = source.read_text()
    if source.suffix == ".json":
        codes = json.loads(text)
    else:
        codes = {name: int(code, 16) for name, code in _CODEPOINT_RULE.findall(text)}
    wanted = ((name, entry.get(kit)) for name, entry in _mapping().items())
    return {name: chr(codes[own]) for name, own in wanted if own in codes}


def kits_with(name: str) -> tuple[str, ...]:
    return tuple(kit for kit in SETS if name in _codepoints(kit))


@functools.lru_cache(256)
def _font(kit: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_kit_file(SETS[kit][0])), size, layout_engine=ImageFont.Layout.BASIC)


@functools.lru_cache(16384)
def mask(kit: str, name: str, size: int) -> Image.Image:
    """The inked part of a glyph set at this size."""
    characters = _codepoints(kit)
    if name not in characters:
        kit = next(iter(kits_with(name)))
        characters = _codepoints(kit)
    sheet = Image.new("L", (2 * size + 4, 2 * size + 4))
    ImageDraw.Draw(sheet).text((size // 2, size // 2), characters[name], fill=255, font=_font(kit, size))
    return sheet.crop(sheet.getbbox())
