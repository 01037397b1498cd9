"""The names of the tensors and modules that belong to a weight in a converted layer: log variances, gates, masks."""

from torch import nn

from vbdrop._torch_compat import flat_weight_names


def companion(weight: str, kind: str) -> str:
    """The name of a companion of a weight: the weight's name with ``kind`` in place of its leading ``weight``.

    Args:
        weight: The weight's name in its module, or its dotted name in a model.
        kind: What it is: ``"log_sigma2"``, ``"log_alpha"``, ``"gate"`` or ``"removed"``.

    Example:
        >>> companion("weight", "log_sigma2"), companion("encoder.weight_ih_l0", "gate")
        ('log_sigma2', 'encoder.gate_ih_l0')
    """
    path, dot, name = weight.rpartition(".")
    return f"{path}{dot}{kind}{name.removeprefix('weight')}"


def weight_names(module: nn.Module) -> tuple[str, ...]:
    """The names of the weights that a conversion makes noisy: ``weight``, or every matrix of a recurrent layer.

    Example:
        >>> weight_names(nn.GRU(3, 2))
        ('weight_ih_l0', 'weight_hh_l0')
    """
    if not isinstance(module, nn.RNNBase):
        return ("weight",)
    return tuple(name for name in flat_weight_names(module) if name.startswith("weight"))
