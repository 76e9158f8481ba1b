"""What a person may ask for on a screen: commands for the elements of a record, and for things that are not there.

A record is what both screen makers write for a picture; README.md lists its fields.
"""
import random
from dataclasses import dataclass

import vocabulary as V

ABSENT = 0.14     # share of commands whose target is not on the screen
PLAIN = ("tap {}", "press {}", "click {}", "click on {}", "select {}", "choose {}", "find {}", "touch {}", "hit {}", "tap on {}",
         "please click {}", "click the {}", "tap the {}", "{}", "{}", "{}")
OPENING = ("open {}", "go to {}", "show {}", "show me {}", "open the {}")
NOUNS = {role: tuple(words) for role, words in V.ROLES.items()}
NOUNS["row"] = ("row", "item", "list item", "entry")
NOUNS["field"] = ("field", "box", "input", "text field", "input field")
NOUNS["menu"] = ("menu", "menu item", "option")
NOUNS["icon"] = ("icon", "button", "icon button", "symbol")
DOING = {
    "field": ("type in {}", "type into {}", "click the {} field", "fill in {}", "enter text in {}", "the {} field", "{} box"),
    "checkbox": ("check {}", "tick {}", "uncheck {}", "the {} checkbox", "enable {}"),
    "switch": ("turn on {}", "turn off {}", "switch {} on", "toggle {}", "enable {}", "disable {}", "the {} switch"),
    "radio": ("choose {}", "the {} option", "set {}"),
    "select": ("open the {} dropdown", "the {} select", "choose {}"),
    "slider": ("the {} slider", "set {}"),
    "tab": ("go to the {} tab", "switch to {}", "open the {} tab"),
}
ORDINALS = ("first", "second", "third", "fourth", "fifth")
CORNERS = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1),
           "upper left": (0, 0), "upper right": (1, 0), "lower left": (0, 1), "lower right": (1, 1)}
ALL_LABELS = sorted({label for group in V.CONTENT.values() for label in group})


@dataclass(frozen=True)
class Command:
    text: str
    target: int | None  # index of the element, or None if it is not there
    kind: str           # text, icon, ordinal, position or absent


def key(element):
    """What must be equal for a name to mean both elements."""
    return tuple(V.split(element["name"])) or ("icon", element["icon"])


def finish(rng, text):
    """One article at most; and people write in small letters, in capitals, or as the screen does."""
    text = text.replace("the the ", "the ")
    chance = rng.random()
    if chance < 0.3:
        return text.lower()
    if chance < 0.36:
        return text.upper()
    return text[:1].upper() + text[1:] if chance < 0.6 else text


def by_name(rng, element):
    """A phrase for an element by its label, with or without what it is."""
    name, role = element["name"], element["role"]
    name = name.lower() if rng.random() < 0.5 else name
    chance = rng.random()
    if role in DOING and chance < 0.45:
        return rng.choice(DOING[role]).format(name)
    if chance < 0.65:
        return rng.choice(PLAIN).format(f"the {name} {rng.choice(NOUNS[role])}" if rng.random() < 0.6 else f"{name} {role}")
    if role in ("row", "tab", "menu", "link", "card") and chance < 0.8:
        return rng.choice(OPENING).format(name)
    return rng.choice(PLAIN).format(f'"{name}"' if rng.random() < 0.15 else name)


def by_icon(rng, icon, sure):
    """A phrase for an icon by one of the ways it is spoken of; `sure` to say that it is an icon."""
    spoken = V.ICONS[icon]["spoken"]
    word = spoken[0] if rng.random() < 0.5 else rng.choice(spoken)
    if sure or rng.random() < 0.7:
        return rng.choice(PLAIN).format(f"the {word} {rng.choice(NOUNS['icon'])}" if rng.random() < 0.6 else f"{word} icon")
    return rng.choice(PLAIN + OPENING).format(word)


def reading_order(elements, chosen):
    """Top to bottom, then left to right; boxes whose middles lie within each other's height are one line."""
    def middle(i):
        box = elements[i]["box"]
        return (box[1] + box[3]) / 2
    lines = []
    for i in sorted(chosen, key=middle):
        box = elements[i]["box"]
        if lines and middle(i) < elements[lines[-1][0]]["box"][3] and box[1] <= middle(lines[-1][0]):
            lines[-1].append(i)
        else:
            lines.append([i])
    return [i for line in lines for i in sorted(line, key=lambda i: elements[i]["box"][0])]


def nearest_corner(record, place, chosen):
    """The element of `chosen` that a corner clearly means, or None."""
    x, y = CORNERS[place]
    def distance(i):
        box = record["elements"][i]["box"]
        dx = abs((box[0] + box[2]) / 2 / record["width"] - x)
        return dx + abs((box[1] + box[3]) / 2 / record["height"] - y)
    ranked = sorted(chosen, key=distance)
    if distance(ranked[0]) > 0.3 or (len(ranked) > 1 and distance(ranked[1]) - distance(ranked[0]) < 0.08):
        return None
    return ranked[0]


class Commander:
    """Commands for one record; the same seed gives the same ones."""

    def __init__(self, record, seed):
        self.record, self.rng = record, random.Random(seed * 31 + 7)
        elements = record["elements"]
        self.alike, self.roles = {}, {}
        for i, element in enumerate(elements):
            self.alike.setdefault(key(element), []).append(i)
            self.roles.setdefault("icon" if not element["name"] else element["role"], []).append(i)
        self.single = [members[0] for members in self.alike.values() if len(members) == 1]
        self.several = [members for members in self.alike.values() if 1 < len(members) <= 6]
        self.shown = {word for piece in record["words"] for word in V.split(piece[0])}
        self.icons = {piece[0] for piece in record["icons"]}
        # What the icons on the screen may be called: "delete" must not be absent where a bin is.
        self.spoken = {word for icon in self.icons if icon in V.ICONS for s in V.ICONS[icon]["spoken"] for word in V.split(s)}

    def present(self):
        rng, elements = self.rng, self.record["elements"]
        chance = rng.random()
        if self.several and chance < 0.25:
            members = reading_order(elements, rng.choice(self.several))
            return self.ordinal(members, elements[members[0]])
        if chance < 0.05:
            role, members = rng.choice(sorted(self.roles.items()))
            places = [(place, i) for place in CORNERS if (i := nearest_corner(self.record, place, members)) is not None]
            if places:
                place, i = rng.choice(places)
                noun = rng.choice(NOUNS[role])
                form = rng.choice(("the {} {}", "the {} {}", "the {1} in the {0} corner", "the {1} at the {0}"))
                form = form.replace("{} {}", "{0} {1}")
                return Command(rng.choice(PLAIN).format(form.format(place, noun)), i, "position")
        if chance < 0.08:
            rows = [members for role, members in sorted(self.roles.items())
                    if role in ("tab", "row", "card", "field", "checkbox") and 2 <= len(members) <= 8]
            if rows:
                members = reading_order(elements, rng.choice(rows))
                return self.ordinal(members, None)
        if not self.single:
            return None
        i = rng.choice(self.single)
        element = elements[i]
        if element["name"]:
            return Command(by_name(rng, element), i, "text")
        if element["icon"] not in V.ICONS:
            return None
        named = any(word in self.shown for s in V.ICONS[element["icon"]]["spoken"] for word in V.split(s))
        return Command(by_icon(rng, element["icon"], named), i, "icon")

    def ordinal(self, members, named):
        """One of several in reading order: alike ones by name, others by role."""
        rng = self.rng
        n = rng.randrange(len(members))
        element = self.record["elements"][members[n]]
        which = "last" if n == len(members) - 1 and rng.random() < 0.5 else ORDINALS[n] if n < 5 else None
        if which is None:
            return None
        if named is None:
            what = rng.choice(NOUNS[element["role"]])
        elif named["name"]:
            what = named["name"] if rng.random() < 0.5 else f"{named['name']} {rng.choice(NOUNS[element['role']])}"
        elif named["icon"] in V.ICONS:
            what = f"{rng.choice(V.ICONS[named['icon']]['spoken'])} icon"
        else:
            return None
        return Command(rng.choice(PLAIN).format(f"the {which} {what}"), members[n], "ordinal")

    def absent(self):
        rng = self.rng
        for _ in range(20):
            if rng.random() < 0.25:
                icon = rng.choice(sorted(V.ICONS))
                words = {word for s in V.ICONS[icon]["spoken"] for word in V.split(s)}
                if icon not in self.icons and not words & (self.shown | self.spoken):
                    return Command(by_icon(rng, icon, rng.random() < 0.5), None, "absent")
                continue
            name = rng.choice(ALL_LABELS)
            words = V.split(name)
            if set(words) <= self.shown | self.spoken:
                continue
            if not set(words) & self.shown and rng.random() < 0.3:
                continue  # a little more often, half of it is there
            role = rng.choice(("button", "link", "tab", "row", "field", "checkbox", "switch", "menu"))
            return Command(by_name(rng, {"name": name, "role": role}), None, "absent")
        return None

    def take(self, count, absent=ABSENT):
        """`count` commands, or fewer on a screen that has nothing to ask for."""
        out = []
        for _ in range(4 * count):
            if len(out) == count:
                break
            made = self.absent() if self.rng.random() < absent else self.present()
            if made:
                out.append(Command(finish(self.rng, made.text), made.target, made.kind))
        return out
