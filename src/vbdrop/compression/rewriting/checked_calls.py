"""Operations that trust their arguments, wrapped in additional checks.

Some ATen kernels read past the end of a tensor that is shorter than they expect, and Python's own arithmetic creates
numbers of any length. A program calls these functions instead, which check their arguments first, so that an untrusted
program cannot misuse them.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

LARGEST_SIZE = 2**62
"""The largest allowed size, and number of elements, of a tensor."""


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:  # noqa: ANN401 -- three tensors
    """``aten._native_batch_norm_legit_no_training``, whose kernel does not check the lengths of its tensors."""
    _check_channels(input, weight, bias, running_mean, running_var)
    return aten._native_batch_norm_legit_no_training.default(
        input, weight, bias, running_mean, running_var, momentum, eps
    )


def batch_norm_without_statistics(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:  # noqa: ANN401 -- three tensors
    """``aten._native_batch_norm_legit.no_stats``, whose kernel does not check the lengths of its tensors.

    With ``training=False`` it would read statistics that do not exist, and crash the process.
    """
    if not training:
        raise ValueError("batch normalization without statistics must use those of its input; got training=False.")
    _check_channels(input, weight, bias)
    return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *args: float,
    **kwargs: float | bool | None,
) -> Any:  # noqa: ANN401 -- a tensor
    """``aten.scaled_dot_product_attention``, whose kernel does not check that there are as many keys as values."""
    if min(query.dim(), key.dim(), value.dim()) < 2 or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"attention must have as many keys as values; got shapes {list(key.shape)} and {list(value.shape)}."
        )
    return aten.scaled_dot_product_attention.default(query, key, value, attn_mask, *args, **kwargs)


def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:  # noqa: ANN401 -- three tensors
    """``aten.lstm.input``, whose kernel does not check the shapes of its weights and states."""
    options = (has_biases, num_layers, bidirectional, batch_first)
    _check_recurrent("an LSTM", 4, input, hx, params, *options)
    return aten.lstm.input(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def gru(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:  # noqa: ANN401 -- two tensors
    """``aten.gru.input``, whose kernel assumes that its weights have rows for three gates."""
    options = (has_biases, num_layers, bidirectional, batch_first)
    _check_recurrent("a GRU", 3, input, [hx], params, *options)
    return aten.gru.input(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _check_recurrent(
    what: str,
    gates: int,
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> None:
    """Check that the weights and states have the shapes that the kernel of a recurrent layer assumes."""
    number = 2 if gates == 4 else 1
    if input.dim() != 3 or len(hx) != number or any(state.dim() != 3 for state in hx):
        said = "two states" if number == 2 else "a state"
        raise ValueError(f"{what} must have an input and {said} of three axes.")
    outputs, hidden = hx[0].shape[-1], hx[-1].shape[-1]
    expected = recurrent_shapes(gates, input.shape[-1], hidden, outputs, num_layers, has_biases, bidirectional)
    batch = input.shape[0 if batch_first else 1]
    states = [[num_layers * (1 + bidirectional), batch, width] for width in (outputs, hidden)][-number:]
    found = [list(tensor.shape) for tensor in params]
    if found != expected or [list(state.shape) for state in hx] != states:
        raise ValueError(f"the tensors of {what} must have the shapes {states}, {expected}; got {found}.")


def recurrent_shapes(
    gates: int, inputs: int, hidden: int, outputs: int, num_layers: int, has_biases: bool, bidirectional: bool
) -> list[list[int]]:
    """The shapes of all weights of a recurrent network, in torch's order.

    Args:
        gates: The number of gates: 4 for an LSTM, 3 for a GRU, 1 for a plain RNN.
        inputs: The input features.
        hidden: The hidden units.
        outputs: The output units of a layer: ``hidden``, or fewer for an LSTM with projections.
        num_layers: The number of layers.
        has_biases: Whether there are biases.
        bidirectional: Whether each layer runs in both directions.

    Example:
        >>> recurrent_shapes(3, 7, 5, 5, num_layers=1, has_biases=True, bidirectional=False)
        [[15, 7], [15, 5], [15], [15]]
    """
    rows, directions = gates * hidden, 1 + bidirectional
    shapes = []
    for layer in range(num_layers):
        for _ in range(directions):
            shapes += [[rows, outputs * directions if layer else inputs], [rows, outputs]]
            shapes += [[rows], [rows]] if has_biases else []
            shapes += [[outputs, hidden]] if outputs != hidden else []
    return shapes


def add_sizes(a: Any, b: Any) -> Any:  # noqa: ANN401 -- numbers, symbolic ones while a model is traced
    """The sum of two sizes."""
    return _bounded(operator.add, a, b)


def subtract_sizes(a: Any, b: Any) -> Any:  # noqa: ANN401
    """The difference of two sizes."""
    return _bounded(operator.sub, a, b)


def multiply_sizes(a: Any, b: Any) -> Any:  # noqa: ANN401
    """The product of two sizes."""
    return _bounded(operator.mul, a, b)


def _bounded(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:  # noqa: ANN401
    for value in (a, b):
        if not isinstance(value, int | float | torch.SymInt | torch.SymFloat):
            raise TypeError(f"a program computes only with numbers; got a {type(value).__name__}.")
    result = function(a, b)
    if isinstance(result, int) and abs(result) > LARGEST_SIZE:
        raise ValueError(f"a program computed the size {result:.3g}; no tensor has one above {LARGEST_SIZE}.")
    return result


def _check_channels(value: Tensor, *tensors: Tensor | None) -> None:
    if value.dim() < 2:
        raise ValueError(f"batch normalization must have channels on axis 1; got the shape {list(value.shape)}.")
    for tensor in tensors:
        if tensor is not None and list(tensor.shape) != [value.shape[1]]:
            raise ValueError(
                f"batch normalization of shape {list(value.shape)} must have one number per channel; "
                f"got a tensor of shape {list(tensor.shape)}."
            )
