"""Write sample screens for a checkpoint folder: held-out screens, with commands it answers rightly.

    python samples.py ../pocket --trained pocket.pt

Also writes one command for an absent target, where the checkpoint abstains. The card must say that these were picked.
"""
import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import batches
import evaluate
import losses
import screens

FIRST_SEED, LAST_SEED = 200_000, 200_200
# What a sample shows -> (its kind, its roles)
WANTED = (("button", "text", {"button"}), ("list-row", "text", {"row"}), ("shape", "shape", {"shape"}),
          ("icon", "icon", {"icon"}), ("chip", "text", {"chip"}), ("tab", "text", {"tab"}), ("absent", "absent", None))
LARGEST = 60_000  # bytes of a PNG


def label(element):
    return f"{element.colour} {element.name}" if element.role == "shape" else element.name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trained", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(args.trained, weights_only=False)
    domain, layout = saved["domain"], saved["layout"]
    model, tokenizer = evaluate.load(args.folder), Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    folder = args.folder / "samples"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()

    missing, listed, sizes = list(WANTED), [], []
    for seed in range(FIRST_SEED, LAST_SEED):
        if not missing:
            break
        image, elements = screens.screen(seed, domain)
        if len(elements) < 6 or sizes.count(image.size) > 1:
            continue
        asked = batches.commands(seed, elements, 8, domain)
        pictures = torch.tensor(batches.squash(image, layout.image))[None]
        with torch.no_grad():
            found, _ = evaluate.answer(model, evaluate.features(model, pictures), [tokenizer.encode(c).ids for c, *_ in asked])
        for (command, element, kind), bins in zip(asked, found):
            true = torch.tensor([batches.bins(element.box, image.size) if element else [batches.V.ABSTAIN] * 4])
            right = losses.hits(bins[None], true, torch.tensor([element is None])).item()
            fits = next((w for w in missing if w[1] == kind and (not w[2] or element.role in w[2])), None)
            if not right or not fits:
                continue
            theme = "dark" if sum(image.getpixel((2, image.height // 2))) < 300 else "light"
            file = f"{fits[0]}-{theme}-{image.width}x{image.height}.png"
            image.save(folder / file, optimize=True)
            if (folder / file).stat().st_size > LARGEST:
                (folder / file).unlink()
                continue
            missing.remove(fits)
            sizes.append(image.size)
            listed.append({"file": file, "command": command,
                           "box": [round(v, 1) for v in element.box] if element else None,
                           "label": label(element) if element else None})
            break
    (folder / "samples.json").write_text(json.dumps(listed, indent=1) + "\n")
    print(json.dumps(listed, indent=1))
    print("not found:", [w[0] for w in missing])


if __name__ == "__main__":
    main()
