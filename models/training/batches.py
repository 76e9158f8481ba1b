"""From seeds to tensors: pictures, what every cell of the grid shows, and commands with their answers."""
import os
import random

import numpy as np
import torch
from PIL import Image

import screens
import vocabulary as V

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)

TRAINING, HELD_OUT = 10_000_000, 1_000  # first seeds; held-out ones end long before the training's begin
ABSENT = 0.12                           # share of commands whose target is not on the screen
IGNORE = -100

PHRASES = ("tap {}", "press {}", "click {}", "click on {}", "open {}", "select {}", "choose {}", "go to {}", "find {}",
           "touch {}", "hit {}", "show {}", "{}", "{}")


# ------------------------------------------------------------------------------------------------------ commands


def phrase(rng, name, role):
    """How a person may ask for a target, with or without a verb, an article and its role."""
    target = name if role is None or rng.random() < 0.5 else f"{name} {role}"
    if rng.random() < 0.5:
        target = "the " + target
    return rng.choice(PHRASES).format(target)


def present_command(rng, elements):
    """(command, element, kind) for a random element."""
    element = rng.choice(elements)
    if element.role == "shape":
        alone = sum(e.name == element.name for e in elements) == 1
        name = element.name if alone and rng.random() < 0.25 else f"{element.colour} {element.name}"
        return phrase(rng, name, None), element, "shape"
    same = [e for e in elements if e.role == "button" and e.colour == element.colour]
    if element.role == "button" and element.colour and len(same) == 1 and rng.random() < 0.2:
        return rng.choice(PHRASES).format(f"the {element.colour} button"), element, "coloured button"
    return phrase(rng, element.name, element.role), element, "icon" if element.role == "icon" else "text"


def absent_command(rng, elements, domain):
    """A command for something that is not there; often half of it is, or it would be too easy."""
    names = {e.name for e in elements}
    shapes = {(e.colour, e.name) for e in elements if e.role == "shape"}
    while True:
        kind = rng.choices(("label", "shape", "icon", "button"), (6, 3, 2, 1))[0]
        if kind == "label":
            name, role = rng.choice(V.LABELS[:domain.labels]), rng.choice(("button", "row", "tab", "chip", None))
        elif kind == "icon":
            name, role = rng.choice(V.ICONS), "icon"
        elif kind == "button":
            colour = rng.choice(V.COLOURS)
            if any(e.role == "button" and e.colour == colour for e in elements):
                continue
            return rng.choice(PHRASES).format(f"the {colour} button")
        else:
            colour, name = rng.choice(V.COLOURS), rng.choice(V.SHAPES)
            if shapes and rng.random() < 0.5:
                a, b = rng.choice(sorted(shapes))
                colour, name = (a, name) if rng.random() < 0.5 else (colour, b)
            if (colour, name) in shapes:
                continue
            return phrase(rng, f"{colour} {name}", None)
        if name not in names:
            return phrase(rng, name, role)


def commands(seed, elements, count, domain):
    """`count` of (command, element or None, kind)."""
    rng, out = random.Random(seed * 31 + 7), []
    for _ in range(count):
        if rng.random() < ABSENT:
            out.append((absent_command(rng, elements, domain), None, "absent"))
        else:
            out.append(present_command(rng, elements))
    return out


# --------------------------------------------------------------------------------------------------------- cells


def span(low, high, grid):
    """The cells, in one direction, whose centres lie between two fractions; at least the one in the middle."""
    first, last = int(np.ceil(low * grid - 0.5)), int(np.floor(high * grid - 0.5))
    if first > last:
        first = last = int((low + high) / 2 * grid)
    return slice(max(0, min(first, grid - 1)), max(0, min(last, grid - 1)) + 1)


def area(box, size, grid):
    return span(box[1] / size[1], box[3] / size[1], grid), span(box[0] / size[0], box[2] / size[0], grid)


def bins(box, size):
    scale = (size[0], size[1]) * 2
    return [max(0, min(V.BINS - 1, round(v / s * V.BINS))) for v, s in zip(box, scale)]


NAME = {name: i + 1 for i, name in enumerate(V.NAMES)}  # 0 is "nothing"
ROLE = {name: i + 1 for i, name in enumerate(V.ROLES)}
COLOUR = {name: i + 1 for i, name in enumerate(V.COLOURS)}


def cell_labels(elements, size, grid):
    """int64 [7, grid, grid]: name, role, colour (0: nothing there), and the bins of the covering box (-1: none).

    Inside an element but beside its name, the name is not asked for: a cell cannot know a word it does not see.
    """
    out = np.zeros((7, grid, grid), np.int64)
    out[3:] = -1
    for e in elements:
        rows, columns = area(e.box, size, grid)
        out[0, rows, columns] = IGNORE
        out[1, rows, columns] = ROLE[e.role]
        out[2, rows, columns] = COLOUR.get(e.colour, 0)
        out[3:, rows, columns] = np.array(bins(e.box, size))[:, None, None]
    for e in elements:
        rows, columns = area(e.core, size, grid)
        out[0, rows, columns] = NAME[e.name]
    return out


# ------------------------------------------------------------------------------------------------------- batches


def normalise(pictures):
    """uint8 [n, 3, side, side] to what the network sees."""
    return (pictures.float() / 255 - MEAN) / STD


def squash(image, side):
    return np.asarray(image.convert("RGB").resize((side, side), Image.BICUBIC)).transpose(2, 0, 1)


def make(seed, images, per_image, domain, side, grid):
    """One batch as a dict of tensors; without commands if per_image is 0."""
    pictures, cells, asked = [], [], []
    for i in range(images):
        image, elements = screens.screen(seed + i, domain)
        pictures.append(squash(image, side))
        cells.append(cell_labels(elements, image.size, grid))
        asked += [(c, e, k, image.size) for c, e, k in commands(seed + i, elements, per_image, domain)]
    batch = {"pictures": torch.from_numpy(np.stack(pictures)), "cells": torch.from_numpy(np.stack(cells)).flatten(2)}
    if not asked:
        return batch
    ids = [V.encode(command) for command, *_ in asked]
    text = torch.full((len(ids), max(map(len, ids))), V.PAD)
    target = torch.zeros(len(ids), grid, grid, dtype=torch.bool)
    answer = torch.full((len(ids), 4), V.ABSTAIN)
    for n, (line, (_, element, _, size)) in enumerate(zip(ids, asked)):
        text[n, :len(line)] = torch.tensor(line)
        if element:
            rows, columns = area(element.core, size, grid)
            target[n, rows, columns] = True
            answer[n] = torch.tensor(bins(element.box, size))
    batch |= {"text": text, "target": target.flatten(1), "answer": answer, "kinds": [a[2] for a in asked],
              "absent": torch.tensor([a[1] is None for a in asked])}
    return batch


class Stream(torch.utils.data.IterableDataset):
    """Endless batches of fresh seeds."""

    def __init__(self, first, images, per_image, domain, side, grid):
        self.first, self.images, self.rest = first, images, (per_image, domain, side, grid)

    def __iter__(self):
        seed = self.first
        while True:
            yield make(seed, self.images, *self.rest)
            seed += self.images


def stream(*arguments):
    def gentle(_):
        os.nice(5)
        torch.set_num_threads(1)
    return iter(torch.utils.data.DataLoader(
        Stream(*arguments), batch_size=None, num_workers=1, prefetch_factor=6, worker_init_fn=gentle))
