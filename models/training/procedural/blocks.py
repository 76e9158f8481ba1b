"""Richer parts of a page: cards, tables, charts, players, keypads, banners, conversations."""
from __future__ import annotations

from . import content, controls
from .canvas import Box
from .colours import hsv, ink_on, mix
from .page import Page


def cards(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A grid of cards with a picture, a name, a line of small text and perhaps a button."""
    rng, canvas, gap = page.rng, page.canvas, page.em(0.9)
    columns = max(1, min(5, int((x2 - x1) // page.em(rng.uniform(9, 14)))))
    each = (x2 - x1 - gap * (columns - 1)) / columns
    pictured = rng.random() < 0.75
    top_part = round(each * rng.uniform(0.45, 0.75)) if pictured else page.em(0.5)
    top_part = min(top_part, page.em(9))
    lines, has_button = rng.randint(0, 2), rng.random() < 0.35
    tall = top_part + page.em(2.2 + 1.3 * lines + (2.7 if has_button else 0))
    lanes = min(rng.randint(1, 3), int((limit - y + gap) // (tall + gap)))
    if lanes < 1 or page.full:
        return None
    kind = controls.button_kind(page)
    repeated = page.deck.repeats and rng.random() < 0.6
    group, action = rng.choice(("products", "products", "navigation")), None
    look = rng.choice(("shadow", "line", "plain"))
    style, small = page.style(1, "medium"), page.style(0.86)
    for lane in range(lanes):
        for column in range(columns):
            left, top = round(x1 + column * (each + gap)), y + lane * (tall + gap)
            box = (left, top, round(left + each), top + tall)
            found = page.label(group, each - page.em(1.4), style, "card")
            if not found or page.full:
                return top + tall if column else (top - gap if lane else None)
            radius = min(page.corner(tall), page.em(1))
            if look == "shadow":
                canvas.shadow(box, page.ground, radius)
                canvas.rectangle(box, page.surface, radius)
            elif look == "line":
                canvas.outlined(box, page.line, page.surface, radius)
            ground = page.surface if look != "plain" else page.ground
            since = canvas.mark()
            if pictured:
                inset = 0 if look == "plain" else max(1, round(radius / 3))
                page.picture((left + inset, top + inset, box[2] - inset, top + top_part))
            with page.on(ground):
                x = left + page.em(0.6 if look != "plain" else 0.1)
                line = top + top_part + page.em(1.1)
                core = canvas.text(x, line, found[1], style, page.ink)
                for _ in range(lines):
                    line += page.em(1.3)
                    text = content.number(rng) if rng.random() < 0.5 else page.filler(each - page.em(1.4), small, 3)
                    page.write(x, line, text, small, page.muted)
                canvas.target("card", found[0], box, core, since)
                if has_button:
                    found = action or page.label("actions", each - page.em(3), page.style(0.92, "medium"), "button")
                    action = found if repeated else None
                    if found:
                        wide = min(each - page.em(1.2), controls.button_width(page, found[1], None, 0.92))
                        bottom = box[3] - page.em(0.5)
                        controls.button(page, (x, bottom - page.em(2), x + wide, bottom), kind, found, None, 0.92)
    return y + lanes * (tall + gap) - gap


def tiles(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A grid of icons with a label below each, like a launcher."""
    rng, canvas = page.rng, page.canvas
    columns = max(3, min(7, int((x2 - x1) // page.em(rng.uniform(6, 8)))))
    each, tall = (x2 - x1) / columns, page.em(rng.uniform(4.6, 5.8))
    lanes = min(rng.randint(1, 4), int((limit - y) // tall))
    if lanes < 1 or page.full:
        return None
    coloured, radius = rng.random() < 0.6, rng.choice((0.3, 0.7, 9))
    style = page.style(0.85)
    for lane in range(lanes):
        for column in range(columns):
            found = page.label("navigation", each - page.em(0.5), style, "tile")
            if not found or (page.full and lane):
                return y + (lane + (column > 0)) * tall if lane or column else None
            cx, top, since = x1 + (column + 0.5) * each, y + lane * tall, canvas.mark()
            half, icon = page.em(1.25), page.icon_for(found[0])
            fill = page.ground
            if coloured:
                fill = controls.random_fill(page)
                canvas.rectangle((cx - half, top + page.em(0.3), cx + half, top + page.em(0.3) + 2 * half), fill,
                                 min(half, radius * page.body))
            ink = ink_on(rng, fill) if coloured else page.accent
            page.draw_icon(icon, cx, top + page.em(0.3) + half, page.em(1.6), ink)
            core = canvas.text(cx, top + page.em(0.3) + 2 * half + page.em(0.9), found[1], style, page.ink, "centre")
            box = (min(cx - half, core[0]) - 3, top + page.em(0.1), max(cx + half, core[2]) + 3, core[3] + 3)
            canvas.target("button", found[0], box, core, since, icon)
    return y + lanes * tall


def table(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    rng, canvas = page.rng, page.canvas
    tall = page.em(rng.uniform(1.9, 2.6) * page.density)
    count = min(rng.randint(3, 9), int((limit - y) // tall) - 1)
    columns = min(rng.randint(3, 6), int((x2 - x1) // page.em(6.5)))
    if count < 2 or columns < 2 or page.full:
        return None
    each, pad = (x2 - x1) / columns, page.em(0.5)
    sortable, striped, named = rng.random() < 0.5, rng.random() < 0.4, rng.choice(("people", "products", None))
    head = mix(page.ground, page.ink, rng.choice((0, 0.06, 0.12)))
    canvas.rectangle((x1, y, x2, y + tall), head)
    style, small = page.style(0.95, rng.choice(("medium", "bold"))), page.style(0.95)
    for column in range(columns):
        found, since = page.label("columns", each - 2 * pad - page.em(1), style, "column"), canvas.mark()
        if found:
            x = x1 + column * each
            core = canvas.text(x + pad, y + tall / 2, found[1], style, ink_on(rng, head, 0.85))
            if sortable:
                canvas.target("button", found[0], (x, y, x + each, y + tall), core, since)
    repeated = page.deck.repeats and rng.random() < 0.5
    actions, action = rng.random() < 0.4, None
    for index in range(count):
        top = y + (index + 1) * tall
        middle = top + tall / 2
        ground = mix(page.ground, page.ink, 0.05) if striped and index % 2 else page.ground
        canvas.rectangle((x1, top, x2, top + tall), ground)
        canvas.draw.line((x1, top, x2 - 1, top), fill=page.line)
        since, core = canvas.mark(), None
        found = page.label(named, each - 2 * pad, small, "cell") if named and not page.full else None
        if found:
            core = canvas.text(x1 + pad, middle, found[1], small, page.ink)
        else:
            page.write(x1 + pad, middle, page.filler(each - 2 * pad, small, 2), small, page.ink)
        for column in range(1, columns - actions):
            text = content.number(rng) if column % 3 else page.filler(each - 2 * pad, small, 1)
            if text and small.width(text) < each - 2 * pad:
                page.write(x1 + column * each + pad, middle, text, small, page.muted)
        if core:
            canvas.target("row", found[0], (x1, top, x2, top + tall), core, since)
        if actions and not (page.full and not repeated):
            name = action or page.deck.icon(("edit", "trash", "more", "eye", "copy", "download"))
            action = name if repeated else None
            since, half = canvas.mark(), min(tall, page.em(1.9)) / 2
            x = x2 - pad - half
            core = page.draw_icon(name, x, middle, page.em(1.2), page.muted)
            canvas.target("button", "", (x - half, middle - half, x + half, middle + half), core, since, name)
    return round(y + (count + 1) * tall)


def image(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    tall = round(min((x2 - x1) * page.rng.uniform(0.3, 0.6), page.em(16)))
    if y + tall > limit:
        return None
    page.picture((x1, y, x2, y + tall), min(page.corner(tall), page.em(1)))
    return y + tall


def chart(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """Bars, a line or a ring, with numbers on it."""
    rng, canvas = page.rng, page.canvas
    tall = page.em(rng.uniform(7, 12))
    if y + tall > limit:
        return None
    canvas.outlined((x1, y, x2, y + tall), page.line, page.surface, page.corner(tall) if page.radius < 1 else 6)
    with page.on(page.surface):
        left, right, top, bottom = x1 + page.em(1), x2 - page.em(1), y + page.em(2.4), y + tall - page.em(0.8)
        page.write(left, y + page.em(1.1), page.filler(right - left, page.style(0.9), 3), page.style(0.9), page.muted)
        count = rng.randint(5, 14)
        step = (right - left) / count
        heights = [rng.uniform(0.1, 1) * (bottom - top) for _ in range(count)]
        if rng.random() < 0.5:
            for index, height in enumerate(heights):
                canvas.rectangle((left + index * step, bottom - height, left + index * step + step * 0.65, bottom),
                                 page.accent)
        else:
            points = [(left + (index + 0.5) * step, bottom - height) for index, height in enumerate(heights)]
            canvas.draw.line(points, fill=page.accent, width=max(2, page.em(0.15)))
        canvas.draw.line((left, bottom, right, bottom), fill=page.line)
    return y + tall


def player(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """Cover, title, progress and transport controls."""
    rng, canvas = page.rng, page.canvas
    tall = page.em(9)
    art = min(x2 - x1, limit - y - tall, page.em(20))
    if art < page.em(5) or page.full:
        return None
    cx = (x1 + x2) / 2
    page.picture((cx - art / 2, y, cx + art / 2, y + art), min(page.corner(art), page.em(0.8)))
    y += round(art)
    title = page.style(1.3, "bold")
    page.write(cx, y + page.em(1.2), page.filler(x2 - x1, title, 3), title, page.ink, "centre")
    page.write(cx, y + page.em(2.7), page.filler(x2 - x1, page.style(), 2), page.style(), page.muted, "centre")
    half = min(x2 - x1, page.em(26)) / 2
    controls.slider_track(page, cx - half, cx + half, y + page.em(4.2))
    small = page.style(0.82)
    canvas.text(cx - half, y + page.em(5.2), f"{rng.randint(0, 4)}:{rng.randint(0, 59):02}", small, page.muted)
    canvas.text(cx + half, y + page.em(5.2), f"{rng.randint(4, 9)}:{rng.randint(0, 59):02}", small, page.muted, "right")
    middle, step = y + page.em(7.2), half * 2 / 5.4
    names = ["shuffle", "previous", rng.choice(("play", "pause")), "next", "repeat"]
    for index, name in enumerate(names):
        x, fill = cx + (index - 2) * step, page.ink
        side = page.em(2.6)
        if index == 2 and rng.random() < 0.7:
            canvas.disc(x, middle, page.em(1.6), page.primary)
            fill, side = ink_on(rng, page.primary), page.em(3.2)
        page.icon_button(x, middle, side, fill, (name,), page.em(1.7 if index in (1, 2, 3) else 1.3))
    return round(y + tall)


def keypad(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """Digits in a grid; they are no labels of the vocabulary, but its icon keys are targets."""
    rng, canvas = page.rng, page.canvas
    keys = rng.choice(("123456789*0#", "789/456x123-0.=+", "123456789.0<"))
    columns = 4 if len(keys) == 16 else 3
    lanes = len(keys) // columns
    gap = page.em(0.5)
    tall = min(page.em(rng.uniform(2.6, 4)), (limit - y) / lanes - gap)
    if tall < page.em(2) or page.full:
        return None
    x2 = min(x2, x1 + columns * tall * 2)
    each = (x2 - x1 - gap * (columns - 1)) / columns
    look, style = rng.choice(("tonal", "outlined", "plain")), page.style(1.35)
    for index, key in enumerate(keys):
        left, top = x1 + index % columns * (each + gap), y + index // columns * (tall + gap)
        box = (left, top, left + each, top + tall)
        ground = page.ground
        if look == "tonal":
            ground = page.primary if key in "/x-+=" else mix(page.ground, page.ink, 0.1)
            canvas.rectangle(box, ground, page.corner(tall))
        elif look == "outlined":
            canvas.outlined(box, page.line, ground, page.corner(tall))
        if key in "<=":
            page_ink = ink_on(rng, ground)
            since, name = canvas.mark(), page.deck.icon(("back", "check", "phone", "close"))
            core = page.draw_icon(name, left + each / 2, top + tall / 2, page.em(1.5), page_ink)
            canvas.target("button", "", box, core, since, name)
        else:
            canvas.text(left + each / 2, top + tall / 2, key, style, ink_on(rng, ground), "centre")
    return round(y + lanes * (tall + gap) - gap)


def banner(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A coloured box with a title, a line of text and perhaps a button."""
    rng, canvas = page.rng, page.canvas
    with_button = rng.random() < 0.6 and not page.full
    tall = page.em(5.9 if with_button else 3.8)
    if y + tall > limit or x2 - x1 < page.em(10):
        return None
    fill = rng.choice((page.primary, mix(page.ground, page.primary, 0.2), hsv(rng.random(), 0.3, 0.9)))
    radius = min(page.corner(tall), page.em(1))
    canvas.rectangle((x1, y, x2, y + tall), fill, radius)
    if rng.random() < 0.3:
        canvas.gradient((x1, y, x2, y + tall), fill, mix(fill, page.primary, 0.2), True, radius)
    with page.on(fill):
        x, room = x1 + page.em(1), x2 - x1 - page.em(2)
        title, small = page.style(1.2, "bold"), page.style(0.92)
        found = page.label("headings", room, title)
        page.write(x, y + page.em(1.3), found[1] if found else page.filler(room, title, 2), title, page.ink)
        page.write(x, y + page.em(2.8), page.filler(room, small, 6), small, page.muted)
        if with_button:
            found = page.label("actions", room - page.em(2), page.style(0.95, "medium"), "button")
            if found:
                wide = controls.button_width(page, found[1], None, 0.95)
                kind = "bevel" if page.old else rng.choice(("outlined", "tonal"))
                controls.button(page, (x, y + page.em(3.6), x + wide, y + page.em(5.4)), kind, found, None, 0.95)
    return y + tall


def conversation(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """Speech bubbles with meaningless text."""
    rng, canvas, drawn, style = page.rng, page.canvas, None, page.style()
    for _ in range(rng.randint(2, 6)):
        lines = [line for line in (page.filler((x2 - x1) * 0.6, style, 6) for _ in range(rng.randint(1, 3))) if line]
        tall = page.em(1.4 * len(lines) + 0.8)
        if y + tall > limit or not lines:
            break
        wide = max(style.width(line) for line in lines) + page.em(1.6)
        mine = rng.random() < 0.5
        left = x2 - wide if mine else x1
        fill = page.primary if mine else mix(page.ground, page.ink, 0.1)
        canvas.rectangle((left, y, left + wide, y + tall), fill, min(page.em(0.9), 1 + page.radius * page.body))
        for index, line in enumerate(lines):
            middle = y + page.em(0.4 + 1.4 * (index + 0.5))
            canvas.text(left + page.em(0.8), middle, line, style, ink_on(rng, fill, 0.95))
        drawn = y + tall
        y = drawn + page.em(0.7)
    return drawn


def sliders(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    rng, canvas, drawn = page.rng, page.canvas, None
    x2 = min(x2, x1 + page.em(28))
    for _ in range(rng.randint(1, 3)):
        found = page.label("settings", x2 - x1 - page.em(4), page.style(), "slider")
        if y + page.em(3.2) > limit or page.full or not found:
            break
        since = canvas.mark()
        core = canvas.text(x1, y + page.em(0.8), found[1], page.style(), page.ink)
        slider_y = y + page.em(2.2)
        controls.slider_track(page, x1, x2, slider_y)
        canvas.target("slider", found[0], (x1, slider_y - page.em(0.6), x2, slider_y + page.em(0.6)), core, since)
        drawn = y + page.em(3.1)
        y = drawn
    return drawn


def icon_row(page: Page, x1: int, y: int, x2: int, limit: int) -> int | None:
    """A line of icon buttons."""
    tall = page.em(2.4 * page.density)
    if y + tall > limit or page.full:
        return None
    count = min(page.rng.randint(3, 8), int((x2 - x1) // page.em(2.6)))
    step = page.em(2.6) if page.rng.random() < 0.6 else min((x2 - x1) / max(1, count), page.em(6))
    fill = page.rng.choice((page.ink, page.muted, page.accent))
    framed = page.rng.random() < 0.3
    for index in range(count):
        x, middle = x1 + step * (index + 0.5), y + tall / 2
        if framed:
            half = page.em(1.05)
            page.canvas.outlined((x - half, middle - half, x + half, middle + half), page.line, page.ground,
                                 page.corner(2 * half))
        page.icon_button(x, middle, page.em(2.1), fill)
    return y + tall


def as_panel(page: Page, box: Box) -> None:
    """A surface for a whole column."""
    if page.shadows:
        page.canvas.shadow(box, page.ground, 0)
    page.canvas.outlined(box, page.line, page.surface, min(page.em(0.8), page.corner(99)))
