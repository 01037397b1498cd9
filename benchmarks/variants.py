"""Ways to make a network Bayesian: those of vbdrop and of five other packages, each used as its manual says.

A package that samples *activations* draws separate noise for every example. One that samples *weights* draws noise once
per batch: it saves a product, but its gradient has more variance. The other packages also have different priors; the
benchmarks compare the cost of a step, not what it learns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

import vbdrop

N_TRAIN = 60_000

Objective = Callable[[Tensor], Tensor]
"""Maps the negative log-likelihood of a batch to the loss."""


@dataclass(frozen=True)
class Variant:
    """A way to make a network Bayesian.

    Attributes:
        samples: What gets the noise: activations (per example), units, weights (per batch), or nothing.
        requirement: The package and its version, for pip; "" for vbdrop.
        make: Changes a plain network in place and returns its objective.
    """

    samples: Literal["nothing", "activations", "units", "weights"]
    requirement: str
    make: Callable[[nn.Module], Objective]


def with_kl(kl: Callable[[], Tensor]) -> Objective:
    """The objective of a package that gives the KL as a sum."""
    return lambda nll: nll + kl() / N_TRAIN


def replace_layers_(model: nn.Module, linear: Callable[..., nn.Module], conv: Callable[..., nn.Module]) -> None:
    """Replace the linear layers and convolutions of a model.

    Args:
        model: The model.
        linear: Takes the numbers of inputs and outputs.
        conv: Takes the numbers of channels and the size of the kernel, and ``padding``.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, linear(child.in_features, child.out_features))
            elif isinstance(child, nn.Conv2d):
                new = conv(child.in_channels, child.out_channels, child.kernel_size, padding=child.padding)
                setattr(parent, name, new)


def _vbdrop(mode: Any) -> Callable[[nn.Module], Objective]:  # noqa: ANN401 -- one of three modes
    def make(model: nn.Module) -> Objective:
        vbdrop.convert_(model, mode)
        return vbdrop.ELBO(model, n_train=N_TRAIN)

    return make


def _bayesian_torch(model: nn.Module) -> Objective:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    prior = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0}
    dnn_to_bnn(model, {**prior, "type": "Reparameterization", "moped_enable": False, "moped_delta": 0.5})
    return with_kl(lambda: get_kl_loss(model))


def _blitz(model: nn.Module) -> Objective:
    from blitz.losses import kl_divergence_from_nn
    from blitz.modules import BayesianConv2d, BayesianLinear

    replace_layers_(model, BayesianLinear, BayesianConv2d)
    return with_kl(lambda: kl_divergence_from_nn(model))


def _torchbnn(model: nn.Module) -> Objective:
    import torchbnn

    replace_layers_(
        model,
        lambda *sizes: torchbnn.BayesLinear(0, 0.1, *sizes),
        lambda *sizes, padding: torchbnn.BayesConv2d(0, 0.1, *sizes, padding=padding),
    )
    kl = torchbnn.BKLLoss(reduction="sum")
    return with_kl(lambda: kl(model))


def _cplxmodule(model: nn.Module) -> Objective:
    from cplxmodule.nn.relevance import penalties
    from cplxmodule.nn.relevance.real import Conv2dARD, LinearARD

    replace_layers_(model, LinearARD, Conv2dARD)
    return with_kl(lambda: sum(penalties(model)))


def _pytorch_ard(model: nn.Module) -> Objective:
    from torch_ard import Conv2dARD, LinearARD, get_ard_reg

    replace_layers_(model, LinearARD, Conv2dARD)
    return with_kl(lambda: get_ard_reg(model))


VARIANTS: dict[str, Variant] = {
    "plain": Variant("nothing", "", lambda model: lambda nll: nll),
    "vbdrop Weights": Variant("activations", "", _vbdrop(vbdrop.Weights())),
    "vbdrop Units": Variant("units", "", _vbdrop(vbdrop.Units())),
    "vbdrop Rates": Variant("activations", "", _vbdrop(vbdrop.Rates(per="unit"))),
    "cplxmodule": Variant("activations", "cplxmodule==2022.6", _cplxmodule),
    "pytorch-ard": Variant("activations", "pytorch-ard==0.2.4", _pytorch_ard),
    "bayesian-torch": Variant("weights", "bayesian-torch==0.5.0", _bayesian_torch),
    "blitz": Variant("weights", "blitz-bayesian-pytorch==0.2.8", _blitz),
    "torchbnn": Variant("weights", "torchbnn==1.2", _torchbnn),
}

OWN = [name for name, variant in VARIANTS.items() if not variant.requirement]
"""Plain and vbdrop's own variants, which need no other package."""
