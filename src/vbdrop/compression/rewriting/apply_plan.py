"""Apply a plan: to a plain model, to a state dict, and to a Bayesian model in the middle of training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.analysis.layer_shapes import beside, owner
from vbdrop.compression.planning.plan import Cut, Plan
from vbdrop.compression.planning.replaced_modules import made_by_replacing, replace_modules_
from vbdrop.compression.rewriting.converted_layers import companions, is_bayesian, merged_noisy, shared_cuts
from vbdrop.compression.rewriting.memory_format import ordered_as, to_channels_last_
from vbdrop.compression.rewriting.optimizer_state import adopt_, check_optimizers, cut_states_, listed
from vbdrop.compression.rewriting.program import build, decoded_tensor
from vbdrop.compression.rewriting.slicing import cut, merged
from vbdrop.compression.rewriting.wrappers import check_unwrapped, retire_wrappers_
from vbdrop.convert.fast_path import sync_fast_paths_
from vbdrop.layers import NoisyLayer
from vbdrop.layers.computed_weight import MARK
from vbdrop.layers.recurrent import NoisyRecurrent
from vbdrop.layers.unequal_recurrent import EQUAL, UNEQUAL, refit_


@overload
def apply_plan_(
    plan: Plan, target: nn.Module, optimizer: Optimizer | Sequence[Optimizer] | None = None
) -> nn.Module: ...
@overload
def apply_plan_(plan: Plan, target: Mapping[str, Tensor], optimizer: None = None) -> dict[str, Tensor]: ...
@torch.no_grad()
def apply_plan_(
    plan: Plan,
    target: nn.Module | Mapping[str, Tensor],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> nn.Module | dict[str, Tensor]:
    """Remove from a model or its state dict what a plan lists.

    A model keeps its class, and its modules and parameters stay the same objects; they become smaller in place. Only a
    plan with a program returns another object, a `torch.fx.GraphModule` around the same modules. In a Bayesian model
    the rates and gates become smaller too, and so does the state of every optimizer.

    Args:
        plan: A plan from `vbdrop.compress`.
        target: The model for which the plan was made, plain or Bayesian, or a fresh instance of its class; or its
            state dict, of which a smaller copy is made.
        optimizer: The optimizer that trains the model, if training continues; if several do, all of them in one
            sequence. With several processes, apply the same plan on all of them to the model inside
            `torch.nn.parallel.DistributedDataParallel`, and wrap it again: the old wrapper does not know the new
            shapes, and its next forward raises an error.

    Returns:
        The small model, or the small state dict.

    Raises:
        ValueError: If the plan was not made for the target, or an optimizer cannot follow; nothing is changed then.
        TypeError: If the target or an optimizer is something else; nothing is changed then either.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> plan = Plan(
        ...     keep={"0.weight": {0: [0, 2]}, "0.bias": {0: [0, 2]}, "2.weight": {1: [0, 2]}},
        ...     attributes={"0": {"out_features": 2}, "2": {"in_features": 2}},
        ...     shapes={"0.weight": [3, 4], "0.bias": [3], "2.weight": [2, 3]},
        ... )
        >>> apply_plan_(plan, model)
        Sequential(
          (0): Linear(in_features=4, out_features=2, bias=True)
          (1): ReLU()
          (2): Linear(in_features=2, out_features=2, bias=True)
        )
    """
    if isinstance(target, nn.Module):
        return _apply_to_module(plan, target, listed(optimizer))
    if isinstance(target, Mapping):
        return _apply_to_state(plan, target)
    raise TypeError(f"`target` must be a torch.nn.Module or a state dict; got {type(target).__name__}.")


def small_state(plan: Plan, model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model after a plan; the modules that the plan replaces must already be replaced in it.

    Args:
        plan: The plan.
        model: The plain model from which the plan was made; it is not changed.
    """
    return _apply_to_state(replace(plan, attributes={}), model.state_dict())


def _apply_to_state(plan: Plan, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    _check(plan, state)
    for weight in plan.merge:
        if any(beside(weight, name) in state for name in ("log_sigma2", "log_alpha", "gate.weight")):
            raise ValueError(
                f"the plan merges weights of {weight!r}, but a state dict does not say which of them are alive; "
                "load it into the model and apply the plan to that."
            )
    for path, numbers in plan.attributes.items():
        if MARK in numbers:
            raise ValueError(
                f"the plan is for the weight that {path!r} computes, which a state dict does not have; load it into "
                "the model and apply the plan to that."
            )
    result = dict(state) | _small_tensors(plan, state, _cuts(plan, state), {})
    if plan.program is not None:
        result = {name: tensor for name, tensor in result.items() if name not in plan.program.removed}
        result |= {name: decoded_tensor(entry) for name, entry in plan.program.buffers.items()}
    return result


def _apply_to_module(plan: Plan, model: nn.Module, optimizers: list[Optimizer]) -> nn.Module:
    check_unwrapped(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tensors: dict[str, Tensor] = parameters | dict(model.named_buffers(remove_duplicate=False))
    _check(plan, tensors)
    if plan.program is not None and (optimizers or is_bayesian(model)):
        raise ValueError(
            "the plan replaces the model's forward, which must stay unchanged in training; "
            "make the plan with vbdrop.compress(..., rewrite=False)."
        )
    shared = shared_cuts(plan, model)
    check_optimizers(optimizers, parameters, _cuts(plan, tensors) | shared.cuts)
    replace_modules_(plan, model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tensors |= parameters
    cuts = _cuts(plan, tensors) | shared.cuts
    if cuts:
        retire_wrappers_(model)
    layers = {path: module for path, module in model.named_modules() if isinstance(module, NoisyLayer)}
    done = set[int]()
    for name, small in _small_tensors(plan, tensors, cuts, layers).items():
        if name not in tensors:
            _add_bias_(model, name, small, optimizers)
        elif id(tensors[name]) not in done:  # a tied parameter has several names
            done.add(id(tensors[name]))
            if name in parameters:
                cut_states_(optimizers, parameters[name], cuts.get(name, {}))
            _replace_(tensors[name], ordered_as(tensors[name], small))
    for gate, index in shared.indices.items():
        gate.set_index_(index)
    for path, numbers in plan.attributes.items():
        for attribute, number in numbers.items() if "count" not in numbers else ():
            setattr(model.get_submodule(path), attribute, number)
    sync_fast_paths_(model)
    for module in model.modules():
        is_plain = type(module) in (*EQUAL, *UNEQUAL)
        if isinstance(module, nn.RNNBase) and (is_plain or isinstance(module, NoisyRecurrent)):
            refit_(module)
    if plan.channels_last and not is_bayesian(model):
        to_channels_last_(model)
    return model if plan.program is None else build(plan.program.nodes, model, plan.program.buffers)


def _replace_(tensor: Tensor, small: Tensor) -> None:
    """Replace a tensor's values with values of another shape.

    If the graph of an earlier step is still alive, so is the tensor's gradient accumulator, which insists on the old
    shape. Torch creates a new accumulator only for another dtype, so the tensor temporarily gets another dtype.
    """
    tensor.grad = None
    if tensor.requires_grad:
        tensor.data = small.new_empty(0, dtype=torch.float32 if small.dtype == torch.float64 else torch.float64)
    tensor.data = small


def _check(plan: Plan, tensors: Mapping[str, Tensor]) -> None:
    """Check that the target has the tensors for which the plan was made."""
    made = made_by_replacing(plan, tensors)
    for name, shape in plan.shapes.items():
        if name in made:
            continue
        if name not in tensors:
            raise ValueError(f"`target` must be what the plan was made for, with a tensor {name!r}; it has none.")
        if list(tensors[name].shape) != shape:
            raise ValueError(f"{name!r} must have the shape {shape} for this plan; got {list(tensors[name].shape)}.")


def _cuts(plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Cut]:
    return {name: cut for name, cut in plan.keep.items() if name in tensors} | companions(plan, tensors)


def _small_tensors(
    plan: Plan, tensors: Mapping[str, Tensor], cuts: dict[str, Cut], layers: dict[str, NoisyLayer]
) -> dict[str, Tensor]:
    """All tensors that a plan changes or creates, in their final form."""
    changed = {name: tensors[name].detach() for name in cuts}
    for weight, merges in plan.merge.items():
        layer = layers.get(owner(weight))
        if layer is None:
            changed[weight] = merged(tensors[weight].detach(), merges).to(tensors[weight].dtype)
        else:
            changed |= {beside(weight, name): tensor for name, tensor in merged_noisy(layer, merges).items()}
    changed = {name: cut(tensor, cuts.get(name, {})) for name, tensor in changed.items()}
    for name, values in plan.add.items():
        like = tensors[name if name in tensors else beside(name, "weight")].detach()
        added = torch.tensor(values, dtype=torch.float64, device=like.device)
        gates = beside(name, "output_gate.weight")
        if gates in tensors:  # a converted layer's output gates multiply its bias too
            added = torch.where(added == 0, 0.0, added / cut(tensors[gates].detach(), cuts.get(gates, {})))
        before = changed.get(name, tensors[name].detach() if name in tensors else torch.zeros_like(added))
        changed[name] = (before.double() + added).to(like.dtype)
    return changed


def _add_bias_(model: nn.Module, name: str, values: Tensor, optimizers: list[Optimizer]) -> None:
    """Create the bias that a module now needs."""
    module = model.get_submodule(owner(name))
    if getattr(module, "bias", None) is not None:  # the module appears several times and already has its bias
        return
    weight = module.get_parameter("weight")
    module.register_parameter("bias", nn.Parameter(values, requires_grad=weight.requires_grad))
    for optimizer in optimizers:
        adopt_(optimizer, module.get_parameter("bias"), beside=weight)
