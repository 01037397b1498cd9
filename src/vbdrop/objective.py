"""The objective: the evidence lower bound, its KL term, and how that term comes in over time."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vbdrop.layers import Noisy, Variational


def noisy_tensors(model: nn.Module) -> Iterator[tuple[str, Noisy]]:
    """Every tensor of noisy weights in the model, with its module's name; a shared module comes once."""
    for name, module in model.named_modules():
        if isinstance(module, Variational):
            for entry in module.variational():
                yield name, entry


def kl(model: nn.Module) -> Tensor:
    """The KL divergence of the model's weights from their priors: the sum over all of them.

    The gradient of the KL reaches the parameters only through this tensor.

    Args:
        model: A model with at least one layer converted by `vbdrop.convert_`.

    Returns:
        One number, in float32 or float64.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> vbdrop.kl(model).item() > 0
        True
    """
    terms = [entry.kl() for _, entry in noisy_tensors(model)]
    if not terms:
        raise ValueError("`model` has no converted layer, so it has no KL; call vbdrop.convert_(model, ...) first.")
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()


@dataclass(frozen=True)
class Warmup:
    """How the weight of the KL rises from 0 to 1, in epochs: first held at 0, then a ramp.

    Attributes:
        hold: Epochs at 0.
        ramp: Epochs from 0 to 1 after that.
        shape: ``"linear"``, or ``"cosine"`` for a smooth start and end.

    Example:
        >>> Warmup(hold=5, ramp=10)(10)
        0.5
    """

    hold: float = 0.0
    ramp: float = 0.0
    shape: Literal["linear", "cosine"] = "linear"

    def __post_init__(self) -> None:
        for name in ("hold", "ramp"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise ValueError(f"`{name}` of Warmup must be a number of epochs, at least 0; got {value!r}.")
        if self.shape not in ("linear", "cosine"):
            raise ValueError(f"`shape` of Warmup must be 'linear' or 'cosine'; got {self.shape!r}.")

    def __call__(self, epoch: float) -> float:
        """The weight in this epoch, between 0 and 1; fractions of an epoch count."""
        if epoch < self.hold:
            return 0.0
        if epoch >= self.hold + self.ramp:
            return 1.0
        share = (epoch - self.hold) / self.ramp
        return share if self.shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * share)


@dataclass(frozen=True)
class Terms:
    """The parts of one loss, detached, for logging.

    Attributes:
        nll: The mean negative log likelihood an example.
        kl: The KL, a sum over weights.
        weight: What the KL was multiplied with, besides 1 / n_train.
        loss: Their combination, ``nll + weight * kl / n_train``.
    """

    nll: Tensor
    kl: Tensor
    weight: float
    loss: Tensor


class ELBO:
    """The negative evidence lower bound an example, ``nll + weight * kl(model) / n_train``.

    Args:
        model: A model converted by `vbdrop.convert_`.
        n_train: The number of training examples, over which the KL is spread.
        weight: A factor on the KL: 1 is the bound itself, more makes the model sparser.
        warmup: How the KL comes in; set `epoch` at the start of every epoch.
        check_every: Every so many calls, look for NaN and infinity, and for rates that nobody trains; 0 for never.

    Attributes:
        epoch: The current epoch, from 0; fractions are welcome. Needed with ``warmup``.
        terms: The parts of the last loss, detached.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> elbo = vbdrop.ELBO(model, n_train=1000, warmup=vbdrop.Warmup(hold=1, ramp=2))
        >>> elbo.epoch = 2
        >>> loss = elbo(nn.functional.cross_entropy(model(torch.ones(3, 4)), torch.tensor([0, 1, 0])))
        >>> elbo.terms.weight
        0.5
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        n_train: int,
        weight: float = 1.0,
        warmup: Warmup | None = None,
        check_every: int = 100,
    ) -> None:
        if isinstance(n_train, bool) or not isinstance(n_train, int) or n_train < 1:
            raise ValueError(f"`n_train` must be the number of training examples, an int >= 1; got {n_train!r}.")
        if not (isinstance(weight, int | float) and 0 <= weight < math.inf):
            raise ValueError(f"`weight` must be a finite number, at least 0; got {weight!r}.")
        if not isinstance(check_every, int) or check_every < 0:
            raise ValueError(f"`check_every` must be a number of calls, an int >= 0; got {check_every!r}.")
        if next(noisy_tensors(model), None) is None:
            raise ValueError("`model` has no converted layer; call vbdrop.convert_(model, ...) before ELBO.")
        self.model = model
        self.n_train = n_train
        self.weight = weight
        self.warmup = warmup
        self.check_every = check_every
        self.epoch: float | None = None
        self.calls = 0
        self._terms: Terms | None = None
        self._rates_at_start: dict[str, float] | None = None

    @property
    def terms(self) -> Terms:
        """The parts of the last loss, detached."""
        if self._terms is None:
            raise RuntimeError("`terms` are there after the first call of the ELBO.")
        return self._terms

    @property
    def kl_weight(self) -> float:
        """What the KL is multiplied with now, besides 1 / n_train."""
        if self.warmup is None:
            return self.weight
        if self.epoch is None:
            raise RuntimeError("`epoch` is not set: with a warmup, write `elbo.epoch = e` at the start of every epoch.")
        return self.weight * self.warmup(self.epoch)

    def __call__(self, nll: Tensor) -> Tensor:
        """The loss to minimise.

        Args:
            nll: The negative log likelihood, averaged over the examples of the batch: one number.

        Returns:
            ``nll + weight * kl / n_train``.
        """
        if not isinstance(nll, Tensor) or nll.numel() != 1 or not nll.is_floating_point():
            got = f"shape {tuple(nll.shape)}, {nll.dtype}" if isinstance(nll, Tensor) else repr(nll)
            raise ValueError(f"`nll` must be one floating-point number, the mean over the batch; got {got}.")
        weight, divergence = self.kl_weight, kl(self.model)
        loss = nll.reshape(()) + divergence * (weight / self.n_train)
        self._terms = Terms(nll.detach(), divergence.detach(), weight, loss.detach())
        if not torch.compiler.is_compiling():
            self._count_and_check(loss)
        return loss

    def _count_and_check(self, loss: Tensor) -> None:
        if self._rates_at_start is None and self.check_every:
            self._rates_at_start = _fingerprints(self.model)
        self.calls += 1
        if not self.check_every or self.calls % self.check_every:
            return
        if not math.isfinite(float(loss.detach())):
            raise FloatingPointError(_describe_non_finite(self.model, self.terms))
        if self._rates_at_start is not None and self.model.training:
            still = [n for n, v in _fingerprints(self.model).items() if self._rates_at_start.get(n) == v]
            if still:
                warnings.warn(
                    f"after {self.calls} calls of the ELBO the dropout rates of {_some(still)} have not moved: "
                    "does the optimizer have them? Build it from vbdrop.param_groups(model), or add them to an "
                    "existing one with optimizer.add_param_group.",
                    stacklevel=3,
                )
            self._rates_at_start = {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to go on: the epoch and the number of calls."""
        return {"epoch": self.epoch, "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        missing = {"epoch", "calls"} - set(state)
        if missing:
            raise ValueError(f"`state` must be a state_dict of an ELBO; it lacks {', '.join(sorted(missing))}.")
        self.epoch, self.calls = state["epoch"], state["calls"]


def _fingerprints(model: nn.Module) -> dict[str, float]:
    """A number a layer that changes when its rates do."""
    return {name: float(entry.rate.detach().double().sum()) for name, entry in noisy_tensors(model)}


def _some(names: list[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name or "the model") for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _describe_non_finite(model: nn.Module, terms: Terms) -> str:
    """Which part of the loss is not finite, and in which layers' parameters or gradients it is seen."""
    parts = [f"{part} = {float(getattr(terms, part))}" for part in ("nll", "kl")]
    bad = []
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            bad.append(name)
        elif parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            bad.append(f"the gradient of {name}")
    where = f"Not finite: {_some(bad)}." if bad else "All parameters and gradients are finite."
    return f"the loss is not finite ({', '.join(parts)}). {where}"
