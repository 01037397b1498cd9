"""The copies that `compress` works with: the given model in eval mode, and the masked one in plain layers."""

import copy
from collections.abc import Collection
from typing import Any

from torch import nn

from vbdrop.convert import deterministic_
from vbdrop.convert.conversion import forget_noise_
from vbdrop.convert.example_inputs import copied
from vbdrop.layers import Gate, NoisyLayer, Weights
from vbdrop.layers.computed_weight import make_products_
from vbdrop.objective.weight_reads import weight_reads


def masked_copy(model: nn.Module, threshold: float | None, own_classes: Collection[str] = ()) -> nn.Module:
    """A plain copy of a model in eval mode, with exact zeros for everything dead.

    In the copy, subclasses of torch layers that compute their own weight become torch layers with that weight.

    Args:
        model: A converted model, or a plain one; it is not changed.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        own_classes: The names of such layers that keep their class; a layer with gates cannot.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(3, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> int(torch.count_nonzero(masked_copy(model, threshold=-100.0).weight))
        0
    """
    plain = deterministic_(copied(model), threshold).eval()
    make_products_(plain, own_classes)
    return plain


def judge_of(model: nn.Module, threshold: float | None) -> nn.Module:
    """A copy of a model that runs its own forward in eval mode, with all of its thresholds set to one value.

    Args:
        model: A converted model, or a plain one; it is not changed.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(3, 2, bias=False)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> judge = judge_of(model, threshold=-100.0)
        >>> type(judge).__module__, judge(torch.ones(1, 3)).tolist()
        ('vbdrop.layers.linear', [[0.0, 0.0]])
    """
    judge = copied(model).eval()
    for module in judge.modules():
        if threshold is not None and isinstance(module, NoisyLayer) and isinstance(module.noise, Weights):
            module.noise = _at(module.noise, threshold)
        if threshold is not None and isinstance(module, Gate):
            module.mode = _at(module.mode, threshold)
    return judge


def forget_unused_noise_(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Make the converted layers plain that the forward bypasses by reading their weight directly.

    Their masks and gates have no effect on the outputs, and must have no effect on the small model.

    Args:
        model: A converted model in eval mode.
        args: Inputs by position.
        kwargs: Inputs by name.

    Returns:
        The layers that were made plain, and those whose weight is read both by their own forward and outside it.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, NoisyLayer)}
    if not layers:
        return set(), set()
    trial = copied(model)
    reads = weight_reads(trial, {name: trial.get_submodule(name) for name in layers}, args, kwargs)
    plain = reads.outside - reads.called
    for name in plain:
        forget_noise_(layers[name])
    return plain, reads.outside - plain


def _at(mode: Any, threshold: float) -> Any:  # noqa: ANN401 -- a mode of any kind
    """A mode with another threshold, which may be below its initial log variance."""
    mode = copy.copy(mode)
    object.__setattr__(mode, "threshold", threshold)
    return mode
