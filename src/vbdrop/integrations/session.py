"""What all integrations share: conversion at the start, the KL before every step, and a state for the checkpoint."""

import copy
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vbdrop.compression import Plan, apply_plan_, compress
from vbdrop.convert import convert_
from vbdrop.convert.description import convert_as_described_, describe_conversion
from vbdrop.integrations.rate_groups import base_lr, separate_rates_
from vbdrop.layers.modes import Mode
from vbdrop.objective import ELBO
from vbdrop.objective.attachment import Handle
from vbdrop.objective.decay import rate_parameters
from vbdrop.objective.divergence import noisy_tensors
from vbdrop.targets import Target
from vbdrop.targets.pursuit import Pursuit
from vbdrop.targets.shrink_run import RATE_TRAVEL

QUICKEST = 0.5
"""In a short run, a log variance moves by at most this much per step."""


class Session:
    """One training run of a converted model in a trainer's loop.

    Args:
        modes: How the model is converted; none for one that already is.
        objective: The arguments of `vbdrop.ELBO` besides the model.
        rate_lr: The learning rate of the rates; None for that of the weights, or for what a target needs.
        example_inputs: Inputs of the model. With them, `vbdrop.Units` gets one gate per channel group or head; a target
            needs them to count sizes.

    Attributes:
        elbo: The objective; set by `prepare_`.
        plans: What has been removed from the model so far, as successive plans.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(4, 2)
        >>> session = Session([vbdrop.Weights()], {"n_train": 1000})
        >>> elbo = session.prepare_(model)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> session.attach(optimizer)
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.01, 0.0]
        >>> session.detach()
    """

    def __init__(
        self,
        modes: Sequence[Mode],
        objective: Mapping[str, Any],
        rate_lr: float | None = None,
        example_inputs: Any = None,  # noqa: ANN401 -- as convert_ takes them
    ) -> None:
        self.modes, self.objective, self.rate_lr = tuple(modes), dict(objective), rate_lr
        self.example_inputs = example_inputs
        self.plans: list[Plan] = []
        self._conversion: list[dict[str, Any]] | TypeError = []
        self._original: nn.Module | None = None
        self._arguments: dict[str, Any] = {}
        self._elbo: ELBO | None = None
        self._handles: list[Handle] = []

    @property
    def elbo(self) -> ELBO:
        """The objective."""
        if self._elbo is None:
            raise RuntimeError("`elbo` is available only once training has started.")
        return self._elbo

    @property
    def is_prepared(self) -> bool:
        """Whether there is an `elbo`."""
        return self._elbo is not None

    @property
    def is_cut(self) -> bool:
        """Whether the model has been cut to a target."""
        return any(pursuit.is_cut for pursuit in self._pursuits())

    def prepare_(self, model: nn.Module, *, steps: int | None = None, epochs: float | None = None) -> ELBO:
        """Convert a model, unless it is already converted, and make its objective.

        Args:
            model: The model.
            steps: The number of optimizer steps of the run, for a target without a length.
            epochs: The same in epochs.

        Raises:
            ValueError: If the model is not converted and there are no modes.
        """
        if self._elbo is not None and self._elbo.model is model:
            return self._elbo
        if next(noisy_tensors(model), None) is None:
            if not self.modes:
                raise ValueError(
                    "the model has no converted layer: pass modes such as vbdrop.Weights() here, or call "
                    "vbdrop.convert_(model, ...) before."
                )
            convert_(model, *self.modes, example_inputs=self.example_inputs)
        try:
            self._conversion = describe_conversion(model)  # while it has its original shape
        except TypeError as error:  # the model can be trained, but not saved
            self._conversion = error
        self.plans, self._original = [], None
        self._arguments = self._complete_objective(steps, epochs)
        self._elbo = ELBO(model, **self._arguments)
        return self._elbo

    def _complete_objective(self, steps: int | None, epochs: float | None) -> dict[str, Any]:
        """The arguments of the ELBO; a target takes the values that it lacks from the trainer."""
        target = self.objective.get("target")
        if not isinstance(target, Target):
            return self.objective
        if target.steps is None and target.epochs is None:
            # a target needs two epochs; for a single one, `set_steps` gives the length once the trainer knows it
            target = replace(target, steps=steps, epochs=None if epochs is None else max(2, epochs))
        if target.example_inputs is None:
            target = replace(target, example_inputs=self.example_inputs)
        return {**self.objective, "target": target}

    def set_steps(self, steps: int) -> None:
        """Set the number of optimizer steps of the run, for a target without a length of its own."""
        target = self.objective.get("target")
        if isinstance(target, Target) and target.steps is None and target.epochs is None:
            for pursuit in self._pursuits():
                pursuit.target = replace(pursuit.target, steps=steps, epochs=None)

    def _pursuits(self) -> list[Pursuit]:
        return [observer for observer in self.elbo.observers if isinstance(observer, Pursuit)]

    def separate_rates_(
        self,
        optimizer: Optimizer,
        steps: float | None = None,
        schedulers: Iterable[object] = (),
        others: Iterable[Optimizer] = (),
    ) -> None:
        """Give the rates of the model their own groups in an optimizer.

        Args:
            optimizer: A trainer's optimizer.
            steps: The number of optimizer steps of the run, if known.
            schedulers: The learning rate schedulers, which must be extended to new groups.
            others: The other optimizers of the model.
        """
        lrs = {"rate_lr": self.rate_lr, "variance_lr": self._variance_lr(optimizer, steps)}
        separate_rates_(self.elbo.model, optimizer, **lrs, schedulers=schedulers, others=others)

    def _variance_lr(self, optimizer: Optimizer, steps: float | None) -> float | None:
        """With a target, the learning rate at which log variances can go from alive to dead within the press stage.

        If they are slower, the pressure rises without end and shrinks the means of all gates alike, needed or not; the
        same happens if the means are as fast. Rates that have their own learning rate keep it.
        """
        target = self.objective.get("target")
        if self.rate_lr is not None or not isinstance(target, Target):
            return None
        steps = target.steps or steps
        if steps is None or not math.isfinite(steps):
            return None
        rates = rate_parameters(self.elbo.model)
        found = [  # a scheduler may have changed `lr` already
            (all(id(parameter) in rates for parameter in group["params"]), base_lr(group))
            for group in optimizer.param_groups
        ]
        of_weights = [lr for only_rates, lr in found if not only_rates]
        if any(only_rates and lr not in of_weights for only_rates, lr in found):
            return None
        pressing = (1 - target.train - target.refine) * steps
        return max(*of_weights, min(QUICKEST, RATE_TRAVEL / max(1.0, pressing)))

    def attach(self, *optimizers: Optimizer, schedulers: Iterable[object] = (), steps: float | None = None) -> None:
        """Give the rates groups without weight decay, and add the KL before every step of the optimizers.

        Optimizers that train no converted layer are left alone. A target counts the steps of the first of the others.

        Args:
            optimizers: The trainer's optimizers.
            schedulers: Their learning rate schedulers, which must be extended to new groups.
            steps: The number of optimizer steps of the run, if known.

        Raises:
            ValueError: If none of them trains a converted layer.
        """
        model = self.elbo.model
        own = {id(parameter) for _, entry in noisy_tensors(model) for parameter in (entry.mean, entry.rate)}
        mine = [o for o in optimizers if any(id(p) in own for group in o.param_groups for p in group["params"])]
        if not mine:
            raise ValueError("no optimizer trains a converted layer; build one from the parameters of the whole model.")
        for optimizer in mine:
            self._put_made_biases_last_(optimizer)
            self.separate_rates_(optimizer, steps, schedulers, [other for other in mine if other is not optimizer])
        self.detach()
        self._handles = [self.elbo.attach(optimizer) for optimizer in mine]

    def _put_made_biases_last_(self, optimizer: Optimizer) -> None:
        """Put biases that plans added last, as in the optimizer that was saved: its state is matched by position."""
        made = [name for plan in self.plans for name in plan.add if name not in plan.shapes]
        place = {id(self.elbo.model.get_parameter(name)): index for index, name in enumerate(made)}
        for group in optimizer.param_groups:
            group["params"].sort(key=lambda parameter: place.get(id(parameter), -1))

    def detach(self) -> None:
        """Stop adding the KL."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def end(self) -> None:
        """Stop adding the KL, and warn if training has ended before its target was reached."""
        self.detach()
        for pursuit in self._pursuits():
            if not pursuit.is_cut:
                warnings.warn(
                    f"training has ended after {pursuit.step} steps, before the model was cut to its target; it is "
                    "still larger. Resume from a checkpoint, or give the target the `steps` that training really has.",
                    stacklevel=3,
                )

    def shrink_(self, example_inputs: Any, optimizer: Optimizer | None) -> Plan:  # noqa: ANN401 -- as compress takes them
        """Remove what is dead now from the model and its optimizer; the outputs in eval mode stay the same.

        Returns:
            What was removed.
        """
        plan = compress(self.elbo.model, example_inputs, rewrite=False, recalibrate=False).plan
        if plan.keep:
            self._apply_(plan, optimizer)
        return plan

    def _apply_(self, plan: Plan, optimizer: Optimizer | None = None) -> None:
        if not self.plans:
            self._original = copy.deepcopy(self.elbo.model)
        apply_plan_(plan, self.elbo.model, optimizer)
        self.plans.append(plan)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs besides the tensors: the conversion, what was removed, and the objective's state.

        Raises:
            TypeError: If the conversion cannot be saved, for instance because of a custom prior.
        """
        if isinstance(self._conversion, TypeError):
            raise self._conversion
        return {
            "conversion": self._conversion,
            "plans": [plan.to_json() for plan in self.plans],
            "elbo": self.elbo.state_dict(),
        }

    def reshape_(self, state: Mapping[str, Any]) -> None:
        """Give the model the shape of a checkpoint, before its tensors are loaded.

        If the checkpoint is of a larger model, the layers are replaced by those of the original shape, and a new
        optimizer must be built.
        """
        plans = [Plan.from_json(plan) for plan in state["plans"]]
        if plans[: len(self.plans)] != self.plans:
            self._undo_plans_()
        for plan in plans[len(self.plans) :]:
            self._apply_(plan)

    def _undo_plans_(self) -> None:
        model, original = self.elbo.model, copy.deepcopy(self._original)
        for contents in ("_modules", "_parameters", "_buffers"):
            model.__dict__[contents] = original.__dict__[contents]
        for attribute in {name for plan in self.plans for name in plan.attributes.get("", ())}:
            setattr(model, attribute, getattr(original, attribute))
        self.detach()
        self.plans = []
        self._elbo = ELBO(model, **self._arguments)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`, after `reshape_`."""
        self.elbo.load_state_dict(state["elbo"])


def restore_shape_(
    model: nn.Module,
    state: Mapping[str, Any],
    example_inputs: Any = None,  # noqa: ANN401 -- as convert_ takes them
) -> nn.Module:
    """Convert and shrink a plain model like that of a checkpoint, so that the checkpoint's tensors can be loaded.

    Args:
        model: The plain model, as it was before training.
        state: The `Session.state_dict` in the checkpoint.
        example_inputs: Inputs that the model accepts, if it was converted with them.

    Returns:
        The same model.

    Example:
        >>> import vbdrop
        >>> session = Session([vbdrop.Units()], {"n_train": 10})
        >>> model = nn.Linear(4, 2)
        >>> _ = session.prepare_(model)
        >>> list(restore_shape_(nn.Linear(4, 2), session.state_dict()).state_dict()) == list(model.state_dict())
        True
    """
    convert_as_described_(model, state["conversion"], example_inputs)
    for plan in state["plans"]:
        apply_plan_(Plan.from_json(plan), model)
    return model
