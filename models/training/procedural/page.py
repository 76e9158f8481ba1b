"""One screen in the making: its theme, its labels and the ground that widgets are drawn on."""
from __future__ import annotations

from contextlib import contextmanager
from random import Random

from PIL import Image

from . import content, fonts, icons
from .canvas import Box, Canvas
from .colours import Colour, hsv, ink_on, luminance, mix, tint_on, tinted, vivid
from .devices import Device
from .fonts import Style


def body_size(rng: Random, device: Device) -> int:
    """Type size of plain text, as on the device this canvas is a lowered picture of."""
    if device.kind == "phone":
        size = rng.uniform(13.5, 17) * device.width / 390
    elif device.kind == "tablet":
        size = rng.uniform(14, 17.5) * device.width / 800
    elif device.kind == "desktop":
        size = rng.uniform(12.5, 16.5) * device.width / 1440
    else:
        size = rng.uniform(11.5, 15)
    return round(max(size, device.size_for_cap(5.9)))


class Page:
    def __init__(self, rng: Random, device: Device, old: bool = False):
        self.rng, self.device, self.old = rng, device, old
        self.width, self.height = device.width, device.height
        self.dark = not old and rng.random() < 0.35
        self.body = body_size(rng, device)
        self._colours()
        self.canvas = Canvas(self.width, self.height, self.ground)
        self.deck = content.Deck(rng, icons.names(), 0.15 if rng.random() < 0.26 else 0.0)
        self.budget = rng.choice((14, 22, 28, 34, 40))  # targets after which no more sections are added
        families = fonts.families()
        self.family = rng.choices(families, [family.share for family in families])[0]
        self.smooth = rng.random() < 0.65
        self.kit = rng.choice(tuple(icons.SETS))
        self.radius = 0 if old else rng.choice((0, 0.2, 0.35, 0.35, 0.6, 9))  # in ems
        self.padding = round(self.body * rng.uniform(0.7, 1.3))
        self.density = rng.uniform(0.85, 1.2)
        self.shadows = not old and rng.random() < 0.4
        self.field_look = "sunken" if old else rng.choice(("outlined", "outlined", "filled", "underlined"))
        self.field_label = rng.choice(("above", "above", "inside", "left" if device.kind != "phone" else "above"))
        self.icon_share = rng.choice((0, 0.15, 0.5))  # of the buttons that have an icon
        self._cases: dict[str, str] = {}

    def _colours(self) -> None:
        rng = self.rng
        self.primary = vivid(rng) if rng.random() < 0.65 else hsv(rng.uniform(0.55, 0.72), rng.uniform(0.6, 0.95), 0.85)
        if self.old:
            self.ground = tinted(rng, rng.uniform(0.78, 0.93), 0.08)
            self.surface = (255, 255, 255)
            self.primary = rng.choice(((0, 0, 128), (10, 80, 200), (0, 90, 160)))
        elif self.dark:
            self.ground = tinted(rng, rng.uniform(0.03, 0.17), 0.35)
            self.surface = mix(self.ground, (255, 255, 255), rng.uniform(0.04, 0.1))
            if luminance(self.primary) < 0.4:
                self.primary = mix(self.primary, (255, 255, 255), 0.4)
        else:
            strength = rng.choice((0, 0.02, 0.1))
            self.ground = tinted(rng, rng.uniform(0.92, 1), strength)
            self.surface = (255, 255, 255) if rng.random() < 0.7 else mix(self.ground, (0, 0, 0), 0.04)
        self.face = self.ground  # of old buttons, wherever they stand
        self.stand_on(self.ground)

    def stand_on(self, ground: Colour) -> None:
        self.ground = ground
        self.ink = ink_on(self.rng, ground, 0.95 if luminance(ground) > 0.52 else 0.92)
        self.muted = ink_on(self.rng, ground, self.rng.uniform(0.55, 0.72))
        self.line = mix(ground, self.ink, self.rng.uniform(0.1, 0.2))
        far = abs(luminance(self.primary) - luminance(ground)) > 0.25
        self.accent = self.primary if far else tint_on(self.rng, ground)  # primary, if it can be read here

    @contextmanager
    def on(self, ground: Colour):
        """Widgets inside are drawn on this colour."""
        before = (self.ground, self.ink, self.muted, self.line, self.accent)
        self.stand_on(ground)
        yield
        self.ground, self.ink, self.muted, self.line, self.accent = before

    @property
    def full(self) -> bool:
        return len(self.canvas.elements) >= self.budget

    def em(self, ems: float) -> int:
        return round(self.body * ems)

    def corner(self, height: float) -> float:
        return min(self.radius * self.body, height / 2)

    def style(self, scale: float = 1.0, weight: str = "regular") -> Style:
        smallest = self.device.size_for_cap(5.4)
        return Style(getattr(self.family, weight), fonts.stepped(max(smallest, self.body * scale)), self.smooth)

    def case(self, kind: str) -> str:
        """Letter case is a habit of a kind of widget."""
        if kind not in self._cases:
            self._cases[kind] = content.any_case(self.rng)
        return self._cases[kind]

    def label(self, group: str, room: float, style: Style, kind: str = "") -> tuple[str, str] | None:
        """An unused label that fits: (name, as shown)."""
        case = self.case(kind or group)
        name = self.deck.label(group, lambda label: style.width(content.cased(label, case)) <= room)
        return (name, content.cased(name, case)) if name else None

    def filler(self, room: float, style: Style, most: int = 4) -> str:
        """Meaningless words that fit; may be empty."""
        out, wide = [], 0.0
        for _ in range(self.rng.randint(max(1, most // 2), most)):
            word = content.number(self.rng) if self.rng.random() < 0.12 else content.pseudo_word(self.rng)
            wide += style.width(word) + style.space
            if wide > room:
                break
            out.append(word)
        return " ".join(out).capitalize()

    def write(self, x: float, middle: float, text: str, style: Style, fill: Colour, align: str = "left") -> Box | None:
        return self.canvas.text(x, middle, text, style, fill, align) if text else None

    def icon_for(self, label: str) -> str:
        """The icon that people call by this label, or any."""
        known = icons.by_spoken().get(label.lower())
        return known if known and self.rng.random() < 0.85 else self.rng.choice(icons.names())

    def draw_icon(self, name: str, x: float, y: float, size: float, fill: Colour) -> Box:
        return self.canvas.icon(name, self.kit, x, y, size, fill)

    def icon_button(self, x: float, y: float, side: float, fill: Colour, preferred: tuple[str, ...] = (),
                    size: float = 0, role: str = "button") -> None:
        """An icon-only target of the given side centred at (x, y)."""
        since = self.canvas.mark()
        name = self.deck.icon(preferred)
        core = self.draw_icon(name, x, y, size or self.body * 1.35, fill)
        box = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
        self.canvas.target(role, "", box, core, since, name)

    def picture(self, box: Box, radius: float = 0) -> None:
        """A stand-in for a photo: a gradient, blobs or hills."""
        rng, canvas = self.rng, self.canvas
        x1, y1, x2, y2 = box
        first = hsv(rng.random(), rng.uniform(0.1, 0.8), rng.uniform(0.3, 1))
        last = hsv(rng.random(), rng.uniform(0.1, 0.8), rng.uniform(0.3, 1))
        if radius < 2 and rng.random() < 0.35:  # as blurred as a photo seen from afar
            across, down = rng.randint(3, 14), rng.randint(3, 10)
            dots = Image.frombytes("RGB", (across, down), rng.randbytes(3 * across * down))
            veil = Image.new("RGB", dots.size, first)
            size = (round(x2) - round(x1), round(y2) - round(y1))
            if min(size) > 0:
                dots = Image.blend(dots, veil, rng.uniform(0.2, 0.7)).resize(size, Image.BICUBIC)
                canvas.image.paste(dots, (round(x1), round(y1)))
            return
        canvas.gradient(box, first, last, rng.random() < 0.5, radius)
        wide, tall = x2 - x1, y2 - y1
        for _ in range(rng.randint(0, 4)):
            size = rng.uniform(0.1, 0.22) * min(wide, tall)
            canvas.disc(rng.uniform(x1 + size + radius, max(x1 + size + radius, x2 - size - radius)),
                        rng.uniform(y1 + size + radius, max(y1 + size + radius, y2 - size - radius)), size,
                        hsv(rng.random(), 0.5, rng.uniform(0.4, 1)))

    def avatar(self, x: float, y: float, radius: float) -> None:
        """A round picture, or a disc with two letters."""
        rng = self.rng
        fill = hsv(rng.random(), rng.uniform(0.3, 0.8), rng.uniform(0.4, 0.95))
        self.canvas.disc(x, y, radius, fill)
        ink = ink_on(rng, fill)
        if rng.random() < 0.5:
            self.canvas.disc(x, y - radius * 0.25, radius * 0.34, ink)
            self.canvas.rectangle((x - radius * 0.5, y + radius * 0.2, x + radius * 0.5, y + radius * 0.7), ink,
                                  radius * 0.4)
        else:
            letter = rng.choice("ABCDEFGHJKLMNOPRSTVW")
            self.canvas.text(x, y, letter, self.style(max(0.8, radius / self.body * 0.9), "medium"), ink, "centre")

    def chevron(self, x: float, y: float, size: float, fill: Colour, way: str = "right") -> None:
        half = size / 2
        points = {"right": ((-half / 2, -half), (half / 2, 0), (-half / 2, half)),
                  "down": ((-half, -half / 2), (0, half / 2), (half, -half / 2))}[way]
        self.canvas.draw.line([(x + dx, y + dy) for dx, dy in points], fill=fill, width=max(1, round(size / 6)))
