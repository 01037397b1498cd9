"""Leaves out repeated blocks: what works for one of them works for the others."""

from torch import nn

STAGES = ("Sequential", "RegStage")
"""The classes of containers that call their blocks one after the other."""


def shorten_(model: nn.Module) -> nn.Module:
    """Leave out blocks that are equal to the one before, in place; if a container begins with equal blocks, keep two.

    Blocks are equal if they have the same class and their tensors have the same shapes. The output of such a block is a
    valid input of the next one, so that the model works without the second.

    Args:
        model: A model with random weights.

    Returns:
        The same model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
        >>> [layer.in_features for layer in shorten_(model)]
        [2, 4, 4]
    """
    for container in [module for module in model.modules() if type(module).__name__ in STAGES]:
        before, number = None, 0
        for place, (name, block) in enumerate(list(container.named_children())):
            kind = type(block), [tuple(tensor.shape) for tensor in block.state_dict().values()]
            number = number + 1 if kind == before else 1
            before = kind
            if kind[1] and number > (2 if number == place + 1 else 1):
                del container._modules[name]
    return model
