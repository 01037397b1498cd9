"""The table of operations that can be written as C: name in the traced graph -> function that reads it."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from vbdrop.exporting.c_activations import ACTIVATIONS
from vbdrop.exporting.c_arithmetic import read_arithmetic, read_index_add
from vbdrop.exporting.c_builder import Builder, Call, Variable
from vbdrop.exporting.c_pools import read_adaptive_pool, read_pool, read_reduction, with_indices
from vbdrop.exporting.c_products import read_addmm, read_batch_norm, read_convolution, read_linear, read_matmul
from vbdrop.exporting.c_program import Join, Pointwise, Softmax


def _read_pointwise(builder: Builder, call: Call) -> Variable:
    source = call.variable("self")
    if source.shape != call.shape:
        raise call.unsupported("it is broadcast to a larger shape")
    target = builder.result(source.shape)
    try:
        expression = ACTIVATIONS[call.name](call.arguments)
    except (TypeError, ValueError) as error:
        raise call.unsupported("one of its arguments is not a number") from error
    builder.operations.append(Pointwise(call.node, source.buffer, target.buffer, expression))
    return target


def _read_softmax(builder: Builder, call: Call) -> Variable:
    source = call.variable("self")
    axis = call.arguments["dim"] % (len(source.shape) + 1)
    if axis == 0:
        raise call.unsupported("over the batch")
    target = builder.result(source.shape)
    count, inner = source.shape[axis - 1], math.prod(source.shape[axis:])
    builder.operations.append(Softmax(call.node, source.buffer, target.buffer, count, inner, "log" in call.name))
    return target


def _read_join(builder: Builder, call: Call) -> Variable:
    axis = call.arguments["dim"] % (len(call.shape) + 1)
    if axis == 0:
        raise call.unsupported("along the batch")
    terms = [term for term in call.arguments["tensors"] if not _is_empty_list(term)]
    parts = [builder.variable(f"{call.node}_part{i}", term) for i, term in enumerate(terms)]
    target = builder.result(call.shape)
    count = math.prod(call.shape[: axis - 1])
    builder.operations.append(Join(call.node, tuple(part.buffer for part in parts), target.buffer, count))
    return target


def _is_empty_list(term: Variable | Tensor) -> bool:
    """Whether this is a constant that torch skips in a concatenation: an empty vector."""
    return isinstance(term, Tensor) and term.shape == (0,)


OPERATIONS: dict[str, Callable[[Builder, Call], Any]] = {
    "linear": read_linear,
    "matmul": read_matmul,
    "mm": read_matmul,
    "addmm": read_addmm,
    "conv1d": read_convolution,
    "conv2d": read_convolution,
    "_native_batch_norm_legit_no_training": read_batch_norm,
    "max_pool1d": read_pool("max"),
    "max_pool2d": read_pool("max"),
    "max_pool2d_with_indices": with_indices(read_pool("max")),
    "avg_pool1d": read_pool("mean"),
    "avg_pool2d": read_pool("mean"),
    "adaptive_avg_pool1d": read_adaptive_pool("mean"),
    "adaptive_avg_pool2d": read_adaptive_pool("mean"),
    "adaptive_max_pool2d": with_indices(read_adaptive_pool("max")),
    "mean": read_reduction("mean"),
    "sum": read_reduction("sum"),
    "amax": read_reduction("max"),
    "softmax": _read_softmax,
    "log_softmax": _read_softmax,
    "cat": _read_join,
    "stack": _read_join,
    "add": read_arithmetic("+"),
    "sub": read_arithmetic("-"),
    "rsub": read_arithmetic("-", is_reversed=True),
    "mul": read_arithmetic("*"),
    "div": read_arithmetic("/"),
    "index_add": read_index_add,
    **dict.fromkeys(ACTIVATIONS, _read_pointwise),
}
