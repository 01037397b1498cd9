"""The small network of a run, kept beside its record: its non-zero values and their positions."""

import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vbdrop.experiments.records import NETWORK, Record
from vbdrop.models import build
from vbdrop.train import RecordError

SPARSE = 0.5
"""A tensor is stored sparsely if at most this share of it is not zero."""

VALUES, GAPS = ".values", ".gaps"


def save_network(network: nn.Module, folder: Path) -> None:
    """Save a plain network; of a sparse tensor, only the non-zero values, each with its distance from the one before.

    Example:
        >>> import tempfile
        >>> folder, layer = Path(tempfile.mkdtemp()), nn.Linear(100, 100)
        >>> _ = layer.weight.data.flatten()[7:].zero_()
        >>> save_network(layer, folder)
        >>> (folder / NETWORK).stat().st_size < 1000
        True
    """
    tensors = {}
    for name, value in network.state_dict().items():
        flat = value.detach().contiguous().flatten()
        places = flat.nonzero()[:, 0]
        if len(places) > SPARSE * len(flat):
            tensors[name] = value.detach().clone().contiguous()
            continue
        gaps = torch.diff(places, prepend=places.new_zeros(1))
        small = not len(gaps) or int(gaps.max()) <= torch.iinfo(torch.uint16).max
        tensors[name + VALUES], tensors[name + GAPS] = flat[places], gaps.to(torch.uint16 if small else torch.int32)
    temporary = folder / f".{NETWORK}"
    save_file(tensors, temporary)
    temporary.replace(folder / NETWORK)


def kept_network(record: Record) -> nn.Module:
    """Return the small network of a run, in eval mode.

    Raises:
        RecordError: The record does not have it, or it is damaged.
    """
    path, config = record.folder / NETWORK, record.config
    if not path.exists():
        raise RecordError(f"{record.folder} has no {NETWORK}: it is kept of runs that compress, on all training data")
    network = build(config.model, **config.model_args)
    try:
        tensors = load_file(path)
        network.load_state_dict({n: _whole(tensors, n, value) for n, value in network.state_dict().items()})
    except (OSError, SafetensorError, RuntimeError, KeyError, IndexError) as error:
        raise RecordError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    return network.eval()


def _whole(tensors: dict[str, Tensor], name: str, like: Tensor) -> Tensor:
    if name in tensors:
        return tensors[name]
    flat = torch.zeros(math.prod(like.shape), dtype=like.dtype)
    flat[tensors[name + GAPS].long().cumsum(0)] = tensors[name + VALUES]
    return flat.view(like.shape)
