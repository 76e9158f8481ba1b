#!/usr/bin/env python3
"""The peer in PyTorch: transformers' built-in Florence-2 on the same checkpoint, screenshot, prompt and decoding.

    python pytorch.py --checkpoint full-size --image screenshot.png --command "open settings" --threads 2

Prints one JSON document: the generated ids, milliseconds per stage of each answer and the medians of the warm ones, load
time and peak memory. Every answer starts from the PNG's bytes, as a request to a server does.
"""

import time

STARTED = time.perf_counter()

import torch  # noqa: E402
from transformers import GenerationConfig  # noqa: E402
from transformers.modeling_outputs import BaseModelOutput  # noqa: E402

from florence2_torch import load  # noqa: E402
from request import Clock, Preprocessor, Rules, arguments, prompt_ids, report  # noqa: E402

IMPORT_MS = (time.perf_counter() - STARTED) * 1000


class Locator:
    def __init__(self, model, checkpoint, command, decoding):
        self.model, self.preprocessor = model, Preprocessor(checkpoint)
        self.ids = torch.tensor([prompt_ids(checkpoint, command)], device=model.device)
        rules = Rules.read(checkpoint, decoding)
        self.rules = GenerationConfig(**vars(rules), early_stopping=rules.num_beams > 1, do_sample=False)

    def locate(self, png):
        """One answer from the bytes of a PNG: the ids, and milliseconds per stage."""
        model, text, clock = self.model, self.model.model.language_model, Clock()

        def done(stage):
            if model.device.type == "cuda":
                torch.cuda.synchronize()
            clock.done(stage)

        picture = self.preprocessor.decode(png)
        done("decode")
        pixels = torch.from_numpy(self.preprocessor.prepare(picture))
        done("prepare")
        pixels = pixels.to(model.device, model.dtype)
        features = model.model.get_image_features(pixels).pooler_output
        done("vision")
        embedded = torch.cat([features, model.get_input_embeddings()(self.ids)], dim=1)
        states = text.encoder(inputs_embeds=embedded).last_hidden_state
        done("encoder")
        mask = torch.ones(states.shape[:2], dtype=torch.long, device=model.device)
        answer = model.generate(encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask,
                                generation_config=self.rules)[0].tolist()
        done("steps")
        return answer, clock.finish()


def compile_parts(model, parts):
    """Freezing lets the compiler pack the weights once, as ONNX Runtime and Tapline do."""
    import torch._inductor.config as inductor
    inductor.freezing = True
    text = model.model.language_model
    if "vision" in parts:
        model.model.vision_tower.compile()
    if "encoder" in parts:
        text.encoder.compile()
    if "decoder" in parts:
        text.decoder.compile(dynamic=True)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--compile", nargs="*", choices=("vision", "encoder", "decoder"), default=(),
                        help="parts to give to torch.compile; the first answer compiles them")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    start = time.perf_counter()
    model = load(args.checkpoint, args.attention, args.device, getattr(torch, args.dtype))
    compile_parts(model, args.compile)
    locator = Locator(model, args.checkpoint, args.command, args.decoding)
    load_ms = (time.perf_counter() - start) * 1000
    with torch.no_grad():
        report(args, locator.locate, IMPORT_MS, load_ms, torch=torch.__version__, attention=args.attention,
               compiled=list(args.compile), device=args.device, dtype=args.dtype)


if __name__ == "__main__":
    main()
