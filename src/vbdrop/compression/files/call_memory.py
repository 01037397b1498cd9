"""A limit on the memory that a program from a file may use per call, checked before anything is computed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.multiprocessing.reductions import StorageWeakRef

from vbdrop._torch_compat import FakeTensor, FakeTensorMode, TorchDispatchMode, keep_in_copies_, pytree, storage_id

PER_BYTE = 2048
"""The bytes that a call may use for each byte of a floating-point input."""

PER_WHOLE_NUMBER = 2**16
"""The same for each integer among the inputs, such as a token, which an embedding turns into many numbers."""

MOST_REMEMBERED = 256


class CallMemory:
    """A forward pre-hook that refuses inputs for which a program would use too much memory.

    A program is a list of operations, and forty that double their input can exhaust any memory. For each new
    combination of shapes, the program first runs once on tensors without values, which takes milliseconds and no
    memory.

    Args:
        free: The bytes that a call may use for any input.

    Example:
        >>> model = torch.fx.symbolic_trace(nn.Linear(4, 2))
        >>> CallMemory(free=1000).attach(model)
        >>> model(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """

    def __init__(self, free: int) -> None:
        self.free = free
        self.known: set[tuple[Any, ...]] = set()

    def attach(self, module: fx.GraphModule) -> None:
        """Check every call of a module and of its deep copies, but not after pickling, when torch drops the hooks."""
        self._attach_to_one(module)
        keep_in_copies_(module, self._attach_to_one)

    def _attach_to_one(self, module: fx.GraphModule) -> None:
        module.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check a call.

        Raises:
            ValueError: If it would use too much memory.
        """
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if torch.compiler.is_compiling() or any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in tensors):
            return  # nothing is computed
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key in self.known:
            return
        allowed = self.free + sum(_justified(tensor) for tensor in tensors)
        with _silence(), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode, _LiveBytes(allowed):
            fake_args, fake_kwargs = pytree.tree_map_only(Tensor, mode.from_tensor, (args, kwargs))
            module.forward(*fake_args, **fake_kwargs)
        if len(self.known) >= MOST_REMEMBERED:
            self.known.clear()
        self.known.add(key)


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own, as below
    """Counts the bytes of all tensors that are alive at once, and raises an error if there are too many."""

    def __init__(self, allowed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allowed = allowed
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, FakeTensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage_id(storage), storage.nbytes()
        if key in self.alive and not _is_gone(self.alive[key][0]):
            return
        self.total += size - self.alive.pop(key, (None, 0))[1]
        self.alive[key] = (StorageWeakRef(storage), size)  # type: ignore[no-untyped-call]
        if self.total > self.allowed:
            self.alive = {key: entry for key, entry in self.alive.items() if not _is_gone(entry[0])}
            self.total = sum(size for _, size in self.alive.values())
        if self.total > self.allowed:
            raise ValueError(
                f"for these inputs the program of the file would take more than {self.allowed:,} bytes of memory; "
                "if you trust the file, load it with load(..., max_call_bytes=...)."
            )


def _is_gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]


@contextmanager
def _silence() -> Iterator[None]:
    """Silence torch's log of operations that do not run without values; the error already says so."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _justified(tensor: Tensor) -> int:
    return tensor.numel() * (tensor.element_size() * PER_BYTE if tensor.is_floating_point() else PER_WHOLE_NUMBER)
