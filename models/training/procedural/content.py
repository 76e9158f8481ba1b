"""What is written on a screen: labels of the closed vocabulary, each taken once, and text that means nothing."""
from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random

SOURCE = Path(__file__).resolve().parent.parent / "content.json"


@functools.lru_cache(1)
def groups() -> dict[str, tuple[str, ...]]:
    return {name: tuple(labels) for name, labels in json.loads(SOURCE.read_text()).items()}


@functools.lru_cache(1)
def labels_by_word() -> dict[str, tuple[str, ...]]:
    """Lower-case word to the labels it is in, for drawing words evenly."""
    found: dict[str, list[str]] = {}
    for labels in groups().values():
        for label in labels:
            for word in label.lower().split():
                if label not in found.setdefault(word, []):
                    found[word].append(label)
    return {word: tuple(found[word]) for word in sorted(found)}


_ONSETS = "b c d f g h k l m n p r s t v w br cl dr fl gr pl pr st tr sh ch th".split()
_NUCLEI = "a e i o u a e i o ai ea ou ee".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "st", "x"]


def pseudo_word(rng: Random) -> str:
    """Reads like a word and is none of the vocabulary's."""
    while True:
        count = rng.choice((1, 2, 2, 2, 3))
        word = "".join(rng.choice(_ONSETS) + rng.choice(_NUCLEI) for _ in range(count)) + rng.choice(_CODAS)
        if word not in labels_by_word():
            return word


def pseudo_title(rng: Random) -> str:
    words = [pseudo_word(rng) for _ in range(rng.choice((1, 2, 2)))]
    return " ".join(words).capitalize() if rng.random() < 0.5 else " ".join(word.capitalize() for word in words)


_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def number(rng: Random) -> str:
    """A number, date, price, clock or share."""
    kind = rng.randrange(10)
    if kind == 0:
        return f"{rng.randint(1, 12)}:{rng.randint(0, 59):02}" + rng.choice(("", " AM", " PM"))
    if kind == 1:
        return f"{rng.choice(_MONTHS)} {rng.randint(1, 28)}"
    if kind == 2:
        return f"{rng.randint(2019, 2027)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    if kind == 3:
        return f"{rng.choice('$$$€£')}{rng.randint(1, 999)}.{rng.randint(0, 99):02}"
    if kind == 4:
        return f"{rng.randint(1, 100)}%"
    if kind == 5:
        return f"{rng.randint(1, 999)} {rng.choice(('MB', 'GB', 'KB', 'km', 'min', 'kg'))}"
    if kind == 6:
        return f"{rng.randint(1, 99)},{rng.randint(0, 999):03}"
    if kind == 7:
        return f"{rng.choice('+-')}{rng.randint(0, 30)}.{rng.randint(0, 9)}%"
    return str(rng.randint(0, rng.choice((9, 99, 9999))))


def sentence(rng: Random, words: int) -> str:
    out = [pseudo_word(rng) if rng.random() < 0.9 else number(rng) for _ in range(words)]
    return " ".join(out).capitalize()


def cased(text: str, case: str) -> str:
    return {"upper": text.upper, "lower": text.lower}.get(case, lambda: text)()


def any_case(rng: Random) -> str:
    return rng.choices(("given", "upper", "lower"), (80, 12, 8))[0]


class Deck:
    """Labels and icons dealt for one screen, none twice unless the screen is one of those that repeat."""

    def __init__(self, rng: Random, icon_names: tuple[str, ...], repeats: float):
        self.rng, self.repeats = rng, repeats
        self.used: set[str] = set()
        self._dealt: list[str] = []
        self._piles = {name: rng.sample(labels, len(labels)) for name, labels in groups().items()}
        self._piles["icons"] = rng.sample(icon_names, len(icon_names))
        self._dealt_icons: list[str] = []

    def label(self, group: str, fits=lambda label: True) -> str | None:
        """A label that fits, or None."""
        if self._dealt and self.rng.random() < self.repeats:
            again = self.rng.choice(self._dealt)
            if again in groups()[group] and fits(again):
                return again
        pile = self._piles[group]
        for at in range(len(pile) - 1, max(-1, len(pile) - 25), -1):
            label = pile[at]
            if label in self.used:
                continue
            if fits(label):
                del pile[at]
                self.used.add(label)
                self._dealt.append(label)
                return label
        return None

    def take(self, label: str) -> bool:
        """Claims a given label; False where the screen has it already."""
        if label in self.used:
            return False
        self.used.add(label)
        self._dealt.append(label)
        return True

    def icon(self, preferred: tuple[str, ...] = ()) -> str:
        """An icon for an icon-only target: one of the preferred ones while some are left."""
        if self._dealt_icons and self.rng.random() < self.repeats:
            return self.rng.choice(self._dealt_icons)
        pile = self._piles["icons"]
        free = [name for name in preferred if name in pile]
        name = self.rng.choice(free) if free else (pile[-1] if pile else self.rng.choice(self._dealt_icons))
        if name in pile:
            pile.remove(name)
        self._dealt_icons.append(name)
        return name
