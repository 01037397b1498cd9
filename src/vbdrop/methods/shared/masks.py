"""Binary masks on weights, as buffers of plain layers: a masked weight is an exact zero after every step.

The layers keep their class, and their ``weight`` is always the weight that the forward uses. A dead weight is reset
after each step, so that the optimizer has no effect on it. The mask is part of the model's ``state_dict``.
"""

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd
from vbdrop.train.sparsity import weight_layers

MASK = "mask"
"""The buffer's name: a boolean tensor of the weight's shape, True where the weight is kept."""


def add_buffers_(model: nn.Module, **buffers: Tensor | None) -> list[nn.Linear | ConvNd]:
    """Give every linear and convolutional layer a buffer of each name.

    Args:
        model: A plain model.
        **buffers: Name -> the buffer's initial value, cloned for each layer; None for a copy of the weight.

    Returns:
        The layers.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> _ = add_buffers_(model, threshold=torch.zeros(()))
        >>> list(model.state_dict())
        ['0.weight', '0.bias', '0.threshold']
    """
    layers = [layer for _, layer in weight_layers(model)]
    for layer in layers:
        for name, value in buffers.items():
            layer.register_buffer(name, (layer.weight if value is None else value).detach().clone())
    return layers


def add_masks_(model: nn.Module) -> None:
    """Give every linear and convolutional layer a mask that keeps all of its weights.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> add_masks_(model)
        >>> bool(mask_of(model).all())
        True
    """
    for _, layer in weight_layers(model):
        layer.register_buffer(MASK, torch.ones_like(layer.weight, dtype=torch.bool))


def mask_of(layer: nn.Module) -> Tensor:
    """The mask of a layer, to be changed in place.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> add_masks_(layer)
        >>> mask_of(layer).shape
        torch.Size([2, 4])
    """
    return layer.get_buffer(MASK)


@torch.no_grad()
def apply_masks_(model: nn.Module) -> None:
    """Set every masked weight to exactly zero.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> add_masks_(layer)
        >>> _ = mask_of(layer).fill_(False)
        >>> apply_masks_(layer)
        >>> int(torch.count_nonzero(layer.weight))
        0
    """
    for _, layer in weight_layers(model):
        layer.weight.masked_fill_(~mask_of(layer), 0.0)


def keep_largest(scores: Tensor, count: int) -> Tensor:
    """A mask of the ``count`` entries with the largest scores; exactly this many, even if scores are equal.

    Example:
        >>> keep_largest(torch.tensor([0.1, 0.3, 0.2]), 2)
        tensor([False,  True,  True])
    """
    mask = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
    mask[scores.flatten().topk(count).indices] = True
    return mask.view(scores.shape)


def remove_buffers_(model: nn.Module, *names: str) -> nn.Module:
    """Remove these buffers from every linear and convolutional layer.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> add_masks_(layer)
        >>> list(remove_buffers_(layer, MASK).state_dict())
        ['weight', 'bias']
    """
    for _, layer in weight_layers(model):
        for name in names:
            delattr(layer, name)
    return model
