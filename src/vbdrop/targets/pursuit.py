"""The pursuit of a target: the observer of the ELBO that presses, cuts and refines, step by step."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop._torch_compat import is_sharded
from vbdrop.compression import Compressed, compress
from vbdrop.convert.example_inputs import as_arguments
from vbdrop.layers import Gate
from vbdrop.layers.variational import NO_VARIANCE
from vbdrop.objective import ELBO, kl
from vbdrop.targets.controller import Controller
from vbdrop.targets.cost_model import CostModel, press_by_cost_
from vbdrop.targets.cut import Order, exact_cut, fewest, largest_cut, least_kept, order_of
from vbdrop.targets.path import Path, Stage
from vbdrop.targets.prunable import log_evidence, plain_without, prunables, whole_model
from vbdrop.targets.sizes import SizeCounter, in_words, size_in
from vbdrop.targets.stopwatch import Stopwatch, Timing
from vbdrop.targets.target import Target

UPDATES = 100
"""The number of updates of the controller in the press stage."""

EXACT_EVERY = 10
"""The estimated size is compared with the exact one once in this many updates, and at each of the last ones."""

MEASURE_EVERY = 10
"""How many updates there are between measurements, for a target that is a time: each takes seconds."""

MOST_CUTS = 4
"""The largest number of attempts at a cut that must meet a time."""

NEAR = 0.93
"""If a time ends below this share of its limit, the model is cut again, by less."""

MARGIN = 1.02
"""The path ends a little above the target, so that the cut, which is exact, does the rest."""

FARTHEST = 100.0
"""The largest factor by which a target with ``within`` shrinks the model."""

REFERENCE = 1.5
"""The ``log_alpha`` that the next element to be removed should have; a larger value presses harder."""

START_NATS = 0.1
"""The nats per example that the KL adds at the start: hardly any pressure, whatever the number of weights."""


@dataclass(frozen=True)
class WalkPoint:
    """One update of the controller.

    Attributes:
        step: The optimizer steps so far.
        size: The size in the target's unit.
        path: The size that the path asks for.
        kl_weight: The KL weight that was found.
        error: How much more evidence than desired the next element to be removed carries, as a log ratio.
    """

    step: int
    size: float
    path: float
    kl_weight: float
    error: float


@dataclass(frozen=True)
class CutCost:
    """The cost of the cut at the end of the press stage.

    Attributes:
        step: The optimizer steps before it.
        size_before: The size before it, in the target's unit.
        size: The size after it; a time by the model of its layers.
        elements: How many weights or gates were removed.
        nats: The log evidence lost with them.
        nats_per_example: The estimated rise of the loss per example: ``nats`` times the KL weight, divided by the
            number of training examples.
        error_before: The measured error before it, or None.
        error: The measured error right after it, or None.
    """

    step: int
    size_before: float
    size: float
    elements: int
    nats: float
    nats_per_example: float
    error_before: float | None = None
    error: float | None = None


class Pursuit:
    """Steers a model in training to its target. `vbdrop.ELBO` makes one for its ``target``.

    In the press stage, elements are removed along a geometric path of sizes: at each update those that lose the least
    evidence per unit saved. The controller raises or lowers the KL weight so that the next ones carry almost none.
    The stage ends with a cut that meets the target exactly; in the last stage, what was removed stays removed.

    Args:
        target: The target, with its length and example inputs.
        elbo: The objective, with the model in its original shape.
        timing: For a target that is a time: what was measured at the start of the run; None to measure it now.

    Raises:
        ValueError: The target cannot be reached, or something that it needs is missing; nothing has been changed.

    Attributes:
        before: The size of the whole model, in the target's unit.
        limit: The size to reach.
        least: The smallest size that can be reached.
        timing: What was measured at the start, for a target that is a time.
        walk: The updates so far.
        cut_cost: What the cut cost, once it has been made.
        judge: Measures the error of a plain model, for ``cut_cost``; None to leave that out.
        step: The optimizer steps so far.
    """

    def __init__(self, target: Target, elbo: ELBO, *, timing: Timing | None = None) -> None:
        target.check_complete()
        self.target, self._elbo = target, elbo
        self.timing, self._watch = timing, None
        if target.measured == "latency":
            args, kwargs = as_arguments(target.example_inputs)
            plain = plain_without(elbo.model, [~one.alive() for one in prunables(elbo.model)])
            self._watch = Stopwatch(plain, args, kwargs, target.runtime, target.batch, target.round_to)
        self.look_again()
        self.before = self.timing.before if self.timing else float(size_in(self.counter.before, target.measured))
        farthest = max(MARGIN * self.least, self.before / FARTHEST)
        self.limit = farthest if target.within is not None else target.limit_for(self.before)
        self._check_reachable()
        self.path = Path.of(target, self.before, self.limit)
        press_by_cost_(elbo.model, self.costs)
        if is_sharded(elbo.model):  # a sharded checkpoint loads only tensors that already exist
            for one in prunables(elbo.model):
                one.remove_(~one.alive())
        nats = float(kl(whole_model(elbo.model)).detach())
        self.controller = Controller(START_NATS * elbo.n_train / max(1e-12, nats))
        self.step, self.is_cut, self.walk = 0, False, list[WalkPoint]()
        self._ratio = 1.0
        self.cut_cost: CutCost | None = None
        self.judge: Callable[[nn.Module], float | None] | None = None
        self._epoch, self._epoch_start, self._epoch_steps = 0.0, 0, 0
        elbo.kl_weight = self.controller.weight

    def look_again(self) -> None:
        """Trace the model in its present shape, and build the cost model."""
        model, unit = whole_model(self.model), self.target.measured
        args, kwargs = as_arguments(self.target.example_inputs)
        self.counter = SizeCounter(model, args, kwargs, only=self.target.only, round_to=self.target.round_to)
        self.costs = CostModel(model, self.counter, "macs" if self._watch else unit)
        smallest = plain_without(model, largest_cut(model, self.costs))
        if self._watch is not None:
            self.timing = self.timing or Timing.of(self._watch, self.counter, smallest)
            self.costs = CostModel(model, self.counter, unit, self.timing)
        self.least = max(self.exact_size(smallest), least_kept(model, self.counter, unit))

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        return self._elbo.model

    @property
    def share(self) -> float:
        """The share of the run that is over."""
        return self._share_after(self.step)

    def _share_after(self, step: int) -> float:
        """The share of the run that is over after this many steps, the last of which are in the current epoch."""
        if self.target.steps is not None:
            return step / self.target.steps
        if not self._epoch_steps:  # the steps per epoch are not known before the first one ends
            return 0.0
        within = min(1.0, (step - self._epoch_start) / self._epoch_steps)
        return (self._epoch + within) / float(self.target.epochs or 1)

    @property
    def stage(self) -> Stage:
        """The stage of the run."""
        return "refine" if self.is_cut else self.path.stage(self.share)

    def _check_reachable(self) -> None:
        """Refuse a target that cannot be reached, or that has already been reached."""
        asked, whole, rest = (in_words(size, self.target.measured) for size in (self.limit, self.before, self.least))
        if self.limit >= self.before:
            raise ValueError(f"{self.target} is not below the size of the model, {whole}.")
        if self.least > self.limit:
            raise ValueError(
                f"{self.target} cannot be reached: it asks for {asked} of {whole}, and what can be removed is "
                f"{1 - self.least / self.before:.1%} of that, which leaves {rest}. Convert more layers, or ask for "
                "less."
            )

    # once per optimizer step

    def before_step(self, elbo: ELBO, optimizer: Optimizer | None = None) -> None:
        """Press, cut or refine, right before a step of the optimizer; of several, the first advances the run."""
        if elbo.counts_steps_of(optimizer):
            self._advance(elbo.epoch)
        if self.is_cut:
            for found in prunables(self.model):
                found.entry.rate.grad = None

    def _advance(self, epoch: float | None) -> None:
        self._see_epoch(epoch)
        stage = self.stage
        if stage != "refine" and self._share_after(self.step + 1) >= 1:
            stage = "refine"  # without a last stage, the cut comes before the last step
        if stage == "press" and self._is_due():
            self._press()
        if stage == "refine" and not self.is_cut:
            self.cut_()
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

    def _is_compared(self) -> bool:
        """Whether the estimate is to be corrected now."""
        done = len(self.walk)  # less than `UPDATES` at the end of a stage with fewer steps
        if self._watch is not None:
            return done % MEASURE_EVERY == MEASURE_EVERY - 1
        return done % EXACT_EVERY == 0 or self.path.pressed(self.share) * UPDATES > UPDATES - EXACT_EVERY

    def _press(self) -> None:
        """Remove what the path asks for, and update the controller."""
        found = prunables(self.model)
        if self._is_compared():
            self._compare()
        wanted = max(self.path(self.share), MARGIN * self.limit)
        order = order_of(found, self.costs, limited=True)
        count = fewest(order, lambda gone: self._estimate([~mask for mask in gone]), wanted)
        count = len(order.order) if count is None else max(0, count - 1)  # the last element would end below the path
        gone = order.without(count)
        elapsed = 1 / UPDATES
        error = self._error(order, count)
        for one, mask in zip(found, gone, strict=True):
            one.remove_(mask)
        self.controller.update(error, elapsed)
        size = self._estimate([~mask for mask in gone])
        self.walk.append(WalkPoint(self.step, size, wanted, self.controller.weight, error))

    def _estimate(self, alive: list[Tensor]) -> float:
        return self._ratio * self.costs.size(alive)

    def exact_size(self, plain: nn.Module) -> float:
        """The size that compression would leave of a plain model with zeros; a time by the model of its layers."""
        sizes = self.counter.count_plain(plain)
        return self.timing.seconds(sizes.shapes) if self.timing else float(size_in(sizes, self.target.measured))

    def seconds(self, small: nn.Module | Compressed) -> float:
        """The time of a small model, measured; only for a target that is a time."""
        if self._watch is None or self.timing is None:
            raise TypeError(f"{self.target} is not a time.")
        return self._watch.seconds(small, self.timing.reference)

    def _compare(self) -> None:
        """Correct the estimate by the exact size, or by the measured time."""
        alive = [one.alive() for one in prunables(self.model)]
        plain = plain_without(self.model, [~mask for mask in alive])
        exact = self._measured(plain) if self._watch else self.exact_size(plain)
        self._ratio = exact / max(1e-12, self.costs.size(alive))

    def _measured(self, plain: nn.Module) -> float:
        args, kwargs = as_arguments(self.target.example_inputs)
        return self.seconds(compress(plain, args, example_kwargs=kwargs, round_to=self.target.round_to))

    def _error(self, order: Order, count: int) -> float:
        """The log of the next element's value, relative to one at `REFERENCE` with the mean cost.

        If what is alive by its rates is already below the limit of the run, the pressure is too high, whatever follows.
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
        """The mean log of an element's KL factor over its saving, for all live elements."""
        total, living = 0.0, 0.0
        for one, mask, saving in zip(prunables(self.model), order.masks, self.costs.savings(order.masks), strict=True):
            factor = torch.as_tensor(one.entry.kl_factor).detach().cpu().double().expand(mask.shape)
            total += float((factor.clamp_min(1e-12).log() - saving.clamp_min(1e-12).log())[mask].sum())
            living += float(mask.sum())
        return total / living

    def cut_(self) -> None:
        """Meet the target exactly, for good; the survivors lose their noise.

        Raises:
            RuntimeError: The model does not fit even if everything possible is removed.
        """
        gone = self._to_cut()
        if self.cut_cost is None:
            self.cut_cost = self._cost_of(gone)
        with torch.no_grad():
            for one, mask in zip(prunables(self.model), gone, strict=True):
                one.remove_(mask)
                one.entry.rate.fill_(NO_VARIANCE)
        self.is_cut = True
        self._set_weight()

    def _to_cut(self) -> list[Tensor]:
        """What to remove to meet the limit. A time is measured, and the cut is corrected until it is met."""
        model = whole_model(self.model)
        limit, found = self.limit / (self._ratio if self._watch else 1.0), prunables(model)
        for trial in range(MOST_CUTS):
            gone = exact_cut(model, self.costs, self.exact_size, limit)
            if self._watch is None or trial == MOST_CUTS - 1:
                if gone is None:
                    break
                return gone
            gone = gone or largest_cut(model, self.costs)  # the estimate is too long, the measured time may not be
            plain = plain_without(model, gone)
            seconds = self._measured(plain)
            is_whole = all(torch.equal(mask, ~one.alive()) for mask, one in zip(gone, found, strict=True))
            if (NEAR * self.limit <= seconds or is_whole) and seconds <= self.limit:
                return gone
            limit = self.exact_size(plain) * self.limit * (1 + NEAR) / (2 * seconds)
        raise RuntimeError(f"{self.target} cannot be met by the model as it is now.")

    def _cost_of(self, gone: list[Tensor]) -> CutCost:
        """What a cut costs, before it is made."""
        model = whole_model(self.model)
        found = prunables(model)
        nats, elements = 0.0, 0
        for one, mask in zip(found, gone, strict=True):
            new = mask & one.alive()
            factor = torch.as_tensor(one.entry.kl_factor).detach().cpu().double().expand(mask.shape)
            nats += float((log_evidence(one.entry.log_alpha_full().cpu()).exp() * factor)[new].sum())
            elements += int(new.sum())
        before, after = (plain_without(model, masks) for masks in ([~one.alive() for one in found], gone))
        errors = (None, None) if self.judge is None else (self.judge(before), self.judge(after))
        per_example = nats * self.controller.weight / self._elbo.n_train
        sizes = self.exact_size(before), self.exact_size(after)
        return CutCost(self.step, *sizes, elements, nats, per_example, *errors)

    # files

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to resume; what has been removed is in the model's own ``state_dict``."""
        return {
            "step": self.step,
            "is_cut": self.is_cut,
            "ratio": self._ratio,
            "epoch": (self._epoch, self._epoch_start, self._epoch_steps),
            "controller": self.controller.state_dict(),
            "walk": [asdict(point) for point in self.walk],
            "cut_cost": None if self.cut_cost is None else asdict(self.cut_cost),
            "timing": None if self.timing is None else self.timing.as_data(),
            "sizes": (self.before, self.limit, self.least),
            "path": (self.path.before, self.path.limit),
            "kl_factors": {name: gate.current_kl_factor for name, gate in self._gates().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`."""
        self.step, self.is_cut, self._ratio = state["step"], state["is_cut"], state["ratio"]
        self._epoch, self._epoch_start, self._epoch_steps = state["epoch"]
        self.controller.load_state_dict(state["controller"])
        self.walk = [WalkPoint(**point) for point in state["walk"]]
        self.cut_cost = None if state.get("cut_cost") is None else CutCost(**state["cut_cost"])
        if state.get("timing") is not None:
            self.timing = Timing.from_data(state["timing"])
            self.look_again()
        if "sizes" in state:  # older files lack what follows; keep what this process computed
            self.before, self.limit, self.least = state["sizes"]
            self.path = Path.of(self.target, *state["path"])
            for name, gate in self._gates().items():
                gate.kl_factor = state["kl_factors"][name]
        self._set_weight()

    def _gates(self) -> dict[str, Gate]:
        """The gates by name; their KL is weighted by their cost at the start."""
        return {one.name: one.module for one in prunables(self.model) if isinstance(one.module, Gate)}
