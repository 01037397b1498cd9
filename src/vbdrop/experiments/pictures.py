"""Small pictures of the remaining weights: a few kilobytes of JSON, whatever the size of the network.

A picture is ``{"rows", "columns", "values"}``; the values are bytes in base64, row by row: 0 to 255 for shares, and
-127 to 127 (two's complement) for weights, in units of ``scale``.
"""

import base64
from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from vbdrop.train import weight_layers

UNITS = 12
"""How many units of a first linear layer are shown: those with the largest weights."""

FILTERS = 40
"""How many filters of a first convolution are shown."""

MASK_PIXELS, MASK_SIDE = 12_000, 64
"""The total size of the masks of all layers, and the longest side of one."""


@torch.no_grad()
def first_layer(network: nn.Module, input_shape: Sequence[int]) -> dict[str, Any] | None:
    """Show what the first layer reads of an image.

    Args:
        network: A plain network.
        input_shape: The shape of one input: channels, rows, columns.

    Returns:
        For a linear layer, the share of each pixel in the weights (``reads``) and the largest units, laid out as images
        (``units``); for a convolution, its filters (``filters``). Input channels are summed. None if the first layer
        does not read an image.

    Example:
        >>> found = first_layer(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), (1, 4, 4))
        >>> found["reads"]["rows"], len(found["units"])
        (4, 3)
    """
    name, layer = next(weight_layers(network), (None, None))
    if layer is None or len(input_shape) != 3:
        return None
    weight = layer.weight
    if isinstance(layer, nn.Linear):
        if weight.shape[1] != prod(input_shape):
            return None
        images = weight.view(-1, *input_shape).sum(1)
        reads = weight.abs().sum(0).view(*input_shape).sum(0)
        return {
            "name": name,
            "outputs": len(images),
            "reads": _share_picture(reads / reads.amax().clamp(min=torch.finfo(reads.dtype).tiny)),
            "units": [_weight_picture(image) for image in _largest(images, UNITS)],
        }
    if weight.dim() != 4:
        return None
    filters = weight.sum(1)
    return {
        "name": name,
        "outputs": len(filters),
        "filters": [_weight_picture(image) for image in _largest(filters, FILTERS)],
    }


@torch.no_grad()
def masks(network: nn.Module) -> list[dict[str, Any]]:
    """Show where the non-zero weights of each layer are: outputs down, inputs across, reduced to blocks.

    Example:
        >>> layer = nn.Linear(200, 10)
        >>> [(mask["name"], mask["rows"], mask["columns"]) for mask in masks(nn.Sequential(layer))]
        [('0', 10, 64)]
    """
    layers = list(weight_layers(network))
    side = min(MASK_SIDE, isqrt(MASK_PIXELS // max(1, len(layers))))
    found = []
    for name, layer in layers:
        alive = (layer.weight != 0).flatten(1).float()
        size = (min(side, alive.shape[0]), min(side, alive.shape[1]))
        share = adaptive_avg_pool2d(alive[None], size)[0]
        found.append({"name": name, "outputs": alive.shape[0], "inputs": alive.shape[1], **_share_picture(share)})
    return found


def _largest(images: Tensor, count: int) -> Tensor:
    """The non-empty images with the largest norm, in their original order."""
    norms = images.flatten(1).norm(dim=1)
    chosen = norms.topk(min(count, len(norms))).indices.sort().values
    return images[chosen[norms[chosen] > 0]]


def _share_picture(share: Tensor) -> dict[str, Any]:
    """Shares between 0 and 1 as bytes; non-zero shares stay non-zero."""
    return _picture((255 * share).ceil().to(torch.uint8))


def _weight_picture(image: Tensor) -> dict[str, Any]:
    """Weights as signed bytes, and the weight of one step."""
    scale = image.abs().amax() / 127
    return {"scale": scale.item(), **_picture((image / scale).round().to(torch.int8))}


def _picture(values: Tensor) -> dict[str, Any]:
    rows, columns = values.shape
    text = base64.b64encode(values.cpu().contiguous().numpy().tobytes()).decode("ascii")
    return {"rows": rows, "columns": columns, "values": text}
