"""Fine-tuning of the surviving weights or units: with their noise, and without the dead ones.

The dead stay dead (`vbdrop.freeze_dead_`), so that the survivors train for the final network. The variances of the
survivors are fixed: without a penalty the likelihood would remove all noise, and they would overfit. A survivor whose
mean becomes too small dies as usual.
"""

from torch import nn

from vbdrop.objective import noisy_tensors


def freeze_variances_(model: nn.Module) -> None:
    """Keep optimizers from changing the variances.

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
