"""Networks that get cheaper while they train: units that have stayed dead are removed from the model."""

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from vbdrop.analysis.graph import Traced, TraceError, trace
from vbdrop.analysis.layer_shapes import beside
from vbdrop.compression import Plan, apply_plan_
from vbdrop.compression.agreement import disagreement
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.planning.remaining_plan import relative
from vbdrop.compression.rewriting.restore import restore_
from vbdrop.train.method import Method
from vbdrop.train.selection import inputs_read, select_inputs_, with_selections
from vbdrop.train.sparsity import distinct_weights, weight_layers

EXAMPLES = 8
"""The number of examples for tracing the network and comparing its outputs before and after."""


def check_shrinks(method: Method, shrink_every: int | None) -> None:
    """Check that a method's units can be removed during training, if ``shrink_every`` is set.

    Raises:
        ValueError: They cannot be removed.

    Example:
        >>> from vbdrop.methods import Plain, VBDGates
        >>> check_shrinks(VBDGates(), 1)
        >>> check_shrinks(Plain(), 1)
        Traceback (most recent call last):
        ValueError: `shrink_every` must be None for Plain: with these settings none of its units can be ...
    """
    if shrink_every is not None and not method.shrinks:
        raise ValueError(
            f"`shrink_every` must be None for {type(method).__name__}: with these settings none of its units can be "
            f"removed during training, so it would have no effect; got {shrink_every!r}."
        )


@dataclass(frozen=True)
class Shrunk:
    """What has been removed from a model.

    Attributes:
        plan: From the original model to the current one. Folded constants are already in the biases.
        arriving: Linear layer that selects its inputs -> those of its original inputs that arrive there.
        wanted: Weight -> the inputs that it needed at the last check; None if nothing was dead.
    """

    plan: Plan = field(default_factory=Plan)
    arriving: dict[str, list[int]] = field(default_factory=dict)
    wanted: dict[str, list[int]] | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the same as strings, numbers and lists, for a checkpoint."""
        return {"plan": self.plan.to_json(), "arriving": self.arriving, "wanted": self.wanted}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Shrunk":
        """Read the result of :meth:`as_data`."""
        return cls(Plan.from_json(data["plan"]), data["arriving"], data["wanted"])


class Shrinking:
    """Removes units from a model in training that were dead at two checks in a row.

    A unit is dead if the network does not need it: its gate is dead, or all of its incoming weights are, or all of its
    outgoing weights. Every check makes one plan, by the rules of `vbdrop.compress`, and applies it to the model and its
    optimizer. The outputs in eval mode do not change.

    All plans are made for the original network, in which everything removed is zero, so that it is traced only once.

    Args:
        method: Its ``in_training`` determines what is dead.
        model: The model in training, in its original shape.
        inputs: Examples, of which the first few are used.

    Example:
        >>> from vbdrop.methods import VBDGates
        >>> method = VBDGates()
        >>> model = method.build(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        >>> optimizer = torch.optim.Adam(method.groups(model, lr=1e-3))
        >>> shrinking = Shrinking(method, model, torch.rand(8, 4))
        >>> with torch.no_grad():
        ...     _ = model[2].gate.log_sigma2[1:].fill_(10.0)
        >>> for check in range(2):
        ...     shrinking.check_(model, optimizer)
        >>> model[0].weight.shape, shrinking.whole(model)[0].weight.shape
        (torch.Size([1, 4]), torch.Size([3, 4]))
    """

    def __init__(self, method: Method, model: nn.Module, inputs: Tensor) -> None:
        self.method, self.inputs = method, inputs[:EXAMPLES]
        self.shrunk = Shrunk()
        self.weights = sum(weight.numel() for weight in distinct_weights(model).values())
        self._original = copy.deepcopy(model)
        self._traced: Traced | None = None
        self._handles: list[RemovableHandle] = []

    def whole(self, model: nn.Module) -> nn.Module:
        """A copy of the model in its original shape: removed units are restored, dead."""
        return restore_(copy.deepcopy(self._original), self.shrunk.plan, model.state_dict()).train(model.training)

    def check_(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Remove the units that are dead now and were dead at the last check from a model and its optimizer."""
        with torch.random.fork_rng(devices=[]):
            network = self.method.in_training(self.whole(model)).eval()
            wanted = self._wanted(network)
            found = self._next(network)
        if found is not None:
            self._apply_(*found, model, optimizer)
        self.shrunk = replace(self.shrunk, wanted=wanted)

    def load_(self, data: Mapping[str, Any], model: nn.Module, optimizer: Optimizer) -> None:
        """Give a model in its original shape, and its optimizer, the shape of a checkpoint."""
        shrunk = Shrunk.from_data(data)
        self._apply_(shrunk.plan, shrunk, model, optimizer)

    def _apply_(self, step: Plan, shrunk: Shrunk, model: nn.Module, optimizer: Optimizer) -> None:
        apply_plan_(step, model, optimizer)
        for handle in self._handles:
            handle.remove()
        self._handles = _select_(model, shrunk)
        self.shrunk = shrunk

    def _wanted(self, network: nn.Module) -> dict[str, list[int]] | None:
        """The inputs that each weight needs; None if nothing is dead, or the network cannot be traced."""
        if self._traced is None:
            if not any(_has_dead_units(layer.weight.detach()) for _, layer in weight_layers(network)):
                return None
            try:
                self._traced = trace(network, (self.inputs,))
            except TraceError:
                return None
        plan = make_plan(self._traced, network, rewritten=False).plan
        weights = {name: weight.detach() for name, weight in network.named_parameters() if name in plan.shapes}
        return {name: inputs_read(plan, name, weights[name]) for name in plan.positions.keys() & weights.keys()}

    def _next(self, network: nn.Module) -> tuple[Plan, Shrunk] | None:
        """The step to a smaller shape, and that shape; None if nothing is removed."""
        for plan, arriving in self._candidates(network):
            step = relative(plan, self.shrunk.plan)
            if step is None or not step.keep:
                continue
            shrunk = Shrunk(replace(plan, add={}, merge={}), arriving)
            small = apply_plan_(plan, copy.deepcopy(network))
            _select_(small, shrunk)
            if disagreement(network, small, (self.inputs,), {}) is None:
                return step, shrunk
        return None

    def _candidates(self, network: nn.Module) -> Iterator[tuple[Plan, dict[str, list[int]]]]:
        """Candidate plans, largest removal first; a trace does not show sizes that are hard-coded in a forward."""
        if self._traced is None or self.shrunk.wanted is None:
            return
        for frozen_shapes in (False, True):
            stays: dict[str, Collection[int]] = dict(self.shrunk.wanted)
            while True:
                plan = make_plan(self._traced, network, rewritten=False, frozen_shapes=frozen_shapes, stays=stays).plan
                without_bias = [beside(bias, "weight") for bias in plan.add if bias not in plan.shapes]
                if not without_bias:
                    break
                for weight in without_bias:  # its constants stay: a network cannot gain and lose a bias
                    stays[weight] = inputs_read(Plan(shapes=plan.shapes), weight, network.get_parameter(weight))
            yield with_selections(plan, network, stays, self.shrunk.arriving)
            if not self.shrunk.arriving:
                yield plan, {}


def _select_(model: nn.Module, shrunk: Shrunk) -> list[RemovableHandle]:
    """Make layers select their inputs."""
    handles = []
    for path, arriving in shrunk.arriving.items():
        position = {unit: index for index, unit in enumerate(arriving)}
        selected = shrunk.plan.keep[f"{path}.weight".lstrip(".")][1]
        handles.append(select_inputs_(model.get_submodule(path), [position[unit] for unit in selected]))
    return handles


def _has_dead_units(weight: Tensor) -> bool:
    """Whether a whole row or column of a weight is zero."""
    nonzero = weight.flatten(2).any(-1) if weight.dim() > 2 else weight != 0
    return not bool(nonzero.any(0).all() and nonzero.any(1).all())
