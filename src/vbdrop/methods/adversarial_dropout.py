r"""Adversarial dropout (Park et al., AAAI 2018): the network must also be right under the worst nearby mask.

With h the H features that enter the last layer and :math:`f(\epsilon)` the logits from :math:`h \circ \epsilon`,

.. math:: L = CE(y, f(\epsilon^s)) + \lambda(t)\, D(\text{target}, f(\epsilon^{adv})), \qquad
    \lVert\epsilon^{adv} - \epsilon^0\rVert^2 \le \delta H,

where :math:`\epsilon^s, \epsilon^0` are sampled Bernoulli masks. **SAdD**: the target is the label, D the
cross-entropy and :math:`\epsilon^0 = \epsilon^s`. **VAdD**: the target is the distribution :math:`f(\epsilon^s)`, D
the KL divergence. The adversarial mask maximises D to first order: of the flips that increase it, according to
:math:`J = h \circ \partial D/\partial(h\circ\epsilon)`, the ``int(delta * H)`` with the largest ``abs(J)`` are made,
and the mask is rescaled by H over its sum. :math:`\lambda(t)` rises as :math:`e^{-5(1-t/T)^2}` over the first share T
of the run.

Published: Liu et al.: Table 2, CIFAR-10, scale 1, 45.50 %; Table 3, SVHN, 18.66 %; the settings are not stated. Park et
al.'s own figures are for a much larger network.

Deviations: the released code starts from a mask of ones and relies on other noise in the network, without which the
gradient of VAdD is exactly zero there; here :math:`\epsilon^0` is therefore a second sampled mask (the released call of
SAdD returns None and does not run). The layers before the last have ordinary Bernoulli dropout, drawn once for both
terms. The target of VAdD carries no gradient. The protocol's Adam and schedule replace the paper's. T is 80 of 300
epochs in the paper, by which time its network has long learned its data; a run of a few epochs is then still near
chance, so here T is 0.8: the second term reaches a tenth of its strength after a quarter of the run, and half of it
after half of the run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.checks import check_choice, check_not_negative, check_share
from vbdrop.methods.shared.input_modules import put_before_, take_out_
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.sparsity import weight_layers


def adversarial_mask(base: Tensor, slope: Tensor, flips: int) -> Tensor:
    """Flip the entries of a mask that increase a divergence the most, to first order.

    Args:
        base: The mask to start from, of zeros and ones, one row per example.
        slope: The derivative J of the divergence with respect to each entry.
        flips: The largest number of flips per row. Entries with equal slopes at the limit are not flipped.

    Returns:
        The new mask.

    Example:
        >>> base = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
        >>> slope = torch.tensor([[-3.0, 5.0, 2.0, -9.0]])  # only the first and the third flip increase it
        >>> adversarial_mask(base, slope, flips=1)
        tensor([[0., 1., 0., 0.]])
    """
    gain = torch.where(base == 0, slope, -slope).clamp_min(0.0)
    width = gain.shape[1]
    limit = gain.topk(flips + 1, dim=1).values[:, -1:] if flips < width else torch.zeros_like(gain[:, :1])
    return torch.where(gain > limit, 1 - base, base)


def rescaled(mask: Tensor) -> Tensor:
    """The mask times H over its sum, so that each row's mean is 1.

    Example:
        >>> rescaled(torch.tensor([[1.0, 0.0]]))
        tensor([[2., 0.]])
    """
    return mask * (mask.shape[1] / mask.sum(1, keepdim=True).clamp_min(1.0))


@contextmanager
def _seen_by(head: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A list that collects the inputs and outputs of the module at every call inside the context."""
    seen: list[tuple[Tensor, Tensor]] = []
    handle = head.register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    try:
        yield seen
    finally:
        handle.remove()


@dataclass(frozen=True)
class AdversarialDropout(Method):
    """Dropout, and a second term under an adversarial mask before the last layer.

    The network's last layer must be linear and give the network's output.

    Attributes:
        mode: ``"sadd"`` (supervised) or ``"vadd"`` (virtual).
        delta: The share of the last hidden units whose mask may be flipped.
        weight: The largest lambda.
        ramp: The share of the run over which lambda rises.
        rate: The dropout rate of the inputs of every layer but the first.
        input_rate: The dropout rate of the network's inputs.

    Example:
        >>> model = AdversarialDropout().build(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        >>> [type(layer).__name__ for layer in model]  # the last layer is masked in the loss
        ['Linear', 'ReLU', 'Linear']
    """

    name: ClassVar[str] = "adversarial-dropout"
    title: ClassVar[str] = "Adversarial dropout"
    paper: ClassVar[str] = "Park et al. 2018, AAAI"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": (0.1, 0.2, 0.3, 0.5), "input_rate": (0.0, 0.2)}

    mode: Literal["sadd", "vadd"] = "vadd"
    delta: float = 0.05
    weight: float = 1.0
    ramp: float = 0.8
    rate: float = 0.5
    input_rate: float = 0.2

    def __post_init__(self) -> None:
        check_choice(self, "mode", ("sadd", "vadd"))
        check_not_negative(self, "weight")
        check_share(self, "delta", "ramp", "rate", "input_rate", zero=True)

    def build(self, model: nn.Module) -> nn.Module:
        """Put Bernoulli dropout before every layer but the last."""
        last = _head(model)

        def noise(layer: NoisyLayer, first: bool) -> nn.Module | None:
            return None if layer is last else nn.Dropout(self.input_rate if first else self.rate)

        put_before_(model, noise)
        return model

    def strength(self, step: Step) -> float:
        """Lambda at this step."""
        done = min(1.0, step.progress / self.ramp) if self.ramp else 1.0
        return self.weight * exp(-5 * (1 - done) ** 2)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under a sampled mask, and the divergence under the adversarial one."""
        head = _head(model)
        with _seen_by(head) as seen:
            output = model(batch.inputs)
        if not seen or seen[-1][1] is not output:
            raise ValueError("`model` must return the output of its last linear layer for adversarial dropout.")
        features = seen[-1][0]
        sampled = self._sample(features)
        logits = head(features * sampled / (1 - self.rate))
        base = sampled if self.mode == "sadd" else self._sample(features)
        mask = self.attack(head, features.detach(), base, batch.targets, logits.detach())
        divergence = self.divergence(head(features * rescaled(mask)), batch.targets, logits.detach())
        return F.cross_entropy(logits, batch.targets) + self.strength(step) * divergence.mean()

    def _sample(self, features: Tensor) -> Tensor:
        return torch.bernoulli(torch.full_like(features, 1 - self.rate))

    def attack(self, head: nn.Module, features: Tensor, base: Tensor, targets: Tensor, logits: Tensor) -> Tensor:
        """The adversarial mask that starts from ``base``, without a gradient."""
        with torch.enable_grad():
            masked = (features * rescaled(base)).requires_grad_()
            total = self.divergence(head(masked), targets, logits).sum()
            (slope,) = torch.autograd.grad(total, masked)
        return adversarial_mask(base, features * slope, int(self.delta * features.shape[1]))

    def divergence(self, adversarial: Tensor, targets: Tensor, logits: Tensor) -> Tensor:
        """D per example: from the label (SAdD), or from the distribution under the sampled mask (VAdD)."""
        if self.mode == "sadd":
            return F.cross_entropy(adversarial, targets, reduction="none")
        expected = logits.log_softmax(1)
        return F.kl_div(adversarial.log_softmax(1), expected, reduction="none", log_target=True).sum(1)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its dropout, in place."""
        return take_out_(model, lambda gate: None)


def _head(model: nn.Module) -> nn.Module:
    """The last layer."""
    _, last = list(weight_layers(model))[-1]
    if not isinstance(last, nn.Linear):
        raise ValueError(f"`model` must end with a linear layer for adversarial dropout; got {type(last).__name__}.")
    return last
