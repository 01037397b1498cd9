"""FSDP: helpers for a model whose parameters ``fully_shard`` has distributed over processes.

Training needs no helper: each rank computes the KL and its gradient for its own shards. Every function here must be
called on all ranks.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from vbdrop.compression import Compressed, compress
from vbdrop.convert.description import convert_as_described_, describe_conversion
from vbdrop.objective import kl


@torch.no_grad()
def reduced_kl(sharded: nn.Module, group: Any = None) -> float:  # noqa: ANN401 -- torch's process groups have no type
    """The KL of the whole model, summed over the shards of all ranks, for logging.

    Args:
        sharded: A converted model after ``fully_shard``.
        group: The process group; None for the default one.
    """
    total = kl(sharded).double()
    dist.all_reduce(total, group=group)
    return float(total)


def gather(
    sharded: nn.Module,
    build: Callable[[], nn.Module],
    example_inputs: Any = None,  # noqa: ANN401 -- as convert_ takes them
) -> nn.Module | None:
    """The whole model, converted, on the first rank; None on the others.

    Args:
        sharded: A converted model after ``fully_shard``.
        build: Makes the plain model, as it was before its conversion; it is called only on the first rank.
        example_inputs: Inputs that the model accepts, if it was converted with them.
    """
    # these modules are slow to import, and only this function needs them
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    description = describe_conversion(sharded)
    full = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() != 0:
        return None
    model = convert_as_described_(build(), description, example_inputs)
    model.load_state_dict(full)
    return model


def compress_sharded(
    sharded: nn.Module,
    build: Callable[[], nn.Module],
    example_inputs: Any,  # noqa: ANN401 -- as compress takes them
    **options: Any,  # noqa: ANN401
) -> Compressed | None:
    """Gather a model, and compress it on the first rank; None on the others.

    Args:
        sharded: A converted model after ``fully_shard``.
        build: Makes the plain model, as it was before its conversion.
        example_inputs: Inputs that the model accepts.
        options: Further arguments of `vbdrop.compress`.
    """
    model = gather(sharded, build, example_inputs)
    return None if model is None else compress(model, example_inputs, **options)
