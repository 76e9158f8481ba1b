"""What frames a page: status, app, tab, navigation, title, menu and tool bars, and sidebars."""
from __future__ import annotations

from . import controls
from .canvas import Box
from .colours import ink_on, mix, tinted
from .page import Page

APP_ICONS = ("search", "more", "bell", "share", "filter", "cart", "edit", "heart", "plus", "user", "settings")


def status_bar(page: Page, ground) -> int:
    """Clock and battery at the top of a phone; nothing there is a target."""
    rng, canvas, tall = page.rng, page.canvas, page.em(1.7)
    canvas.rectangle((0, 0, page.width, tall), ground)
    ink, style, middle = ink_on(rng, ground, 0.85), page.style(0.85, "medium"), tall / 2
    clock = f"{rng.randint(1, 23)}:{rng.randint(0, 59):02}"
    if rng.random() < 0.2:
        canvas.text(page.width / 2, middle, clock, style, ink, "centre")
    else:
        canvas.text(page.em(1), middle, clock, style, ink)
    x = page.width - page.em(1.2)
    for name in rng.sample(("battery", "wifi", "bluetooth", "bell"), rng.randint(1, 3)):
        page.draw_icon(name, x, middle, page.em(0.95), ink)
        x -= page.em(1.4)
    return tall


def app_bar(page: Page, y: int) -> int:
    """Back or menu, a title, and up to three icons."""
    rng, canvas = page.rng, page.canvas
    large = rng.random() < 0.2
    tall = page.em(rng.uniform(2.7, 3.5))
    coloured = rng.random() < 0.35
    ground = page.primary if coloured else page.ground if rng.random() < 0.6 else page.surface
    canvas.rectangle((0, 0, page.width, y + tall), ground)
    if page.device.kind == "phone" and y:
        status_bar(page, ground)
    with page.on(ground):
        middle, x, right = y + tall / 2, page.padding, page.width - page.padding
        if rng.random() < 0.75:
            page.icon_button(x + page.em(0.8), middle, page.em(2.4), page.ink, ("back", "menu", "close"))
            x += page.em(2.6)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            page.icon_button(right - page.em(0.8), middle, page.em(2.3), page.ink, APP_ICONS)
            right -= page.em(2.4)
        if rng.random() < 0.12:
            found = page.label("actions", page.em(7), page.style(1, "medium"), "bar")
            if found:
                since = canvas.mark()
                core = canvas.text(right, middle, found[1], page.style(1, "medium"), page.accent, "right")
                canvas.target("button", found[0], (core[0] - page.em(0.4), y + page.em(0.3), core[2] + page.em(0.4),
                                                   y + tall - page.em(0.3)), core, since)
                right = core[0] - page.em(1)
        style = page.style(rng.uniform(1.1, 1.3), rng.choice(("medium", "medium", "bold")))
        room = right - x - page.em(0.5)
        found = page.label("headings", room, style) if rng.random() < 0.5 else None
        title = found[1] if found else page.filler(room, style, 2)
        if not large and rng.random() < 0.25 and style.width(title) < page.width * 0.4:
            page.write(page.width / 2, middle, title, style, page.ink, "centre")
        else:
            page.write(x, middle, title, style, page.ink)
        if not coloured and rng.random() < 0.5:
            canvas.draw.line((0, y + tall - 1, page.width, y + tall - 1), fill=page.line)
    return y + tall


def top_tabs(page: Page, x1: int, y: int, x2: int) -> int:
    rng, canvas, tall = page.rng, page.canvas, page.em(2.5)
    spread = page.device.kind == "phone" or rng.random() < 0.3
    count = rng.randint(2, 4) if spread else rng.randint(3, 6)
    each = min((x2 - x1) / count, page.em(14))
    if not spread:
        each = min(each, page.em(7.5))
    style, chosen = page.style(0.95, "medium"), rng.randrange(count)
    canvas.draw.line((x1, y + tall - 1, x2, y + tall - 1), fill=page.line)
    for index in range(count):
        found, since = page.label("navigation", each - page.em(0.8), style, "tab"), canvas.mark()
        if not found:
            continue
        left = x1 + index * each
        fill = page.accent if index == chosen else page.muted
        core = canvas.text(left + each / 2, y + tall / 2, found[1], style, fill, "centre")
        if index == chosen:
            canvas.rectangle((left, y + tall - max(2, page.em(0.15)), left + each, y + tall), page.accent)
        canvas.target("tab", found[0], (left, y, left + each, y + tall), core, since)
    return y + tall


def bottom_bar(page: Page) -> int:
    """Tabs at the bottom of a phone; returns their top."""
    rng, canvas, tall = page.rng, page.canvas, page.em(page.rng.uniform(3.2, 3.9))
    top, count = page.height - tall, rng.randint(3, 5)
    ground = page.surface
    canvas.rectangle((0, top, page.width, page.height), ground)
    canvas.draw.line((0, top, page.width, top), fill=page.line)
    labelled, chosen, each = rng.random() < 0.8, rng.randrange(count), page.width / count
    with page.on(ground):
        for index in range(count):
            cx, fill = (index + 0.5) * each, page.accent if index == chosen else page.muted
            if not labelled:
                since, name = canvas.mark(), page.deck.icon(("home", "search", "plus", "bell", "user", "heart", "cart"))
                core = page.draw_icon(name, cx, top + tall / 2, page.em(1.6), fill)
                canvas.target("tab", "", (cx - each / 2, top, cx + each / 2, page.height), core, since, name)
                continue
            style = page.style(0.78, "medium")
            found, since = page.label("navigation", each - page.em(0.4), style, "tab"), canvas.mark()
            if found:
                icon = page.icon_for(found[0])
                page.draw_icon(icon, cx, top + tall * 0.36, page.em(1.5), fill)
                core = canvas.text(cx, top + tall * 0.76, found[1], style, fill, "centre")
                canvas.target("tab", found[0], (cx - each / 2, top, cx + each / 2, page.height), core, since, icon)
    return top


def floating_button(page: Page, bottom: int) -> None:
    side = page.em(3.4)
    x, y = page.width - page.padding - side / 2 - 4, bottom - page.padding - side / 2 - 4
    box = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
    page.canvas.cover(box)
    page.canvas.shadow(box, page.ground, side / 2)
    page.canvas.rectangle(box, page.primary, side / 2 if page.radius > 0.3 else side / 4)
    page.icon_button(x, y, side, ink_on(page.rng, page.primary), ("plus", "edit", "chat", "camera", "send"))


def site_bar(page: Page) -> int:
    """The top of a web page: a made-up brand, links, perhaps a search field, icons and a button."""
    rng, canvas, tall = page.rng, page.canvas, page.em(page.rng.uniform(3.2, 4.2))
    ground = rng.choice((page.primary, page.surface, page.surface, page.ground))
    canvas.rectangle((0, 0, page.width, tall), ground)
    middle = tall / 2
    with page.on(ground):
        x, right = page.em(1.4), page.width - page.em(1.4)
        brand = page.style(1.3, "bold")
        name = page.filler(page.width * 0.2, brand, 1) or "Koro"
        x = canvas.text(x, middle, name, brand, page.accent)[2] + page.em(1.6)
        style = page.style()
        if rng.random() < 0.5:
            found = page.label("actions", page.em(10), page.style(1, "medium"), "button")
            if found:
                wide, half = controls.button_width(page, found[1], None), page.em(1.05)
                box = (right - wide, middle - half, right, middle + half)
                controls.button(page, box, controls.button_kind(page), found)
                right -= wide + page.em(0.8)
        for _ in range(rng.randint(0, 3)):
            page.icon_button(right - page.em(0.9), middle, page.em(2.1), page.ink,
                             ("bell", "user", "cart", "help", "heart"))
            right -= page.em(2.5)
        if rng.random() < 0.4 and right - x > page.em(24) and page.deck.take("Search"):
            wide, half = page.em(rng.uniform(11, 16)), page.em(1.0)
            box, since = (right - wide, middle - half, right, middle + half), canvas.mark()
            inside = mix(ground, page.ink, 0.08)
            canvas.rectangle(box, inside, page.corner(2 * half))
            page.draw_icon("search", box[0] + page.em(1.1), middle, page.em(1.1), ink_on(rng, inside, 0.6))
            core = canvas.text(box[0] + page.em(2.1), middle, "Search", style, ink_on(rng, inside, 0.6))
            canvas.target("field", "Search", box, core, since, "search")
            right -= wide + page.em(1)
        for index in range(rng.randint(2, 6)):
            found, since = page.label("navigation", right - x - page.em(1), style, "nav"), canvas.mark()
            if not found:
                break
            core = canvas.text(x, middle, found[1], style, page.ink if index else page.accent)
            canvas.target("link", found[0], (core[0] - page.em(0.4), middle - page.em(0.9), core[2] + page.em(0.4),
                                             middle + page.em(0.9)), core, since)
            x = core[2] + page.em(1.6)
            if x > right - page.em(6):
                break
        if rng.random() < 0.6:
            canvas.draw.line((0, tall - 1, page.width, tall - 1), fill=page.line)
    return tall


def title_bar(page: Page, box: Box) -> int:
    """Title and window buttons; returns its bottom."""
    rng, canvas = page.rng, page.canvas
    x1, y1, x2, _ = (round(v) for v in box)
    tall = page.em(rng.uniform(2.0, 2.4))
    ground = page.primary if page.old else rng.choice((page.surface, mix(page.ground, page.ink, 0.08)))
    canvas.rectangle((x1, y1, x2, y1 + tall), ground)
    if page.old and rng.random() < 0.5:
        canvas.gradient((x1, y1, x2, y1 + tall), ground, mix(ground, (120, 180, 240), 0.6), True)
    with page.on(ground):
        middle, style = y1 + tall / 2, page.style(1, "bold" if page.old else "medium")
        found = page.label("headings", (x2 - x1) * 0.4, style) if rng.random() < 0.4 else None
        title = found[1] if found else page.filler((x2 - x1) * 0.4, style, 3)
        if not page.old and rng.random() < 0.3:  # round lights at the left
            for index, fill in enumerate(((255, 95, 86), (255, 189, 46), (39, 201, 63))):
                canvas.disc(x1 + page.em(1.0 + 1.3 * index), middle, page.em(0.42), fill)
            page.write((x1 + x2) / 2, middle, title, style, page.ink, "centre")
            return y1 + tall
        page.write(x1 + page.em(0.7), middle, title, style, page.ink)
        x, side = x2 - page.em(1.1), page.em(1.6)
        for name in ("close", "expand", "minus")[:rng.choice((1, 3, 3))]:
            fill = page.ink
            if page.old:
                canvas.bevel((x - side / 2, middle - side / 2, x + side / 2, middle + side / 2), page.face)
                fill = (20, 20, 20)
            if name == "expand":  # the window button is a plain square in most systems
                half = page.em(0.38)
                canvas.draw.rectangle((x - half, middle - half, x + half, middle + half), outline=fill)
            else:
                page.icon_button(x, middle, side, fill, (name,), page.em(1.0))
            x -= page.em(1.9)
    return y1 + tall


def menu_bar(page: Page, x1: int, y: int, x2: int) -> int:
    rng, canvas, tall, style = page.rng, page.canvas, page.em(1.9), page.style()
    x = x1 + page.em(0.4)
    for _ in range(rng.randint(3, 7)):
        found, since = page.label("menus", x2 - x - page.em(2), style, "menu"), canvas.mark()
        if not found:
            break
        core = canvas.text(x + page.em(0.6), y + tall / 2, found[1], style, page.ink)
        right = core[2] + page.em(0.6)
        canvas.target("menu", found[0], (x, y, right, y + tall), core, since)
        x = right
    return y + tall


def tool_bar(page: Page, x1: int, y: int, x2: int) -> int:
    """Icons, some with a label beside or below."""
    rng, canvas = page.rng, page.canvas
    below = rng.random() < 0.25
    tall, x = page.em(3.9 if below else 2.5), x1 + page.em(0.5)
    canvas.rectangle((x1, y, x2, y + tall), mix(page.ground, page.ink, 0.03))
    canvas.draw.line((x1, y + tall - 1, x2 - 1, y + tall - 1), fill=page.line)
    middle = y + tall / 2
    style = page.style(0.9)
    for _ in range(rng.randint(4, 12)):
        if x > x2 - page.em(7):
            break
        if rng.random() < 0.15:
            canvas.draw.line((x + 3, y + tall * 0.25, x + 3, y + tall * 0.75), fill=page.line)
            x += page.em(0.6)
        if below or rng.random() < 0.2:
            found, since = page.label("actions", page.em(6), style, "tool"), canvas.mark()
            if not found:
                continue
            icon, wide = page.icon_for(found[0]), style.width(found[1])
            if below:
                span = max(wide, page.em(1.5)) + page.em(0.9)
                page.draw_icon(icon, x + span / 2, y + tall * 0.34, page.em(1.5), page.ink)
                core = canvas.text(x + span / 2, y + tall * 0.76, found[1], style, page.ink, "centre")
            else:
                span = wide + page.em(2.5)
                page.draw_icon(icon, x + page.em(0.9), middle, page.em(1.3), page.ink)
                core = canvas.text(x + page.em(1.9), middle, found[1], style, page.ink)
            canvas.target("button", found[0], (x, y + 2, x + span, y + tall - 2), core, since, icon)
            x += span + page.em(0.3)
        else:
            page.icon_button(x + page.em(1.05), middle, page.em(2.05), page.ink)
            x += page.em(2.3)
    return y + tall


def sidebar(page: Page, x1: int, y: int, x2: int, y2: int) -> None:
    """A column of places to go."""
    rng, canvas = page.rng, page.canvas
    ground = tinted(rng, rng.uniform(0.1, 0.22), 0.4) if rng.random() < 0.25 and not page.old else rng.choice(
        (page.surface, mix(page.ground, page.ink, 0.04)))
    canvas.rectangle((x1, y, x2, y2), ground)
    canvas.draw.line((x2 - 1, y, x2 - 1, y2), fill=page.line)
    with page.on(ground):
        tall, style, with_icons = page.em(rng.uniform(2.0, 2.8)), page.style(), rng.random() < 0.7
        x, chosen = x1 + page.em(1), rng.randrange(5)
        y += page.em(0.6)
        for index in range(min(rng.randint(4, 10), int((y2 - y) // tall))):
            if y + 2 * tall > y2:
                break
            if rng.random() < 0.1:
                small = page.style(0.82, "bold")
                title = page.filler((x2 - x) * 0.6, small, 2).upper()  # capitals are wider than what was measured
                page.write(x, y + tall / 2, title, small, page.muted)
                y += tall
            found = page.label("navigation", x2 - x - page.em(3.2), style, "side")
            if not found or page.full:
                break
            box, since, icon, inside = (x1 + page.em(0.4), y, x2 - page.em(0.5), y + tall), canvas.mark(), None, ground
            if index == chosen:
                inside = mix(ground, page.accent, rng.choice((0.15, 1)))
                canvas.rectangle(box, inside, page.corner(tall))
            fill = ink_on(rng, inside, 0.92) if index == chosen else page.ink
            left = x
            if with_icons:
                icon = page.icon_for(found[0])
                page.draw_icon(icon, x + page.em(0.7), y + tall / 2, page.em(1.3), fill)
                left += page.em(2)
            core = canvas.text(left, y + tall / 2, found[1], style, fill)
            if rng.random() < 0.1 and core[2] < x2 - page.em(3):
                count = str(rng.randint(1, 40))
                canvas.text(x2 - page.em(1), y + tall / 2, count, page.style(0.85), page.muted, "right")
            canvas.target("link", found[0], box, core, since, icon)
            y += tall


def compose_bar(page: Page) -> int:
    """Where a message is written, at the bottom of a conversation; returns its top."""
    rng, canvas, tall = page.rng, page.canvas, page.em(3.2)
    top, pad = page.height - tall, page.em(0.8)
    canvas.rectangle((0, top, page.width, page.height), page.surface)
    with page.on(page.surface):
        x, right, middle = pad, page.width - pad, top + tall / 2
        for _ in range(rng.choice((0, 1, 1, 2))):
            page.icon_button(x + page.em(0.9), middle, page.em(2.2), page.muted, ("plus", "attach", "camera", "image"))
            x += page.em(2.5)
        page.icon_button(right - page.em(0.9), middle, page.em(2.2), page.accent, ("send", "microphone"))
        right -= page.em(2.6)
        if page.deck.take("Message"):
            box, since = (x, middle - page.em(1.1), right, middle + page.em(1.1)), canvas.mark()
            inside = mix(page.ground, page.ink, 0.08)
            canvas.rectangle(box, inside, page.corner(page.em(2.2)))
            core = canvas.text(x + page.em(0.9), middle, "Message", page.style(), ink_on(rng, inside, 0.6))
            canvas.target("field", "Message", box, core, since)
    return top
