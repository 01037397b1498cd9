r"""Soft weight-sharing (Ullrich, Meeds and Welling, ICLR 2017): weights drawn to a few shared values, one of them zero.

A trained network is trained further with the loss

.. math:: L = CE + \frac{\tau}{N}\Big(L^C + \sum_j\big((1-a_j)\log\lambda_j + b_j\lambda_j\big)\Big), \qquad
    L^C = -\sum_i\log\sum_j\pi_j N(w_i|\mu_j, \lambda_j^{-1}),

over weights and mixture together; CE is the mean over the examples, N their number. Component 0 stays at :math:`\mu_0
= 0` with share :math:`\pi_0`; the last term is the Gamma hyper-priors on the precisions. At the end, components that
have become equal are merged, and each weight is set to the mean of its most likely component; for component 0 that is
zero.

Published: LeNet-300-100, 1.89 -> 1.94 %, 4.3 % of the weights not zero (23 times fewer; 64 times in bits); LeNet-5,
0.88 -> 0.97 %, 0.5 % (200 times). A reproduction by others with the same number of epochs: 6.98 % at 1.93 %, and 5.33
% at 0.60 % for LeNet-5; the 0.5 % was not reproduced.

Deviations: the pretraining is the first share of the same run. The shares of the other components start equal and are
learned; the hyper-priors on the precisions are those of the authors' tutorial. The 13 hyper-parameters, which the
authors searched for each network, have one setting, with tau as the knob. Biases are neither shared nor quantised.
Learning rates are factors on the protocol's: 1 for the weights, 0.1 for the means, 3 for precisions and shares (the
tutorial's 5e-4, 1e-4, 3e-3, 3e-3, for a network trained at 1e-3). In eval mode the network is the merged and quantised
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vbdrop.methods.shared.checks import check_count, check_positive, check_share
from vbdrop.methods.shared.gaussian_mixture import Components, merged, mixture_nll, quantised
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo
from vbdrop.methods.shared.run_parts import started, starts_next
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.sparsity import weight_layers

MERGE_BELOW = 1e-10
"""Components with a smaller divergence are merged."""

ZERO_PRIOR, OTHER_PRIOR = (5e3, 2.0), (2.5e2, 0.1)
"""Shape a and rate b of the Gamma hyper-priors on the precisions: for component 0, and for the others."""

START_DEVIATION = 0.25
"""The initial standard deviation of every component."""


class SharedWeights(nn.Module):
    """A network and the mixture of its weights; in eval mode, the network with its weights quantised.

    Args:
        network: The network.
        components: The number of components besides the one at zero.
        zero_share: The fixed share of the component at zero.

    Example:
        >>> shared = SharedWeights(nn.Linear(4, 2), components=4, zero_share=0.99)
        >>> shared.components().means.shape
        torch.Size([5])
    """

    active: Tensor
    log_zero: Tensor
    log_rest: Tensor
    shapes: Tensor
    rates: Tensor

    def __init__(self, network: nn.Module, components: int, zero_share: float) -> None:
        super().__init__()
        self.network = network
        self.means = nn.Parameter(torch.zeros(components))
        self.log_precisions = nn.Parameter(torch.full((components + 1,), START_DEVIATION).log().mul(-2))
        self.share_logits = nn.Parameter(torch.zeros(components))
        self.register_buffer("active", torch.tensor(False))
        constants = {
            "log_zero": torch.tensor([zero_share]).log(),
            "log_rest": torch.tensor(1 - zero_share).log(),
            "shapes": torch.tensor([ZERO_PRIOR[0], *[OTHER_PRIOR[0]] * components]),
            "rates": torch.tensor([ZERO_PRIOR[1], *[OTHER_PRIOR[1]] * components]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def components(self) -> Components:
        """The current mixture, component 0 first."""
        log_shares = torch.cat([self.log_zero, self.log_rest + self.share_logits.log_softmax(0)])
        means = torch.cat([torch.zeros_like(self.means[:1]), self.means])
        return Components(log_shares, means, self.log_precisions.exp())

    def complexity(self) -> Tensor:
        """The negative log likelihood of all weights under the mixture, and that of the precisions."""
        weights = torch.cat([layer.weight.flatten() for _, layer in weight_layers(self.network)])
        hyper = (1 - self.shapes) * self.log_precisions + self.rates * self.log_precisions.exp()
        return mixture_nll(weights, self.components()) + hyper.sum()

    @torch.no_grad()
    def start_(self) -> None:
        """Spread the means over the range of the trained weights, and activate the mixture."""
        weights = [layer.weight for _, layer in weight_layers(self.network)]
        low, high = min(w.min().item() for w in weights), max(w.max().item() for w in weights)
        self.means.copy_(torch.linspace(low, high, len(self.means)))
        self.active.fill_(True)

    @torch.no_grad()
    def final_weights(self) -> dict[str, Tensor]:
        """The quantised weights of each layer, by the names of the network's parameters."""
        if not self.active:
            return {}
        components = merged(self.components(), MERGE_BELOW)
        return {
            f"{name}.weight" if name else "weight": quantised(layer.weight.flatten(), components).view_as(layer.weight)
            for name, layer in weight_layers(self.network)
        }

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        output: Tensor = self.network(x) if self.training else functional_call(self.network, self.final_weights(), x)
        return output


@dataclass(frozen=True)
class SoftWeightSharing(Method):
    """Fit a mixture of Gaussians to the weights while they learn, then quantise.

    Attributes:
        tau: The factor on the mixture's negative log likelihood, a sum over the weights.
        components: The number of components besides the one at zero.
        zero_share: The fixed share of the component at zero.
        pretrain: The share of the run before the mixture.

    Example:
        >>> type(SoftWeightSharing().build(nn.Linear(4, 2)).network)
        <class 'torch.nn.modules.linear.Linear'>
    """

    name: ClassVar[str] = "soft-weight-sharing"
    title: ClassVar[str] = "SWS"
    paper: ClassVar[str] = "Ullrich et al. 2017, ICLR"
    family: ClassVar[Family] = "weights"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"tau": (0.003, 0.01, 0.03, 0.05, 0.07, 0.1)}

    tau: float = 0.03
    components: int = 16
    zero_share: float = 0.999
    pretrain: float = 0.3

    def __post_init__(self) -> None:
        check_positive(self, "tau")
        check_count(self, "components")
        check_share(self, "zero_share", "pretrain")

    def build(self, model: nn.Module) -> nn.Module:
        """Wrap the network with its mixture."""
        return SharedWeights(model, self.components, self.zero_share)

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the mixture into separate groups, with their own learning rates."""
        shared = _shared(model)
        return [
            {"params": list(shared.network.parameters()), "lr": lr},
            {"params": [shared.means], "lr": 0.1 * lr},
            {"params": [shared.log_precisions, shared.share_logits], "lr": 3 * lr},
        ]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and, after the pretraining, the mixture's term."""
        loss = cross_entropy(model, batch)
        if started(self.pretrain, step):
            loss = negative_elbo(loss, _shared(model).complexity(), step.n_train, self.tau)
        return loss

    def after_step(self, model: nn.Module, step: Step) -> None:
        """Start the mixture when the pretraining ends."""
        if starts_next(self.pretrain, step):
            _shared(model).start_()

    @torch.no_grad()
    def finish(self, model: nn.Module) -> nn.Module:
        """The network itself, with quantised weights."""
        shared = _shared(model)
        for name, value in shared.final_weights().items():
            shared.network.get_parameter(name).copy_(value)
        return shared.network


def _shared(model: nn.Module) -> SharedWeights:
    if not isinstance(model, SharedWeights):
        raise TypeError(f"`model` must come from SoftWeightSharing.build; got {type(model).__name__}.")
    return model
