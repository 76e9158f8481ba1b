"""Train pocket on one CPU core, from nothing.

    python train.py --minutes 60 --out pocket.pt
    python train.py --minutes 20 --init pocket.pt --labels 48 --out wider.pt     # widen the domain

Stop at any time: the file in --out is a minute old at most.
"""
import argparse
import csv
import time
from pathlib import Path

import torch

import batches
import losses
from model import Layout, Pocket
from muon import Muon
from screens import Domain

FIELDS = ("stage", "step", "seconds", "images", "rate", "loss", "what", "where", "located", "attention",
          "named_cells", "held_out", "shape", "text", "icon", "absent")


@torch.no_grad()
def measure(model, heads, held_out):
    """Small figures to watch; `evaluate.py` makes the one for the card."""
    features = model.look(batches.normalise(held_out["pictures"]))
    best = heads.names(features[:, 1:], model.words, 0).argmax(-1)
    label = held_out["cells"][:, 0]
    hit = losses.hits(losses.decode(model, features, held_out["text"]), held_out["answer"], held_out["absent"]).float()
    out = {"named_cells": (best == label)[label > 0].float().mean(), "held_out": hit.mean()}
    for kind in ("shape", "text", "icon", "absent"):
        out[kind] = hit[torch.tensor([k == kind for k in held_out["kinds"]])].mean()
    return {name: value.item() for name, value in out.items()}


def make_optimizers(model, heads, rate, muon_rate):
    """AdamW for embeddings, norms, biases and throw-away heads; Muon for the matrices that stay."""
    matrices = [p for name, p in model.named_parameters()
                if p.ndim > 1 and "embed" not in name and "shared" not in name and ".dw." not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in (*model.parameters(), *heads.parameters()) if id(p) not in chosen]
    return (torch.optim.AdamW(others, lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=True),
            Muon(matrices, lr=muon_rate))


def rate(done, step, base, warmup, settle):
    """A linear warm-up by steps (post-norm layers need it), level, and a linear way down over the last part."""
    return base * min(1.0, (step + 1) / warmup) * min(1.0, 0.02 + (1 - done) / settle)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--init", help="what to go on from; of another layout, only what fits is taken")
    parser.add_argument("--out", default="pocket.pt")
    parser.add_argument("--log", default="training-log.csv")
    parser.add_argument("--stage", default="1", help="a name for the log")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--muon", type=float, default=0.01, help="rate of the matrices")
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--settle", type=float, default=0.35, help="share of the time in which the rate goes down")
    parser.add_argument("--sigma", type=float, nargs=2, default=(10, 3), help="bins of blur of the answers, first and last")
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--per-image", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=batches.TRAINING)
    parser.add_argument("--labels", type=int, default=Domain.labels)
    parser.add_argument("--faces", type=int, default=Domain.faces)
    parser.add_argument("--sizes", type=int, default=Domain.sizes)
    parser.add_argument("--smallest", type=float, default=Domain.smallest)
    parser.add_argument("--cases", type=float, default=Domain.cases)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.first_seed)

    layout = Layout()
    domain = Domain(args.labels, args.faces, args.sizes, args.cases, args.smallest)
    model, heads = Pocket(layout), losses.Heads(layout.d_model)
    weights = [*model.parameters(), *heads.parameters()]
    optimizers = make_optimizers(model, heads, args.rate, args.muon)
    if args.init:
        saved = torch.load(args.init, weights_only=False)
        own = model.state_dict()
        kept = {name: value for name, value in saved["model"].items() if own[name].shape == value.shape}
        model.load_state_dict(own | kept)
        heads.load_state_dict(saved["heads"])
        if saved["layout"] == layout:
            for optimizer, state in zip(optimizers, saved["optimizers"]):
                optimizer.load_state_dict(state)
    shape = (layout.image, layout.grid)
    held_out = batches.make(batches.HELD_OUT, 32, 6, domain, *shape)
    source = batches.stream(args.first_seed, args.images, args.per_image, domain, *shape)

    def save():
        torch.save({"model": model.state_dict(), "heads": heads.state_dict(), "optimizers": [o.state_dict() for o in optimizers],
                    "layout": layout, "domain": domain}, args.out)

    fresh, began, step, shown = not Path(args.log).exists(), time.time(), 0, time.time()
    sums, since = {}, 0
    with open(args.log, "a", newline="") as file:
        log = csv.DictWriter(file, FIELDS, restval="")
        if fresh:
            log.writeheader()
        while (done := (time.time() - began) / 60 / args.minutes) < 1:
            now = rate(done, step, 1.0, args.warmup, args.settle)
            for optimizer, base in zip(optimizers, (args.rate, args.muon)):
                optimizer.param_groups[0]["lr"] = base * now
            batch = next(source)
            features = model.look(batches.normalise(batch["pictures"]))
            sigma = args.sigma[0] * (1 - done) + args.sigma[1] * done
            what, where = losses.look_losses(heads, features, batch["cells"], model.words, sigma)
            located, attention = losses.answer_losses(model, features, batch, sigma)
            loss = what + 0.3 * where + located + 0.5 * attention
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            for optimizer in optimizers:
                optimizer.step()
            step, since = step + 1, since + 1
            parts = {"loss": loss, "what": what, "where": where, "located": located, "attention": attention}
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value.item()
            if time.time() - shown > 60:
                row = {"stage": args.stage, "step": step, "seconds": round(time.time() - began),
                       "images": step * args.images, "rate": f"{args.rate * now:.2e}"}
                row |= {name: round(value / since, 3) for name, value in sums.items()}
                row |= {name: round(value, 3) for name, value in measure(model, heads, held_out).items()}
                log.writerow(row)
                file.flush()
                print(" ".join(f"{k} {v}" for k, v in row.items()), flush=True)
                save()
                sums, since, shown = {}, 0, time.time()
    save()


if __name__ == "__main__":
    main()
