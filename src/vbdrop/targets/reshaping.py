"""A model that shrinks while a target is pursued: what was removed for good leaves the model and its optimizer."""

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from vbdrop.compression import Plan, apply_plan_, compress
from vbdrop.compression.rewriting.restore import restore_
from vbdrop.convert.example_inputs import copied
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.target import Inputs


class Reshaping:
    """Removes from a model in training what a pursuit has marked as removed; the forward stays as it is.

    Args:
        model: The converted model, in its original shape.
        inputs: Example inputs.

    Attributes:
        plans: What has been taken out so far, as a list of successive plans.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> reshaping = Reshaping(model, torch.zeros(2, 4))
        >>> prunables(model)[1].remove_(torch.tensor([True, False, True]))
        >>> reshaping.step_(model, torch.optim.Adam(model.parameters()))
        True
        >>> model[0].weight.shape, reshaping.whole(model)[0].weight.shape
        (torch.Size([1, 4]), torch.Size([3, 4]))
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        self._original, self._inputs = copied(model), inputs
        self.plans: list[Plan] = []

    def step_(self, model: nn.Module, optimizer: Optimizer) -> bool:
        """Take out what has been removed by now, in place; return whether anything was.

        A layer without a bias that would need one for folded constants stays as it is.
        """
        plain = plain_without(model, [~one.alive() for one in prunables(model)])
        plan = compress(plain, self._inputs, rewrite=False, recalibrate=False).plan
        if not plan.keep or any(name not in plan.shapes for name in plan.add):
            return False
        apply_plan_(plan, model, optimizer)
        self.plans.append(plan)
        return True

    def load_(self, plans: Sequence[str], model: nn.Module, optimizer: Optimizer) -> None:
        """Give a model in its original shape the shape of a checkpoint, before its tensors are loaded."""
        for text in plans:
            self.plans.append(Plan.from_json(text))
            apply_plan_(self.plans[-1], model, optimizer)

    def whole(self, model: nn.Module) -> nn.Module:
        """A copy of the model in its original shape, with zeros for what was taken out."""
        if not self.plans:
            return model
        shapes = [copy.deepcopy(self._original)]
        for one in prunables(shapes[0]):  # create the masks of removed elements, so that they can be loaded
            one.remove_(torch.zeros(one.entry.mean.shape, dtype=torch.bool))
        for plan in self.plans[:-1]:
            shapes.append(apply_plan_(plan, copy.deepcopy(shapes[-1])))
        whole = model
        for shape, plan in zip(reversed(shapes), reversed(self.plans), strict=True):
            whole = restore_(shape, plan, whole.state_dict())
        return whole.train(model.training)
