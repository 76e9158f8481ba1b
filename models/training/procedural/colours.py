"""Colours: random ones, mixes, and what can be read on what."""
from __future__ import annotations

import colorsys
from random import Random

Colour = tuple[int, int, int]
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """From the first (share 0) to the second (share 1)."""
    return tuple(round(a + (b - a) * share) for a, b in zip(first, second))


def hsv(hue: float, saturation: float, value: float) -> Colour:
    return tuple(round(255 * c) for c in colorsys.hsv_to_rgb(hue % 1, saturation, value))


def luminance(colour: Colour) -> float:
    return (0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]) / 255


def vivid(rng: Random) -> Colour:
    return hsv(rng.random(), rng.uniform(0.55, 1), rng.uniform(0.45, 0.95))


def tinted(rng: Random, value: float, strength: float = 0.06) -> Colour:
    """A near-grey of this lightness."""
    return hsv(rng.random(), rng.uniform(0, strength), value)


def ink_on(rng: Random, ground: Colour, strength: float = 1.0) -> Colour:
    """A readable text colour; strength 0.6 is faint, 1 the strongest."""
    light = luminance(ground)
    towards = WHITE if light < 0.52 else BLACK
    return mix(ground, mix(towards, vivid(rng), rng.uniform(0, 0.12)), strength)


def tint_on(rng: Random, ground: Colour) -> Colour:
    """A coloured text colour that can be read on the ground."""
    light = luminance(ground)
    for _ in range(8):
        colour = vivid(rng)
        if abs(luminance(colour) - light) > 0.35:
            return colour
    return ink_on(rng, ground)
