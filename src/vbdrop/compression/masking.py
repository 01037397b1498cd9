"""The masked model: a converted one with its dead weights as zeros, in plain layers."""

import copy

from torch import nn

from vbdrop.convert import deterministic_


def masked_copy(model: nn.Module, threshold: float | None) -> nn.Module:
    """A plain copy of a model in eval mode, with exact zeros for what is dead.

    Args:
        model: A converted model, or a plain one; it is not changed.
        threshold: The ``log_alpha`` from which on weights and units are dead; None for each one's own.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(3, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> int(torch.count_nonzero(masked_copy(model, threshold=-100.0).weight))
        0
    """
    return deterministic_(copy.deepcopy(model), threshold).eval()
