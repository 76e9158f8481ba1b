#!/usr/bin/env python3
"""A Tapline server under clients that ask again as soon as they are answered, each about screenshots of its own.

    python load.py --tapline target/release/tapline --model full-size --command "w490 w9629" --batch 32 --clients 64

Starts the server, waits until it is ready, asks for a while, and prints one JSON document: requests a second, latency, the mean
batch, what share of the launches were CUDA graphs, the time to ready, and the memory of the GPU. The feature cache is off, so
that every request is decoded, resized and encoded. Standard library only.
"""

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

READY_SECONDS, REQUEST_SECONDS = 240, 60


def variants(png, count):
    """The same picture in `count` files that differ: a comment in each, which decoders skip and a content hash does not."""
    head, rest = png[:33], png[33:]  # signature and IHDR
    for n in range(count):
        text = b"tEXt" + b"Comment\0" + str(n).encode()
        yield head + struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + rest


class Server:
    def __init__(self, args):
        command = [args.tapline, "serve", "--port", "0", "--model", args.model, "--device", args.device, "--dtype", args.dtype,
                   "--max-batch-requests", str(args.batch), "--max-batch-wait", args.wait, "--feature-cache-mb", "0",
                   "--decoding", args.decoding]
        command += ["--no-graphs"] if args.no_graphs else []
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TAPLINE_LOG": "warn"})
        self.talk, self.address = [], None
        for line in self.process.stderr:
            self.talk.append(line)
            if found := re.search(r"listening on http://([^:]+):(\d+)", line):
                self.address = found[1], int(found[2])
                break
        # Whoever does not read on blocks the server once the pipe is full.
        threading.Thread(target=lambda: self.talk.extend(self.process.stderr), daemon=True).start()
        if not self.address:
            self.fail("it did not listen")

    def fail(self, why):
        self.process.kill()
        raise SystemExit(f"the server: {why}\n{''.join(self.talk)}")

    def get(self, path):
        connection = http.client.HTTPConnection(*self.address, timeout=REQUEST_SECONDS)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def until_ready(self):
        while time.perf_counter() - self.started < READY_SECONDS:
            if self.process.poll() is not None:
                self.fail(f"it ended with {self.process.returncode}")
            if self.get("/health/ready")[0] == 200:
                return time.perf_counter() - self.started
            time.sleep(0.1)
        self.fail(f"not ready after {READY_SECONDS} s")

    def figures(self):
        """Sums of all series by name, label values of interest apart."""
        sums = {}
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith("#") or not line.strip():
                continue
            name, value = line.rsplit(" ", 1)
            labels = "".join(re.findall(r'(?:result|kind|stage)="([^"]*)"', name))
            key = name.split("{")[0] + (f":{labels}" if labels else "")
            sums[key] = sums.get(key, 0.0) + float(value)
        return sums

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def ask(server, images, command, until, latencies, failures):
    connection = http.client.HTTPConnection(*server.address, timeout=REQUEST_SECONDS)
    path = "/locate?command=" + "%20".join(command.split())
    n = 0
    while time.perf_counter() < until:
        started = time.perf_counter()
        try:
            connection.request("POST", path, body=images[n % len(images)], headers={"content-type": "image/png"})
            response = connection.getresponse()
            body = response.read()
        except OSError as error:
            failures.append(str(error))
            return
        if response.status != 200:
            failures.append(f"{response.status} {body[:200]!r}")
            return
        latencies.append((started, time.perf_counter() - started))
        n += 1


def run(server, images, args, seconds):
    latencies, failures = [], []
    until = time.perf_counter() + seconds
    share = max(1, len(images) // args.clients)
    threads = [threading.Thread(target=ask, args=(server, images[n * share:(n + 1) * share] or images, args.command, until,
                                                  latencies, failures)) for n in range(args.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        server.fail(f"{len(failures)} requests failed, the first: {failures[0]}")
    return latencies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tapline", type=Path, required=True)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--image", type=Path, required=True, help="a PNG")
    parser.add_argument("--command", default="open settings")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--decoding", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--wait", default="0ms", help="--max-batch-wait of the server")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--no-graphs", action="store_true")
    args = parser.parse_args()

    images = list(variants(args.image.read_bytes(), max(64, args.clients * 4)))
    server = Server(args)
    try:
        ready = server.until_ready()
        run(server, images, args, min(1.5, args.seconds / 4))
        before = server.figures()
        started = time.perf_counter()
        latencies = [seconds for _, seconds in run(server, images, args, args.seconds)]
        elapsed = time.perf_counter() - started
        after = server.figures()
    finally:
        server.stop()
    if len(latencies) < 2:
        raise SystemExit("fewer than two answers: give it more --seconds")

    def grown(name):
        return after.get(name, 0.0) - before.get(name, 0.0)

    def mean(name):
        return grown(f"{name}_sum") / max(1.0, grown(f"{name}_count"))

    launches = {result: grown(f"tapline_graph_launches_total:{result}") for result in ("hit", "miss")}
    stages = {stage: 1e3 * grown(f"tapline_stage_duration_seconds_sum:{stage}")
              / max(1.0, grown(f"tapline_stage_duration_seconds_count:{stage}"))
              for stage in ("decode", "prepare", "queue", "vision", "text")}
    cuts = statistics.quantiles(latencies, n=100)
    print(json.dumps({
        "batch": args.batch, "clients": args.clients, "requests_per_second": len(latencies) / elapsed,
        "p50_ms": 1e3 * statistics.median(latencies), "p99_ms": 1e3 * cuts[98],
        "mean_batch": mean("tapline_batch_tickets"), "busy": grown("tapline_busy_seconds_total") / elapsed,
        "graph_hits": launches["hit"] / max(1.0, sum(launches.values())), "launches": sum(launches.values()),
        "stages_ms": stages, "ready_s": ready, "gpu_memory_mib": after.get("tapline_gpu_memory_bytes:used", 0.0) / 2**20}))


if __name__ == "__main__":
    sys.exit(main())
