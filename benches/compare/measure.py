"""One process of one variant: its answers, wall time and peak memory as rows of the table."""

import json
import os
import statistics
import subprocess
import tempfile
import time

STAGES = ("decode", "prepare", "vision", "encoder", "steps", "text")


def environment(threads, cache):
    count = str(threads)
    return os.environ | {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "RAYON_NUM_THREADS": count,
                         "TORCHINDUCTOR_CACHE_DIR": str(cache)}


def bind(threads):
    """A function for `preexec_fn` that binds the new process to as many CPUs."""
    return lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def run(command, threads, cache):
    """The JSON that a command prints, its wall time in ms, and its peak memory in MiB."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=complaints, env=environment(threads, cache),
                                   preexec_fn=bind(threads))
        _, status, usage = os.wait4(process.pid, 0)
        wall_ms = (time.perf_counter() - start) * 1000
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaints.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}\nfailed ({process.returncode}):\n{complaints.read()}")
        return json.loads(output.read()), wall_ms, usage.ru_maxrss / 1024


def measure(variant, args, image, decoding, answers):
    """Tokens and rows of one process."""
    result, wall_ms, peak = run(variant.command(args, image, decoding, answers), args.threads, args.cache)
    if variant.program == "tapline":
        tokens, stages = result["results"][0]["tokens"], [result["timings"], *result["repeats"]]
    else:
        tokens, stages = result["tokens"], result["answers"]
    first, warm = stages[0], stages[1:]
    rows = {"start to first answer": wall_ms - sum(answer["total_ms"] for answer in warm),
            "load": result["load_ms"], "first answer": first["total_ms"]}
    if warm:
        rows["warm answer"] = statistics.median(answer["total_ms"] for answer in warm)
        rows |= {f"- {stage}": statistics.median(answer[f"{stage}_ms"] for answer in warm)
                 for stage in STAGES if f"{stage}_ms" in first}
    return {"tokens": tuple(tokens), "rows": rows | {"peak memory": peak}}
