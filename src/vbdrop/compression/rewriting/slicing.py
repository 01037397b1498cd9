"""The arithmetic of a plan on single tensors: merge, keep, add."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vbdrop.compression.planning.plan import Cut, Merge


def cut(tensor: Tensor, axes: Cut) -> Tensor:
    """Keep these indices on these axes.

    Example:
        >>> cut(torch.arange(6).view(2, 3), {1: [0, 2]})
        tensor([[0, 2],
                [3, 5]])
    """
    for axis, kept in axes.items():
        tensor = tensor.index_select(axis, torch.tensor(kept, device=tensor.device))
    return tensor


def uncut(tensor: Tensor, axes: Cut, shape: Sequence[int]) -> Tensor:
    """Undo `cut`: the tensor in its former shape, with zeros where something was removed.

    Example:
        >>> uncut(torch.tensor([[1, 2], [3, 4]]), {1: [0, 2]}, [2, 3])
        tensor([[1, 0, 2],
                [3, 0, 4]])
    """
    for axis, kept in axes.items():
        sizes = [*tensor.shape[:axis], shape[axis], *tensor.shape[axis + 1 :]]
        index = torch.tensor(kept, device=tensor.device)
        tensor = tensor.new_zeros(sizes).index_copy_(axis, index, tensor)
    return tensor


def merged(weight: Tensor, merges: list[Merge]) -> Tensor:
    """Merge the weights of constant inputs into those of their carriers; the result is a copy in float64.

    Example:
        >>> merged(torch.tensor([[1.0, 10.0]]), [Merge(axis=1, into=0, source=[1], scale=[0.5], rows=(0, 1))])
        tensor([[ 6., 10.]], dtype=torch.float64)
    """
    result = weight.double().clone()
    for merge in merges:
        by_input = (result if merge.axis == 0 else result.transpose(0, 1))[:, slice(*merge.rows)]
        scale = torch.tensor(merge.scale, dtype=torch.float64, device=weight.device)
        by_input[merge.into] += torch.einsum("i,i...->...", scale, by_input[merge.source])
    return result
