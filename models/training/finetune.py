"""Fine-tune a checkpoint folder on ScreenSpot-shaped data: the part of `train.py` for TinyClick and its like.

Only the answer is trained, as its authors do: the prompt and the answer's form come from the checkpoint's locator.toml.
Coordinates become bins by the rule that the manifest names, boxes or points as it says.
"""
import csv
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

import batches
import checkpoint as checkpoints
import precision
import schedule
import screenspot
import vocabulary as V


class Lesson:
    """Items of a folder as tensors for one checkpoint."""

    def __init__(self, checkpoint, items, seed):
        self.checkpoint, self.items, self.seed = checkpoint, items, seed
        self.tokenizer, self.manifest = checkpoint.tokenizer, checkpoint.manifest

    def prompt(self, command):
        """Ids of the rendered prompt, with the tokenizer's own first and last ids."""
        text = self.manifest["prompt"].replace("{command}", command)
        return self.tokenizer.encode(text.lower() if self.manifest.get("lowercase") else text).ids

    def answer(self, item, size):
        """Ids of the true answer, after the two ids that every answer begins with, and `</s>`."""
        form = self.manifest["answer"]
        if item["bbox"] is None:
            bins = form["abstain"]
        else:
            x, y, width, height = item["bbox"]
            box = [x, y, x + width, y + height]
            point = [x + width / 2, y + height / 2]
            places = box if form["form"] == "box" else point
            bins = [min(V.BINS - 1, max(0, int(v / s * V.BINS))) for v, s in zip(places, (size[0], size[1]) * 2)]
        text = form["prefix"] + "".join(f"<loc_{b}>" for b in bins)
        return self.tokenizer.encode(text, add_special_tokens=False).ids + [V.EOS]

    def batches(self, count):
        """Endless batches of `count` items: (pixels, prompt ids, decoder ids, targets), shuffled anew each time around."""
        rng, side = random.Random(self.seed), self.checkpoint.model.layout.image
        while True:
            order = list(range(len(self.items)))
            rng.shuffle(order)
            for first in range(0, len(order), count):
                chosen = [self.items[i] for i in order[first:first + count]]
                images = [Image.open(item["path"]) for item in chosen]
                pixels = torch.from_numpy(np.stack([batches.squash(image, side) for image in images]))
                answers = [self.answer(item, image.size) for item, image in zip(chosen, images)]
                prompts = pad([self.prompt(item["instruction"]) for item in chosen], V.PAD)
                inputs = pad([[V.START, V.BOS, *ids[:-1]] for ids in answers], V.PAD)
                targets = pad([[V.BOS, *ids] for ids in answers], -100)
                yield batches.normalise(pixels), prompts, inputs, targets


def pad(rows, filler):
    out = torch.full((len(rows), max(map(len, rows))), filler)
    for n, row in enumerate(rows):
        out[n, :len(row)] = torch.tensor(row)
    return out


def run(args):
    """Trains args.init on the folders args.data for args.minutes or args.steps and writes the folder args.out."""
    torch.manual_seed(args.first_seed)
    checkpoint = checkpoints.load(args.init)
    model = checkpoint.model
    items = [item for folder in args.data for item in screenspot.read(folder)]
    lesson = Lesson(checkpoint, items, args.first_seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.01, betas=(0.9, 0.98))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(items)} items", flush=True)

    began, step = time.time(), 0
    with Path(args.log).open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(("step", "seconds", "loss"))
        for pixels, prompts, inputs, targets in lesson.batches(args.images):
            done = step / args.steps if args.steps else (time.time() - began) / 60 / args.minutes
            if done >= 1:
                break
            optimizer.param_groups[0]["lr"] = args.rate * schedule.rate(done, step, args.warmup, args.settle)
            with precision.autocast():
                logits, _ = model.answer(model.read(model.look(pixels), prompts), inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            log.writerow((step, round(time.time() - began, 1), round(loss.item(), 4)))
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    checkpoints.save(checkpoint, Path(args.out))
    print("written", args.out)
