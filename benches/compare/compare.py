#!/usr/bin/env python3
"""Tapline against PyTorch and ONNX Runtime on one checkpoint: Markdown tables of medians and ratios, and whether the
answers are equal.

    python compare.py --tapline ../../target/release/tapline

Every variant runs in processes of its own, in turns (A B C A B C), so that a machine that gets slower or busier hits all.
Each process loads the model and answers the same request from the PNG's bytes, several times. What can be prepared once
(checkpoint, ONNX graphs, compiled code) is made by the first run and kept in the checkpoint's folder.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import served
import table
from measure import measure
from request import prompt_ids
from variants import DEFAULT, VARIANTS

HERE = Path(__file__).resolve().parent
# With the two ends 15 ids, as many as TinyClick's prompt has for "click on the Gmail icon".
COMMAND = "w490 w9629 w1085 w318 w7 w5936 w15 w2513 w31 w240 w88 w4021 w12"


def note(text):
    print(text, file=sys.stderr, flush=True)


def python(script, *arguments):
    subprocess.run([sys.executable, HERE / script, *map(str, arguments)], check=True, stdout=sys.stderr)


def prepare(args, image):
    """Makes what is missing. Returns the seconds that the first answer took with nothing compiled before."""
    if not args.checkpoint.exists():
        python("full_size.py", "--out", args.checkpoint, "--seed", 1)
    if any(VARIANTS[name].program == "onnxruntime_peer.py" for name in args.variants):
        ids = len(prompt_ids(args.checkpoint, args.command))
        if not (args.checkpoint / f"onnx-{ids}").exists():
            note("exporting to ONNX")
            python("onnx_export.py", "--checkpoint", args.checkpoint, "--prompt-ids", ids)
    args.cache.mkdir(exist_ok=True)
    path = args.cache / "seconds.json"
    seconds = json.loads(path.read_text()) if path.exists() else {}
    for decoding in args.decodings:
        for variant in (VARIANTS[name] for name in args.variants):
            key = f"{variant.name}, {decoding}"
            if variant.compiled and key not in seconds:
                note(f"compiling for {key}")
                seconds[key] = measure(variant, args, image, decoding, 1)["rows"]["first answer"] / 1000
                path.write_text(json.dumps(seconds, indent=1) + "\n")
    return seconds


def rounds(args, image, decoding):
    """Name of each variant to its runs."""
    runs = {name: [] for name in args.variants}
    for n in range(args.rounds):
        for name, done in runs.items():
            if VARIANTS[name].compiled and n >= args.compiled_rounds:
                continue
            note(f"{decoding}, round {n + 1} of {args.rounds}: {name}")
            done.append(measure(VARIANTS[name], args, image, decoding, args.answers))
    return runs


def agreement(runs):
    """Whether all f32 answers are equal, and a sentence about the others."""
    tokens = {name: {run["tokens"] for run in done} for name, done in runs.items()}
    exact = set().union(*(tokens[name] for name in runs if VARIANTS[name].dtype == "f32"))
    lines = [f"f32 ids equal: {list(next(iter(exact)))}" if len(exact) == 1 else f"f32 ids DIFFER: {tokens}"]
    for name, answers in tokens.items():
        if VARIANTS[name].dtype != "f32" and len(exact) == 1:
            right = next(iter(exact))
            for answer in answers:
                same = next((i for i, (a, b) in enumerate(zip(answer, right)) if a != b), len(right))
                lines.append(f"{name}: {same} of {len(right)} ids as in f32 before the first that differs")
    return len(exact) <= 1, "\n".join(lines)


def sharing(args, folder):
    """The table of commands that share a screenshot."""
    pngs = []
    for seed in range(2 * args.rounds + 1):
        path = Path(folder) / f"{seed}.png"
        python("screenshot.py", path, "--seed", seed + 2)
        pngs.append(path.read_bytes())
    rows = []
    for dtype in (VARIANTS[name].dtype for name in args.variants if VARIANTS[name].program == "tapline"):
        for decoding in args.decodings:
            note(f"server, {dtype}, {decoding}")
            first, second, eight = served.measure(args, dtype, decoding, pngs)
            rows.append([f"{dtype}, {decoding}", *(table.show("", value) for value in (first, second, eight)),
                         f"{second / first:.2f}", f"{eight / first:.2f}"])
    return table.markdown(["Tapline's server", "first command", "second on the same screenshot", "eight in one request",
                           "second / first", "eight / first"], rows)


def processor():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tapline", type=Path, required=True, help="the release binary")
    parser.add_argument("--checkpoint", type=Path, default=Path("full-size"), help="made if it is not there")
    parser.add_argument("--image", type=Path, help="a PNG; default: a synthetic screenshot of 1080x2400")
    parser.add_argument("--command", default=COMMAND)
    parser.add_argument("--decodings", nargs="+", choices=("greedy", "beam"), default=("greedy", "beam"))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=DEFAULT, metavar="NAME",
                        help=f"of: {', '.join(VARIANTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each variant and decoding")
    parser.add_argument("--compiled-rounds", type=int, default=1, help="of the compiled variants, which start slowly")
    parser.add_argument("--answers", type=int, default=3, help="answers per process; all but the first are warm")
    parser.add_argument("--threads", type=int, default=2, help="all are also bound to as many CPUs")
    parser.add_argument("--no-server", action="store_true", help="leave out commands that share a screenshot")
    args = parser.parse_args()
    if args.answers < 2:
        parser.error("--answers: at least 2, the first is not warm")
    if not args.compiled_rounds <= args.rounds:
        parser.error("--compiled-rounds: at most --rounds")
    args.cache = args.checkpoint / "compiled"
    return args


def main():
    args, equal = parse(), True
    with tempfile.TemporaryDirectory() as folder:
        image = args.image or Path(folder) / "screenshot.png"
        if not args.image:
            python("screenshot.py", image)
        seconds, busy = prepare(args, image), os.getloadavg()[0]
        runs = {decoding: rounds(args, image, decoding) for decoding in args.decodings}
        shared = None if args.no_server else sharing(args, folder)

    print(f"{processor()}, {args.threads} threads, load {busy:.1f} before the first run; medians of {args.rounds} "
          f"processes ({args.compiled_rounds} of the compiled variants) with {args.answers} answers")
    for decoding, of_decoding in runs.items():
        figures = {name: table.medians(done) for name, done in of_decoding.items()}
        same, sentence = agreement(of_decoding)
        equal &= same
        print(f"\n{decoding}:\n\n{table.absolute(figures)}\n\nTapline / peer:\n\n{table.ratios(figures, VARIANTS)}\n")
        print(sentence)
    compiled = [f"{key} {value:.0f} s" for key, value in seconds.items()]
    if compiled:
        print(f"\nFirst answer with nothing compiled before: {'; '.join(compiled)}")
    if shared:
        print(f"\n{shared}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
