"""A run of `vbdrop.shrink`: its stages, epoch by epoch, and its checkpoint."""

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vbdrop.compression import Compressed, compress
from vbdrop.convert import convert_, param_groups
from vbdrop.convert.evaluating import evaluating
from vbdrop.convert.example_inputs import copied
from vbdrop.convert.recalibration import recalibrate_by_
from vbdrop.layers.modes import Mode, without_filters
from vbdrop.objective import ELBO
from vbdrop.targets.batches import Batches
from vbdrop.targets.kept_models import STEP, KeptModels
from vbdrop.targets.losses import Loss, are_classes, check_finite, checked_loss, error_of, standard_error, try_batch
from vbdrop.targets.path import Stage
from vbdrop.targets.progress import Progress
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.pursuit import Pursuit
from vbdrop.targets.reshaping import Reshaping
from vbdrop.targets.run_file import RunFile, digest
from vbdrop.targets.shrink_result import CurvePoint, ShrinkResult
from vbdrop.targets.stopwatch import Timing
from vbdrop.targets.target import Target, Unit
from vbdrop.targets.tolerance import Tolerance

RATE_TRAVEL = 30.0
"""How far the rates may move in ``log_alpha`` in the press stage; their learning rate is this divided by its steps."""

LAST_LR = 0.01
"""The learning rate falls to this share of itself in the refining stage."""

EXAMPLES = 8
"""The number of examples with which the model is traced."""

NOISE = 0.05
"""A model is not cut again if its time is above the limit by at most this share: it was within it at the cut."""

MOST_CUTS = 10
"""The largest number of attempts to compress a model to within its limit after refining; each failure cuts it again."""

RECALIBRATION_BATCHES = 50
"""The largest number of batches over which BatchNorm statistics are recomputed."""


class ShrinkRun:
    """A run in progress; its state changes by whole epochs.

    Args:
        model: The model; it is not changed.
        data: Training data.
        valid: Validation data, or None.
        target: The target.
        epochs: The epochs of the whole run.
        loss: The loss of outputs and targets.
        lr: The learning rate of the weights.
        modes: What becomes noisy.
        optimizer: Creates the optimizer.
        seed: The seed for the order of the data and for the noise.
        checkpoint: Where the run is saved, or None.
        shrink_every: The number of epochs after which removed elements leave the model; None for never.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Batches,
        valid: Batches | None,
        target: Target,
        epochs: int,
        *,
        loss: Loss,
        lr: float,
        modes: tuple[Mode, ...],
        optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        seed: int,
        checkpoint: Path | None,
        shrink_every: int | None = None,
    ) -> None:
        self.data, self.valid, self.loss, self.lr, self.seed = data, valid, loss, lr, seed
        self.epochs, self.modes, self._make_optimizer = epochs, modes, optimizer
        self.train_epochs = min(round(target.train * epochs), epochs - 1)
        rest = epochs - self.train_epochs
        self.refine_epochs = min(round(target.refine * epochs), rest - 1 if target.train + target.refine < 1 else rest)
        self.model, self._original = copied(model), model
        example = data.example.first(EXAMPLES)
        self._example = example
        inputs = example.kwargs if example.kwargs else example.args
        self.target = replace(
            target, epochs=None, steps=rest * len(data), train=0.0, refine=self.refine_epochs / rest,
            example_inputs=inputs,
        )  # fmt: skip
        self._asked = target
        self.done, self.curve = 0, list[CurvePoint]()
        self.error_before: float | None = None
        self._optimizer = self._new_optimizer([{"params": list(self.model.parameters()), "lr": lr}])
        self._elbo: ELBO | None = None
        self._pursuit: Pursuit | None = None
        self._timing: Timing | None = None
        self._kept: KeptModels | None = None
        self._shrink_every = shrink_every
        self._reshaping: Reshaping | None = None
        self._pressed = epochs - self.refine_epochs
        self._tolerance = (
            None if target.within is None else Tolerance(target.within, self._judged, self.refine_epochs // 2)
        )
        if target.within is not None and not self.train_epochs < self._pressed < epochs:
            raise ValueError(
                f"`epochs` must leave at least one epoch to press and one to refine for a target with `within`; "
                f"with {epochs} epochs, {target.train:g} of them train and {target.refine:g} refine."
            )
        self._file = None if checkpoint is None else RunFile(checkpoint, self._identity(), self._former_identity())
        self._rehearse()

    @property
    def pursued(self) -> Unit:
        """What the run counts during training."""
        return self.target.measured

    def _new_optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        made = self._make_optimizer(groups)
        if not isinstance(made, Optimizer):
            raise TypeError(f"`optimizer` must return a torch.optim.Optimizer; got {type(made).__name__}.")
        self._lrs = [group["lr"] for group in made.param_groups]
        return made

    def _identity(self) -> dict[str, Any]:
        """What identifies a run; runs that train first may begin with different tensors."""
        modes = [re.sub(" at 0x[0-9a-f]+", "", repr(without_filters(mode))) for mode in self.modes]
        tensors = None if self.train_epochs else digest(self.model)
        return {**self._former_identity(), "modes": modes, "tensors": tensors}

    def _former_identity(self) -> dict[str, Any]:
        """The identity in older files, which contains less."""
        shapes = [[name, list(tensor.shape)] for name, tensor in self.model.state_dict().items()]
        settings = [repr(self._asked), self.epochs, self.lr, self.seed, len(self.data), self.data.n_examples]
        settings += [] if self._shrink_every is None else [self._shrink_every]
        return {"settings": settings, "modes": [type(mode).__name__ for mode in self.modes], "shapes": shapes}

    def _rehearse(self) -> None:
        """Check on a copy that the target can be reached, before anything is trained."""
        model = copied(self.model)
        with torch.random.fork_rng(devices=[]):
            try_batch(self.data.example, "train", model, self.loss)
            checked_loss(self.loss, model, self._example)
            if self.valid is not None and self._asked.evaluate is None:
                try_batch(self.valid.example, "valid", copied(self.model).eval(), self._error_or_loss)
            convert_(model, *self.modes, example_inputs=self.target.example_inputs)
            pursuit = self.target.pursue(ELBO(model, n_train=self.data.n_examples), self._timing)
            self.before, self._timing = pursuit.before, pursuit.timing

    def _error_or_loss(self, outputs: Any, targets: Any) -> object:  # noqa: ANN401
        """What is computed on validation data: wrong classes need no loss."""
        return are_classes(outputs, targets) or self.loss(outputs, targets)

    # the epochs

    def finish(self, report: Progress | None) -> ShrinkResult:
        """Run the remaining epochs, and compress."""
        with torch.random.fork_rng(devices=[]):
            self._resume()
            if self.done == 0 and self.train_epochs == 0:
                self.error_before = self._error(self.model)
            while self.done < self.epochs:
                torch.manual_seed(self.seed * 1_000_003 + self.done)
                if self.done == self.train_epochs:
                    self._start_pressing()
                    if self._tolerance is not None and self._pursuit is not None:
                        self._tolerance.begin(self._pursuit, self.error_before, self._standard_error())
                loss = self._epoch()
                self.done += 1
                self._note(loss)
                if self._tolerance is not None and self._pursuit is not None:
                    self._tolerance.judge(self._pursuit, self.curve[-1], last=self.done == self._pressed)
                self._reshape()
                if self._file is not None:
                    self._file.save(self._state())
                if report is not None:
                    report(self.curve[-1], self.epochs)
            torch.manual_seed(self.seed * 1_000_003 + self.epochs)  # also if another process ran the last epoch
            return self._result()

    def _start_pressing(self) -> None:
        """Make the model noisy, and start the pursuit of the target."""
        convert_(self.model, *self.modes, example_inputs=self.target.example_inputs)
        steps = max(1, (self.epochs - self.train_epochs - self.refine_epochs) * len(self.data))
        rate_lr = max(self.lr, RATE_TRAVEL / steps)
        groups = param_groups(self.model, lr=self.lr, rate_lr=rate_lr, weight_decay=None)
        self._optimizer = self._new_optimizer(groups)
        self._elbo = ELBO(self.model, n_train=self.data.n_examples, check_every=0)
        self._pursuit = self.target.pursue(self._elbo, self._timing)
        self._pursuit.judge = self._judged
        self._kept = self._no_models(self._pursuit)
        if self._shrink_every is not None:
            self._reshaping = Reshaping(self.model, self.target.example_inputs or ())
        self._elbo.observers.append(self._pursuit)

    def _no_models(self, pursuit: Pursuit) -> KeptModels:
        """The kept models of the walk, none so far."""
        inputs, least = self.target.example_inputs or (), pursuit.path.limit / STEP
        return KeptModels(self._original, inputs, self.before, least, self.target.round_to)

    def _reshape(self) -> None:
        """Take removed elements out of the model if that is due; for ``within``, once the run cannot go back."""
        if self._pursuit is None or self._reshaping is None or self._shrink_every is None:
            return
        is_due = (self.done - self.train_epochs) % self._shrink_every == 0 and self.done < self.epochs
        may_go = self._tolerance is None or self._tolerance.decided
        if is_due and may_go and self._reshaping.step_(self.model, self._optimizer):
            self._pursuit.look_again()

    def _epoch(self) -> float:
        self.model.train()
        total = 0.0
        for batch in self.data:
            self._optimizer.zero_grad()
            nll = checked_loss(self.loss, self.model, batch)
            total += (value := nll.item())
            if not math.isfinite(value):
                check_finite(batch, "train")
                raise FloatingPointError(f"the loss is not finite in epoch {self.done + 1}; lower `lr`.")
            (nll if self._elbo is None else self._elbo(nll)).backward()  # type: ignore[no-untyped-call]
            if self._elbo is not None and self._pursuit is not None:
                self._elbo.step(self._optimizer)
                self._schedule(self._pursuit)
            self._optimizer.step()
        return total / len(self.data)

    def _schedule(self, pursuit: Pursuit) -> None:
        """Lower the learning rate while the survivors are refined."""
        if pursuit.is_cut and self.target.refine > 0:
            left = (1 - pursuit.step / float(self.target.steps or 1)) / self.target.refine
            for group, lr in zip(self._optimizer.param_groups, self._lrs, strict=True):
                group["lr"] = lr * max(LAST_LR, min(1.0, left))

    def _note(self, loss: float) -> None:
        """Add the epoch to the curve."""
        if self._pursuit is None or self._elbo is None:
            error = self.error_before = self._error(self.model)
            self.curve.append(CurvePoint(self.done, "train", self.before, self.before, loss, error, 0.0))
            return
        pursuit = self._pursuit
        plain = self._plain()
        size = pursuit.exact_size(plain)
        stage: Stage = "refine" if pursuit.is_cut else "press"
        is_kept = self._kept is not None and stage == "press" and self._kept.is_next(size)
        if is_kept and self._reshaping is not None:
            plain = self._plain(whole=True)
        error = self._error(plain)
        path = pursuit.path(pursuit.share)
        self.curve.append(CurvePoint(self.done, stage, size, path, loss, error, self._elbo.kl_weight))
        if self._kept is not None and is_kept:
            self._kept.add(self.done, size, error, plain)

    def _error(self, model: nn.Module) -> float | None:
        """The error on validation data, by the target's own function if it has one."""
        if self._asked.evaluate is not None:
            with torch.no_grad(), evaluating(model):
                return float(self._asked.evaluate(model))
        return None if self.valid is None else error_of(model, self.valid, self.loss)

    def _standard_error(self) -> float:
        """The standard error of the initial error, as far as it is known."""
        if self.valid is None or self._asked.evaluate is not None or self.error_before is None:
            return 0.0
        return standard_error(self.error_before, self.model, self.valid)

    def _judged(self, plain: nn.Module) -> float | None:
        """The error of a plain network that was just cut, without affecting the noise or the order of the data."""
        if self.valid is None and self._asked.evaluate is None:
            return None
        with torch.random.fork_rng(devices=[]):
            return self._error(self._recalibrated(plain))

    def _plain(self, *, whole: bool = False) -> nn.Module:
        """The plain network at this moment, without what was removed; in the original shape if ``whole``."""
        model = self._reshaping.whole(self.model) if whole and self._reshaping is not None else self.model
        plain = plain_without(model, [~one.alive() for one in prunables(model)])
        return self._recalibrated(plain)

    def _recalibrated(self, model: nn.Module) -> nn.Module:
        batches = [batch for batch, _ in zip(self.data, range(RECALIBRATION_BATCHES), strict=False)]
        return recalibrate_by_(model, batches, lambda model, batch: batch.outputs(model), stacklevel=2)

    def _result(self) -> ShrinkResult:
        if self._pursuit is None:
            raise RuntimeError("the run has no epoch that presses.")
        pursuit = self._pursuit
        small, size = self._fitting(pursuit)
        error = self._error(small.model)
        if self._tolerance is not None and error is not None and not self._tolerance.fits(error):
            warnings.warn(
                f"the error ended at {error:.4g}, more than {self._tolerance.within:g} above the start "
                f"({self._tolerance.start:.4g}), although it was within that before the last epochs: give the run more "
                "epochs, or more of them to refine (`refine` of the Target).",
                stacklevel=4,
            )
        if self._tolerance is None and not self._is_small(size, pursuit.limit):
            reasons = "; ".join(f"{place}: {reason}" for place, reason in small.left.items())
            warnings.warn(
                f"the network ended larger than its target, {size:,.6g} {self.pursued} where at most "
                f"{pursuit.limit:,.6g} are allowed. What is dead could not be removed: {reasons}",
                stacklevel=4,
            )
        return ShrinkResult(
            small, self._asked, self.pursued, None if self._tolerance else pursuit.limit, pursuit.before, size,
            self.error_before, error, self.curve, pursuit.walk, pursuit.cut_cost,
            [] if self._kept is None else self._kept.models,
        )  # fmt: skip

    def _fitting(self, pursuit: Pursuit) -> tuple[Compressed, float]:
        """The compressed model and its size.

        A channel that was the constant zero at the cut may be another constant after the refining, which needs weights
        to carry it: a model that is then above the limit is cut again.
        """
        limit = pursuit.limit
        for cuts in range(MOST_CUTS):
            plain = self._plain(whole=True)
            inputs = self._example.kwargs if self._example.kwargs else self._example.args
            small = compress(plain, inputs, round_to=self.target.round_to)
            size = self._size(small, pursuit)
            if self._is_small(size, limit) or self._tolerance is not None or "model" in small.left:
                break  # a further cut does not help if nothing can be removed
            pursuit.limit -= max(size - limit, 1.0 if self.pursued != "latency" else 0.0) if cuts else 0.0
            pursuit.cut_()
        pursuit.limit = limit
        return small, size

    def _is_small(self, size: float, limit: float) -> bool:
        """Whether a size is within the limit; times may exceed it by their noise."""
        return size <= (1.0 + NOISE * (self.pursued == "latency")) * limit

    def _size(self, small: Compressed, pursuit: Pursuit) -> float:
        """The size of the small model itself; if only some modules count, the counter's result."""
        if self.pursued == "latency":
            return pursuit.seconds(small)
        if self._asked.only is not None:
            return pursuit.exact_size(self._plain())
        after = small.summary().after
        parameters = sum(parameter.numel() for parameter in small.model.parameters())
        sizes = {"weights": after.nonzeros, "bytes": after.bytes, "macs": after.macs, "parameters": parameters}
        found = sizes[self.pursued]
        return pursuit.before if found is None else float(found)  # unknown where nothing could be removed

    # the checkpoint

    def _state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "model": self.model.state_dict(),
            "plans": [] if self._reshaping is None else [plan.to_json() for plan in self._reshaping.plans],
            "optimizer": self._optimizer.state_dict(),
            "pursuit": None if self._pursuit is None else self._pursuit.state_dict(),
            "tolerance": None if self._tolerance is None else self._tolerance.state_dict(),
            "timing": None if self._timing is None else self._timing.as_data(),
            "error_before": self.error_before,
            "curve": [asdict(point) for point in self.curve],
            "kept": [] if self._kept is None else self._kept.state(),
            "generators": [each.get_state() for each in self._generators()],
        }

    def _generators(self) -> list[torch.Generator]:
        return self.data.generators() + ([] if self.valid is None else self.valid.generators())

    def _resume(self) -> None:
        state = None if self._file is None else self._file.load()
        if state is None:
            return
        if state["timing"] is not None:
            self._timing = Timing.from_data(state["timing"])
            self.before = self._timing.before
        if state["pursuit"] is not None:
            self._start_pressing()
        if self._reshaping is not None:
            self._reshaping.load_(state["plans"], self.model, self._optimizer)
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._pursuit is not None:
            if state["plans"]:
                self._pursuit.look_again()
            self._pursuit.load_state_dict(state["pursuit"])
            self._kept = self._no_models(self._pursuit)
        if self._tolerance is not None:
            self._tolerance.load_state_dict(state["tolerance"])
        if self._kept is not None:
            self._kept.load_state(state.get("kept", []))
        for generator, its_state in zip(self._generators(), state.get("generators", []), strict=False):
            generator.set_state(its_state)
        self.done, self.error_before = state["done"], state["error_before"]
        self.curve = [CurvePoint(**point) for point in state["curve"]]
