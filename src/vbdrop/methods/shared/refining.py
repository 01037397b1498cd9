"""Fine-tuning of the weights, or units, that have survived: with their noise, and without what is dead.

The dead have a mean of zero and no variance, so that the survivors train for the network that is kept. The survivors
keep their variances as they are: without a penalty the likelihood alone would take all noise away, and they would
overfit. One that shrinks below the threshold is dead as ever.
"""

import torch
from torch import nn

from vbdrop.objective import noisy_tensors

NO_VARIANCE = -80.0
"""The log variance of what has none: the noise is below the last digit of any weight, and its square a float32."""


@torch.no_grad()
def remove_dead_(model: nn.Module, threshold: float | None = None) -> None:
    """Set the means of what is dead to zero, and their variances to none; this marks them.

    Args:
        model: The model.
        threshold: The ``log_alpha`` from which on something is dead; None for each one's own.

    Example:
        >>> from vbdrop.convert import convert_
        >>> from vbdrop.layers import Weights
        >>> model = nn.Linear(2, 1)
        >>> _ = convert_(model, Weights())
        >>> _ = model.log_sigma2.data.copy_(torch.tensor([[9.0, -9.0]]))
        >>> remove_dead_(model)
        >>> (model.weight == 0).tolist(), model.log_sigma2.tolist()
        ([[True, False]], [[-80.0, -9.0]])
    """
    for _, entry in noisy_tensors(model):
        dead = entry.dead(threshold)
        entry.mean.masked_fill_(dead, 0.0)
        entry.rate.masked_fill_(dead, NO_VARIANCE)


@torch.no_grad()
def keep_dead_(model: nn.Module) -> None:
    """Set the means of what was marked as dead to zero again, whatever the optimizer did to them.

    Example:
        >>> from vbdrop.convert import convert_
        >>> from vbdrop.layers import Weights
        >>> model = nn.Linear(2, 1)
        >>> _ = convert_(model, Weights())
        >>> _ = model.log_sigma2.data.copy_(torch.tensor([[NO_VARIANCE, -9.0]]))
        >>> keep_dead_(model)
        >>> (model.weight == 0).tolist()
        [[True, False]]
    """
    for _, entry in noisy_tensors(model):
        entry.mean.masked_fill_(entry.rate == NO_VARIANCE, 0.0)


def freeze_variances_(model: nn.Module) -> None:
    """Let no optimizer change the variances: those of the survivors stay, and so do the marks of the dead.

    Example:
        >>> from vbdrop.convert import convert_
        >>> from vbdrop.layers import Units
        >>> model = nn.Linear(4, 2)
        >>> _ = convert_(model, Units())
        >>> freeze_variances_(model)
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        ['weight', 'bias', 'gate.weight']
    """
    for _, entry in noisy_tensors(model):
        entry.rate.requires_grad_(False)
