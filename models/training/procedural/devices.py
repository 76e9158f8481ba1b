"""Screen sizes, already lowered as if at a reduced device scale, and the type sizes that stay readable on them."""
from __future__ import annotations

from dataclasses import dataclass
from random import Random

READ_AT = 640  # screens are squashed to a square of this side before a model sees them


@dataclass(frozen=True)
class Device:
    kind: str  # phone, tablet, desktop, window
    width: int
    height: int

    def size_for_cap(self, cap: float) -> float:
        """Type size whose capitals are `cap` pixels tall, and no letter too thin, once squashed."""
        return max(cap * self.height / READ_AT / 0.715, self.thinnest)

    @property
    def thinnest(self) -> float:
        """Type size whose average advance (about half an em) is 2.5 pixels once squashed."""
        return 2.55 * self.width / READ_AT / 0.5


def any_device(rng: Random) -> Device:
    kind = rng.choices(("phone", "tablet", "desktop", "window", "square"), (42, 10, 33, 10, 5))[0]
    if kind == "phone":
        width = rng.randint(420, 600)
        return Device("phone", width, max(800, min(1300, round(width * rng.uniform(1.6, 2.2)))))
    if kind == "tablet":
        width, height = rng.randint(740, 860), rng.randint(1000, 1160)
        return Device("tablet", *((width, height) if rng.random() < 0.75 else (height, width)))
    if kind == "desktop":
        return Device("desktop", *rng.choice(((960, 540), (1024, 640), (1024, 768), (1152, 720), (1280, 720),
                                              (1280, 800), (1366, 768), (1200, 900))))
    if kind == "window":
        return Device("window", *rng.choice(((640, 480), (640, 480), (720, 520), (600, 440), (560, 480))))
    return Device("tablet", 700, 700)
