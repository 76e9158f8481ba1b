#!/usr/bin/env python3
"""Tapline against PyTorch on one checkpoint: one Markdown table with medians, and whether the answers are equal.

    python compare.py --tapline ../../target/release/tapline --checkpoint full-size

Both sides run in processes of their own, in turns (A B A B), so that a machine that gets slower or busier hits both.
Each process loads the model and answers the same request from the PNG's bytes, several times.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAGES = ("decode", "prepare", "vision", "text")


def run(command, threads):
    """The JSON that a command prints, its wall time in ms, and its peak memory in MiB."""
    def on_our_cpus():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])

    count = str(threads)
    environment = os.environ | {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "RAYON_NUM_THREADS": count}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=complaints, env=environment, preexec_fn=on_our_cpus)
        _, status, usage = os.wait4(process.pid, 0)
        wall_ms = (time.perf_counter() - start) * 1000
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaints.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}\nfailed ({process.returncode}):\n{complaints.read()}")
        return json.loads(output.read()), wall_ms, usage.ru_maxrss / 1024


def peer(args, image):
    command = [sys.executable, HERE / "pytorch.py", "--checkpoint", args.checkpoint, "--image", image,
               "--command", args.command, "--decoding", args.decoding, "--attention", args.attention,
               "--threads", str(args.threads), "--warmup", "0", "--repeats", str(args.answers)]
    result, wall_ms, peak = run(command, args.threads)
    return figures(result["tokens"], result["load_ms"], result["repeats"], wall_ms, peak)


def tapline(args, image):
    command = [args.tapline, "locate", image, args.command, "--model", args.checkpoint, "--decoding", args.decoding,
               "--unconstrained", "--json", "--repeat", str(args.answers - 1)]
    result, wall_ms, peak = run(command, args.threads)
    answers = [result["timings"], *result["repeats"]]
    return figures(result["results"][0]["tokens"], result["load_ms"], answers, wall_ms, peak)


def figures(tokens, load_ms, answers, wall_ms, peak):
    first, *warm = answers
    after_first = sum(answer["total_ms"] for answer in warm)
    rows = {"start to first answer": wall_ms - after_first, "load": load_ms, "first answer": first["total_ms"],
            "warm answer": statistics.median(answer["total_ms"] for answer in warm)}
    for stage in STAGES:
        rows[f"- {stage}"] = statistics.median(answer[f"{stage}_ms"] for answer in warm)
    return {"tokens": tokens, "rows": rows | {"peak memory": peak}}


def show(row, value):
    if row == "peak memory":
        return f"{value:,.0f} MiB"
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def table(peers, taplines):
    lines = ["| | PyTorch | Tapline | PyTorch / Tapline |", "|---|---:|---:|---:|"]
    for row in peers[0]["rows"]:
        theirs, ours = (statistics.median(side["rows"][row] for side in sides) for sides in (peers, taplines))
        ratio = f"{theirs / ours:.2f}" if ours else "–"
        lines.append(f"| {row} | {show(row, theirs)} | {show(row, ours)} | {ratio} |")
    return "\n".join(lines)


def processor():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tapline", type=Path, required=True, help="the release binary")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--image", type=Path, help="a PNG; default: a synthetic screenshot of 1080x2400")
    parser.add_argument("--command", default="open settings")
    parser.add_argument("--repeats", type=int, default=5, help="processes per side")
    parser.add_argument("--answers", type=int, default=2, help="answers per process; all but the first are warm")
    parser.add_argument("--threads", type=int, default=2, help="both sides are also bound to as many CPUs")
    parser.add_argument("--decoding", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa", help="PyTorch's attention")
    args = parser.parse_args()
    if args.answers < 2:
        parser.error("--answers: at least 2, the first is not warm")

    with tempfile.TemporaryDirectory() as folder:
        image = args.image or Path(folder) / "screenshot.png"
        if not args.image:
            subprocess.run([sys.executable, HERE / "screenshot.py", image], check=True)
        busy, peers, taplines = os.getloadavg()[0], [], []
        for n in range(args.repeats):
            print(f"round {n + 1} of {args.repeats}", file=sys.stderr)
            peers.append(peer(args, image))
            taplines.append(tapline(args, image))

    theirs, ours = ({tuple(side["tokens"]) for side in sides} for sides in (peers, taplines))
    print(f"{processor()}, {args.threads} threads, load {busy:.1f} before the first run; {args.decoding} decoding, "
          f"{args.attention} attention in PyTorch; medians of {args.repeats} processes with {args.answers} answers\n")
    print(table(peers, taplines))
    equal = theirs == ours and len(ours) == 1
    print(f"\ntokens {'equal: ' + str(list(ours.pop())) if equal else f'DIFFER: PyTorch {theirs}, Tapline {ours}'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
