"""What opens above a page: dialogs, bottom sheets, dropdown menus, toasts."""
from __future__ import annotations

from . import controls
from .colours import mix
from .page import Page


def dialog(page: Page) -> None:
    """A box in the middle of a page that can no longer be used."""
    rng, canvas = page.rng, page.canvas
    canvas.dim(rng.uniform(0.35, 0.65))
    page.deck.used.clear()  # what is dimmed is no target, so its labels are free again
    page.budget += 100
    wide = min(page.width - page.em(2.5), page.em(rng.uniform(18, 26)))
    extra = rng.choice(("none", "none", "field", "toggle"))
    lines = rng.randint(1, 3)
    stacked = rng.random() < 0.2
    tall = page.em(3.2 + 1.45 * lines + {"none": 0, "field": 4.6, "toggle": 2.6}[extra] + (7.6 if stacked else 4))
    if tall > page.height - page.em(2):
        return
    x1, y1 = round((page.width - wide) / 2), round((page.height - tall) * rng.uniform(0.35, 0.55))
    if page.device.kind == "phone" and rng.random() < 0.25:
        x1, y1, wide = 0, page.height - tall, page.width
    box = (x1, y1, x1 + wide, y1 + tall)
    canvas.cover(box)
    ground = mix(page.surface, page.ink, 0.03)
    if page.old:
        canvas.bevel(box, page.ground)
        ground = page.ground
    else:
        canvas.rectangle(box, ground, min(page.em(1.2), page.radius * page.body * 1.5))
    with page.on(ground):
        left, right, y = x1 + page.em(1.3), x1 + wide - page.em(1.3), y1 + page.em(1.6)
        title = page.style(1.2, "bold")
        found = page.label("headings", right - left - page.em(2), title)
        page.write(left, y, found[1] if found else page.filler(right - left, title, 2), title, page.ink)
        if rng.random() < 0.3:
            page.icon_button(right - page.em(0.4), y, page.em(2), page.muted, ("close",), page.em(1.2))
        y += page.em(1.4)
        for _ in range(lines):
            page.write(left, y + page.em(0.6), page.filler(right - left, page.style(), 9), page.style(), page.muted)
            y += page.em(1.45)
        if extra == "field":
            if page.field_label == "left":
                page.field_label = "above"
            found = page.label("fields", right - left - page.em(3), page.style())
            if found:
                y = controls.field(page, left, y + page.em(0.4), right, found)
        elif extra == "toggle":
            found = page.label("checks", right - left - page.em(4), page.style())
            if found:
                y = controls.toggle(page, left, y + page.em(0.3), right, "checkbox", found)
        dialog_buttons(page, left, right, y1 + tall - page.em(1.1), stacked)


def dialog_buttons(page: Page, left: float, right: float, bottom: float, stacked: bool) -> None:
    rng, tall, style = page.rng, page.em(2.2), page.style(1, "medium")
    kinds = ["bevel"] * 3 if page.old else rng.choice((["text"] * 3, ["filled", "outlined", "text"],
                                                       ["filled", "tonal", "text"], ["danger", "outlined", "text"]))
    shared = rng.random() < 0.25
    x, count = right, 2 if stacked else rng.choice((1, 2, 2, 3))
    each = (right - left - page.em(0.6) * (count - 1)) / count
    for index in range(count):
        room = right - left if stacked else (each if shared else x - left)
        found = page.label("actions", room - page.em(2.2), style, "button")
        if not found:
            continue
        if stacked:
            top = bottom - (count - index) * (tall + page.em(0.5))
            controls.button(page, (left, top, right, top + tall), kinds[index], found)
            continue
        wide = each if shared else controls.button_width(page, found[1], None)
        if x - wide < left - 1:
            break
        controls.button(page, (x - wide, bottom - tall, x, bottom), kinds[index], found)
        x -= wide + page.em(0.6)


def dropdown(page: Page) -> None:
    """A menu that has opened near a corner or under a menu bar; the rest of the page stays usable."""
    rng, canvas = page.rng, page.canvas
    tall, style = page.em(rng.uniform(1.9, 2.6)), page.style()
    wide = min(page.em(rng.uniform(10, 15)), page.width * 0.7)
    count = rng.randint(3, 7)
    whole = count * tall + page.em(0.8)
    x1 = rng.choice((page.em(0.5), page.width - wide - page.em(0.6), rng.uniform(0.1, 0.6) * (page.width - wide)))
    y1 = rng.uniform(0.06, 0.4) * page.height
    if y1 + whole > page.height:
        return
    box = tuple(round(v) for v in (x1, y1, x1 + wide, y1 + whole))
    canvas.cover((box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3))
    if page.old:
        canvas.bevel(box, page.ground)
    else:
        canvas.shadow(box, page.ground, min(6, page.radius * page.body))
        canvas.outlined(box, page.line, page.surface, min(6, page.radius * page.body))
    with page.on(page.ground if page.old else page.surface):
        y, with_icons = box[1] + page.em(0.4), rng.random() < 0.5
        for index in range(count):
            found, since, icon = page.label("actions", wide - page.em(4.2), style, "item"), canvas.mark(), None
            if not found:
                break
            x = box[0] + page.em(0.9)
            if with_icons:
                icon = page.icon_for(found[0])
                page.draw_icon(icon, x + page.em(0.6), y + tall / 2, page.em(1.2), page.muted)
                x += page.em(1.8)
            core = canvas.text(x, y + tall / 2, found[1], style, page.ink)
            canvas.target("menu", found[0], (box[0] + 1, y, box[2] - 1, y + tall), core, since, icon)
            y += tall
            if index < count - 1 and rng.random() < 0.15:
                canvas.draw.line((box[0] + 2, y, box[2] - 3, y), fill=page.line)


def toast(page: Page) -> None:
    """A message at the bottom, perhaps with an action."""
    rng, canvas, tall = page.rng, page.canvas, page.em(2.6)
    wide = min(page.width - page.em(1.6), page.em(24))
    x1, y1 = round((page.width - wide) / 2), round(page.height - tall - page.em(rng.uniform(1, 5)))
    box = (x1, y1, x1 + wide, y1 + tall)
    canvas.cover(box)
    ground = mix(page.ink, page.ground, 0.12)
    canvas.rectangle(box, ground, min(page.em(0.5), page.radius * page.body))
    with page.on(ground):
        left, middle, right = x1 + page.em(0.9), y1 + tall / 2, x1 + wide - page.em(0.9)
        style = page.style(0.95)
        found = page.label("actions", page.em(6), page.style(0.95, "medium"), "toast") if rng.random() < 0.7 else None
        if found:
            since = canvas.mark()
            core = canvas.text(right, middle, found[1], page.style(0.95, "medium"), page.accent, "right")
            canvas.target("button", found[0], (core[0] - page.em(0.5), y1 + 2, core[2] + page.em(0.5), y1 + tall - 2),
                          core, since)
            right = core[0] - page.em(1)
        page.write(left, middle, page.filler(right - left, style, 5), style, page.ink)
