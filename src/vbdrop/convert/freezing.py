"""The last stage of a training: what is dead stays dead."""

import torch
from torch import nn

from vbdrop.layers import Variational
from vbdrop.objective import noisy_tensors


@torch.no_grad()
def freeze_dead_(model: nn.Module, threshold: float | None = None) -> nn.Module:
    """Keep dead, for good, every weight and every gate that is dead now, in place.

    Call it where the last stage of a training starts, the one without the KL: without its pull, dead weights and gates
    would come back to life. What is frozen has neither a mean nor noise in any forward, at every threshold, whatever
    an optimizer does to its parameters, and adds nothing to the KL. Survivors train on, and may still die.

    The marks are boolean buffers named ``removed`` beside the weights. They are part of the ``state_dict``, and a
    ``state_dict`` without them, such as an older checkpoint, loads as one in which nothing is frozen.

    Args:
        model: A converted model. Layers with `vbdrop.Rates`, where nothing ever dies, stay as they are.
        threshold: The ``log_alpha`` at or above which a weight or a gate is dead; None for each one's own.

    Returns:
        The same model.

    Raises:
        ValueError: If the model has no converted layer.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> _ = model[0].gate.log_sigma2.data.copy_(torch.tensor([9.0, -9.0, 9.0]))
        >>> _ = vbdrop.freeze_dead_(model)
        >>> _ = model[0].gate.weight.data.fill_(1.0), model[0].gate.log_sigma2.data.fill_(-9.0)
        >>> vbdrop.rates(model)["0.gate"].dead
        2
    """
    if next(noisy_tensors(model), None) is None:
        raise ValueError("`model` has no converted layer, so nothing in it is dead; call vbdrop.convert_ first.")
    for module in model.modules():
        if isinstance(module, Variational):
            for entry in module.variational():
                if entry.threshold is not None:
                    dead = entry.dead(threshold)
                    module.remove_(dead)
                    entry.mean.masked_fill_(dead, 0.0)
    return model
