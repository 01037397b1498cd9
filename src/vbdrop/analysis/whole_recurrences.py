"""Recurrent layers in a trace: one operation each, instead of one per step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from vbdrop._torch_compat import OpOverload, rnn_functions, schema_of

LIBRARY = torch.library.Library("vbdrop", "FRAGMENT")  # type: ignore[no-untyped-call]

STANDS_FOR: dict[Any, OpOverload] = {}
"""An operation defined here -> the torch operation that it replaces in a trace."""


@contextmanager
def whole_recurrences() -> Iterator[None]:
    """Let a trace treat every recurrent layer as one operation whose results have known shapes only.

    Otherwise torch finds these shapes by running through all steps, once for each pass over the graph.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> traced = trace(torch.nn.GRU(2, 3).eval(), (torch.zeros(100, 1, 2),))
        >>> [str(node.target) for node in traced.graph.nodes if "gru" in node.name]
        ['aten.gru.input']
    """
    with ExitStack() as stack:
        for stand_in, operation in STANDS_FOR.items():
            name = operation.overloadpacket.__name__
            setattr(rnn_functions, name, _one_operation(stand_in, getattr(rnn_functions, name)))
            stack.callback(delattr, rnn_functions, name)
        yield


def as_recurrences_(graph: fx.Graph) -> None:
    """Replace the stand-ins of a trace with torch's operations again."""
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = STANDS_FOR.get(node.target, node.target)


def _one_operation(stand_in: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement for torch's recurrent function that calls the stand-in, except for packed sequences."""

    def call(*args: Any) -> Any:  # noqa: ANN401 -- as in torch
        is_packed = not isinstance(args[3], bool)  # `batch_sizes` shifts `has_biases` by one place
        return function(*args) if is_packed else stand_in(*args)

    return call


def _results(
    input: Tensor,
    hx: Tensor | list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Tensors with the shapes of the outputs and the last states; the outputs also have the right strides."""
    states = [hx] if isinstance(hx, Tensor) else hx
    channels = states[0].shape[2] * (2 if bidirectional else 1)
    steps_first = input.transpose(0, 1) if batch_first else input
    outputs = input.new_empty(*steps_first.shape[:2], channels)
    return outputs.transpose(0, 1) if batch_first else outputs, *(input.new_empty(state.shape) for state in states)


for _operation in (torch.ops.aten.lstm, torch.ops.aten.gru, torch.ops.aten.rnn_tanh, torch.ops.aten.rnn_relu):
    _name = _operation.__name__
    LIBRARY.define(str(schema_of(_operation.input)).replace(f"aten::{_name}.input", _name))  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"vbdrop::{_name}", _results, lib=LIBRARY)
    STANDS_FOR[getattr(torch.ops.vbdrop, _name).default] = _operation.input
