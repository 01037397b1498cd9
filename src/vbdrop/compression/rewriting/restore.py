"""Restore a small model to its original shape, with zeros where something was removed."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vbdrop.analysis.layer_shapes import beside
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.rewriting.converted_layers import companions, shared_cuts
from vbdrop.compression.rewriting.slicing import uncut


@torch.no_grad()
def restore_(model: nn.Module, plan: Plan, state: Mapping[str, Tensor]) -> nn.Module:
    """Load the state of a small model into one of the original shape.

    The weights and gates that were removed become zero, so they are also dead in a converted model. The outputs in eval
    mode are those of the small model.

    Args:
        model: A model of the original shape, plain or converted; its values are replaced.
        plan: The plan that produced the small model, without a program.
        state: The ``state_dict`` of the small model.

    Returns:
        The same model.

    Raises:
        ValueError: If the plan has a program or creates a bias, because the small model then has another structure.

    Example:
        >>> model = nn.Linear(2, 3)
        >>> plan = Plan(keep={"weight": {0: [0, 2]}, "bias": {0: [0, 2]}}, shapes={"weight": [3, 2], "bias": [3]})
        >>> state = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "bias": torch.tensor([5.0, 6.0])}
        >>> restore_(model, plan, state).weight.tolist()
        [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]
    """
    if plan.program is not None:
        raise ValueError("`plan` must not have a program; make it with vbdrop.compress(..., rewrite=False).")
    made = [name for name in plan.add if name not in plan.shapes]
    if made:
        raise ValueError(f"`plan` must not create a bias that the original lacks; it created {made[0]!r}.")
    cuts = plan.keep | companions(plan, state) | shared_cuts(plan, model).cuts
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    shapes |= {
        name: shapes[beside(name, "weight")] for name in state if name.endswith("removed") and name not in shapes
    }
    model.load_state_dict({name: uncut(tensor, cuts.get(name, {}), shapes[name]) for name, tensor in state.items()})
    return model
