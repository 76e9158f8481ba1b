#!/usr/bin/env python3
"""The peer in ONNX Runtime: the graphs of onnx_export.py with a cache for keys and values. PyTorch is not imported.

    python onnxruntime_peer.py --checkpoint full-size --image screenshot.png --command "open settings" --threads 2

Prints the same JSON document as pytorch.py.
"""

import time

STARTED = time.perf_counter()

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

from request import Clock, Preprocessor, Rules, arguments, prompt_ids, report  # noqa: E402
from search import decode  # noqa: E402

IMPORT_MS = (time.perf_counter() - STARTED) * 1000

LEVELS = {"all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
          "layout": ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
          "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
          "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC}


def session(path, args):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = LEVELS[args.level]
    for entry in args.option:
        options.add_session_config_entry(*entry.split("=", 1))
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Decoder:
    """The step graph with its state. Keys and values stay inside ONNX Runtime; only logits come out."""

    def __init__(self, graph, cross):
        self.graph = graph
        names = [entry.name for entry in graph.get_inputs()]
        count = (len(names) - 2) // 2
        self.id_name, self.position_name, self.own_names = names[0], names[1], names[2 + count:]
        self.outputs = [entry.name for entry in graph.get_outputs()]
        self.cross = dict(zip(names[2:2 + count], cross, strict=True))
        _, heads, _, size = graph.get_inputs()[-1].shape
        nothing = ort.OrtValue.ortvalue_from_numpy(np.empty((1, heads, 0, size), np.float32))
        self.own, self.rows, self.length = [nothing] * count, 1, 0

    def step(self, ids, parents):
        if parents != list(range(self.rows)):
            self.own = [ort.OrtValue.ortvalue_from_numpy(past.numpy()[parents]) for past in self.own]
        self.rows = len(parents)
        given = {self.id_name: np.array(ids, np.int64)[:, None], self.position_name: np.array([self.length], np.int64)}
        given = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in given.items()}
        logits, *self.own = self.graph.run_with_ort_values(
            self.outputs, given | self.cross | dict(zip(self.own_names, self.own)))
        self.length += 1
        return logits.numpy()


class Locator:
    def __init__(self, args):
        self.preprocessor = Preprocessor(args.checkpoint)
        ids = prompt_ids(args.checkpoint, args.command)
        self.ids, self.rules = np.array([ids], np.int64), Rules.read(args.checkpoint, args.decoding)
        folder = args.checkpoint / f"onnx-{len(ids)}"
        assert folder.exists(), f"no {folder}: run onnx_export.py --prompt-ids {len(ids)}"
        self.vision, self.encode, self.step = (session(folder / f"{name}.onnx", args)
                                               for name in ("vision", "encode", "step"))

    def locate(self, png):
        """One answer from the bytes of a PNG: the ids, and milliseconds per stage."""
        clock = Clock()
        picture = self.preprocessor.decode(png)
        clock.done("decode")
        pixels = self.preprocessor.prepare(picture)
        clock.done("prepare")
        features = run(self.vision, pixels)[0]
        clock.done("vision")
        cross = run(self.encode, features, self.ids)
        clock.done("encoder")
        answer = decode(Decoder(self.step, cross).step, self.rules)
        clock.done("steps")
        return answer, clock.finish()


def run(graph, *inputs):
    given = {entry.name: value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)
             for entry, value in zip(graph.get_inputs(), inputs, strict=True)}
    return graph.run_with_ort_values([entry.name for entry in graph.get_outputs()], given)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--level", choices=LEVELS, default="all", help="graph optimisations")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                        help="session configuration entry, such as session.intra_op.allow_spinning=0")
    args = parser.parse_args()
    start = time.perf_counter()
    locator = Locator(args)
    load_ms = (time.perf_counter() - start) * 1000
    report(args, locator.locate, IMPORT_MS, load_ms, onnxruntime=ort.__version__, level=args.level, options=args.option)


if __name__ == "__main__":
    main()
