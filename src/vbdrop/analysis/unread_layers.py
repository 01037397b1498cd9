"""Layers that a forward calls although nothing reads their results, such as the pooler in a BERT for tagging.

`torch.export` leaves them out. The original forward of a small model still calls them, so they must follow the sizes
of what they read: inside `results_returned`, a trace shows them too.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn


def unread_layers(
    model: nn.Module, read: Iterable[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[nn.Module]:
    """The largest modules that the forward calls although none of their parameters is read.

    Args:
        model: A plain model, in eval mode.
        read: The names of the parameters that are read.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Example:
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.read, self.unread, self.idle = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 3)
        ...     def forward(self, x):
        ...         self.unread(x)
        ...         return self.read(x)
        >>> unread_layers(Net().eval(), ["read.weight", "read.bias"], (torch.zeros(4, 2),), {})
        [Linear(in_features=2, out_features=1, bias=True)]
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    used = {id(parameters[name]) for name in read if name in parameters}
    silent = [module for child in model.children() for module in _largest(child, used)]
    called: dict[nn.Module, None] = {}
    if silent:
        with torch.no_grad(), ExitStack() as hooks:
            for module in silent:
                hooks.enter_context(module.register_forward_hook(lambda module, *_: called.setdefault(module)))
            model(*args, **kwargs)
    return list(called)


def _largest(module: nn.Module, read: set[int]) -> Iterator[nn.Module]:
    """The largest modules that have parameters, none of them read."""
    parameters = {id(parameter) for parameter in module.parameters()}
    if parameters and parameters.isdisjoint(read):
        yield module
    elif parameters:
        for child in module.children():
            yield from _largest(child, read)


@contextmanager
def results_returned(model: nn.Module, layers: list[nn.Module]) -> Iterator[None]:
    """Make a model return its outputs and the results of some of its layers, as a pair, inside a ``with`` block.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> with results_returned(model, [model[0]]):
        ...     outputs, (hidden,) = model(torch.zeros(4, 2))
        >>> outputs.shape, hidden.shape
        (torch.Size([4, 1]), torch.Size([4, 3]))
    """
    forward, before, found = model.forward, dict(vars(model)), list[Any]()

    @wraps(forward)
    def with_results(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401 -- what the model takes
        found.clear()
        return forward(*args, **kwargs), list(found)

    with ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(lambda _module, _inputs, result: found.append(result)))
        model.forward = with_results
        try:
            yield
        finally:
            del model.forward
            if "forward" in before:
                model.forward = before["forward"]
