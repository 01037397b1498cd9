"""The evidence lower bound as a loss."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.objective.checks import TrainingWatch, describe_non_finite
from vbdrop.objective.decay import warn_of_decay
from vbdrop.objective.divergence import joined_kl, noisy_tensors
from vbdrop.objective.warmup import Warmup


@dataclass(frozen=True)
class Terms:
    """The parts of one loss, detached, for logging.

    Attributes:
        nll: The mean negative log likelihood an example.
        kl: The KL, a sum over weights.
        kl_weight: What the KL was multiplied with, besides 1 / n_train.
        loss: Their combination, ``nll + kl_weight * kl / n_train``.
    """

    nll: Tensor
    kl: Tensor
    kl_weight: float
    loss: Tensor


class ELBO:
    """The negative evidence lower bound an example, ``nll + kl_weight * kl(model) / n_train``.

    Args:
        model: A model converted by `vbdrop.convert_`.
        n_train: The number of training examples, over which the KL is spread.
        kl_weight: A factor on the KL: 1 is the bound itself, more makes the model sparser.
        warmup: How the KL comes in; set `epoch` at the start of every epoch.
        check_every: Every so many calls, `check` for what goes wrong without a word; 0 for never.

    Attributes:
        epoch: The current epoch, from 0; fractions are welcome. Needed with ``warmup``.
        kl_weight: The factor on the KL; it may be changed on the way.
        terms: The parts of the last loss, detached.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> elbo = vbdrop.ELBO(model, n_train=1000, warmup=vbdrop.Warmup(hold=1, ramp=2))
        >>> elbo.epoch = 2
        >>> loss = elbo(nn.functional.cross_entropy(model(torch.ones(3, 4)), torch.tensor([0, 1, 0])))
        >>> elbo.terms.kl_weight
        0.5
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        n_train: int | None = None,
        kl_weight: float = 1.0,
        warmup: Warmup | None = None,
        check_every: int = 100,
    ) -> None:
        if isinstance(n_train, bool) or not isinstance(n_train, int | Integral) or n_train < 1:
            raise ValueError(
                f"`n_train` must be the number of training examples, an int >= 1; got {n_train!r}. "
                "The KL belongs to the whole training set, so it is divided by its size, not by the batch's."
            )
        if warmup is not None and not isinstance(warmup, Warmup):
            raise TypeError(f"`warmup` must be a vbdrop.Warmup or None; got {warmup!r}.")
        if isinstance(check_every, bool) or not isinstance(check_every, int) or check_every < 0:
            raise ValueError(f"`check_every` must be a number of calls, an int >= 0; got {check_every!r}.")
        if next(noisy_tensors(model), None) is None:
            raise ValueError("`model` has no converted layer; call vbdrop.convert_(model, ...) before ELBO.")
        self.model = model
        self.n_train = int(n_train)
        self.warmup = warmup
        self.check_every = check_every
        self.calls = 0
        self._epoch: float | None = None
        self._parts: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._watch: TrainingWatch | None = None
        self._calls_in_epoch = 0
        self.kl_weight = kl_weight

    @property
    def kl_weight(self) -> float:
        """The factor on the KL, without the warm-up."""
        return self._base_weight

    @kl_weight.setter
    def kl_weight(self, kl_weight: float) -> None:
        self._base_weight = _at_least_zero("kl_weight", kl_weight)
        self._weight_now = self._current_weight()

    @property
    def epoch(self) -> float | None:
        """The current epoch, from 0; None as long as it was not set."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: float | None) -> None:
        before, self._epoch = self._epoch, None if epoch is None else _at_least_zero("epoch", epoch)
        if self._epoch != before:
            self._calls_in_epoch = 0
        self._weight_now = self._current_weight()

    def _current_weight(self) -> Tensor | None:
        """The KL's weight as a tensor, since a compiled step would be compiled again for each new Python number."""
        share = 1.0
        if self.warmup is not None:
            if self._epoch is None:
                return None
            share = self.warmup(self._epoch)
        return torch.tensor(self._base_weight * share, dtype=torch.float64, device="cpu")

    @property
    def terms(self) -> Terms:
        """The parts of the last loss, detached."""
        if self._parts is None:
            raise RuntimeError("`terms` are there after the first call of the ELBO.")
        nll, divergence, weight, loss = self._parts
        return Terms(nll, divergence, weight.item(), loss)

    def __call__(self, nll: Tensor) -> Tensor:
        """The loss to minimise.

        Args:
            nll: The negative log likelihood, averaged over the examples of the batch: one number.

        Returns:
            ``nll + kl_weight * kl / n_train``.
        """
        if not isinstance(nll, Tensor) or nll.numel() != 1 or not nll.is_floating_point():
            got = f"shape {tuple(nll.shape)}, {nll.dtype}" if isinstance(nll, Tensor) else repr(nll)
            raise ValueError(f"`nll` must be one floating-point number, the mean over the batch; got {got}.")
        if self._weight_now is None:
            raise RuntimeError("`epoch` is not set: with a warmup, write `elbo.epoch = e` at the start of every epoch.")
        nll, divergence = nll.reshape(()), joined_kl(self.model)
        loss = nll + divergence * (self._weight_now / self.n_train).to(divergence.dtype)
        self._parts = (nll.detach(), divergence.detach(), self._weight_now, loss.detach())
        if not torch.compiler.is_compiling():
            self._count()
        return loss

    def _count(self) -> None:
        self.calls += 1
        self._calls_in_epoch += 1
        if not self.check_every:
            return
        if self._watch is None:
            self._watch = TrainingWatch(self.model, self.n_train)
        self._watch.note_call()
        if self.calls % self.check_every == 0:
            self._check(None, stacklevel=4)

    def check(self, optimizer: Optimizer | None = None) -> None:
        """Look for a loss that is not finite, and for what else goes wrong in training without a word.

        The ELBO does this by itself every ``check_every`` calls, except inside compiled code: where a whole step is
        compiled, call it now and then. The rates are compared with those at the first call or check.

        It warns, once each, of rates that nobody trains, of rates under weight decay, of layers in which everything is
        dead, of a warm-up whose `epoch` does not move, and of ranks of a process group that draw the same noise.

        Args:
            optimizer: An optimizer whose groups are to be checked for weight decay on the rates. The first one that
                steps after the ELBO was called is checked without being given here.

        Raises:
            FloatingPointError: If the last loss is NaN or infinite; the message names the layers where it is seen.
        """
        self._check(optimizer, stacklevel=3)

    def _check(self, optimizer: Optimizer | None, stacklevel: int) -> None:
        terms = self.terms
        if not math.isfinite(terms.loss.item()):
            raise FloatingPointError(describe_non_finite(self.model, {"nll": terms.nll, "kl": terms.kl}))
        if self._watch is None:
            self._watch = TrainingWatch(self.model, self.n_train)
        if optimizer is not None:
            warn_of_decay(self.model, optimizer, stacklevel)
        share = 1.0 if self.warmup is None or self._epoch is None else self.warmup(self._epoch)
        ramp = (share, self._calls_in_epoch) if share < 1 else None
        for complaint in self._watch.complaints(self.kl_weight, ramp):
            warnings.warn(complaint, stacklevel=stacklevel)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to go on: the epoch and the number of calls."""
        return {"epoch": self.epoch, "calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        missing = {"epoch", "calls"} - set(state)
        if missing:
            raise ValueError(f"`state` must be a state_dict of an ELBO; it lacks {', '.join(sorted(missing))}.")
        self.epoch, self.calls = state["epoch"], state["calls"]


def _at_least_zero(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"`{name}` must be a finite number, at least 0; got {value!r}.")
    return value
