"""Noise on the outputs of layers opens paths that the example inputs leave closed, such as those behind a ReLU."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.analysis.layer_shapes import CONVOLUTIONS, TRANSPOSED
from vbdrop.compression.agreement import disagreement

BOTH_SIGNS = (1.0, -1.0, 10.0, -10.0)
"""The scales of the noise under which two models are compared; an activation that one sign closes, the other opens."""


@contextmanager
def noise_on_layers(model: nn.Module, size: float) -> Iterator[None]:
    """Inside the block, add noise to the outputs of all linear layers and convolutions.

    Args:
        model: The model; it gets hooks until the block ends.
        size: The scale of the noise, relative to the root mean square of a layer's outputs.
    """

    def noisy(_layer: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        scale = size * (float(output.detach().abs().double().square().mean().sqrt()) or 1.0)
        return output + scale * torch.randn_like(output)

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)):
                stack.callback(module.register_forward_hook(noisy).remove)
        yield


def disagreement_under_noise(
    model: nn.Module, other: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str | None:
    """Compare two models with the same layers under the same noise on the outputs of these layers.

    Args:
        model: The reference.
        other: The model that should compute the same, layer by layer.
        args: Inputs by position.
        kwargs: Inputs by name.

    Returns:
        How the second differs from the first, or None if they agree.

    Example:
        >>> first = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
        >>> with torch.no_grad():
        ...     _ = first[0].weight.fill_(-1.0), first[0].bias.fill_(-3.0)
        >>> second = nn.Sequential(first[0], first[1], nn.Linear(1, 1))
        >>> second[2].bias = first[2].bias
        >>> x = torch.tensor([[1.0], [2.0]])  # what the last layer reads is 0
        >>> disagreement(first, second, (x,), {}), disagreement_under_noise(first, second, (x,), {}) is None
        (None, False)
    """
    for size in BOTH_SIGNS:
        with noise_on_layers(model, size), noise_on_layers(other, size):
            if said := disagreement(model, other, args, kwargs):
                return f"{said} under noise on its layers"
    return None
