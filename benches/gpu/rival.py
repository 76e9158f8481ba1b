#!/usr/bin/env python3
"""The rival in batches on a GPU: transformers' Florence-2 on PyTorch, eager, compiled, or with CUDA graphs.

    python rival.py --checkpoint full-size --mode graphs --batch 32

Prints one JSON document. Screenshots lie on the device as bfloat16 tensors before the clock starts: nothing is decoded, resized
or uploaded, which Tapline's figures do count. `compiled` and `graphs` compile both encoders (`torch.compile`, and its
`reduce-overhead` mode, which records CUDA graphs); the decoder runs as `generate` runs it.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers.modeling_outputs import BaseModelOutput

sys.path.append(str(Path(__file__).resolve().parents[1] / "compare"))
from pytorch import decoding_rules, load, prompt_ids  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--command", default="w490 w9629")
    parser.add_argument("--mode", choices=("eager", "compiled", "graphs"), default="eager")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--decoding", choices=("greedy", "beam"), default="greedy")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()

    model = load(args.checkpoint, args.attention, args.device, torch.bfloat16)
    if args.mode != "eager":
        mode = "reduce-overhead" if args.mode == "graphs" else "default"
        model.model.vision_tower.compile(mode=mode)
        model.model.language_model.encoder.compile(mode=mode)
    rules = decoding_rules(args.checkpoint, args.decoding)
    size = json.loads((args.checkpoint / "preprocessor_config.json").read_text())["size"]
    pixels = torch.randn(args.batch, 3, size["height"], size["width"], device=model.device, dtype=model.dtype)
    ids = torch.tensor([prompt_ids(args.checkpoint, args.command)] * args.batch, device=model.device)
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else (lambda: None)

    def locate():
        wait()
        start = time.perf_counter()
        # Graphs reuse their memory: what one returns must be kept before the next runs.
        features = model.model.get_image_features(pixels).pooler_output.clone()
        wait()
        vision = time.perf_counter()
        embedded = torch.cat([features, model.get_input_embeddings()(ids)], dim=1)
        states = model.model.language_model.encoder(inputs_embeds=embedded).last_hidden_state.clone()
        mask = torch.ones(states.shape[:2], dtype=torch.long, device=model.device)
        model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask,
                       generation_config=rules)
        wait()
        return vision - start, time.perf_counter() - vision

    with torch.inference_mode():
        warm = time.perf_counter()
        for _ in range(3):
            locate()
        warm = time.perf_counter() - warm
        times, until = [], time.perf_counter() + args.seconds
        while len(times) < 3 or time.perf_counter() < until:
            times.append(locate())
    total = statistics.median(vision + text for vision, text in times)
    print(json.dumps({
        "torch": torch.__version__, "mode": args.mode, "batch": args.batch, "screenshots_per_second": args.batch / total,
        "total_ms": 1e3 * total, "vision_ms": 1e3 * statistics.median(vision for vision, _ in times),
        "text_ms": 1e3 * statistics.median(text for _, text in times), "warm_up_s": warm,
        "memory_mib": torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None}))


if __name__ == "__main__":
    main()
