"""Single controls: buttons, fields, toggles, sliders, chips. Each draws at a place and records its target."""
from __future__ import annotations

from . import content
from .canvas import Box
from .colours import ink_on, mix, vivid
from .page import Page

BUTTON_KINDS = ("filled", "filled", "outlined", "text", "tonal")


def button_kind(page: Page) -> str:
    return "bevel" if page.old else page.rng.choice(BUTTON_KINDS)


def button(page: Page, box: Box, kind: str, found: tuple[str, str], icon: str | None = None, scale: float = 1.0,
           role: str = "button") -> None:
    """A button with a centred label; `found` is (name, as shown)."""
    canvas, rng = page.canvas, page.rng
    x1, y1, x2, y2 = box
    radius = page.corner(y2 - y1)
    ground, ink = page.ground, page.accent
    if kind == "filled":
        ground = page.primary
        if page.shadows:
            canvas.shadow(box, page.ground, radius, 2)
        canvas.rectangle(box, ground, radius)
        ink = ink_on(rng, ground)
    elif kind == "outlined":
        canvas.outlined(box, page.accent if rng.random() < 0.6 else page.line, ground, radius, rng.choice((1, 1, 2)))
    elif kind == "tonal":
        ground = mix(page.ground, page.primary if rng.random() < 0.5 else page.ink, 0.14)
        canvas.rectangle(box, ground, radius)
        ink = ink_on(rng, ground, 0.9)
    elif kind == "bevel":
        canvas.bevel(box, page.face)
        ink = ink_on(rng, page.face, 0.95)
    elif kind == "danger":
        ground = (205, 45, 50)
        canvas.rectangle(box, ground, radius)
        ink = (255, 255, 255)
    name, shown = found
    style = page.style(scale, "regular" if page.old else "medium")
    since, middle = canvas.mark(), (y1 + y2) / 2
    wide = style.width(shown)
    icon_size = style.size * 1.15
    gap = style.size * 0.45
    if icon:
        left = (x1 + x2 - wide - icon_size - gap) / 2
        page.draw_icon(icon, left + icon_size / 2, middle, icon_size, ink)
        core = canvas.text(left + icon_size + gap, middle, shown, style, ink)
    else:
        core = canvas.text((x1 + x2) / 2, middle, shown, style, ink, "centre")
    canvas.target(role, name, box, core, since, icon)


def button_width(page: Page, shown: str, icon: str | None, scale: float = 1.0) -> int:
    style = page.style(scale, "regular" if page.old else "medium")
    return round(style.width(shown) + page.em(1.8) * page.density + (style.size * 1.6 if icon else 0))


def button_icon(page: Page, name: str) -> str | None:
    return page.icon_for(name) if page.rng.random() < page.icon_share else None


def field(page: Page, x1: float, y: float, x2: float, found: tuple[str, str], select: bool = False,
          label_wide: float = 0) -> float:
    """A text field or select; returns its bottom. Needs about four lines of height."""
    canvas, rng = page.canvas, page.rng
    name, shown = found
    placed = page.field_label
    since, tall = canvas.mark(), page.em(2.1 * page.density)
    core = None
    if placed == "above":
        style = page.style(0.92, rng.choice(("regular", "medium")))
        core = canvas.text(x1, y + style.size * 0.6, shown, style, page.ink)
        y += round(style.size * 1.5)
    elif placed == "left":
        core = canvas.text(x1, y + tall / 2, shown, page.style(), page.ink)
        x1 += label_wide
    box = (x1, y, x2, y + tall)
    radius = page.corner(tall)
    ground = page.ground
    if page.field_look == "outlined":
        ground = page.surface
        canvas.outlined(box, mix(page.ground, page.ink, 0.35), ground, radius)
    elif page.field_look == "filled":
        ground = mix(page.ground, page.ink, 0.08)
        canvas.rectangle(box, ground, radius)
    elif page.field_look == "sunken":
        ground = page.surface
        canvas.bevel(box, ground, sunken=True)
    else:
        canvas.rectangle((x1, y + tall - 1, x2, y + tall), page.muted)
    inner = x1 + (page.em(0.7) if page.field_look != "underlined" else 2)
    middle = y + tall / 2
    room = x2 - inner - page.em(1.8)
    if placed == "inside":
        if not select and rng.random() < 0.25:
            page.draw_icon(page.icon_for(name), inner + page.em(0.5), middle, page.em(1.1), ink_on(rng, ground, 0.6))
            inner += page.em(1.5)
        core = canvas.text(inner, middle, shown, page.style(), ink_on(rng, ground, rng.uniform(0.5, 0.75)))
    elif rng.random() < 0.55 or select:
        value = page.filler(room, page.style(), 2) if rng.random() < 0.6 else content.number(rng)
        if value and page.style().width(value) < room:
            canvas.text(inner, middle, value, page.style(), ink_on(rng, ground, rng.choice((0.5, 0.95))))
    if select:
        page.chevron(x2 - page.em(0.9), middle, page.em(0.6), ink_on(rng, ground, 0.7), "down")
    elif rng.random() < 0.12:
        page.draw_icon("eye" if "assword" in name else rng.choice(("calendar", "close", "search")),
                       x2 - page.em(1), middle, page.em(1.1), ink_on(rng, ground, 0.6))
    canvas.target("select" if select else "field", name, box, core, since)
    return y + tall


def switch(page: Page, x: float, middle: float) -> None:
    """The control alone, its right end at x."""
    canvas, rng = page.canvas, page.rng
    tall, wide = page.em(1.15), page.em(2.1)
    enabled = rng.random() < 0.5
    track = page.primary if enabled else mix(page.ground, page.ink, 0.25)
    canvas.rectangle((x - wide, middle - tall / 2, x, middle + tall / 2), track, tall / 2)
    knob = tall / 2 - max(1, tall / 9)
    canvas.disc(x - tall / 2 if enabled else x - wide + tall / 2, middle, knob,
                (255, 255, 255) if enabled or not page.dark else mix(page.ground, page.ink, 0.7))


def check_mark(page: Page, x: float, middle: float, role: str, chosen: bool) -> None:
    """A check box or radio, its left end at x."""
    canvas, rng = page.canvas, page.rng
    half = page.em(0.55)
    cx = x + half
    if role == "radio":
        canvas.disc(cx, middle, half, page.accent if chosen else page.muted)
        canvas.disc(cx, middle, half - max(1, half * 0.2), page.surface if page.old else page.ground)
        if chosen:
            canvas.disc(cx, middle, half * 0.5, page.ink if page.old else page.accent)
        return
    box = (x, middle - half, x + 2 * half, middle + half)
    if page.old:
        canvas.bevel(box, page.surface, sunken=True)
        tick = page.ink
    elif chosen:
        canvas.rectangle(box, page.primary, min(3, page.radius * 6))
        tick = ink_on(rng, page.primary)
    else:
        canvas.outlined(box, page.muted, page.ground, min(3, page.radius * 6), max(1, half // 5))
    if chosen:
        corners = ((-0.5, 0), (-0.1, 0.4), (0.55, -0.4))
        tick_line = [(cx + half * dx, middle + half * dy) for dx, dy in corners]
        canvas.draw.line(tick_line, fill=tick, width=max(1, half // 4))


def toggle(page: Page, x1: float, y: float, x2: float, role: str, found: tuple[str, str],
           chosen: bool | None = None) -> float:
    """A check box, radio or switch with its label; returns its bottom."""
    canvas = page.canvas
    tall = page.em(1.9 * page.density)
    middle, since, style = y + tall / 2, canvas.mark(), page.style()
    name, shown = found
    pad = page.em(0.15)
    if role == "switch":
        core = canvas.text(x1, middle, shown, style, page.ink)
        switch(page, x2, middle)
        box = (x1 - pad, y, x2 + pad, y + tall)
    else:
        check_mark(page, x1, middle, role, page.rng.random() < 0.4 if chosen is None else chosen)
        core = canvas.text(x1 + page.em(1.7), middle, shown, style, page.ink)
        box = (x1 - pad, middle - page.em(0.8), core[2] + pad, middle + page.em(0.8))
    canvas.target(role, name, box, core, since)
    return y + tall


def slider_track(page: Page, x1: float, x2: float, middle: float) -> None:
    canvas, at = page.canvas, x1 + (x2 - x1) * page.rng.uniform(0.1, 0.9)
    thick = max(2, page.em(0.22))
    canvas.rectangle((x1, middle - thick / 2, x2, middle + thick / 2), mix(page.ground, page.ink, 0.25), thick / 2)
    canvas.rectangle((x1, middle - thick / 2, at, middle + thick / 2), page.accent, thick / 2)
    canvas.disc(at, middle, page.em(0.45), page.accent)


def chip(page: Page, x: float, y: float, tall: float, found: tuple[str, str], chosen: bool) -> float:
    """A chip; returns its right end."""
    canvas, rng = page.canvas, page.rng
    style = page.style(0.92)
    wide = round(style.width(found[1]) + page.em(1.5))
    box = (x, y, x + wide, y + tall)
    since, ground = canvas.mark(), page.ground
    if chosen:
        ground = page.primary
        canvas.rectangle(box, ground, tall / 2 if page.radius else 0)
    elif page.radius > 0.3:
        canvas.outlined(box, mix(ground, page.ink, 0.3), ground, tall / 2)
    else:
        ground = mix(ground, page.ink, 0.09)
        canvas.rectangle(box, ground, page.corner(tall))
    core = canvas.text((box[0] + box[2]) / 2, y + tall / 2, found[1], style, ink_on(rng, ground, 0.9), "centre")
    canvas.target("chip", found[0], box, core, since)
    return x + wide


def random_fill(page: Page):
    return page.primary if page.rng.random() < 0.5 else vivid(page.rng)
