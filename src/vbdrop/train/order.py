"""The order in which a run sees its examples: a function of seed and epoch only."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from vbdrop.train.method import Batch


def batch_order(examples: int, seed: int, epoch: int) -> Tensor:
    """Return the examples' indices in the order of an epoch.

    However much noise a method draws, all methods see the same batches under the same seed.

    Example:
        >>> batch_order(5, seed=0, epoch=3)
        tensor([0, 4, 1, 2, 3])
    """
    # RandomState is the one generator whose stream NumPy promises never to change.
    return torch.from_numpy(np.random.RandomState([seed, epoch]).permutation(examples))


def batches(examples: Batch, size: int, seed: int, epoch: int) -> Iterator[Batch]:
    """Yield an epoch's batches; the last one may be smaller.

    Example:
        >>> data = Batch(torch.arange(10.0), torch.arange(10))
        >>> [len(batch.targets) for batch in batches(data, 4, seed=0, epoch=0)]
        [4, 4, 2]
    """
    for chosen in torch.split(batch_order(len(examples.targets), seed, epoch), size):
        yield Batch(examples.inputs[chosen], examples.targets[chosen])
