"""The parts of a loss that several methods share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop.layers import Variational
from vbdrop.objective import ELBO, Warmup
from vbdrop.train.method import Batch, Step


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """The mean cross-entropy of a batch of classes.

    Example:
        >>> import torch
        >>> batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
        >>> model = nn.Linear(4, 2, bias=False)
        >>> round(cross_entropy(model, batch).item(), 4)  # log 2
        0.6931
    """
    return F.cross_entropy(model(batch.inputs), batch.targets)


def variational_loss(
    model: nn.Module, batch: Batch, step: Step, *, weight: float, hold: float = 0.0, ramp: float = 0.0
) -> Tensor:
    """The cross-entropy plus the KL of the converted layers over ``n_train``, with a warm-up in shares of the run.

    Args:
        model: A model converted by `vbdrop.convert_`.
        batch: The examples.
        step: Where the run is.
        weight: The factor on the KL.
        hold: The share of the run for which the KL is held at 0.
        ramp: The share of the run over which it then rises to ``weight``.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
        >>> step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=30)
        >>> variational_loss(model, batch, step, weight=1.0, hold=0.5).item() < 10
        True
    """
    elbo = ELBO(
        model,
        n_train=step.n_train,
        kl_weight=weight,
        warmup=Warmup(hold * step.epochs, ramp * step.epochs),
        check_every=0,
    )
    elbo.epoch = step.epoch
    return elbo(cross_entropy(model, batch))


def weighted_penalty(
    model: nn.Module,
    step: Step,
    factor: Callable[[Variational], float],
    *,
    weight: float = 1.0,
    hold: float = 0.0,
    ramp: float = 0.0,
) -> Tensor:
    """The KL over ``n_train`` with a factor for each module, to be added to the cross-entropy.

    Args:
        model: A model converted by `vbdrop.convert_`.
        step: Where the run is.
        factor: From a module with noise to the factor on its KL.
        weight: The factor on all of them.
        hold: The share of the run for which the KL is held at 0.
        ramp: The share of the run over which it then rises.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
        >>> step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=30)
        >>> gates_only = weighted_penalty(model, step, lambda module: float(module is model.gate))
        >>> torch.isclose(gates_only, vbdrop.kl(model.gate) / 30).item()
        True
    """
    terms = [
        factor(module) * entry.kl()
        for module in model.modules()
        if isinstance(module, Variational)
        for entry in module.variational()
    ]
    share = Warmup(hold * step.epochs, ramp * step.epochs)(step.epoch)
    return torch.stack(terms).sum() * (weight * share / step.n_train)
