"""The last stage of training: what is dead stays dead."""

import math

import torch
from torch import nn

from vbdrop.layers import Gate, NoisyLayer, NoisyTensor, Variational
from vbdrop.objective import noisy_tensors


@torch.no_grad()
def freeze_dead_(model: nn.Module, threshold: float | None = None) -> nn.Module:
    """Make every weight and every gate that is dead now stay dead for good, in place.

    Call it at the start of the last training stage, the one without the KL: otherwise dead weights and gates would
    come back to life. A frozen weight or gate has no mean and no noise in any forward, at any threshold, whatever an
    optimizer does to its parameters, and it adds nothing to the KL. Survivors keep training and may still die.

    The masks are boolean buffers named ``removed`` beside the weights. They are part of the ``state_dict``; after
    loading one without them, such as an older checkpoint, nothing is frozen. A copy of the model that is updated
    from it, such as `torch.optim.swa_utils.AveragedModel`, must be made later, since both need the same buffers.

    Args:
        model: A converted model. Layers with `vbdrop.Rates`, where nothing ever dies, are not changed.
        threshold: The ``log_alpha`` at or above which a weight or a gate is dead; None uses each one's own.

    Returns:
        The same model.

    Raises:
        ValueError: If the model has no converted layer, or the threshold is not a number.
        TypeError: If it has noisy weights of a class that does not support freezing.

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
    if threshold is not None and (
        isinstance(threshold, bool) or not isinstance(threshold, int | float) or math.isnan(threshold)
    ):
        raise ValueError(f"`threshold` must be a number, a `log_alpha`, or None; got {threshold!r}.")
    if next(noisy_tensors(model), None) is None:
        raise ValueError("`model` has no converted layer, so nothing in it is dead; call vbdrop.convert_ first.")
    found: list[tuple[NoisyLayer | Gate, NoisyTensor]] = []
    for name, module in model.named_modules():
        for entry in module.variational() if isinstance(module, Variational) else ():
            if entry.threshold is None:
                continue
            if not isinstance(module, NoisyLayer | Gate):
                raise TypeError(
                    "`model` must have its noise in the layers of vbdrop.layers, which keep frozen weights dead; "
                    f"{name!r} is a {type(module).__name__}, which may not."
                )
            found.append((module, entry))
    for module, entry in found:
        dead = entry.dead(threshold)
        module.remove_(dead, entry.name)
        entry.zero_means_(dead)
    return model
