r"""Concrete dropout (Gal, Hron and Kendall, NIPS 2017): Bernoulli dropout that learns one rate per layer.

The inputs of a layer are multiplied by :math:`(1 - d)/(1 - p)` with the relaxed mask

.. math:: d = S\big((\log p - \log(1-p) + \log u - \log(1-u))/t\big), \qquad u \sim U(0, 1),

drawn per example and value before a linear layer (t = 0.1), per example and channel before a convolution (t = 2/3).
The loss adds, for each layer with weights W, K input units and N training examples,

.. math:: \frac{l^2}{N}\frac{\lVert W\rVert^2}{1-p} + \frac{e}{N}\,K\,\big(p\log p + (1-p)\log(1-p)\big),

with :math:`l^2` = ``length_scale2`` and e = ``entropy_weight``; e = 1 is the paper's value for a classification.

Published: the authors' example, a small CNN on MNIST, 98.92 % with rates .012, .039, .478, .055. Liu et al.: Table 1,
3 x 100 units 2.39 %, 3 x 340 units 1.61 %; Table 2, scale 1, 43.47 %; Table 3, 18.95 %.

Deviations: the mean network is used at test time, not an average over masks, as for all methods of a table. The logit
of p is used as it is; the authors add 1e-7 inside the logarithms. Biases are not part of the norm, as in the authors'
Keras code. ``length_scale2`` is 1e-2, as in the authors' example.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.checks import check_not_negative, check_positive, check_share
from vbdrop.methods.shared.input_modules import gates_of, put_before_, take_out_
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo
from vbdrop.train.method import Batch, Family, Method, Step

EPS = 1e-7
"""The uniform numbers stay this far from 0 and 1."""


def concrete_mask(logit: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    r"""The relaxed drop mask :math:`d = S((\mathrm{logit}\,p + \mathrm{logit}\,u)/t)`, near 1 where a value is dropped.

    Example:
        >>> concrete_mask(torch.tensor(0.0), torch.tensor([0.5, 0.9]), temperature=0.1)  # p = 1/2
        tensor([0.5000, 1.0000])
    """
    return torch.sigmoid((logit + torch.logit(uniform, eps=EPS)) / temperature)


class ConcreteNoise(nn.Module):
    """Drops the inputs of a layer at a learned rate; `logit` is that of the drop probability.

    Args:
        units: The number of input units or channels, K.
        axis: Their axis, counted from the end; the mask is shared over the following axes.
        rate: The initial drop probability.
        temperature: The temperature t of the relaxation.

    Example:
        >>> round(ConcreteNoise(4, -1, rate=0.1, temperature=0.1).rate.item(), 4)
        0.1
    """

    def __init__(self, units: int, axis: int, *, rate: float, temperature: float) -> None:
        super().__init__()
        self.units = units
        self.axis = axis
        self.temperature = temperature
        self.logit = nn.Parameter(torch.logit(torch.tensor(rate)))

    @property
    def rate(self) -> Tensor:
        """The drop probability p."""
        return torch.sigmoid(self.logit)

    def negative_entropy(self) -> Tensor:
        """``K * (p log p + (1 - p) log(1 - p))``: never positive, least at p = 1/2."""
        kept = F.logsigmoid(-self.logit)
        return self.units * (self.rate * F.logsigmoid(self.logit) + kept.exp() * kept)

    def forward(self, x: Tensor) -> Tensor:
        """The values, some of them dropped."""
        if not self.training:
            return x
        leading = x.shape[: x.dim() + self.axis + 1]
        uniform = torch.rand(*leading, *[1] * (-self.axis - 1), dtype=x.dtype, device=x.device)
        drop = concrete_mask(self.logit, uniform, self.temperature)
        return x * (1 - drop) / (1 - self.rate)


@dataclass(frozen=True)
class ConcreteDropout(Method):
    """Bernoulli dropout with one learned rate per layer.

    Attributes:
        entropy_weight: The factor e on the entropy of the masks; larger values make the rates larger.
        length_scale2: The squared length scale of the prior on the weights.
        rate: The initial drop probability.
        temperature: The relaxation's temperature before a linear layer.
        spatial_temperature: The same, before a convolution.

    Example:
        >>> ConcreteDropout().build(nn.Linear(4, 2)).gate.temperature
        0.1
    """

    name: ClassVar[str] = "concrete-dropout"
    title: ClassVar[str] = "Concrete dropout"
    paper: ClassVar[str] = "Gal et al. 2017, NIPS"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "entropy_weight": (1.0, 3.0, 10.0, 30.0),
        "length_scale2": (1e-2, 1.0),
    }

    entropy_weight: float = 1.0
    length_scale2: float = 1e-2
    rate: float = 0.1
    temperature: float = 0.1
    spatial_temperature: float = 2 / 3

    def __post_init__(self) -> None:
        check_not_negative(self, "entropy_weight", "length_scale2")
        check_share(self, "rate")
        check_positive(self, "temperature", "spatial_temperature")

    def build(self, model: nn.Module) -> nn.Module:
        """Put a concrete mask before every layer."""

        def noise(layer: NoisyLayer, first: bool) -> nn.Module:
            temperature = self.temperature if isinstance(layer, nn.Linear) else self.spatial_temperature
            return ConcreteNoise(layer.n_inputs, layer.unit_axis, rate=self.rate, temperature=temperature)

        put_before_(model, noise)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the masks, and the two penalties of each layer."""
        loss = cross_entropy(model, batch)
        for layer, _, gate in gates_of(model):
            if isinstance(gate, ConcreteNoise):
                norm = layer.weight.square().sum() / (1 - gate.rate)
                penalty = self.length_scale2 * norm + self.entropy_weight * gate.negative_entropy()
                loss = negative_elbo(loss, penalty, step.n_train)
        return loss

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its masks, in place."""
        return take_out_(model, lambda gate: None)
