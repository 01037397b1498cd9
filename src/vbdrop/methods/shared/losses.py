"""The parts of a loss that several methods share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop.layers import Variational
from vbdrop.objective import Warmup, evidence_loss
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import weight_layers


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


def negative_elbo(nll: Tensor, divergence: Tensor, n_train: int, kl_weight: float = 1.0) -> Tensor:
    """`vbdrop.objective.evidence_loss` for a penalty that is not the KL of converted layers.

    Args:
        nll: The mean negative log likelihood.
        divergence: A penalty for the whole training set: a sum.
        n_train: The number of training examples.
        kl_weight: The factor on the divergence.

    Example:
        >>> negative_elbo(torch.tensor(0.5), torch.tensor(300.0), n_train=1000, kl_weight=2.0).item()
        1.100000023841858
    """
    return nll + divergence * (kl_weight / n_train)


def squared_weights(model: nn.Module) -> Tensor:
    """The sum of the squared weights of linear and convolutional layers.

    Example:
        >>> layer = nn.Linear(3, 1)
        >>> _ = nn.init.ones_(layer.weight)
        >>> squared_weights(layer).item()
        3.0
    """
    return torch.stack([layer.weight.square().sum() for _, layer in weight_layers(model)]).sum()


def variational_loss(
    model: nn.Module, nll: Tensor, step: Step, *, weight: float, hold: float = 0.0, ramp: float = 0.0
) -> Tensor:
    """The negative log likelihood plus the KL of the converted layers over ``n_train``, warmed up in shares of the run.

    Args:
        model: A model converted by `vbdrop.convert_`.
        nll: The mean negative log likelihood of a batch.
        step: The position in the run.
        weight: The factor on the KL.
        hold: The share of the run for which the KL is held at 0.
        ramp: The share of the run over which it then rises to ``weight``.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=30)
        >>> variational_loss(model, torch.tensor(0.5), step, weight=1.0, hold=0.5).item()
        0.5
    """
    return evidence_loss(nll, model, n_train=step.n_train, kl_weight=weight * _share(step, hold, ramp))


def weighted_loss(
    model: nn.Module,
    nll: Tensor,
    step: Step,
    factor: Callable[[Variational], float],
    *,
    weight: float = 1.0,
    hold: float = 0.0,
    ramp: float = 0.0,
) -> Tensor:
    """`variational_loss` with a factor for each module.

    Args:
        model: A model converted by `vbdrop.convert_`.
        nll: The mean negative log likelihood of a batch.
        step: The position in the run.
        factor: Maps a module with noise to the factor on its KL.
        weight: A factor on the whole KL.
        hold: The share of the run for which the KL is held at 0.
        ramp: The share of the run over which it then rises.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
        >>> step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=30)
        >>> gates_only = weighted_loss(model, torch.tensor(0.0), step, lambda module: float(module is model.gate))
        >>> torch.isclose(gates_only, vbdrop.kl(model.gate) / 30).item()
        True
    """
    terms = [
        factor(module) * entry.kl()
        for module in model.modules()
        if isinstance(module, Variational)
        for entry in module.variational()
    ]
    return negative_elbo(nll, torch.stack(terms).sum(), step.n_train, weight * _share(step, hold, ramp))


def _share(step: Step, hold: float, ramp: float) -> float:
    """The active share of the penalty at this step."""
    return Warmup(hold * step.epochs, ramp * step.epochs)(step.epoch)
