"""A tiny random checkpoint in TinyClick's layout, to try fine-tuning on.

Remote names, encoder layers, and an output layer of its own.

    python tiny.py build/tiny
"""
import argparse
from pathlib import Path

import torch

import export
import vocabulary as V
from model import Layout, Pocket

LAYOUT = Layout(image=96, dims=(32, 32, 64, 64), depths=(1, 1, 2, 1), patch=(7, 3, 3, 3), stride=(4, 2, 2, 2),
                padding=(3, 1, 1, 1), window=6, d_model=64, encoder_layers=2, decoder_layers=2, heads=2, ffn=128,
                positions=96, tied=False)
MANIFEST = f"""\
name = "tiny"
prompt = "What to do to execute the command? {{command}}"
lowercase = true

[answer]
form = "point"
prefix = ""
abstain = [{V.ABSTAIN}, {V.ABSTAIN}]
bins = "edge"

[decoding]
strategy = "greedy"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model = Pocket(LAYOUT)
    export.write({"layout": LAYOUT, "model": model.state_dict()}, args.folder)
    (args.folder / "locator.toml").write_text(MANIFEST)


if __name__ == "__main__":
    main()
