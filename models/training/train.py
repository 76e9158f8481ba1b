"""Train pocket on CPU cores, from nothing or from an earlier file; or fine-tune a checkpoint folder on your own screens.

    python train.py --minutes 60 --mix sheets=1,procedural=1,build/kits=2 --out build/pocket.pt
    python train.py --minutes 30 --settle 1 --init build/pocket.pt --mix ... --out build/pocket.pt
    python train.py --init tinyclick --data my-screens --minutes 600 --out my-locator

Stop the first two at any time: the file in --out is a minute old at most. The last one takes folders in ScreenSpot's shape
(`screenspot.py`) and writes a folder for `tapline serve --model my-locator`; `--init` may be any folder of that layout.
"""
import argparse
import csv
import os
import time
from pathlib import Path

import torch
from torch import distributed, multiprocessing

import batches
import checkpoint
import finetune
import losses
import precision
import schedule
from model import Layout, Pocket
from muon import Muon

FIELDS = ("stage", "step", "seconds", "images", "rate", "loss", "what", "where", "letters", "spelling", "located", "attention",
          "watched", "named_words", "named_icons", "right", "text", "icon", "ordinal", "position", "absent", "false_abstentions")


@torch.no_grad()
def measure(model, heads, held_out):
    """Small figures to watch; `evaluate.py` makes those for the card."""
    with precision.autocast():
        features = torch.cat([model.look(batches.normalise(part)) for part in held_out["pictures"].split(8)])
        out = {}
        for group, name in ((0, "named_words"), (1, "named_icons")):
            best, label = heads.names(features[:, 1:], model.words, group).argmax(-1), held_out["cells"][:, group]
            out[name] = (best == label)[label > 0].float().mean().item()
        found = losses.decode(model, features, held_out["text"])
    hit = losses.hits(found, held_out["answer"], held_out["absent"]).float()
    out["right"] = hit.mean().item()
    for kind in ("text", "icon", "ordinal", "position", "absent"):
        out[kind] = hit[torch.tensor([k == kind for k in held_out["kinds"]])].mean().item()
    abstained = (found == batches.V.ABSTAIN).all(-1)
    out["false_abstentions"] = abstained[~held_out["absent"]].float().mean().item()
    return out


def make_optimizers(model, heads, rate, muon_rate):
    """AdamW for embeddings, norms, biases and throw-away heads; Muon for the matrices that stay."""
    matrices = [p for name, p in model.named_parameters()
                if p.ndim > 1 and "embed" not in name and "shared" not in name and ".dw." not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in (*model.parameters(), *heads.parameters()) if id(p) not in chosen]
    return (torch.optim.AdamW(others, lr=rate, weight_decay=0.01, betas=(0.9, 0.98), fused=True),
            Muon(matrices, lr=muon_rate))


def share_gradients(weights, done, processes):
    """Averages the gradients over all processes; returns how far the first of them is, by which all keep time."""
    if processes == 1:
        return done
    parts = [w.grad if w.grad is not None else torch.zeros_like(w) for w in weights]
    flat = torch.cat([*(part.flatten() for part in parts), torch.tensor([done if distributed.get_rank() == 0 else 0.0])])
    distributed.all_reduce(flat)
    flat[:-1] /= processes
    for weight, grad in zip(weights, flat[:-1].split([w.numel() for w in weights])):
        weight.grad = grad.view_as(weight)
    return flat[-1].item()


def resume(path, model, heads, optimizers):
    """Takes over what fits: all of a .pt file of the same layout, or the network alone of a checkpoint folder."""
    if Path(path).is_dir():
        model.load_state_dict(checkpoint.load(path).model.state_dict())
        return
    saved = torch.load(path, weights_only=False)
    for part, own in (("model", model), ("heads", heads)):
        mine = own.state_dict()
        fits = {name: value for name, value in saved[part].items() if name in mine and mine[name].shape == value.shape}
        own.load_state_dict(mine | fits)
    count = lambda groups: sum(len(group["params"]) for group in groups)
    same = [count(state["param_groups"]) for state in saved["optimizers"]] == [count(o.param_groups) for o in optimizers]
    if same and saved["layout"] == model.layout:
        for optimizer, state in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)


def mix_of(text):
    """`a=2,b` as {"a": 2.0, "b": 1.0}."""
    return {name: float(weight or 1) for name, _, weight in (part.partition("=") for part in text.split(","))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--mix", type=mix_of, default=mix_of("sheets,procedural"), help="sources and their weights")
    parser.add_argument("--watch", nargs="*", default=["procedural"], help="sources to measure on, by turns")
    parser.add_argument("--init", help="what to go on from: a .pt file (of another layout, only what fits is taken) or a"
                        " folder such as ../pocket; to fine-tune, a checkpoint folder or `tinyclick`")
    parser.add_argument("--data", nargs="+", help="ScreenSpot-shaped folders to fine-tune on")
    parser.add_argument("--steps", type=int, help="steps of fine-tuning, instead of --minutes")
    parser.add_argument("--out", default="pocket.pt")
    parser.add_argument("--log", default="training-log.csv")
    parser.add_argument("--stage", default="1", help="a name for the log")
    parser.add_argument("--rate", type=float, help="of AdamW; by default 1.5e-3, and 2e-5 for fine-tuning")
    parser.add_argument("--muon", type=float, default=0.015, help="rate of the matrices")
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--settle", type=float, default=0.35, help="share of the time in which the rate goes down; 0: never")
    parser.add_argument("--sigma", type=float, nargs=2, default=(10, 3), help="bins of blur of the answers, first and last")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--per-image", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=batches.TRAINING)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="copies that train on pictures of their own and share gradients:"
                        " on a few cores much faster than threads")
    parser.add_argument("--port", type=int, default=29517, help="where the processes meet")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw screens")
    parser.add_argument("--every", type=float, default=60, help="seconds between lines of the log")
    args = parser.parse_args()
    args.rate = args.rate or (2e-5 if args.data else 1.5e-3)
    if args.data:
        torch.set_num_threads(args.threads)
        finetune.run(args)
    elif args.processes == 1:
        train(0, args)
    else:
        multiprocessing.start_processes(train, (args,), args.processes, start_method="spawn")


def train(rank, args):
    """Trains until the time is up; the process of rank 0 measures, logs and saves."""
    torch.set_num_threads(args.threads)
    if args.processes > 1:
        distributed.init_process_group("gloo", f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.processes)
    torch.manual_seed(args.first_seed)

    layout = Layout()
    model, heads = Pocket(layout), losses.Heads(layout.d_model, layout.dims[0])
    weights = [*model.parameters(), *heads.parameters()]
    optimizers = make_optimizers(model, heads, args.rate, args.muon)
    if args.init:
        resume(args.init, model, heads, optimizers)
    shape = (layout.image, layout.grids)
    torch.manual_seed(args.first_seed + rank)
    watched = {name: batches.make(batches.source(name), batches.HELD_OUT, 32, 8, *shape)
               for name in args.watch if rank == 0}
    first_seed = args.first_seed + rank * 5_000_000
    source = batches.stream(args.mix, first_seed, args.images, args.per_image, *shape, workers=args.workers)

    def save():
        torch.save({"model": model.state_dict(), "heads": heads.state_dict(), "optimizers": [o.state_dict() for o in optimizers],
                    "layout": layout}, args.out)

    fresh, began, step, shown = not Path(args.log).exists(), time.time(), 0, time.time()
    sums, since, lines, done = {}, 0, 0, 0.0
    with open(args.log if rank == 0 else os.devnull, "a", newline="") as file:
        log = csv.DictWriter(file, FIELDS, restval="")
        if fresh:
            log.writeheader()
        while done < 1:
            batch = next(source)
            sigma = args.sigma[0] * (1 - done) + args.sigma[1] * done
            with precision.autocast():
                features, first = model.look_closely(batches.normalise(batch["pictures"]))
                what, where = losses.look_losses(heads, features, batch["cells"], model.words, sigma)
                letters, spelling = losses.letter_losses(heads, first, features, batch)
                located, attention = losses.answer_losses(model, features, batch, sigma)
            loss = what + 0.5 * where + 0.5 * letters + spelling + located + 0.5 * attention
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            done = share_gradients(weights, (time.time() - began) / 60 / args.minutes, args.processes)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            now = schedule.rate(done, step, args.warmup, args.settle)
            for optimizer, base in zip(optimizers, (args.rate, args.muon)):
                optimizer.param_groups[0]["lr"] = base * now
                optimizer.step()
            step, since = step + 1, since + 1
            parts = {"loss": loss, "what": what, "where": where, "letters": letters, "spelling": spelling, "located": located,
                     "attention": attention}
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + value.item()
            if rank == 0 and (time.time() - shown > args.every or done >= 1):
                name = args.watch[lines % len(args.watch)]
                row = {"stage": args.stage, "step": step, "seconds": round(time.time() - began),
                       "images": step * args.images * args.processes, "rate": f"{args.rate * now:.2e}"}
                row |= {part: round(value / since, 3) for part, value in sums.items()}
                row |= {"watched": Path(name).name}
                row |= {part: round(value, 3) for part, value in measure(model, heads, watched[name]).items()}
                log.writerow(row)
                file.flush()
                print(" ".join(f"{k} {v}" for k, v in row.items()), flush=True)
                save()
                sums, since, shown, lines = {}, 0, time.time(), lines + 1


if __name__ == "__main__":
    main()
