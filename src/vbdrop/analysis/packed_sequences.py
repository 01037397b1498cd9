"""Models that pack their sequences: a graph with fixed sizes cannot pack, but it can show where channels go."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vbdrop._torch_compat import rnn_functions


@contextmanager
def padded_sequences(model: nn.Module) -> Iterator[list[Tensor]]:
    """Keep packed sequences padded inside a ``with`` block, so that a model that packs can be traced.

    A packed sequence then holds the padded tensor, with the steps first, and recurrent layers also run over the
    padding. The values differ from the model's; the channels are the same.

    Args:
        model: The model; the forward of its recurrent layers is replaced inside the block.

    Yields:
        The lengths of the sequences that have been packed.

    Example:
        >>> with padded_sequences(nn.GRU(2, 3)) as packs:
        ...     packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(4, 1, 2), torch.tensor([3]))
        >>> packed.data.shape, packs
        (torch.Size([4, 1, 2]), [tensor([3])])
    """
    packs: list[Tensor] = []
    with ExitStack() as stack:
        for name, function in (("_pack_padded_sequence", _pack), ("_pad_packed_sequence", _unpack)):
            setattr(rnn_functions, name, partial(function, packs))
            stack.callback(delattr, rnn_functions, name)
        for module in model.modules():
            if isinstance(module, nn.RNNBase) and "forward" not in module.__dict__:
                stack.callback(module.__dict__.pop, "forward")
                module.__dict__["forward"] = partial(_over_padding, module, module.forward)
        yield packs


def _pack(packs: list[Tensor], input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    packs.append(lengths)
    data = input.transpose(0, 1) if batch_first else input
    return data, torch.ones(data.shape[0], dtype=torch.int64)


def _unpack(
    packs: list[Tensor],
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    steps = torch.arange(data.shape[0], device=data.device)[:, None, None]  # a channel may be constant, the padding not
    data = torch.where(steps < packs[-1].amin().to(data.device), data, padding_value)
    lengths = torch.zeros(data.shape[1], dtype=torch.int64)
    return data.transpose(0, 1) if batch_first else data, lengths


def _over_padding(module: nn.RNNBase, forward: Callable[..., Any], input: Any, hx: Any = None) -> Any:  # noqa: ANN401
    """The forward of a recurrent layer for a packed sequence that holds the padded tensor."""
    if not isinstance(input, PackedSequence):
        return forward(input, hx)
    data = input.data.transpose(0, 1) if module.batch_first else input.data
    output, states = forward(data, hx)
    output = output.transpose(0, 1) if module.batch_first else output
    return PackedSequence(output, input.batch_sizes, input.sorted_indices, input.unsorted_indices), states
