"""Converts a network to Gaussian dropout rates, with a separate rate for the network's inputs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from vbdrop.convert import convert_
from vbdrop.layers import Rates
from vbdrop.layers.modes import Per
from vbdrop.train.sparsity import weight_layers

GRID: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"per": ("weight", "unit"), "kl_weight": (0.1, 1.0), "rate": (0.1, 0.5)}
)
"""The values tried for learned rates, whatever their prior: what has its own rate, the factor on the KL (1 is the
bound), and the initial dropout rate."""


def convert_rates_(model: nn.Module, *, per: Per, prior: str, rate: float, input_rate: float) -> None:
    """Convert every layer with `vbdrop.Rates`; the first starts at ``input_rate``, the others at ``rate``.

    Args:
        model: A plain model.
        per: What has one rate: every ``"weight"``, every input ``"unit"``, or the ``"layer"``.
        prior: The prior's name.
        rate: The initial dropout rate p.
        input_rate: The same for the first layer.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        >>> convert_rates_(model, per="layer", prior="hierarchical", rate=0.5, input_rate=0.2)
        >>> [round(row.p, 3) for row in vbdrop.rates(model).values()]
        [0.2, 0.5]
    """
    (_, first), *others = weight_layers(model)
    convert_(model, Rates(per, prior, input_rate, lambda module, _: module is first))
    if others:
        convert_(model, Rates(per, prior, rate, lambda module, _: module is not first))
