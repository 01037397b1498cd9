"""Shared gates that are still used although the layer that holds them has left the model.

A shared gate is a submodule of its first reader alone (`vbdrop.layers.shared_gate`). If that layer is removed or
replaced, the gate still acts in the others, but the model's ``state_dict``, its KL and its optimizer no longer have it.
Only the whole model can tell, so it is marked when it is converted: each part of it may lack gates.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn

from vbdrop._torch_compat import state_dict_hooks
from vbdrop.layers.gate import Gate
from vbdrop.layers.shared_gate import SharedGate


def check_gates(model: nn.Module) -> None:
    """Refuse a model in which a layer uses gates that no layer of the model holds.

    Raises:
        ValueError: If there is such a layer.

    Example:
        >>> import torch
        >>> from vbdrop.layers import Units
        >>> gate = Gate(2, axis=-1, mode=Units(), like=torch.ones(1))
        >>> holder, other = (SharedGate(-1, own, [gate], torch.arange(2)) for own in ({"a": gate}, {}))
        >>> check_gates(nn.ModuleDict({"aux": holder, "head": other}))
        >>> check_gates(nn.ModuleDict({"head": other}))
        Traceback (most recent call last):
        ValueError: `model` must have all gates that its layers use, but those of 'head' belong to a layer that ...
    """
    held = {module for module in model.modules() if isinstance(module, Gate)}
    for name, module in model.named_modules():
        if isinstance(module, SharedGate) and not held.issuperset(module.all_gates):
            reader = name.removesuffix(".gate")
            raise ValueError(
                f"`model` must have all gates that its layers use, but those of {reader!r} belong to a layer that was "
                "removed or replaced, or that is outside `model`: they would be neither trained nor saved nor counted. "
                "After removing a layer from a converted model, call vbdrop.deterministic_(model), which folds the "
                "gates into the layers that are left, and convert it again; or remove the layer before you convert."
            )


def watch_gates_(model: nn.Module) -> None:
    """Mark a model as whole: it refuses to save or load a ``state_dict`` if it has lost a gate."""
    shared = any(isinstance(module, SharedGate) and module.all_gates for module in model.modules())
    if shared and not _is_watched(model):
        model.register_state_dict_pre_hook(_before_saving)  # type: ignore[no-untyped-call]  # torch's own, untyped
        model.register_load_state_dict_pre_hook(_before_loading)  # type: ignore[no-untyped-call]


def check_watched(model: nn.Module) -> None:
    """Call `check_gates` for each whole model within this one, which may itself be a part.

    Raises:
        ValueError: If one has lost a gate.
    """
    for module in model.modules():
        if _is_watched(module):
            check_gates(module)


def unwatch_gates_(model: nn.Module) -> None:
    """Undo `watch_gates_` in a model and in its parts."""
    for module in model.modules():
        for hooks, key in list(_own_hooks(module)):
            del hooks[key]


def _is_watched(module: nn.Module) -> bool:
    return next(_own_hooks(module), None) is not None


def _own_hooks(module: nn.Module) -> Iterator[tuple[dict[int, Any], int]]:
    """The hooks of `watch_gates_`: each with the dict that holds it, as its key there."""
    for hooks in state_dict_hooks(module):
        for key, hook in hooks.items():
            if getattr(hook, "hook", hook) in (_before_saving, _before_loading):  # torch wraps hooks on loading
                yield hooks, key


def _before_saving(module: nn.Module, prefix: str, keep_vars: bool) -> None:
    check_gates(module)


def _before_loading(module: nn.Module, *args: Any) -> None:  # noqa: ANN401 -- torch gives seven more
    check_gates(module)
