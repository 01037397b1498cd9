"""Recurrent layers whose layers and directions have unequal numbers of units, as removal leaves them."""

from typing import Any

from torch import nn

from vbdrop._torch_compat import flat_weight_names
from vbdrop.layers.recurrent_forward import GATES, cell_names, recurrent, sizes_of


class _Unequal(nn.RNNBase):
    """A recurrent layer whose forward reads all sizes from its weights.

    Parameters, arguments and results are those of the torch layer, with one exception: torch stacks the states into one
    tensor, while here they are tuples with one tensor [batch, units] for each layer and direction, in the same order,
    so that ``h_n[-1]`` means the same as before. Initial states have the same form.
    """

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: ANN401 -- as in torch
        """The output and the final states."""
        return recurrent(self, [getattr(self, name) for name in flat_weight_names(self)], input, hx)

    def flatten_parameters(self) -> None:
        """Do nothing: cuDNN does not support layers of unequal sizes."""

    def extra_repr(self) -> str:
        """Torch's own description, with the sizes of all layers and directions."""
        sizes = ", ".join(str(leaving) for _, leaving in sizes_of(self))
        return f"{super().extra_repr()}, sizes=[{sizes}]"


class UnequalLSTM(_Unequal, nn.LSTM):
    """`torch.nn.LSTM` with layers and directions of unequal sizes, as `vbdrop.compress` leaves it.

    Example:
        >>> import torch
        >>> layer = nn.LSTM(3, 2, bidirectional=True)
        >>> layer.__class__ = UnequalLSTM
        >>> layer.weight_ih_l0.data, layer.weight_hh_l0.data = torch.zeros(4, 3), torch.zeros(4, 1)
        >>> layer.bias_ih_l0.data, layer.bias_hh_l0.data = torch.zeros(4), torch.zeros(4)
        >>> output, (h_n, c_n) = layer(torch.zeros(5, 1, 3))
        >>> output.shape, [tuple(state.shape) for state in h_n]
        (torch.Size([5, 1, 3]), [(1, 1), (1, 2)])
    """


class UnequalGRU(_Unequal, nn.GRU):
    """`torch.nn.GRU` with layers and directions of unequal sizes, as `vbdrop.compress` leaves it."""


class UnequalRNN(_Unequal, nn.RNN):
    """`torch.nn.RNN` with layers and directions of unequal sizes, as `vbdrop.compress` leaves it."""


UNEQUAL: dict[type[nn.RNNBase], type[nn.RNNBase]] = {nn.LSTM: UnequalLSTM, nn.GRU: UnequalGRU, nn.RNN: UnequalRNN}
"""Torch's layer -> its counterpart with unequal sizes."""

EQUAL = {unequal: equal for equal, unequal in UNEQUAL.items()}


def refit_(module: nn.RNNBase) -> None:
    """Update a recurrent layer to the shapes of its weights: its numbers of units and, if it is plain, its class.

    Args:
        module: A torch recurrent layer, one with unequal sizes, or a converted one.

    Raises:
        ValueError: If the shapes are inconsistent. Torch's kernels do not check them and would read past the end of a
            tensor.

    Example:
        >>> import torch
        >>> layer = nn.GRU(3, 2, bias=False)
        >>> layer.weight_ih_l0.data, layer.weight_hh_l0.data = torch.zeros(3, 3), torch.zeros(3, 1)
        >>> refit_(layer)
        >>> layer.hidden_size
        1
    """
    sizes = check_shapes(module)
    module.input_size = getattr(module, flat_weight_names(module)[0]).shape[1]
    module.hidden_size = max(hidden for hidden, _ in sizes)
    if module.proj_size:
        module.proj_size = max(leaving for _, leaving in sizes)
    kinds = UNEQUAL if len(set(sizes)) > 1 else EQUAL
    if type(module) in kinds:
        module.__class__ = kinds[type(module)]


def check_shapes(module: nn.RNNBase) -> list[tuple[int, int]]:
    """Check that the weights of a recurrent layer have consistent shapes.

    Returns:
        The numbers of hidden units and of output units of each layer and direction.

    Raises:
        ValueError: If they do not; the message names the first mismatch.

    Example:
        >>> check_shapes(nn.LSTM(3, 2))
        [(2, 2)]
    """
    sizes, directions = sizes_of(module), 1 + module.bidirectional
    inputs = getattr(module, flat_weight_names(module)[0]).shape[1]
    for cell, ((hidden, leaving), names) in enumerate(zip(sizes, cell_names(module), strict=True)):
        layer = cell // directions
        below = sizes[(layer - 1) * directions : layer * directions]
        entering = sum(width for _, width in below) if layer else inputs
        rows, projects = GATES[module.mode] * hidden, module.proj_size > 0
        expected = [[rows, entering], [rows, leaving], *([[rows], [rows]] if module.bias else [])]
        expected += [[leaving, hidden]] if projects else []
        for name, shape in zip(names, expected, strict=True):
            if list(getattr(module, name).shape) != shape:
                raise ValueError(f"{name!r} must have the shape {shape}; got {list(getattr(module, name).shape)}.")
        if hidden < 1 or (leaving >= hidden if projects else leaving != hidden):
            raise ValueError(f"{names[1]!r} must have one column per output unit; got {leaving} of {hidden}.")
    return sizes
