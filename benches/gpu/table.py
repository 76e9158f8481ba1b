#!/usr/bin/env python3
"""Makes one Markdown table of what the parts of run.sh printed: a line for each, its name, a tab, and JSON or a reason."""

import json
import sys

HEAD = "| part | screenshots/s | p50 ms | p99 ms | vision ms | text ms | mean batch | graph hits | more |"


def number(value, digits=1):
    return "–" if value is None else f"{value:,.{digits}f}"


def cells(figures):
    """The columns of one part, and what else it says."""
    if "requests_per_second" in figures:
        stages = figures["stages_ms"]
        more = f"busy {figures['busy']:.0%}, ready after {figures['ready_s']:.1f} s, {figures['gpu_memory_mib']:,.0f} MiB"
        hits = f"{figures['graph_hits']:.1%}" if figures["launches"] else "–"
        return [number(figures["requests_per_second"]), number(figures["p50_ms"], 2), number(figures["p99_ms"], 2),
                number(stages["vision"], 2), number(stages["text"], 2), number(figures["mean_batch"]), hits, more]
    if "screenshots_per_second" in figures:
        more = f"torch {figures['torch']}, warm after {figures['warm_up_s']:.0f} s"
        return [number(figures["screenshots_per_second"]), number(figures["total_ms"], 2), "–",
                number(figures["vision_ms"], 2), number(figures["text_ms"], 2), str(figures["batch"]), "–", more]
    return ["–"] * 7 + [", ".join(f"{name} {value}" for name, value in figures.items())]


def main():
    print(HEAD)
    print("|---|" + "---:|" * 7 + "---|")
    for line in sys.stdin:
        name, _, said = line.rstrip("\n").partition("\t")
        try:
            figures = json.loads(said)
        except ValueError:
            figures = None
        row = cells(figures) if isinstance(figures, dict) else ["–"] * 7 + [said.replace("|", "/") or "well"]
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
