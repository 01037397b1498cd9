"""No dropout: the network as it is, trained by maximum likelihood. Also the original network of the pruning tables.

Published (Liu et al. 2019): Table 1, MNIST, 3 x 340 units, 1.77 %; Table 2, CIFAR-10, scale 1, 48.34 %; Table 3,
SVHN, 22.01 %; Table 4, LeNet-300-100, 1.64 %, and LeNet-5, 0.8 %; Table 5, LeNet-500-300, 1.54 %.

Deviations: none; there is nothing to choose, so there is no knob.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.train.method import Batch, Family, Method, Step


@dataclass(frozen=True)
class Plain(Method):
    """Cross-entropy, nothing else.

    Example:
        >>> import torch
        >>> batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
        >>> step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=30)
        >>> method = Plain()
        >>> round(method.loss(method.build(nn.Linear(4, 2, bias=False)), batch, step).item(), 4)
        0.6931
    """

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "No dropout"
    paper: ClassVar[str] = "the baseline of Liu et al. 2019, CVPR"
    family: ClassVar[Family] = "regulariser"

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The mean cross-entropy."""
        return cross_entropy(model, batch)
