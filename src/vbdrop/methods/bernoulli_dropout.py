r"""Bernoulli dropout (Hinton et al. 2012; Srivastava et al., JMLR 2014).

The inputs of each layer are multiplied by :math:`r / (1 - p)` with :math:`r \sim \mathrm{Bernoulli}(1 - p)`, drawn for
each example and value (Eq. 2 of Liu et al. 2019). Nothing has to be rescaled at test time (inverted dropout). The rate
p is ``input_rate`` for the network's inputs and ``rate`` for every other layer.

Published: Srivastava, MNIST, 3 x 1024 ReLU units, 1.25 % (1.06 % with a max-norm constraint; no dropout 1.60 %). Liu
et al.: Table 1, 3 x 340, 1.68 %; Table 2, scale 1, 45.55 %; Table 3, 20.31 %.

Deviations: no max-norm constraint and no momentum schedule (the protocol's Adam); p = 0.2 at the inputs and 0.5
elsewhere, as in the original; Liu et al. state 0.5 for all layers on SVHN, and nothing for the rest. A convolution's
inputs are dropped value by value, as in the original, not channel by channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from vbdrop.methods.shared.checks import check_share
from vbdrop.methods.shared.input_modules import put_before_, take_out_
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.train.method import Batch, Family, Method, Step


@dataclass(frozen=True)
class BernoulliDropout(Method):
    """Fixed-rate dropout on the inputs of each layer.

    Attributes:
        rate: The dropout rate of the inputs of every layer but the first.
        input_rate: The dropout rate of the network's inputs.

    Example:
        >>> model = BernoulliDropout(rate=0.3).build(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        >>> model[0].gate, model[2].gate
        (Dropout(p=0.2, inplace=False), Dropout(p=0.3, inplace=False))
    """

    name: ClassVar[str] = "bernoulli-dropout"
    title: ClassVar[str] = "Dropout, Bernoulli"
    paper: ClassVar[str] = "Srivastava et al. 2014, JMLR"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": (0.1, 0.2, 0.3, 0.5), "input_rate": (0.0, 0.2)}

    rate: float = 0.5
    input_rate: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, "rate", "input_rate", zero=True)

    def build(self, model: nn.Module) -> nn.Module:
        """Put `torch.nn.Dropout` before every layer."""
        put_before_(model, lambda layer, first: nn.Dropout(self.input_rate if first else self.rate))
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The mean cross-entropy under one draw of the masks."""
        return cross_entropy(model, batch)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its dropout, in place."""
        return take_out_(model, lambda gate: None)
