"""Pretraining of a converted network as the plain one: no noise, no masks; its variances start afterwards."""

import torch
from torch import nn

from vbdrop.layers import Gate, Variational
from vbdrop.layers.variational import NO_VARIANCE
from vbdrop.objective import noisy_tensors


@torch.no_grad()
def without_variances_(model: nn.Module) -> None:
    """Remove the variances of a freshly converted model, so that no weight can be dead.

    Example:
        >>> from vbdrop.convert import convert_, rates
        >>> from vbdrop.layers import Weights
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> _ = convert_(model, Weights())
        >>> without_variances_(model)
        >>> rates(model)["0"].p < 1e-20
        True
    """
    for _, entry in noisy_tensors(model):
        entry.rate.fill_(NO_VARIANCE)


def train_plainly_(model: nn.Module, plainly: bool) -> None:
    """Choose whether a model in training mode trains as the plain network, with gates at 1, or with its noise.

    Example:
        >>> from vbdrop.convert import convert_
        >>> from vbdrop.layers import Weights
        >>> model = nn.Linear(4, 2)
        >>> _ = convert_(model, Weights())
        >>> train_plainly_(model, True)
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        ['weight', 'bias']
    """
    for module in model.modules():
        if isinstance(module, Variational):
            module.training = not plainly
            for name, rate in module._parameters.items():
                if rate is not None and module.is_wide(name):
                    rate.requires_grad_(not plainly)


def start_variances_(model: nn.Module) -> None:
    """Initialise the variances and gates as if the network had been converted with its current weights.

    Example:
        >>> from vbdrop.convert import convert_
        >>> from vbdrop.layers import Weights
        >>> model = nn.Linear(4, 2)
        >>> _ = convert_(model, Weights(log_sigma2=-30.0))
        >>> without_variances_(model)
        >>> start_variances_(model)
        >>> model.log_sigma2.max().item()
        -30.0
    """
    variances = set()
    for path, module in model.named_modules():
        if isinstance(module, Gate):
            module.reset_parameters()
        elif isinstance(module, Variational):
            variances |= {f"{path}.{name}".lstrip(".") for name in module._parameters if module.is_wide(name)}
    # a layer initialises variances that are not in a state dict
    model.load_state_dict({name: value for name, value in model.state_dict().items() if name not in variances})
