"""The conditions in a forward on the sizes of its inputs, and the sizes at which it may behave differently."""

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vbdrop._torch_compat import holds, pytree
from vbdrop.analysis.graph import TRIED_BATCHES, export
from vbdrop.analysis.size_formulas import ShortFormulas

Axis = tuple[int, int]
"""The index of a tensor among the inputs, and one of its axes."""


SIZE_READS: set[Callable[..., Any]] = {
    *(Tensor.shape.__get__, Tensor.size, Tensor.numel, Tensor.nelement, Tensor.stride),  # type: ignore[attr-defined]
}
"""The functions with which code reads the sizes of a tensor."""

ITERATIONS: set[Callable[..., Any]] = {Tensor.__len__, Tensor.unbind}
"""The same, for functions that are called through torch's own Python code."""


@dataclass(frozen=True)
class OtherSize:
    """A size at which a forward may take another branch.

    Attributes:
        axes: The axes that get this size together.
        size: The size.
        reason: Why the size is worth a trial, in readable form.
        is_last_resort: Whether a trial is needed only if the model has accepted no other size on these axes.
    """

    axes: tuple[Axis, ...]
    size: int
    reason: str
    is_last_resort: bool = False


def other_sizes(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[OtherSize]:
    """The input sizes, besides those of the example, at which a model should be tried.

    For every condition on a size in the forward (``if x.shape[3] >= 16``), this is a size at which the outcome changes.
    In addition, every axis, and all axes of one size together, are tried at twice their size, at half of it and at one
    less, since the trace may have fixed a size without a condition: a forward that accepts no longer inputs than the
    example, or whose length counts up to a limit only, is different for shorter ones.

    Args:
        model: A plain model, in eval mode.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Example:
        >>> class Branching(nn.Module):
        ...     def forward(self, x):
        ...         return x.sum(1) if x.shape[1] < 20 else x.mean(1)
        >>> for other in other_sizes(Branching(), (torch.zeros(4, 8),), {}):
        ...     if other.axes == ((0, 1),):
        ...         print(other.size, other.reason)
        20 the forward asks for size < 20
        16 twice the size of the example
        4 half the size of the example
        7 one less than in the example
        2 a third of the size of the example
        1 the smallest size
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    by_size: dict[int, list[Axis]] = {}
    for number, tensor in enumerate(tensors):
        for axis, size in enumerate(tensor.shape):
            by_size.setdefault(size, []).append((number, axis))
    tried: list[tuple[tuple[Axis, ...], int]] = [((axis,), size) for size, axes in by_size.items() for axis in axes]
    tried += [(tuple(axes), size) for size, axes in by_size.items() if len(axes) > 1]
    resized = [other for axes, size in sorted(tried) for other in _resized(axes, size)]
    asked = _asked(model, args, dict(kwargs)) if _reads_sizes(model, args, dict(kwargs)) else []
    return [*asked, *resized]


def _resized(axes: tuple[Axis, ...], size: int) -> list[OtherSize]:
    """The sizes that are tried without being asked for, those that need a trial only if others are refused last."""
    reasons = {
        2 * size: "twice the size of the example",
        size // 2: "half the size of the example",
        size - 1: "one less than in the example",
        size // 3: "a third of the size of the example",
        1: "the smallest size",
    }
    smaller = (size // 2, size - 1)
    return [
        OtherSize(axes, other, reason, is_last_resort=other < size and other not in smaller)
        for other, reason in reasons.items()
        if other not in (0, size)
    ]


class _SizeReads(TorchFunctionMode):
    """Detects code outside torch that reads the sizes of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.any: bool = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if function in ITERATIONS:
            self.any = True
        elif function in SIZE_READS:
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            self.any = self.any or caller.partition(".")[0] != "torch"
        return function(*args, **(kwargs or {}))


def _reads_sizes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a forward reads sizes at all, which a call finds quickly; a trace with free sizes takes seconds."""
    args, kwargs = pytree.tree_map_only(Tensor, Tensor.clone, (args, kwargs))
    model = copy.deepcopy(model)
    with torch.no_grad(), _SizeReads() as reads:
        model(*args, **kwargs)
    return bool(reads.any)


def _asked(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OtherSize]:
    """The sizes that the conditions in a forward imply, as far as it can be traced with free sizes."""
    inputs: list[Tensor] = []

    def note(_: nn.Module, traced_args: Any, traced_kwargs: Any) -> None:  # noqa: ANN401 -- any structure of inputs
        leaves = pytree.tree_leaves((traced_args, traced_kwargs))
        inputs[:] = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with ShortFormulas():
            export(model, args, kwargs, lambda x: [axis for axis, size in enumerate(x.shape) if size > 1])
    except Exception:  # torch.export raises whatever the model raises; the conditions up to there count
        pass
    finally:
        hook.remove()
    axes, hints, environment = _symbols(inputs)
    found = []
    for guard in () if environment is None else environment.guards:
        expression = environment.replace(guard.expr)
        for symbol in sorted(expression.free_symbols & axes.keys(), key=str):
            if (size := _violating(expression, symbol, hints)) is not None:
                question = str(expression)
                for other in expression.free_symbols:
                    question = question.replace(str(other), "size" if other == symbol else str(hints.get(other)))
                found.append(OtherSize(tuple(axes[symbol]), size, f"the forward asks for {question}"))
    return list(dict.fromkeys(found))


def _symbols(inputs: list[Tensor]) -> tuple[dict[Any, list[Axis]], dict[Any, int], Any]:
    """The axes of each symbolic size, its value in the example, and torch's record of the conditions."""
    axes: dict[Any, list[Axis]] = {}
    hints: dict[Any, int] = {}
    environment = None
    for number, tensor in enumerate(inputs):
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and len(size.node.expr.free_symbols) == 1:
                (symbol,) = size.node.expr.free_symbols
                environment, hints[symbol] = size.node.shape_env, int(size.node.hint)
                axes.setdefault(symbol, []).append((number, axis))
    return axes, hints, environment


def _violating(expression: Any, symbol: Any, hints: Mapping[Any, int]) -> int | None:  # noqa: ANN401 -- of sympy
    """The first size at which an expression fails, with all other sizes as in the example."""
    for size in TRIED_BATCHES:
        try:
            if not holds(expression, {**hints, symbol: size}):
                found: int = size
                return found
        except Exception:  # sympy and torch raise many kinds of errors for undecidable conditions
            continue
    return None
