"""The number format of training: bf16 where the CPU has instructions for it, else float32."""
import functools
import time

import torch


@functools.cache
def working_type():
    """Decided by a stopwatch: without instructions for it, bf16 is up to ninety times slower than float32."""
    def seconds(kind):
        x = torch.ones(256, 256, dtype=kind)
        x @ x
        began = time.perf_counter()
        for _ in range(3):
            x @ x
        return time.perf_counter() - began
    return torch.bfloat16 if seconds(torch.bfloat16) < 1.5 * seconds(torch.float32) else torch.float32


def autocast():
    """The context for forward passes."""
    return torch.autocast("cpu", torch.bfloat16, enabled=working_type() == torch.bfloat16)
