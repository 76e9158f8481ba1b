"""What every cell of the image grid shows, and boxes as bins: the supervision that needs no command."""
import numpy as np

import vocabulary as V

IGNORE = -100
OTHER = len(V.SHOWN) + 1  # a word that is not in the vocabulary
WORD = {word: i + 1 for i, word in enumerate(V.SHOWN)}      # 0 is "nothing"
ICON = {icon: i + 1 for i, icon in enumerate(V.ICONS)}
ROLE = {role: i + 1 for i, role in enumerate(V.ROLES)}
LABELS = 7  # word, icon, role, and the four bins of the element

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
LETTER = {letter: i for i, letter in enumerate(LETTERS)}
NARROW, WIDE = set("ijltfr1"), set("mw")
SPELT = 7  # the first six letters of a word, and its last
NONE = len(LETTERS)  # where a word is too short


def spelling(word):
    """SPELT classes of the letters of a word, by place."""
    code = [LETTER[letter] for letter in word]
    return [*(code[n] if n < len(code) else NONE for n in range(SPELT - 1)), code[-1]]


def span(low, high, grid):
    """The cells, in one direction, whose centres lie between two fractions; at least the one in the middle."""
    first, last = int(np.ceil(low * grid - 0.5)), int(np.floor(high * grid - 0.5))
    if first > last:
        first = last = int((low + high) / 2 * grid)
    return slice(max(0, min(first, grid - 1)), max(0, min(last, grid - 1)) + 1)


def area(box, size, grid):
    """Rows and columns of the cells that a box in pixels covers."""
    return span(box[1] / size[1], box[3] / size[1], grid), span(box[0] / size[0], box[2] / size[0], grid)


def touched(box, size, grid):
    """Rows and columns of every cell that a box reaches into."""
    cell = [v / s * grid for v, s in zip(box, (size[0], size[1]) * 2)]
    low = [max(0, int(cell[1])), max(0, int(cell[0]))]
    return slice(low[0], int(np.ceil(cell[3]))), slice(low[1], int(np.ceil(cell[2])))


def bins(box, size):
    scale = (size[0], size[1]) * 2
    return [max(0, min(V.BINS - 1, round(v / s * V.BINS))) for v, s in zip(box, scale)]


def letters(record, grid):
    """bool [len(LETTERS), grid, grid]: which letters have their middle in a cell, by guessed widths."""
    width, height = record["width"], record["height"]
    which, rows, columns = [], [], []
    for text, x1, y1, x2, y2, _ in record["words"]:
        shown = text.lower()
        widths = [0.55 if letter in NARROW else 1.45 if letter in WIDE else 1.0 for letter in shown]
        step, x = (x2 - x1) / max(1e-6, sum(widths)), x1
        line = span(y1 / height, y2 / height, grid)
        for letter, wide in zip(shown, widths):
            if letter in LETTER:
                column = min(grid - 1, max(0, int((x + wide * step / 2) / width * grid)))
                for row in range(line.start, line.stop):
                    which.append(LETTER[letter])
                    rows.append(row)
                    columns.append(column)
            x += wide * step
    out = np.zeros((len(LETTERS), grid, grid), bool)
    out[which, rows, columns] = True
    return out


def label(record, grid):
    """int64 [LABELS + SPELT, grid, grid]: word, icon and role (0: none), the bins of the covering element (-1: none),
    and the letters of the word by place (IGNORE: none).

    Cells that only touch a word or an icon are not asked: they see a part of it.
    """
    size = (record["width"], record["height"])
    out = np.zeros((LABELS + SPELT, grid, grid), np.int64)
    out[3:LABELS], out[LABELS:] = -1, IGNORE
    extent = lambda e: (e["box"][2] - e["box"][0]) * (e["box"][3] - e["box"][1])
    for element in sorted(record["elements"], key=extent, reverse=True):
        for box in (element["box"], element["core"]):
            rows, columns = area(box, size, grid)
            out[2, rows, columns] = ROLE[element["role"]]
            out[3:LABELS, rows, columns] = np.array(bins(element["box"], size))[:, None, None]
    for pieces, channel in ((record["words"], 0), (record["icons"], 1)):
        for piece in pieces:
            out[(channel, *touched(piece[1:5], size, grid))] = IGNORE
    for text, x1, y1, x2, y2, _ in record["words"]:
        parts = V.split(text)
        step = (x2 - x1) / max(1, len(parts))
        for n, part in enumerate(parts):  # "e-mail" is two words to the tokenizer
            rows, columns = area((x1 + n * step, y1, x1 + (n + 1) * step, y2), size, grid)
            out[0, rows, columns] = WORD.get(part, OTHER)
            out[LABELS:, rows, columns] = np.array(spelling(part))[:, None, None]
    for icon, *box, _ in record["icons"]:
        out[(1, *area(box, size, grid))] = ICON.get(icon, IGNORE)
    return out
