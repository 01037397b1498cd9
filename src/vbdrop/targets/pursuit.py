"""A target in pursuit: the observer of the ELBO that presses, cuts and refines, step by step."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vbdrop.convert.example_inputs import as_arguments
from vbdrop.layers.variational import NO_VARIANCE
from vbdrop.objective import ELBO, kl
from vbdrop.targets.controller import Controller
from vbdrop.targets.cost_model import CostModel, press_by_cost_
from vbdrop.targets.cut import Order, exact_cut, fewest, order_of
from vbdrop.targets.path import Path, Stage
from vbdrop.targets.prunable import log_evidence, plain_without, prunables
from vbdrop.targets.sizes import SizeCounter, size_in
from vbdrop.targets.target import Target

UPDATES = 100
"""The controller answers so many times in the press stage."""

EXACT_EVERY = 10
"""After so many of them the estimated size is compared with the exact one; after each of the last so many, too."""

MARGIN = 1.02
"""The path ends a little above the target, so that the cut, which is exact, does the rest."""

FARTHEST = 100.0
"""A target with ``within`` walks down to at most so many times fewer."""

REFERENCE = 1.5
"""The ``log_alpha`` that the element which has to go next should have: more presses harder."""

START_NATS = 0.1
"""The KL adds so many nats per example at the start: hardly any pressure, whatever the number of weights."""


@dataclass(frozen=True)
class WalkPoint:
    """One update of the controller.

    Attributes:
        step: The optimizer steps so far.
        size: The size in the target's unit.
        path: The size that the path asks for.
        kl_weight: The KL weight that was found.
        error: How much more evidence than wanted the next element to go is worth, as a log ratio.
    """

    step: int
    size: float
    path: float
    kl_weight: float
    error: float


class Pursuit:
    """Steers a model in training to its target. `vbdrop.ELBO` makes one for its ``target``.

    In the press stage, elements go along a geometric path of sizes: at each update those that lose the least evidence
    per unit saved. The controller raises or lowers the KL weight so that what has to go next is worth next to nothing.
    The stage ends with a cut that meets the target exactly, and in the last one what is gone stays gone.

    Args:
        target: The target, with its length and example inputs.
        elbo: The objective, with the model in its original shape.
        limit: The size to reach, where the target does not say it in what is counted.

    Raises:
        ValueError: The target cannot be reached, or something that it needs is missing; nothing has been changed.

    Attributes:
        before: The size of the whole model, in the target's unit.
        limit: The size to reach.
        least: The least size that can be reached.
        walk: The updates so far.
        step: The optimizer steps so far.
    """

    def __init__(self, target: Target, elbo: ELBO, *, limit: float | None = None) -> None:
        if target.steps is None and target.epochs is None:
            raise ValueError("the target must have a length: give it `steps`, or `epochs` and set elbo.epoch.")
        if target.example_inputs is None:
            raise ValueError("the target must have `example_inputs`, with which its sizes are counted.")
        self.target, self._elbo = target, elbo
        model = elbo.model
        args, kwargs = as_arguments(target.example_inputs)
        self.counter = SizeCounter(model, args, kwargs, only=target.only)
        self.costs = CostModel(model, self.counter, target.counted)
        self.before = float(size_in(self.counter.before, target.counted))
        order = order_of(prunables(model), self.costs)
        self.least = self.exact_size(plain_without(model, order.without(len(order.order))))
        if limit is None and target.within is not None:
            limit = max(MARGIN * self.least, self.before / FARTHEST)
        self.limit = target.limit_for(self.before) if limit is None else limit
        self._check_reachable()
        self.path = Path.of(target, self.before, self.limit)
        press_by_cost_(model, self.costs)
        self.controller = Controller(START_NATS * elbo.n_train / max(1e-12, float(kl(model).detach())))
        self.step, self.is_cut, self.walk = 0, False, list[WalkPoint]()
        self._ratio = 1.0
        self._epoch, self._epoch_start, self._epoch_steps = 0.0, 0, 0
        elbo.kl_weight = self.controller.weight

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        return self._elbo.model

    @property
    def share(self) -> float:
        """The share of the run that is over."""
        if self.target.steps is not None:
            return self.step / self.target.steps
        if not self._epoch_steps:  # the first epoch tells how many steps one has
            return 0.0
        within = min(1.0, (self.step - self._epoch_start) / self._epoch_steps)
        return (self._epoch + within) / float(self.target.epochs or 1)

    @property
    def stage(self) -> Stage:
        """The stage of the run."""
        return "refine" if self.is_cut else self.path.stage(self.share)

    def _check_reachable(self) -> None:
        """Refuse what the removable share cannot reach, and what is reached already."""
        unit, least = self.target.counted, self.least
        if self.limit >= self.before:
            raise ValueError(f"{self.target} is not below the size of the model, {self.before:,.0f} {unit}.")
        if least > self.limit:
            raise ValueError(
                f"{self.target} cannot be reached: it asks for {self.limit:,.0f} of {self.before:,.0f} {unit}, and "
                f"what can be removed is {1 - least / self.before:.1%} of them, which leaves {least:,.0f}. Convert "
                "more layers, or ask for less."
            )

    # once per optimizer step

    def before_step(self, elbo: ELBO, optimizer: Optimizer | None = None) -> None:
        """Press, cut or refine, right before a step of the optimizer."""
        self._see_epoch(elbo.epoch)
        stage = self.stage
        steps = self.target.steps
        if stage != "refine" and steps is not None and self.step >= steps - 1:
            stage = "refine"  # without a last stage, the cut comes before the last step
        if stage == "press" and self._is_due():
            self._press()
        if stage == "refine":
            if not self.is_cut:
                self.cut_()
            for found in prunables(self.model):
                found.entry.rate.grad = None
        self.step += 1
        self._set_weight()

    def _see_epoch(self, epoch: float | None) -> None:
        if self.target.epochs is None:
            return
        if epoch is None:
            raise RuntimeError("`epoch` is not set: a target with epochs needs `elbo.epoch = e` in every epoch.")
        if math.floor(epoch) > self._epoch:
            self._epoch_steps = self._epoch_steps or self.step - self._epoch_start
            self._epoch, self._epoch_start = float(math.floor(epoch)), self.step

    def _is_due(self) -> bool:
        """Whether the share of the stage has passed the next of `UPDATES` marks."""
        return self.path.pressed(self.share) * UPDATES >= len(self.walk)

    def _set_weight(self) -> None:
        self._elbo.kl_weight = 0.0 if self.is_cut else self.controller.weight

    def _press(self) -> None:
        """Remove what the path asks for, and let the controller answer."""
        found = prunables(self.model)
        if len(self.walk) % EXACT_EVERY == 0 or len(self.walk) > UPDATES - EXACT_EVERY:
            self._compare()
        wanted = max(self.path(self.share), MARGIN * self.limit)
        order = order_of(found, self.costs, limited=True)
        count = fewest(order, lambda gone: self._estimate([~mask for mask in gone]), wanted)
        count = len(order.order) if count is None else max(0, count - 1)  # the last one would end below the path
        gone = order.without(count)
        elapsed = 1 / UPDATES
        error = self._error(order, count)
        for one, mask in zip(found, gone, strict=True):
            one.remove_(mask)
        self.controller.update(error, elapsed)
        size = self._estimate([~mask for mask in gone])
        self.walk.append(WalkPoint(self.step, size, wanted, self.controller.weight, error))

    def _estimate(self, alive: list[torch.Tensor]) -> float:
        return self._ratio * self.costs.size(alive)

    def exact_size(self, plain: nn.Module) -> float:
        """The size of a plain model with zeros, in what is counted."""
        return size_in(self.counter.count_plain(plain), self.target.counted)

    def _compare(self) -> None:
        """Correct the estimate by the exact size."""
        alive = [one.alive() for one in prunables(self.model)]
        exact = self.exact_size(plain_without(self.model, [~mask for mask in alive]))
        self._ratio = exact / max(1.0, self.costs.size(alive))

    def _error(self, order: Order, count: int) -> float:
        """The log of what the next element is worth, over what one at `REFERENCE` with the mean cost is worth.

        Where the survivors of the whole run would be dead by their rates, there is too much pressure, whatever is next.
        """
        if not len(order.order):
            return -self.controller.gains.scale
        found = prunables(self.model)
        alive = [mask & ~one.entry.dead().cpu() for one, mask in zip(found, order.masks, strict=True)]
        if not all(bool(mask.any()) for mask in alive) or self._estimate(alive) < self.limit:
            return -self.controller.gains.scale
        following = float(order.flat[order.order[min(count, len(order.order) - 1)]])
        return following - float(log_evidence(torch.tensor(REFERENCE))) - self._log_factor_per_unit(order)

    def _log_factor_per_unit(self, order: Order) -> float:
        """The mean log of an element's KL factor over what it saves, over all that live."""
        total, living = 0.0, 0.0
        for one, mask, saving in zip(prunables(self.model), order.masks, self.costs.savings(order.masks), strict=True):
            factor = torch.as_tensor(one.entry.kl_factor).detach().cpu().double().expand(mask.shape)
            total += float((factor.clamp_min(1e-12).log() - saving.clamp_min(1e-12).log())[mask].sum())
            living += float(mask.sum())
        return total / living

    def cut_(self) -> None:
        """Meet the target exactly, for good; the survivors lose their noise.

        Raises:
            RuntimeError: The model does not fit, whatever is removed.
        """
        gone = exact_cut(self.model, self.costs, self.exact_size, self.limit)
        if gone is None:
            raise RuntimeError(f"{self.target} cannot be met by the model as it is now.")
        with torch.no_grad():
            for one, mask in zip(prunables(self.model), gone, strict=True):
                one.remove_(mask)
                one.entry.rate.fill_(NO_VARIANCE)
        self.is_cut = True

    # files

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on; what has been removed is in the model's own ``state_dict``."""
        return {
            "step": self.step,
            "is_cut": self.is_cut,
            "ratio": self._ratio,
            "epoch": (self._epoch, self._epoch_start, self._epoch_steps),
            "controller": self.controller.state_dict(),
            "walk": [asdict(point) for point in self.walk],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.step, self.is_cut, self._ratio = state["step"], state["is_cut"], state["ratio"]
        self._epoch, self._epoch_start, self._epoch_steps = state["epoch"]
        self.controller.load_state_dict(state["controller"])
        self.walk = [WalkPoint(**point) for point in state["walk"]]
        self._set_weight()
