"""Example inputs in all forms that users may pass, and a copy of a model to run on them."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from vbdrop._torch_compat import detached_activations, pytree

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments by position, and by name."""


def as_arguments(example_inputs: Any, example_kwargs: Mapping[str, Any] | None = None) -> Arguments:  # noqa: ANN401
    """The example inputs as positional and named arguments.

    Raises:
        TypeError: If they are neither a tensor, a tuple or list of arguments, nor a dict of named ones.
        ValueError: If a tensor among them has no elements.

    Example:
        >>> import torch
        >>> as_arguments({"x": torch.zeros(1)})
        ((), {'x': tensor([0.])})
    """
    if example_kwargs is not None and not isinstance(example_kwargs, Mapping):
        raise TypeError(f"`example_kwargs` must be a dict of inputs by name; got {type(example_kwargs).__name__}.")
    named = dict(example_kwargs or {})
    if isinstance(example_inputs, Mapping):
        arguments: Arguments = (), {**example_inputs, **named}
    elif isinstance(example_inputs, tuple | list):
        arguments = tuple(example_inputs), named
    elif isinstance(example_inputs, Tensor):
        arguments = (example_inputs,), named
    else:
        kind = type(example_inputs).__name__
        raise TypeError(f"`example_inputs` must be a tensor, a tuple of arguments or a dict; got {kind}.")
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, Tensor) and leaf.numel() == 0:
            raise ValueError(f"`example_inputs` must hold at least one example; got a tensor of {list(leaf.shape)}.")
    return arguments


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model, even if a module keeps an activation of its last forward.

    Such a tensor belongs to an autograd graph, and torch refuses to copy it; the copy is detached.

    Raises:
        ValueError: If the model cannot be copied; the message gives torch's reason.

    Example:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> model.last = model(torch.zeros(1, 2))
        >>> copied(model).last.grad_fn is None
        True
    """
    try:
        return copy.deepcopy(model, detached_activations(model))
    except Exception as error:  # the attributes of a model may raise anything
        raise ValueError(
            f"`model` must be one that copy.deepcopy can copy; it raised {type(error).__name__}: {error}. First delete "
            "what the model keeps between calls, such as an activation."
        ) from error
