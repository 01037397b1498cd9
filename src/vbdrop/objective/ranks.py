"""Ranks of a process group that draw the same noise, so that averaging over them reduces the variance less."""

import hashlib
from itertools import count

import torch
import torch.distributed as dist
from torch import nn

from vbdrop._torch_compat import default_store

_watches = count()


def noise_state(device: torch.device) -> str:
    """A digest of the state of the random generator from which a device draws.

    Example:
        >>> state = noise_state(torch.device("cpu"))
        >>> _ = torch.rand(1)
        >>> noise_state(torch.device("cpu")) == state
        False
    """
    state = torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
    return hashlib.sha256(state.cpu().numpy().tobytes()).hexdigest()


class RankWatch:
    """Compares the state of the random generators of all ranks.

    The states are exchanged through the store of the process group. No rank waits for another: one that never creates
    an ELBO, as in a pipeline, blocks nobody.

    Args:
        model: The model, on the device that draws the noise.
    """

    def __init__(self, model: nn.Module) -> None:
        self._store = None
        self._prefix = f"vbdrop/noise/{next(_watches)}"
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        self._store = default_store()
        self._state = noise_state(next(model.parameters()).device)
        self._store.set(f"{self._prefix}/{dist.get_rank()}", self._state)

    def twins(self) -> list[int]:
        """This rank and those with the same state, reported once, by the first of them; otherwise an empty list.

        Nothing is reported until every rank has published its state.
        """
        if self._store is None:
            return []
        keys = [f"{self._prefix}/{rank}" for rank in range(dist.get_world_size())]
        if not self._store.check(keys):
            return []
        store, self._store = self._store, None
        same = [rank for rank, key in enumerate(keys) if store.get(key).decode() == self._state]
        return same if len(same) > 1 and same[0] == dist.get_rank() else []
