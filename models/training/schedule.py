"""The learning rate over a training."""


def rate(done, step, warmup, settle):
    """The share of the base rate after `done` of the time and `step` steps.

    A linear warm-up by steps (post-norm layers need it), level, and a linear way down over the last
    `settle` of the time (0: never).
    """
    down = min(1.0, 0.01 + (1 - done) / settle) if settle else 1.0
    return min(1.0, (step + 1) / warmup) * down
