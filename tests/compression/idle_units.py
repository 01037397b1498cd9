"""Units that a model could do without, found by trying, without any analysis of its graph."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

PRODUCTS = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)

FACTORS = (1e-3, -1e-3, 1.0, -1.0, 1e3, -1e3)
"""The factors of the noise on a unit's weights: small ones for what saturates, large ones for what rounds."""

NOISES = (1.0, 10.0, 1000.0)
"""The sizes of the noise behind all layers under which a unit is tried, too: a ReLU that is never on hides it."""


@torch.no_grad()
def unread_units(model: nn.Module, *args: Tensor) -> dict[str, list[int]]:
    """For each layer that multiplies, the outputs that can be anything: other weights of theirs change nothing.

    Args:
        model: A plain model in eval mode; it is as it was afterwards.
        args: Its inputs.
    """
    expected, found = pytree.tree_leaves(model(*args)), {}
    for name, layer in model.named_modules():
        if isinstance(layer, PRODUCTS):
            units = range(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)
            if unread := [unit for unit in units if not _matters(model, layer, unit, args, expected)]:
                found[name] = unread
    for number, size in enumerate(NOISES):
        with _noise(model, number, size):
            expected = pytree.tree_leaves(model(*args))
            for name, units in found.items():
                layer = model.get_submodule(name)
                found[name] = [unit for unit in units if not _matters(model, layer, unit, args, expected)]
    return {name: units for name, units in found.items() if units}


@contextmanager
def _noise(model: nn.Module, seed: int, size: float) -> Iterator[None]:
    """The same noise behind every layer that multiplies, at each call of the model."""
    noise: dict[tuple[int, torch.Size], Tensor] = {}
    generator = torch.Generator().manual_seed(seed)

    def noisy(layer: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        key = id(layer), output.shape
        if key not in noise:
            noise[key] = size * torch.randn(output.shape, generator=generator, dtype=output.dtype)
        return output + noise[key]

    with ExitStack() as stack:
        for layer in model.modules():
            if isinstance(layer, PRODUCTS):
                stack.callback(layer.register_forward_hook(noisy).remove)
        yield


def _matters(model: nn.Module, layer: nn.Module, unit: int, args: tuple, expected: list[Tensor]) -> bool:
    parts = [own_weight(layer, unit)] + ([layer.bias[unit]] if layer.bias is not None else [])
    before = [part.clone() for part in parts]
    noise = [torch.randn_like(part) for part in parts]
    for factor in FACTORS:
        for part, change in zip(parts, noise, strict=True):
            part += factor * change
        outputs = pytree.tree_leaves(model(*args))
        for part, old in zip(parts, before, strict=True):
            part.copy_(old)
        if any(not torch.equal(a, b) for a, b in zip(outputs, expected, strict=True)):
            return True
    return False


def own_weight(layer: nn.Module, unit: int) -> Tensor:
    """The part of a layer's weight that makes one output, as a view."""
    if not isinstance(layer, nn.ConvTranspose2d):
        return layer.weight[unit]
    inputs, outputs = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    group = unit // outputs
    return layer.weight[group * inputs : (group + 1) * inputs, unit % outputs]


@torch.no_grad()
def constant_units(model: nn.Module) -> dict[str, list[int]]:
    """For each layer that multiplies, the outputs that do not depend on its inputs."""
    found = {}
    for name, layer in model.named_modules():
        if isinstance(layer, PRODUCTS):
            units = range(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)
            if constant := [unit for unit in units if not own_weight(layer, unit).any()]:
                found[name] = constant
    return found
