"""Counts which weights belong to channel groups, one by one."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vbdrop.analysis.channel_groups import ChannelGroups

PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

Dead = Mapping[int, Tensor]
"""Group -> whether each of its units is dead."""


def product_weights(model: nn.Module) -> dict[str, int]:
    """The weights of linear layers and convolutions of a plain model, and how many numbers each has.

    A weight that two layers share counts once. The weights of `nn.MultiheadAttention` and of transformers' ``Conv1D``
    count as those of linear layers.
    """
    found, seen = {}, set[int]()
    for path, module in model.named_modules():
        names = ["weight"] if isinstance(module, PRODUCTS) or type(module).__name__ == "Conv1D" else []
        if isinstance(module, nn.MultiheadAttention):
            names = ["in_proj_weight"]
        for name in names:
            weight = getattr(module, name, None)
            if weight is not None and id(weight) not in seen:
                seen.add(id(weight))
                found[f"{path}.{name}" if path else name] = weight.numel()
    return found


def owned(found: ChannelGroups, dead: Dead, sizes: Mapping[str, int]) -> dict[str, int]:
    """For each weight, how many of its numbers belong to a dead unit, on either side."""
    counts = {}
    for weight, size in sizes.items():
        stays = 1.0
        for members in (found.outputs.get(weight), found.inputs.get(weight)):
            if members is not None:
                stays *= 1 - _share(members, dead)
        counts[weight] = round(size * (1 - stays))
    return counts


def _share(members: Tensor, dead: Dead) -> float:
    """The share of channels whose unit is dead."""
    numbers = members.tolist()
    return sum(group >= 0 and bool(dead[group][number]) for group, number in numbers) / len(numbers)


def everything(found: ChannelGroups) -> Dead:
    """All units of all groups."""
    return {number: torch.ones(group.units, dtype=torch.bool) for number, group in enumerate(found.groups)}
