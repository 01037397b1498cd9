"""The forward of torch's recurrent layers with given weights; layers and directions may differ in size."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from vbdrop._torch_compat import flat_weight_names

States: TypeAlias = tuple[Tensor, ...]
"""The states of one layer and direction: the hidden state and, for an LSTM, the cell state."""

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""The mode of a recurrent layer -> the number of blocks in its weights, each with one row per unit."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


def cell_names(module: nn.RNNBase) -> list[list[str]]:
    """The parameters of each layer and direction, in torch's order.

    Example:
        >>> cell_names(nn.GRU(3, 2, bias=False, bidirectional=True))
        [['weight_ih_l0', 'weight_hh_l0'], ['weight_ih_l0_reverse', 'weight_hh_l0_reverse']]
    """
    names, count = flat_weight_names(module), module.num_layers * (1 + module.bidirectional)
    each = len(names) // count
    return [names[i * each : (i + 1) * each] for i in range(count)]


def sizes_of(module: nn.RNNBase) -> list[tuple[int, int]]:
    """The numbers of hidden units and of output units of each layer and direction, read from the weights.

    Example:
        >>> sizes_of(nn.LSTM(3, 5, num_layers=2, proj_size=2))
        [(5, 2), (5, 2)]
    """
    weights = [getattr(module, names[1]) for names in cell_names(module)]
    return [(len(weight) // GATES[module.mode], weight.shape[1]) for weight in weights]


def recurrent(module: nn.RNNBase, weights: Sequence[Tensor], input: Any, hx: Any = None) -> Any:  # noqa: ANN401
    """The result of ``module.forward(input, hx)`` with the given weights instead of the module's own.

    Args:
        module: The recurrent layer, which provides the settings.
        weights: The weights and biases, in the layer's own order.
        input: A batch of sequences, one sequence, or a `torch.nn.utils.rnn.PackedSequence`.
        hx: The initial states, in torch's format; zeros if None. If layers or directions differ in size, each state is
            a sequence of tensors, one for each layer and direction.

    Returns:
        The output, and the final states in the form of ``hx``.

    Example:
        >>> layer, x = nn.LSTM(3, 2), torch.ones(4, 1, 3)
        >>> bool((recurrent(layer, list(layer.parameters()), x)[0] == layer(x)[0]).all())
        True
    """
    packed = input if isinstance(input, PackedSequence) else None
    data = input if packed is None else packed.data
    if packed is None and data.dim() not in (2, 3):
        raise ValueError(f"`input` must have 2 axes, or 3 with a batch; got {data.dim()}.")
    single = packed is None and data.dim() == 2
    if single:
        data = data.unsqueeze(0 if module.batch_first else 1)
    sizes = sizes_of(module)
    batch = data.shape[0 if module.batch_first else 1] if packed is None else int(packed.batch_sizes[0])
    if data.shape[-1] != module.input_size:
        raise ValueError(f"`input` must have {module.input_size} features; got {data.shape[-1]}.")
    states = _given(module, hx, sizes, batch, packed, single) if hx is not None else _zeros(module, sizes, batch, data)
    run = _together if len(set(sizes)) == 1 else _apart
    output, states = run(module, weights, data, states, packed)
    return _returned(module, output, states, packed, single, stacked=run is _together)


def _zeros(module: nn.RNNBase, sizes: list[tuple[int, int]], batch: Any, data: Tensor) -> list[States]:  # noqa: ANN401
    widths = [(leaving, hidden) if module.mode == "LSTM" else (leaving,) for hidden, leaving in sizes]
    return [tuple(torch.zeros(batch, width, dtype=data.dtype, device=data.device) for width in each) for each in widths]


def _given(
    module: nn.RNNBase,
    hx: Any,  # noqa: ANN401 -- a tensor or several
    sizes: list[tuple[int, int]],
    batch: int,
    packed: PackedSequence | None,
    single: bool,
) -> list[States]:
    """The given states of each layer and direction, in the order of the packed sequences."""
    kinds = tuple(hx) if module.mode == "LSTM" else (hx,)
    widths = [(leaving, hidden)[: len(kinds)] for hidden, leaving in sizes]
    if len(kinds) != 1 + (module.mode == "LSTM") or any(len(kind) != len(sizes) for kind in kinds):
        raise ValueError(f"`hx` must have one state for each of the {len(sizes)} layers and directions.")
    order = None if packed is None else packed.sorted_indices
    states = []
    for cell in range(len(sizes)):
        found = tuple(kind[cell].unsqueeze(0) if single else kind[cell] for kind in kinds)
        if [list(state.shape) for state in found] != [[batch, width] for width in widths[cell]]:
            shapes = [list(state.shape) for state in found]
            raise ValueError(f"`hx` must have {batch} states of {widths[cell]} units; got the shapes {shapes}.")
        states.append(found if order is None else tuple(state.index_select(0, order) for state in found))
    return states


def _together(
    module: nn.RNNBase, weights: Sequence[Tensor], data: Tensor, states: list[States], packed: PackedSequence | None
) -> tuple[Tensor, list[States]]:
    """All layers in one call to torch."""
    options = (module.bias, module.num_layers, module.dropout, module.training, module.bidirectional)
    stacked = [torch.stack(kind) for kind in zip(*states, strict=True)]
    output, *last = _call(module, weights, data, stacked, options, packed)
    return output, [tuple(state[cell] for state in last) for cell in range(len(states))]


def _apart(
    module: nn.RNNBase, weights: Sequence[Tensor], data: Tensor, states: list[States], packed: PackedSequence | None
) -> tuple[Tensor, list[States]]:
    """Each layer and direction in a separate call."""
    each, directions = len(weights) // len(states), 1 + module.bidirectional
    last = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            cell = layer * directions + direction
            own = weights[cell * each : (cell + 1) * each]
            entering = _reversed(module, data, packed) if direction else data
            start = [state.unsqueeze(0) for state in states[cell]]
            output, *end = _call(module, own, entering, start, (module.bias, 1, 0.0, module.training, False), packed)
            outputs.append(_reversed(module, output, packed) if direction else output)
            last.append(tuple(state.squeeze(0) for state in end))
        data = torch.cat(outputs, -1) if directions > 1 else outputs[0]
        if module.dropout and layer < module.num_layers - 1:
            data = F.dropout(data, module.dropout, module.training)
    return data, last


def _call(
    module: nn.RNNBase,
    weights: Sequence[Tensor],
    data: Tensor,
    states: list[Tensor],
    options: tuple[Any, ...],
    packed: PackedSequence | None,
) -> Any:  # noqa: ANN401 -- two tensors, or three
    function, hx = _FUNCTIONS[module.mode], states if module.mode == "LSTM" else states[0]
    if packed is None:
        return function(data, hx, list(weights), *options, module.batch_first)
    return function(data, packed.batch_sizes, hx, list(weights), *options)


def _reversed(module: nn.RNNBase, data: Tensor, packed: PackedSequence | None) -> Tensor:
    """Every sequence, reversed."""
    if packed is None:
        return data.flip(1 if module.batch_first else 0)
    steps = packed.batch_sizes
    starts = torch.cat([steps.new_zeros(1), steps.cumsum(0)[:-1]])
    step = torch.repeat_interleave(torch.arange(len(steps)), steps)
    sequence = torch.arange(int(steps.sum())) - starts[step]
    length = (steps[:, None] > torch.arange(int(steps[0]))).sum(0)
    return data.index_select(0, (starts[length[sequence] - 1 - step] + sequence).to(data.device))


def _returned(
    module: nn.RNNBase,
    output: Tensor,
    states: list[States],
    packed: PackedSequence | None,
    single: bool,
    *,
    stacked: bool,
) -> Any:  # noqa: ANN401 -- the output in the form of the input, and the states
    """The output and the states as torch returns them."""
    order = None if packed is None else packed.unsorted_indices
    if order is not None:
        states = [tuple(state.index_select(0, order) for state in cell) for cell in states]
    if single:
        output = output.squeeze(0 if module.batch_first else 1)
        states = [tuple(state.squeeze(0) for state in cell) for cell in states]
    kinds: tuple[Any, ...] = tuple(zip(*states, strict=True))
    if stacked:
        kinds = tuple(torch.stack(kind) for kind in kinds)
    last = kinds if module.mode == "LSTM" else kinds[0]
    if packed is None:
        return output, last
    return PackedSequence(output, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), last
