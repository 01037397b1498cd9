"""Fine-tuning of the weights, or units, that have survived: with their noise, and without what is dead.

The dead stay dead (`vbdrop.freeze_dead_`), so that the survivors train for the network that is kept. The survivors keep
their variances as they are: without a penalty the likelihood alone would take all noise away, and they would overfit.
One that shrinks below the threshold is dead as ever.
"""

from torch import nn

from vbdrop.objective import noisy_tensors


def freeze_variances_(model: nn.Module) -> None:
    """Let no optimizer change the variances.

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
