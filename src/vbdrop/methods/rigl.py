r"""RigL (Evci, Gale, Menick, Castro and Elsen, ICML 2020): sparse from the first step, with connections that move.

The masks start at random, at the target sparsity. Every ``every`` steps, until the share ``stop`` of the run, each
layer with n connections drops the :math:`k = f_t\, n` of them with the smallest :math:`|w|` and grows, among those that
are then absent, the k with the largest gradient :math:`|\partial L/\partial w|`, starting at zero; :math:`f_t =
\tfrac{\alpha}{2}(1 + \cos(\pi t/T))`. The sparsity of a layer follows Erdos-Renyi-Kernel: its density is proportional
to (inputs + outputs + kernel sizes) / (inputs * outputs * kernel sizes); or it is the same in all layers.

Published (Evci et al., appendix B): LeNet-300-100, about 6,470 connections (41 times fewer) at 1.48 % at the end;
restarted from the shrunken network ("RigL+"), about 3,190 (83.5 times) at 1.69 %.

Deviations: the products are dense, so training saves nothing, and the dense gradient is available at every step. Adam's
moments of an absent connection follow it, so that a grown connection starts with a known scale; the paper's SGD (0.2,
with momentum, 200 epochs) starts from zero momentum. The optimizer's step is also made at an update. Biases and
normalisation stay dense; so does the output layer, and L2 has the gradient 1e-4 w, as in the authors' code for MNIST.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vbdrop.methods.shared.checks import check_choice, check_count, check_flag, check_not_negative, check_share
from vbdrop.methods.shared.losses import cross_entropy, squared_weights
from vbdrop.methods.shared.masks import MASK, add_masks_, apply_masks_, keep_largest, mask_of, remove_buffers_
from vbdrop.methods.shared.run_parts import first_step
from vbdrop.train.method import Batch, Family, Method, Step, option
from vbdrop.train.sparsity import weight_layers


def erdos_renyi_densities(shapes: list[torch.Size], density: float) -> list[float]:
    """The density of each layer, at most 1, for an overall density.

    Args:
        shapes: The shapes of the layers' weights.
        density: The share of all weights that is kept.

    Returns:
        One density per layer.

    Example:
        >>> shapes = [torch.Size([300, 784]), torch.Size([100, 300]), torch.Size([10, 100])]
        >>> [round(value, 3) for value in erdos_renyi_densities(shapes, 0.05)]
        [0.038, 0.111, 0.919]
    """
    sizes = [math.prod(shape) for shape in shapes]
    raw = [sum(shape) / size for shape, size in zip(shapes, sizes, strict=True)]
    full = [False] * len(shapes)
    while True:
        wanted = density * sum(sizes) - sum(size for size, is_full in zip(sizes, full, strict=True) if is_full)
        share = sum(r * size for r, size, is_full in zip(raw, sizes, full, strict=True) if not is_full)
        scale = wanted / share if share else 0.0
        over = [not is_full and scale * r > 1 for r, is_full in zip(raw, full, strict=True)]
        if not any(over):
            return [1.0 if is_full else scale * r for r, is_full in zip(raw, full, strict=True)]
        full = [a or b for a, b in zip(full, over, strict=True)]


def moved(mask: Tensor, weight: Tensor, gradient: Tensor, count: int) -> Tensor:
    """The mask after ``count`` connections were dropped by size and as many grown by gradient.

    Args:
        mask: The existing connections.
        weight: The weights.
        gradient: The dense gradient.
        count: How many move; a dropped connection may be grown again.

    Returns:
        A mask with as many connections as before.

    Example:
        >>> mask = torch.tensor([True, True, False, False])
        >>> moved(mask, torch.tensor([0.1, 2.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 3.0, 5.0]), 1)
        tensor([False,  True, False,  True])
    """
    least = torch.finfo(weight.dtype).min
    kept = keep_largest(weight.abs().masked_fill(~mask, least), int(mask.sum()) - count)
    return kept | keep_largest(gradient.abs().masked_fill(kept, least), count)


@dataclass(frozen=True)
class RigL(Method):
    """Sparse training with connections that are dropped by size and grown by gradient.

    Attributes:
        sparsity: The share of absent weights, at all times; with ``dense_output``, that of the other layers.
        distribution: ``"erk"`` for Erdos-Renyi-Kernel, ``"uniform"`` for the same sparsity in every layer.
        every: The steps between two updates.
        fraction: The share of a layer's connections that moves at the first update; it falls to 0 on a cosine.
        stop: The share of the run at which the updates end.
        dense_output: Whether the output layer keeps all of its weights.
        decay: The factor on the sum of squared weights in the loss.

    Example:
        >>> model = RigL(sparsity=0.5).build(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        >>> [int(torch.count_nonzero(layer.weight)) for layer in (model[0], model[2])]
        [8, 8]
    """

    name: ClassVar[str] = "rigl"
    title: ClassVar[str] = "RigL"
    paper: ClassVar[str] = "Evci et al. 2020, ICML"
    family: ClassVar[Family] = "weights"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"sparsity": (0.95, 0.97, 0.98, 0.99, 0.995, 0.998)}

    sparsity: float = 0.95
    distribution: Literal["erk", "uniform"] = "erk"
    every: int = 100
    fraction: float = 0.3
    stop: float = 0.75
    dense_output: bool = option(True, absent=False)
    decay: float = option(5e-5, absent=0.0)

    def __post_init__(self) -> None:
        check_share(self, "sparsity", "fraction", "stop")
        check_choice(self, "distribution", ("erk", "uniform"))
        check_count(self, "every")
        check_not_negative(self, "decay")
        check_flag(self, "dense_output")

    def build(self, model: nn.Module) -> nn.Module:
        """Add random masks at the target sparsity."""
        add_masks_(model)
        layers = [layer for _, layer in weight_layers(model)]
        sparse = layers[:-1] if self.dense_output and len(layers) > 1 else layers
        density = 1 - self.sparsity
        densities = [density] * len(sparse)
        if self.distribution == "erk":
            densities = erdos_renyi_densities([layer.weight.shape for layer in sparse], density)
        for layer, share in zip(sparse, densities, strict=True):
            count = max(1, round(share * layer.weight.numel()))
            mask_of(layer).copy_(keep_largest(torch.rand_like(layer.weight), count))
        apply_masks_(model)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and the L2 penalty."""
        return cross_entropy(model, batch) + self.decay * squared_weights(model)

    def moving_fraction(self, step: Step) -> float:
        """The share of the connections that moves at this step."""
        return 0.5 * self.fraction * (1 + math.cos(math.pi * min(1.0, step.index / first_step(self.stop, step))))

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Keep absent connections at zero and, if an update is due, move some."""
        apply_masks_(model)
        if (step.index + 1) % self.every or step.index >= first_step(self.stop, step):
            return
        for _, layer in weight_layers(model):
            mask = mask_of(layer)
            count = int(self.moving_fraction(step) * int(mask.sum()))
            count = min(count, int((~mask).sum()))
            if count and layer.weight.grad is not None:
                new = moved(mask, layer.weight, layer.weight.grad, count)
                mask.copy_(new)
        apply_masks_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The sparse network without its masks, in place."""
        return remove_buffers_(model, MASK)
