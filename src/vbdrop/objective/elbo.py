"""The evidence lower bound as a loss."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.layers.lost_gates import check_gates
from vbdrop.objective.attachment import (
    Handle,
    add_kl_gradients_,
    check_optimizer,
    has_rate_gradients,
    hook_before_step,
)
from vbdrop.objective.checks import TrainingWatch, describe_non_finite
from vbdrop.objective.decay import warn_of_decay
from vbdrop.objective.divergence import kl_terms, noisy_tensors
from vbdrop.objective.evidence_loss import check_n_train, loss_and_kl
from vbdrop.objective.warmup import Warmup
from vbdrop.objective.weight_reads import WATCHED_STEPS, WeightWatch


@dataclass(frozen=True)
class Terms:
    """The parts of one loss, detached, for logging.

    Attributes:
        nll: The mean negative log likelihood per example; None after a step with `ELBO.attach`, which never sees it.
        kl: The KL, a sum over weights.
        kl_weight: The factor on the KL, besides 1 / n_train.
        loss: Their combination, ``nll + kl_weight * kl / n_train``; None if ``nll`` is.
    """

    nll: Tensor | None
    kl: Tensor
    kl_weight: float
    loss: Tensor | None


class StepObserver(Protocol):
    """An entry of `ELBO.observers`: an object that steers training from step to step."""

    def before_step(self, elbo: "ELBO", optimizer: Optimizer | None) -> None:
        """Called once before every step of the optimizer; it may set ``elbo.kl_weight``, for instance.

        With several attached optimizers, it is called before the steps of each; see `ELBO.counts_steps_of`.
        """

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint needs in order to resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`."""


class Steering(Protocol):
    """An argument for ``ELBO(target=...)``, such as a `vbdrop.Target`: it knows how to steer a training run."""

    def start(self, elbo: "ELBO") -> StepObserver:
        """Inspect the model before its first step, and return the object that steers it from step to step."""


class ELBO:
    """The negative evidence lower bound per example, ``nll + kl_weight * kl(model) / n_train``.

    Call it with the negative log likelihood to get the loss, or `attach` it to the optimizer of a trainer whose loss
    you cannot change.

    Args:
        model: A model converted by `vbdrop.convert_`.
        n_train: The number of training examples, over which the KL is spread.
        kl_weight: A factor on the KL: 1, the default, is the bound itself; larger values make the model sparser.
        warmup: The schedule of the KL; set `epoch` at the start of every epoch.
        target: A `vbdrop.Target`, instead of ``kl_weight`` and ``warmup``: the weight is found during training, and the
            model ends at that size. In your own training loop, call `step` before each step of the optimizer.
        check_every: The number of calls between two automatic calls of `check`; 0 turns them off.

    Attributes:
        epoch: The current epoch, from 0; fractions are allowed. Needed with ``warmup``.
        kl_weight: The factor on the KL; it may be changed during training.
        observers: Objects whose ``before_step(elbo, optimizer)`` is called once before every step of an attached
            optimizer, or by `step`; see `StepObserver`.
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
        kl_weight: float | None = None,
        warmup: Warmup | None = None,
        target: Steering | None = None,
        check_every: int = 100,
    ) -> None:
        size = check_n_train(n_train)
        if target is not None and (kl_weight is not None or warmup is not None):
            raise ValueError("`target` finds the KL weight by itself; leave `kl_weight` and `warmup` out.")
        if target is not None and not callable(getattr(target, "start", None)):
            raise TypeError(f"`target` must be a vbdrop.Target or None; got {target!r}.")
        if warmup is not None and not isinstance(warmup, Warmup):
            raise TypeError(f"`warmup` must be a vbdrop.Warmup or None; got {warmup!r}.")
        if isinstance(check_every, bool) or not isinstance(check_every, int) or check_every < 0:
            raise ValueError(f"`check_every` must be a number of calls, an int >= 0; got {check_every!r}.")
        if next(noisy_tensors(model), None) is None:
            raise ValueError("`model` has no converted layer; call vbdrop.convert_(model, ...) before ELBO.")
        check_gates(model)
        self.model = model
        self.n_train = size
        self.warmup = warmup
        self.check_every = check_every
        self.observers: list[StepObserver] = []
        self.calls = 0
        self._attached: list[Optimizer] = []
        self._epoch: float | None = None
        self._parts: tuple[Tensor | None, Tensor | None, Tensor, Tensor | None] | None = None
        self._watch: TrainingWatch | None = None
        self._calls_in_epoch = self._calls_since_step = self._calls_without_gradient = 0
        self._first_steps: WeightWatch | None = WeightWatch(model)
        self.kl_weight = 1.0 if kl_weight is None else kl_weight
        if target is not None:
            self.observers.append(target.start(self))

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
        """The current epoch, from 0; None until it is set."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: float | None) -> None:
        before, self._epoch = self._epoch, None if epoch is None else _at_least_zero("epoch", epoch)
        if self._epoch != before:
            self._calls_in_epoch = 0
        self._weight_now = self._current_weight()

    def _current_weight(self) -> Tensor | None:
        """The KL's weight, as a tensor because a compiled step would be recompiled for each new Python number."""
        share = 1.0
        if self.warmup is not None:
            if self._epoch is None:
                return None
            share = self.warmup(self._epoch)
        return torch.tensor(self._base_weight * share, dtype=torch.float64, device="cpu")

    @property
    def has_terms(self) -> bool:
        """Whether `terms` exist: after the first call, or the first step with `attach`."""
        return self._parts is not None

    @property
    def terms(self) -> Terms:
        """The parts of the last loss, detached; after a step with `attach`, the current KL."""
        if self._parts is None:
            raise RuntimeError("`terms` exist only after the first call of the ELBO, or the first step with attach.")
        nll, divergence, weight, loss = self._parts
        if divergence is None:
            with torch.no_grad():
                divergence = kl_terms(self.model)[1]
        return Terms(nll, divergence, weight.item(), loss)

    def __call__(self, nll: Tensor) -> Tensor:
        """The loss to minimize.

        Args:
            nll: The negative log likelihood, averaged over the examples of the batch: one number.

        Returns:
            ``nll + kl_weight * kl / n_train``.
        """
        if not isinstance(nll, Tensor) or nll.numel() != 1 or not nll.is_floating_point():
            got = f"shape {tuple(nll.shape)}, {nll.dtype}" if isinstance(nll, Tensor) else repr(nll)
            raise ValueError(f"`nll` must be one floating-point number, the mean over the batch; got {got}.")
        if self._attached and nll.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                "the KL would count twice: it is attached to an optimizer, which adds its gradient before every step. "
                "Train on the negative log likelihood alone, or call remove() on the handle of attach."
            )
        nll, weight = nll.reshape(()), self._known_weight()
        compiling = torch.compiler.is_compiling()
        loss, divergence = loss_and_kl(nll, self.model, (weight if compiling else weight.item()) / self.n_train)
        self._parts = (nll.detach(), divergence, weight, loss.detach())
        if not compiling:
            if self._first_steps is not None and self._first_steps.step(nll):
                self._first_steps = None
            self._calls_since_step += nll.requires_grad
            self._watch_gradient(nll, loss)
            self._count()
        return loss

    def _watch_gradient(self, nll: Tensor, loss: Tensor) -> None:
        """Warn of losses in training that train nothing but the KL; an attached KL is not in the loss."""
        if nll.requires_grad and self._calls_without_gradient < WATCHED_STEPS:
            self._calls_without_gradient = 0
        elif not nll.requires_grad and loss.requires_grad and self.model.training and not self._attached:
            self._calls_without_gradient += 1
            if self._calls_without_gradient == WATCHED_STEPS:
                warnings.warn(
                    f"`nll` had no gradient in {WATCHED_STEPS} calls in a row: only the KL trains the model, and "
                    "everything in it will die. Compute `nll` without detach() and torch.no_grad(); to evaluate, "
                    "call the ELBO in eval mode or inside torch.no_grad().",
                    stacklevel=3,
                )

    def attach(self, optimizer: Optimizer) -> Handle:
        """Add the KL's gradient right before every step of the optimizer, for a trainer whose loss you cannot change.

        The trainer then minimizes the negative log likelihood. Before each ``optimizer.step()``, the gradient of
        ``kl_weight * kl / n_train`` is added to the ``.grad`` of the parameters that this optimizer trains. This
        happens once per step, even if gradients are accumulated over several batches, the step has a closure, or a
        `torch.amp.GradScaler` leaves the unscaling to a fused optimizer. With several optimizers, attach to each.

        A trainer that clips gradients does so before the step, so it clips only the gradients of the likelihood.

        Args:
            optimizer: Any optimizer that has the model's parameters, except LBFGS.

        Returns:
            A handle; its ``remove()`` detaches the KL.

        Example:
            >>> import vbdrop
            >>> model = nn.Linear(4, 2)
            >>> _ = vbdrop.convert_(model, vbdrop.Weights())
            >>> optimizer = torch.optim.Adam(vbdrop.param_groups(model))
            >>> handle = vbdrop.ELBO(model, n_train=1000).attach(optimizer)
            >>> nn.functional.cross_entropy(model(torch.ones(3, 4)), torch.tensor([0, 1, 0])).backward()
            >>> optimizer.step()
            >>> handle.remove()
        """
        optimizer = check_optimizer(self.model, optimizer)
        if any(known is optimizer for known in self._attached):
            raise ValueError("`optimizer` already has this ELBO attached: its KL would be added twice.")
        if self._parts is not None and self._parts[0] is not None and has_rate_gradients(self.model, optimizer):
            raise ValueError(
                "`optimizer` must not have gradients from a loss of this ELBO, since they already contain the KL; "
                "call optimizer.zero_grad() before attach."
            )

        def add() -> None:
            if self._first_steps is not None:
                own = [p for group in optimizer.param_groups for p in group["params"]]
                if self._first_steps.step_by_gradients(own):
                    self._first_steps = None
            weight = self._known_weight()
            add_kl_gradients_(self.model, optimizer, weight.item() / self.n_train)
            self._parts = (None, None, weight, None)
            self._count()

        remove_hook = hook_before_step(optimizer, lambda: self.step(optimizer), add)
        self._attached.append(optimizer)

        def remove() -> None:
            remove_hook()
            self._attached = [other for other in self._attached if other is not optimizer]

        return Handle(remove)

    def step(self, optimizer: Optimizer | None = None) -> None:
        """Tell the observers that a step of the optimizer follows.

        `attach` does this automatically. In your own training loop, which calls the ELBO for its loss, call this once
        before each ``optimizer.step()`` if there are observers.

        Args:
            optimizer: The optimizer, for the observers.
        """
        self._calls_since_step = 0
        for observer in self.observers:
            observer.before_step(self, optimizer)

    def counts_steps_of(self, optimizer: Optimizer | None) -> bool:
        """Whether steps of this optimizer count as training steps; with several attached, only the first one's do."""
        return optimizer is None or not self._attached or optimizer is self._attached[0]

    def _known_weight(self) -> Tensor:
        if self._weight_now is None:
            raise RuntimeError("`epoch` is not set: with a warmup, write `elbo.epoch = e` at the start of every epoch.")
        return self._weight_now

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
        """Check for a non-finite loss and for other problems that would go unnoticed.

        The ELBO does this automatically every ``check_every`` calls (or steps, with `attach`), except inside compiled
        code: if a whole step is compiled, call it now and then. The rates are compared with those at the first call or
        check.

        It warns about rates that no optimizer trains, rates under weight decay, layers in which everything is dead, a
        warm-up whose `epoch` does not advance, observers that are never told of a `step`, and ranks of a process group
        that draw the same noise; about each problem only once.

        Args:
            optimizer: An optimizer to check for weight decay on the rates, at every call. The first optimizer that
                steps after the ELBO was called is checked automatically.

        Raises:
            FloatingPointError: If the last loss is NaN or infinite; the message names the layers involved.
        """
        self._check(optimizer, stacklevel=3)

    def _check(self, optimizer: Optimizer | None, stacklevel: int) -> None:
        terms = self.terms
        parts = {"kl": terms.kl} if terms.nll is None else {"nll": terms.nll, "kl": terms.kl}
        if not math.isfinite((terms.kl if terms.loss is None else terms.loss).item()):
            raise FloatingPointError(describe_non_finite(self.model, parts))
        if self._watch is None:
            self._watch = TrainingWatch(self.model, self.n_train)
        if optimizer is not None:
            warn_of_decay(self.model, optimizer, stacklevel)
        share = 1.0 if self.warmup is None or self._epoch is None else self.warmup(self._epoch)
        ramp = (share, self._calls_in_epoch) if share < 1 else None
        waits = bool(self.observers) and self._calls_since_step >= self.check_every > 0
        for complaint in self._watch.complaints(self.kl_weight, ramp, self._calls_since_step if waits else 0):
            warnings.warn(complaint, stacklevel=stacklevel)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: epoch, number of calls, KL weight, and the states of the observers."""
        return {
            "epoch": self.epoch,
            "calls": self.calls,
            "kl_weight": self.kl_weight,
            "observers": [observer.state_dict() for observer in self.observers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`. If it has no observer states, the observers are left unchanged."""
        missing = {"epoch", "calls"} - set(state)
        if missing:
            raise ValueError(f"`state` must be a state_dict of an ELBO; it lacks {', '.join(sorted(missing))}.")
        states = state.get("observers")
        if states is not None and len(states) != len(self.observers):
            raise ValueError(
                f"`state` must have a state for each of the {len(self.observers)} observers; got {len(states)}. "
                "Put the same observers into `observers` before you load it."
            )
        self.epoch, self.calls = state["epoch"], state["calls"]
        self.kl_weight = state.get("kl_weight", self.kl_weight)
        for observer, its_state in zip(self.observers, states or [], strict=False):
            observer.load_state_dict(its_state)


def _at_least_zero(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"`{name}` must be a finite number, at least 0; got {value!r}.")
    return value
