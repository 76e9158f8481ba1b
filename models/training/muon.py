"""Muon for the matrices of the network: momentum, made orthogonal before each step.

Orthogonal steps use every direction of a weight matrix alike, which on few samples, all one core can give, learns
to see markedly faster than Adam. Embeddings, norms and biases stay with AdamW.
"""
import torch

import precision


def orthogonal(x, steps=5):
    """The nearest orthogonal matrices [n, rows, columns], roughly: Newton-Schulz iterations with the usual quintic's
    coefficients, which need no more precision than bf16 has."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(precision.working_type())
    for _ in range(steps):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * s @ s) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, weights, lr=0.01, momentum=0.95, weight_decay=0.01):
        super().__init__(weights, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            keep, alike = group["momentum"], {}
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - keep)
                update = weight.grad.lerp(state["momentum"], keep).flatten(1)
                alike.setdefault(update.shape, []).append((weight, update))
            for (rows, columns), pairs in alike.items():  # many have one shape: one product for all of them
                updates = orthogonal(torch.stack([update for _, update in pairs])) * max(1, rows / columns) ** 0.5
                for (weight, _), update in zip(pairs, updates):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(update.view_as(weight), alpha=group["lr"])
