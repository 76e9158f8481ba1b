"""Plain parts of a page, stacked in columns: headings, buttons, fields, toggles, lists, chips.

A section is drawn at (x1, y) between x1 and x2 and above `limit`; it returns its bottom, or None if it found no room
or no label (then it has drawn nothing that matters).
"""
from __future__ import annotations

from . import content, controls
from .colours import ink_on, mix
from .page import Page


def heading(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    style = page.style(page.rng.choice((1.0, 1.15, 1.3, 1.7)), page.rng.choice(("medium", "bold")))
    if y + style.size * 1.6 > limit:
        return None
    middle = y + round(style.size * 0.75)
    room = x2 - x1
    if page.rng.random() < 0.6:
        found = page.label("headings", room, style)
        text = found[1] if found else ""
    else:
        text = page.filler(room, style, 3)
    link = None
    if text and page.rng.random() < 0.25 and not page.full:
        small = page.style(0.9)
        link = page.label("actions", room - style.width(text) - page.em(2), small, "link")
        if link:
            since = page.canvas.mark()
            core = page.canvas.text(x2, middle, link[1], small, page.accent, "right")
            pad = page.em(0.2)
            box = (core[0] - pad, core[1] - pad, core[2] + pad, core[3] + pad)
            page.canvas.target("link", link[0], box, core, since)
    centred = not link and page.rng.random() < 0.15
    page.write((x1 + x2) / 2 if centred else x1, middle, text, style, page.ink, "centre" if centred else "left")
    return y + round(style.size * 1.6)


def paragraph(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """Meaningless sentences, sometimes with a link in them."""
    style = page.style(page.rng.choice((0.88, 1.0)))
    step = round(style.size * 1.45)
    lines = page.rng.randint(1, 4)
    if y + lines * step > limit:
        return None
    fill = page.rng.choice((page.ink, page.muted))
    for line in range(lines):
        x, middle = x1, y + line * step + step / 2
        if page.rng.random() < 0.18 and not page.full:
            x += style.width(page.filler((x2 - x1) * 0.3, style, 3) or "")
            before = page.write(x1, middle, page.filler((x2 - x1) * 0.35, style, 3), style, fill)
            x = before[2] + style.space * 1.2 if before else x1
            found = page.label("actions", (x2 - x) * 0.7, style, "link")
            if found:
                since = page.canvas.mark()
                core = page.canvas.text(x, middle, found[1], style, page.accent)
                if page.rng.random() < 0.5:
                    base = round(middle + style.cap / 2) + 1
                    page.canvas.draw.line((core[0], base, core[2], base), fill=page.accent)
                half = style.size * 0.65
                box = (core[0] - 1, min(core[1], middle - half), core[2] + 1, max(core[3], middle + half))
                page.canvas.target("link", found[0], box, core, since)
                x = core[2] + style.space * 1.2
            page.write(x, middle, page.filler(x2 - x, style, 6).lower(), style, fill)
        else:
            page.write(x1, middle, page.filler(x2 - x1, style, 14), style, fill)
    return y + lines * step


def buttons(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """One to four buttons: side by side, shared width, or stacked."""
    rng = page.rng
    tall = page.em(rng.uniform(2.0, 2.6) * page.density)
    if y + tall > limit or page.full:
        return None
    gap, style = page.em(0.7), page.style(1, "medium")
    first, second = rng.choice(controls.BUTTON_KINDS), rng.choice(("outlined", "text", "tonal"))
    if page.old:
        first = second = "bevel"
    wide = x2 - x1
    arrangement = rng.choice(("natural", "natural", "natural", "shared", "stack"))
    if arrangement == "stack" and wide < page.em(30):
        for index in range(rng.randint(1, 3)):
            found = page.label("actions", wide - page.em(3), style, "button") if y + tall <= limit else None
            if not found:
                return None if index == 0 else y - gap
            kind = second if index else first
            controls.button(page, (x1, y, x2, y + tall), kind, found, controls.button_icon(page, found[0]))
            y += tall + gap
        return y - gap
    if arrangement == "shared" and wide < page.em(36):
        count = 2 if wide < page.em(24) else 3
        each = (wide - gap * (count - 1)) / count
        for index in range(count):
            found = page.label("actions", each - page.em(1.5), style, "button")
            if found:
                x = x1 + index * (each + gap)
                controls.button(page, (x, y, x + each, y + tall), second if index else first, found)
        return y + tall
    made, x = [], 0
    for index in range(rng.randint(1, 4)):
        found = page.label("actions", (wide - x) * 0.9 - page.em(4.5), style, "button")
        if not found:
            break
        icon = controls.button_icon(page, found[0])
        width = controls.button_width(page, found[1], icon)
        made.append((x, width, found, icon, "danger" if found[0] in ("Delete", "Remove") and rng.random() < 0.4
                     else second if index else first))
        x += width + gap
    if not made:
        return None
    shift = rng.choice((0, 0, (wide - x + gap) / 2, wide - x + gap))
    for x, width, found, icon, kind in made:
        controls.button(page, (x1 + shift + x, y, x1 + shift + x + width, y + tall), kind, found, icon)
    return y + tall


def fields(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    rng, gap = page.rng, page.em(page.rng.uniform(0.6, 1.1))
    need = page.em(4 if page.field_label == "above" else 2.4)
    if y + need > limit or page.full:
        return None
    label_wide = page.em(8.5) if page.field_label == "left" else 0
    if label_wide and x2 - x1 < label_wide * 2:
        page.field_label, label_wide = "above", 0
    x2 = min(x2, x1 + page.em(34))
    room = label_wide - page.em(0.8) if label_wide else x2 - x1 - page.em(4)
    drawn = None
    for _ in range(rng.randint(1, 5)):
        if y + need > limit:
            break
        halves = x2 - x1 > page.em(20) and rng.random() < 0.25 and not label_wide
        spans = ((x1, (x1 + x2 - gap) / 2), ((x1 + x2 + gap) / 2, x2)) if halves else ((x1, x2),)
        for left, right in spans:
            found = page.label("fields", room / len(spans), page.style())
            if found:
                bottom = controls.field(page, left, y, right, found, rng.random() < 0.15, label_wide)
                drawn = round(bottom)
        if drawn:
            y = drawn + gap
    return drawn


def toggles(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    rng = page.rng
    role = rng.choice(("checkbox", "checkbox", "radio") if page.old else ("checkbox", "radio", "switch"))
    if page.full:
        return None
    x2, drawn = min(x2, x1 + page.em(28)), None
    group = rng.choice(("checks", "settings")) if role == "switch" else "checks"
    count = rng.randint(2 if role == "radio" else 1, 4)
    only = rng.randrange(count)  # of radios one is chosen
    for index in range(count):
        if y + page.em(2.4) > limit:
            break
        found = page.label(group, x2 - x1 - page.em(4), page.style(), "toggle")
        if not found:
            break
        drawn = y = round(controls.toggle(page, x1, y, x2, role, found, index == only if role == "radio" else None))
    return drawn


def rows(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A list whose rows look alike."""
    rng, canvas = page.rng, page.canvas
    leading = rng.choice(("none", "none", "icon", "icon", "avatar", "thumbnail", "tile"))
    trailing = rng.choice(("none", "chevron", "value", "switch", "action", "time", "check"))
    second = rng.random() < 0.4
    group = {"avatar": "people", "thumbnail": "products"}.get(leading) or rng.choice(
        ("settings", "settings", "navigation", "products", "people"))
    if trailing == "switch":
        group = "settings"
    tall = page.em((rng.uniform(2.9, 3.7) if second else rng.uniform(2.0, 2.9)) * page.density)
    count = min(rng.randint(2, 8), int((limit - y) // tall))
    if count < 1 or page.full:
        return None
    grouped = not page.old and rng.random() < 0.4
    divided = rng.random() < 0.55
    ground = page.surface if grouped or (page.old and rng.random() < 0.6) else page.ground
    pad = page.em(0.7) if ground != page.ground or rng.random() < 0.4 else page.em(0.1)
    repeated = page.deck.repeats and rng.random() < 0.6  # the same action on every row
    action = None
    style, small = page.style(1, rng.choice(("regular", "regular", "medium"))), page.style(0.84)
    room = x2 - x1 - 2 * pad - page.em(3.5 if leading != "none" else 0.5)
    room -= page.em({"none": 0, "check": 3}.get(trailing, 6))
    labels = [found for found in (page.label(group, room, style, "row") for _ in range(count)) if found]
    if not labels:
        return None
    box = (x1, y, x2, round(y + len(labels) * tall))
    if grouped:
        if page.shadows:
            canvas.shadow(box, page.ground, page.corner(tall), 2)
        canvas.rectangle(box, ground, page.corner(tall))
    elif ground != page.ground:
        canvas.bevel(box, ground, sunken=True)
    kind = rng.choice(("outlined", "tonal", "text", "filled")) if not page.old else "bevel"
    use_text = rng.random() < 0.5
    with page.on(ground):
        for index, found in enumerate(labels):
            top, middle, x = y + index * tall, y + index * tall + tall / 2, x1 + pad
            right = x2 - pad
            since = canvas.mark()
            icon = None
            if index == 2 and rng.random() < 0.1:  # the chosen row
                canvas.rectangle((x1, top, x2, top + tall), mix(page.ground, page.accent, 0.15), 0)
            if leading == "icon":
                icon = page.icon_for(found[0])
                page.draw_icon(icon, x + page.em(0.8), middle, page.em(1.4), page.muted)
                x += page.em(2.4)
            elif leading == "tile":
                icon, half = page.icon_for(found[0]), page.em(0.95)
                fill = controls.random_fill(page)
                canvas.rectangle((x, middle - half, x + 2 * half, middle + half), fill, page.em(0.4))
                page.draw_icon(icon, x + half, middle, page.em(1.2), ink_on(rng, fill))
                x += page.em(2.7)
            elif leading == "avatar":
                page.avatar(x + tall * 0.36, middle, tall * 0.36)
                x += tall * 0.72 + page.em(0.8)
            elif leading == "thumbnail":
                page.picture((x, middle - tall * 0.38, x + tall * 0.76, middle + tall * 0.38), page.corner(tall) / 3)
                x += tall * 0.76 + page.em(0.8)
            line = middle - (small.size * 0.72 if second else 0)
            core = canvas.text(x, line, found[1], style, page.ink)
            if second:
                text = page.filler(right - x - page.em(6), small, 5)
                page.write(x, middle + small.size * 0.78, text, small, page.muted)
            role = "row"
            if trailing == "chevron":
                page.chevron(right - page.em(0.4), middle, page.em(0.7), page.muted)
            elif trailing in ("value", "time"):
                value = content.number(rng)
                if core[2] + page.em(1) + small.width(value) < right:
                    canvas.text(right, line if trailing == "time" else middle, value, small, page.muted, "right")
            elif trailing == "switch":
                controls.switch(page, right, middle)
                role = "switch"
            elif trailing == "check":
                controls.check_mark(page, right - page.em(1.2), middle, "checkbox", rng.random() < 0.45)
                role = "checkbox"
            canvas.target(role, found[0], (x1, top, x2, top + tall), core, since, icon)
            if trailing == "action":
                done = _row_action(page, core[2], right, middle, tall, kind, action, use_text)
                action = done if repeated else None
            if divided and index < len(labels) - 1:
                canvas.draw.line((x1 + pad, top + tall - 1, x2 - 1, top + tall - 1), fill=page.line)
    return box[3]


def _row_action(page: Page, left: float, right: float, middle: float, tall: float, kind: str, action, use_text: bool):
    """A button at the end of a row, with a label or an icon: the given action, or a new one; returns which."""
    room = right - left - page.em(1.5)
    if use_text:
        style = page.style(0.9, "medium")
        found = action or page.label("actions", min(room, page.em(8)) - page.em(1.6), style, "button")
        if found and style.width(found[1]) + page.em(1.8) < room:
            wide = controls.button_width(page, found[1], None, 0.9)
            half = min(tall * 0.38, page.em(0.95))
            controls.button(page, (right - wide, middle - half, right, middle + half), kind, found, None, 0.9)
            return found
        return action
    name = action or page.deck.icon(("more", "trash", "heart", "download", "info", "star", "phone"))
    side, since = min(tall * 0.8, page.em(2)), page.canvas.mark()
    core = page.draw_icon(name, right - side / 2, middle, page.em(1.3), page.muted)
    box = (right - side, middle - side / 2, right, middle + side / 2)
    page.canvas.target("button", "", box, core, since, name)
    return name


def search_field(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A field to search in, with its label inside."""
    rng, canvas, tall = page.rng, page.canvas, page.em(2.3 * page.density)
    if y + tall > limit or page.full or not page.deck.take("Search"):
        return None
    x2 = min(x2, x1 + page.em(30))
    ground = page.surface if page.old else mix(page.ground, page.ink, 0.07)
    if page.old:
        canvas.bevel((x1, y, x2, y + tall), ground, sunken=True)
    elif rng.random() < 0.4:
        ground = page.surface
        canvas.outlined((x1, y, x2, y + tall), page.line, ground, page.corner(tall))
    else:
        canvas.rectangle((x1, y, x2, y + tall), ground, page.corner(tall))
    since, middle, fill, x = canvas.mark(), y + tall / 2, ink_on(rng, ground, 0.65), x1 + page.em(0.9)
    icon = None
    if rng.random() < 0.75:
        icon = "search"
        page.draw_icon(icon, x + page.em(0.5), middle, page.em(1.2), fill)
        x += page.em(1.6)
    shown = content.cased("Search", page.case("fields"))
    core = canvas.text(x, middle, shown, page.style(), fill)
    canvas.target("field", "Search", (x1, y, x2, y + tall), core, since, icon)
    return y + tall


def chips(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    rng, tall = page.rng, page.em(1.9 * page.density)
    if y + tall > limit or page.full:
        return None
    group, x, drawn = rng.choice(("navigation", "products", "checks", "settings")), x1, None
    for index in range(rng.randint(2, 7)):
        found = page.label(group, x2 - x - page.em(2), page.style(0.92), "chip")
        if not found:
            break
        x = controls.chip(page, x, y, tall, found, index == 0 and rng.random() < 0.6) + page.em(0.5)
        drawn = y + tall
    return drawn


def segments(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A segmented control: a few tabs in one box."""
    rng, canvas, tall = page.rng, page.canvas, page.em(2.1 * page.density)
    if y + tall > limit or page.full:
        return None
    x2 = min(x2, x1 + page.em(28))
    count = rng.randint(2, 4)
    each, radius = (x2 - x1) / count, page.corner(tall)
    trough = mix(page.ground, page.ink, 0.12)
    canvas.rectangle((x1, y, x2, y + tall), trough, radius)
    group = rng.choice(("navigation", "checks"))
    chosen, ground = rng.randrange(count), rng.choice((page.primary, page.surface))
    for index in range(count):
        box = (x1 + index * each, y, x1 + (index + 1) * each, y + tall)
        inside = trough
        if index == chosen:
            inside = ground
            canvas.rectangle((box[0] + 2, y + 2, box[2] - 2, y + tall - 2), ground, radius)
        style = page.style(0.92, "medium")
        found, since = page.label(group, each - page.em(0.8), style, "segment"), canvas.mark()
        if found:
            core = canvas.text((box[0] + box[2]) / 2, y + tall / 2, found[1], style, ink_on(rng, inside, 0.9), "centre")
            canvas.target("tab", found[0], box, core, since)
    return y + tall
