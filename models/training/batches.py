"""From sources of screens to tensors: pictures, what every cell of the grid shows, and commands with their answers."""
import json
import os
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cells
import procedural
import vocabulary as V
from commands import Commander

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)

TRAINING, HELD_OUT = 10_000_000, 1_000  # first seeds; held-out ones end long before the training's begin


# ------------------------------------------------------------------------------------------------------- sources


class Drawn:
    """Screens that a function draws from a seed, fresh for ever."""

    def __init__(self, draw):
        self.draw = draw

    def take(self, seed):
        return self.draw(seed)


class Packed:
    """A folder of screens made by `pack.py`, in an order that a seed shuffles anew each time around."""

    def __init__(self, folder):
        folder = Path(folder)
        self.pictures = np.load(folder / "pictures.npy", mmap_mode="r")
        self.records = [json.loads(line) for line in (folder / "records.jsonl").open()]

    def __len__(self):
        return len(self.records)

    def take(self, seed):
        turn, place = divmod(seed, len(self))
        step = [7, 11, 13, 17, 19, 23][turn % 6]
        while len(self) % step == 0:
            step += 2  # only a step that meets every one
        at = (place * step + turn) % len(self)
        return Image.fromarray(self.pictures[at]), self.records[at]


def source(name):
    """A source by its name: sheets, procedural, or a packed folder."""
    drawn = {"sheets": "sheet", "procedural": "screen"}
    return Drawn(getattr(procedural, drawn[name])) if name in drawn else Packed(name)


# -------------------------------------------------------------------------------------------------- augmentation


def crop(rng, image, record, least=0.72):
    """A random part of a screen with what is left of its record: more sizes and places than were drawn.

    Elements of which less than all of the name or less than 60 % of the box is left are no targets any more.
    """
    width, height = record["width"], record["height"]
    wide, tall = rng.uniform(least, 1), rng.uniform(least, 1)
    x, y = rng.uniform(0, 1 - wide) * width, rng.uniform(0, 1 - tall) * height
    right, bottom = x + wide * width, y + tall * height
    scale = (image.width / width, image.height / height) * 2
    image = image.crop([round(v * s) for v, s in zip((x, y, right, bottom), scale)])

    moved = lambda box: [min(max(v - o, 0), limit) for v, o, limit in zip(box, (x, y) * 2, (right - x, bottom - y) * 2)]
    area = lambda b: max(0, b[2] - b[0]) * max(0, b[3] - b[1])
    inside = lambda b: b[0] >= x and b[1] >= y and b[2] <= right and b[3] <= bottom
    new, index = [], {-1: -1}
    for i, element in enumerate(record["elements"]):
        box = moved(element["box"])
        if inside(element["core"]) and area(box) >= 0.6 * area(element["box"]):
            index[i] = len(new)
            new.append(element | {"box": box, "core": moved(element["core"])})
    pieces = lambda of: [[p[0], *moved(p[1:5]), index.get(p[5], -1)] for p in of if area(moved(p[1:5])) > 0.7 * area(p[1:5])]
    return image, record | {"width": right - x, "height": bottom - y, "elements": new,
                            "words": pieces(record["words"]), "icons": pieces(record["icons"])}


def recolour(rng, picture):
    """A float picture [3, side, side] in 0..1 with its colours changed, as themes and screens differ."""
    chance = rng.random()
    if chance < 0.08:
        picture = 1 - picture
    elif chance < 0.2:
        picture = picture[rng.sample(range(3), 3)]
    elif chance < 0.26:
        picture = picture.mean(0, keepdims=True).repeat(3, 0)
    gain = rng.uniform(0.75, 1.15)
    return (picture - 0.5) * gain + 0.5 + rng.uniform(-0.08, 0.08)


# ------------------------------------------------------------------------------------------------------- batches


def squash(image, side):
    """uint8 [3, side, side], by the filter that the server uses."""
    return np.asarray(image.convert("RGB").resize((side, side), Image.BICUBIC)).transpose(2, 0, 1)


def normalise(pictures):
    """uint8 [n, 3, side, side] to what the network sees."""
    return (pictures.float() / 255 - MEAN) / STD


def collate(pictures, records, asked, grids):
    """One batch as a dict of tensors. `asked` is a list of `Command`s per picture, of equal length."""
    fine, *_, grid = grids
    labels = np.stack([cells.label(record, grid) for record in records])
    letters = np.stack([cells.letters(record, fine) for record in records])
    lines = [V.encode(command.text) for row in asked for command in row]
    text = torch.full((len(lines), max(map(len, lines))), V.PAD)
    target = torch.zeros(len(lines), grid, grid, dtype=torch.bool)
    answer = torch.full((len(lines), 4), V.ABSTAIN)
    n = 0
    for record, row in zip(records, asked):
        size = (record["width"], record["height"])
        for command in row:
            text[n, :len(lines[n])] = torch.tensor(lines[n])
            if command.target is not None:
                element = record["elements"][command.target]
                rows, columns = cells.area(element["core"], size, grid)
                target[n, rows, columns] = True
                answer[n] = torch.tensor(cells.bins(element["box"], size))
            n += 1
    kinds = [command.kind for row in asked for command in row]
    return {"pictures": torch.from_numpy(np.stack(pictures)), "cells": torch.from_numpy(labels).flatten(2),
            "letters": torch.from_numpy(letters), "text": text,
            "target": target.flatten(1), "answer": answer, "kinds": kinds, "absent": torch.tensor([k == "absent" for k in kinds])}


def make(screens, seed, images, per_image, side, grids, absent=None, changed=False):
    """A batch of the screens of a source from `seed` on; `changed` to crop and recolour them at random."""
    rng, pictures, records, asked = random.Random(seed), [], [], []
    while len(pictures) < images:
        image, record = screens.take(seed)
        if changed and rng.random() < 0.5:
            image, record = crop(rng, image, record)
        row = Commander(record, seed).take(per_image, *([] if absent is None else [absent])) if record["elements"] else []
        seed += 1
        if len(row) < per_image:
            continue  # too little on it to ask for
        picture = squash(image, side)
        if changed:
            picture = (recolour(rng, picture.astype(np.float32) / 255).clip(0, 1) * 255).astype(np.uint8)
        pictures.append(picture)
        records.append(record)
        asked.append(row)
    return collate(pictures, records, asked, grids)


class Stream(torch.utils.data.IterableDataset):
    """Endless training batches from a weighted mix of sources; each picture is drawn from one of them."""

    def __init__(self, mix, first, images, per_image, side, grids):
        self.mix, self.first, self.rest = mix, first, (images, per_image, side, grids)

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        offset, step = (worker.id, worker.num_workers) if worker else (0, 1)
        sources = [source(name) for name in self.mix]
        turn = offset
        while True:
            rng = random.Random(self.first + turn)
            chosen = rng.choices(range(len(sources)), list(self.mix.values()))[0]
            yield make(sources[chosen], self.first + turn * self.rest[0] * 2, *self.rest, changed=True)
            turn += step


def gentle(_):
    """A process that draws gives way to the one that trains."""
    os.nice(5)
    torch.set_num_threads(1)


def stream(*arguments, workers=1):
    return iter(torch.utils.data.DataLoader(
        Stream(*arguments), batch_size=None, num_workers=workers, prefetch_factor=6 if workers else None,
        worker_init_fn=gentle,
        multiprocessing_context="fork" if workers else None))
