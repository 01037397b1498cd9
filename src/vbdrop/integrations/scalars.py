"""The state of a training run as a flat dict of numbers, for experiment trackers."""

import re
from collections.abc import Iterable

import torch
from torch import nn

from vbdrop.convert import rates
from vbdrop.objective import ELBO, kl

REFUSED = re.compile(r"[^-.\w]")
"""Characters of layer names that MLflow or TensorBoard refuses, and the slash, which would end a folder."""


@torch.no_grad()
def scalars(model: nn.Module, elbo: ELBO | None = None, *, prefix: str = "") -> dict[str, float]:
    """The state of a training run as a flat dict of numbers, for TensorBoard, MLflow or any other tracker.

    All of them accept the keys as they are: letters, digits, ``_``, ``-``, ``.`` and ``/``; and no key is also the
    folder of another one. Any other character in the name of a layer becomes ``_``.

    Args:
        model: A converted model.
        elbo: Its objective; None for only the figures of the model itself.
        prefix: Put before every key, such as ``"vbdrop/"``.

    Returns:
        ``kl``, the KL as a sum over all weights; ``dead_share``, the share of all weights and units that are dead, and
        ``dead_share_by_layer/<layer>``; ``rate/<layer>``, the mean dropout rate. With an ELBO that has been called or
        has made a step, also ``kl_weight``, including the warm-up, and, if it has seen a loss, ``nll`` and ``loss``.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(rate=0.25))
        >>> elbo = vbdrop.ELBO(model, n_train=100, kl_weight=0.5)
        >>> _ = elbo(torch.tensor(1.5))
        >>> sorted(vbdrop.scalars(model, elbo))
        ['dead_share', 'dead_share_by_layer/0', 'kl', 'kl_weight', 'loss', 'nll', 'rate/0']
        >>> vbdrop.scalars(model, elbo)["kl_weight"], round(vbdrop.scalars(model, prefix="vbdrop/")["vbdrop/rate/0"], 4)
        (0.5, 0.25)
    """
    if elbo is not None and not isinstance(elbo, ELBO):
        raise TypeError(f"`elbo` must be a vbdrop.ELBO or None; got {type(elbo).__name__}.")
    table = rates(model)
    found = {"kl": float(kl(model))}
    found["dead_share"] = sum(rate.dead for rate in table.values()) / sum(rate.count for rate in table.values())
    for name, rate in zip(_accepted(table), table.values(), strict=True):
        found[f"dead_share_by_layer/{name}"] = rate.dead_share
        found[f"rate/{name}"] = rate.p
    if elbo is not None and elbo.has_terms:
        terms = elbo.terms
        found["kl_weight"] = terms.kl_weight
        found |= {name: float(part) for name in ("nll", "loss") if (part := getattr(terms, name)) is not None}
    return {prefix + name: value for name, value in found.items()}


def _accepted(layers: Iterable[str]) -> list[str]:
    """Names for layers that every tracker accepts, no two of them the same."""
    found: list[str] = []
    for layer in layers:
        name = REFUSED.sub("_", layer)
        while name in found:
            name += "_"
        found.append(name)
    return found
