"""Who takes part in the comparison, and the command that makes each answer."""

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("vision", "encoder", "decoder")


@dataclass(frozen=True)
class Variant:
    name: str
    dtype: str
    program: str
    flags: tuple = ()

    @property
    def compiled(self):
        return "--compile" in self.flags

    def command(self, args, image, decoding, answers):
        """The command line for `answers` answers in one process; all programs print JSON."""
        if self.program == "tapline":
            return [args.tapline, "locate", image, args.command, "--model", args.checkpoint, "--decoding", decoding,
                    "--unconstrained", "--json", "--repeat", str(answers - 1), *self.flags]
        return [sys.executable, HERE / self.program, "--checkpoint", args.checkpoint, "--image", image,
                "--command", args.command, "--decoding", decoding, "--threads", str(args.threads),
                "--answers", str(answers), *self.flags]


VARIANTS = {variant.name: variant for variant in (
    Variant("Tapline f32", "f32", "tapline", ("--dtype", "f32")),
    Variant("Tapline bf16", "bf16", "tapline", ("--dtype", "bf16")),
    Variant("PyTorch f32", "f32", "pytorch.py"),
    Variant("PyTorch bf16", "bf16", "pytorch.py", ("--dtype", "bfloat16")),
    Variant("compiled f32", "f32", "pytorch.py", ("--compile", *PARTS)),
    Variant("compiled bf16", "bf16", "pytorch.py", ("--dtype", "bfloat16", "--compile", *PARTS)),
    Variant("ONNX Runtime f32", "f32", "onnxruntime_peer.py"),
    # Not in the default run, there to be measured by hand.
    Variant("PyTorch f32, eager attention", "f32", "pytorch.py", ("--attention", "eager")),
    Variant("PyTorch bf16, eager attention", "bf16", "pytorch.py", ("--dtype", "bfloat16", "--attention", "eager")),
)}
DEFAULT = tuple(VARIANTS)[:7]
