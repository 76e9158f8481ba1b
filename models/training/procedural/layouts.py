"""Whole screens: a frame for the kind of device around columns of sections."""
from __future__ import annotations

from random import Random

from PIL import Image

from . import bars, blocks, overlays, sections
from .colours import hsv, mix
from .devices import any_device
from .page import Page

# What a page is about, as how often each section is tried.
TEMPLATES = {
    "list": {sections.rows: 8, sections.heading: 2, sections.chips: 2, sections.segments: 1, blocks.banner: 1,
             sections.search_field: 3},
    "settings": {sections.rows: 6, sections.heading: 2, sections.toggles: 3, blocks.sliders: 2, sections.paragraph: 1},
    "form": {sections.fields: 6, sections.toggles: 3, sections.buttons: 4, sections.heading: 2, sections.paragraph: 1},
    "shop": {blocks.cards: 6, sections.heading: 2, sections.chips: 2, blocks.banner: 2, sections.buttons: 2,
             sections.search_field: 2},
    "article": {sections.heading: 3, sections.paragraph: 5, blocks.image: 3, sections.buttons: 3, blocks.icon_row: 2},
    "dashboard": {blocks.chart: 3, blocks.table: 4, blocks.cards: 2, sections.buttons: 2, sections.segments: 2,
                  sections.heading: 2},
    "player": {blocks.player: 5, sections.rows: 2, blocks.icon_row: 2, blocks.sliders: 1},
    "launcher": {blocks.tiles: 6, sections.heading: 1, blocks.banner: 1, sections.rows: 1},
    "keypad": {blocks.keypad: 6, sections.buttons: 2, blocks.icon_row: 2, sections.heading: 1},
    "chat": {blocks.conversation: 6, blocks.icon_row: 1, sections.buttons: 2},
    "mixed": {sections.rows: 2, sections.fields: 2, sections.toggles: 2, sections.buttons: 4, sections.heading: 2,
              sections.paragraph: 2, sections.chips: 2, sections.segments: 2, blocks.cards: 2, blocks.banner: 1,
              blocks.icon_row: 2, blocks.sliders: 1, blocks.image: 1, blocks.table: 1},
}
SHARES = {"list": 16, "settings": 13, "form": 14, "shop": 11, "article": 7, "dashboard": 8, "player": 4, "launcher": 5,
          "keypad": 2, "chat": 3, "mixed": 16}
FILLERS = {sections.paragraph: 4, sections.heading: 1, blocks.chart: 1, blocks.image: 2}
# At most one of each of these in a column.
ONCE = (blocks.player, blocks.keypad, blocks.banner, sections.segments, sections.search_field)


def column(page: Page, template: str, x1: int, y: int, x2: int, limit: int) -> None:
    """Stacks sections until the column is full."""
    rng, choices = page.rng, dict(TEMPLATES[template])
    gap = page.em(rng.uniform(0.7, 1.5))
    misses, before = 0, None
    filled = False
    while misses < 16 and choices and limit - y > page.em(2):
        if page.full and not filled:  # no more targets; go on with pictures and prose
            choices, filled = dict(FILLERS), True
        section = rng.choices(tuple(choices), tuple(choices.values()))[0]
        if section is before and section in (sections.heading, sections.paragraph):
            misses += 1
            continue
        if section is sections.heading and (limit - y < page.em(6) or page.full):
            misses += 1
            continue
        bottom = section(page, round(x1), round(y), round(x2), round(limit))
        if bottom is None:
            misses += 1
            continue
        if section in ONCE:
            choices.pop(section)
        y, before = bottom + (gap if section is not sections.heading else gap * 0.4), section
        if page.rng.random() < 0.02:
            return  # a short page


def columns(page: Page, template: str, x1: int, y1: int, x2: int, y2: int) -> None:
    """One to three columns, by how wide the place is."""
    rng = page.rng
    ems = (x2 - x1) / page.body
    count = 1 if ems < 34 else rng.choice((1, 2)) if ems < 60 else rng.choice((1, 2, 2, 3))
    gap = page.em(rng.uniform(1.5, 3))
    if count == 1 and ems > 50 and rng.random() < 0.5:  # a page of limited width
        wide = page.em(rng.uniform(26, 48))
        x1 = x1 if rng.random() < 0.4 else round((x1 + x2 - wide) / 2)
        x2 = x1 + wide
    parts = [rng.uniform(1, 1.8) for _ in range(count)]
    panels, left = rng.random() < 0.35, x1
    for part in parts:
        wide = (x2 - x1 - gap * (count - 1)) * part / sum(parts)
        own = template if rng.random() < 0.6 else rng.choice(("mixed", "form", "list"))
        if panels:
            pad = page.em(0.9)
            blocks.as_panel(page, (left, y1, left + wide, y2))
            with page.on(page.surface):
                column(page, own, left + pad, y1 + pad, left + wide - pad, y2 - pad)
        else:
            column(page, own, left, y1, left + wide, y2)
        left += wide + gap


def phone(page: Page, template: str) -> None:
    rng, pad = page.rng, page.padding
    y = page.em(1.7) if rng.random() < 0.85 and page.device.kind == "phone" else 0
    if template != "launcher" and rng.random() < 0.9:
        y = bars.app_bar(page, y)
        if rng.random() < 0.2:
            y = bars.top_tabs(page, 0, y, page.width)
    elif y:
        bars.status_bar(page, page.ground)
    limit = page.height
    if template == "chat":
        limit = bars.compose_bar(page)
    elif rng.random() < 0.5 and template != "form":
        limit = bars.bottom_bar(page)
    elif rng.random() < 0.3:
        tall = page.em(3.6)
        limit = page.height - tall
        sections.buttons(page, pad, limit + page.em(0.4), page.width - pad, page.height)
    columns(page, template, pad, y + round(pad * 0.8), page.width - pad, limit - pad // 2)
    if rng.random() < 0.12:
        bars.floating_button(page, limit)


def web(page: Page, template: str) -> None:
    rng = page.rng
    y, x1 = bars.site_bar(page), 0
    if rng.random() < 0.4:
        x1 = page.em(rng.uniform(11, 15))
        bars.sidebar(page, 0, y, x1, page.height)
    pad = page.em(rng.uniform(1.2, 2.2))
    if rng.random() < 0.2:
        y = bars.top_tabs(page, x1 + pad, y + page.em(0.3), page.width - pad)
    columns(page, template, x1 + pad, y + round(pad * 0.8), page.width - pad, page.height - pad // 2)


def window(page: Page, template: str) -> None:
    """A desktop program, filling the screen or floating on a wallpaper."""
    rng, canvas = page.rng, page.canvas
    x1, y1, x2, y2 = 0, 0, page.width, page.height
    if page.device.kind == "desktop" and rng.random() < 0.4:
        fill = hsv(rng.random(), rng.uniform(0.2, 0.7), rng.uniform(0.3, 0.8))
        canvas.gradient((0, 0, x2, y2), fill, mix(fill, (255, 255, 255), rng.uniform(-0.2, 0.3)), rng.random() < 0.5)
        x1, y1 = round(x2 * rng.uniform(0.02, 0.16)), round(y2 * rng.uniform(0.02, 0.12))
        x2, y2 = round(x2 * rng.uniform(0.84, 0.98)), round(y2 * rng.uniform(0.86, 0.97))
        canvas.shadow((x1, y1, x2, y2), fill, 4, 4)
    if page.old:
        canvas.bevel((x1, y1, x2, y2), page.ground)
    else:
        canvas.rectangle((x1, y1, x2, y2), page.ground)
    x1, y1, x2, y2 = x1 + 2, y1 + 2, x2 - 2, y2 - 2
    y = bars.title_bar(page, (x1, y1, x2, y2))
    if rng.random() < 0.6:
        y = bars.menu_bar(page, x1, y, x2)
    if rng.random() < 0.55:
        y = bars.tool_bar(page, x1, y, x2)
    if rng.random() < 0.3:  # a status line, not to be used
        tall, small = page.em(1.6), page.style(0.88)
        y2 -= tall
        canvas.draw.line((x1, y2, x2, y2), fill=page.line)
        page.write(x1 + page.em(0.6), y2 + tall / 2, page.filler((x2 - x1) / 2, small, 6), small, page.muted)
    if (x2 - x1) / page.body > 40 and rng.random() < 0.45:
        side = page.em(rng.uniform(11, 14))
        bars.sidebar(page, x1, y, x1 + side, y2)
        x1 += side
    pad = page.em(rng.uniform(0.8, 1.4))
    if rng.random() < 0.25:
        y = bars.top_tabs(page, x1 + pad, y + page.em(0.2), x2 - pad)
    if page.device.kind == "window" or rng.random() < 0.3:  # the buttons of a dialog at the bottom
        tall = page.em(2.1)
        bottom = y2 - page.em(0.7)
        overlays.dialog_buttons(page, x1 + pad, x2 - pad, bottom, False)
        y2 = bottom - tall
    columns(page, template, x1 + pad, y + round(pad * 0.8), x2 - pad, y2 - pad // 2)


def screen(seed: int) -> tuple[Image.Image, dict]:
    """An app screen and its record."""
    rng = Random(f"screen {seed}")
    device = any_device(rng)
    frame = {"phone": phone, "tablet": rng.choice((phone, web)), "desktop": rng.choice((web, web, window, window)),
             "window": window}[device.kind]
    page = Page(rng, device, old=frame is window and rng.random() < 0.4)
    template = rng.choices(tuple(SHARES), tuple(SHARES.values()))[0]
    frame(page, template)
    above = rng.random()
    if above < 0.1:
        overlays.dialog(page)
    elif above < 0.2:
        overlays.dropdown(page)
    elif above < 0.24:
        overlays.toast(page)
    return page.canvas.image, {**page.canvas.record(), "template": template, "theme": "dark" if page.dark else "light",
                               "seed": seed}
