"""Where the values of a forward come from: parameters, inputs or noise."""

from collections.abc import Callable, Iterator, MutableMapping
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary


class Origin(IntEnum):
    """The origin of a value."""

    PARAMETERS = 0
    INPUTS = 1
    NOISE = 2
    MIXED = 3
    """From noise, but without all samples of the batch on the first axis."""


class Following(TorchFunctionMode):
    """Tracks the inputs and the noise through a forward.

    Args:
        x: The inputs.
        rows: The number of rows that all samples of the batch have together.
    """

    def __init__(self, x: Tensor, rows: int) -> None:
        super().__init__()
        self.rows, self.device = rows, x.device
        self.right, self.paused = True, False
        self.origins: MutableMapping[Tensor, Origin] = WeakTensorKeyDictionary()
        self.random = self._random()
        self.put(x, Origin.INPUTS)

    def origin(self, x: Tensor) -> Origin:
        """Return the origin of a value."""
        return self.origins.get(x, Origin.PARAMETERS)

    def put(self, x: Tensor, origin: Origin) -> Tensor:
        """Set the origin of a value."""
        if origin is Origin.NOISE and not self._has_all_samples(x):
            origin = Origin.MIXED
        self.origins[x] = origin
        return x

    def _has_all_samples(self, x: Tensor) -> bool:
        """Whether the first axis can hold all samples of the batch."""
        return x.dim() > 0 and x.shape[0] > 0 and x.shape[0] % self.rows == 0

    def apart(self, forward: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
        """Run the forward of a layer, which sets the origin of its result itself."""
        before, self.paused = self.paused, True
        try:
            return forward(*args, **kwargs)
        finally:
            self.paused, self.random = before, self._random()

    def _random(self) -> Tensor:
        state = torch.get_rng_state()
        return torch.cat([state, torch.cuda.get_rng_state(self.device)]) if self.device.type == "cuda" else state

    def is_without_other_noise(self) -> bool:
        """Whether nothing random was drawn since the last layer."""
        return torch.equal(self.random, self._random())

    def require(self, condition: bool) -> None:
        """Fail if the noise would differ from that of separate forwards, even if the forward catches all errors."""
        if not condition:
            self.right = False
            raise ValueError("the noise must be drawn for every sample of the batch.")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 -- whatever the function returns
        """Call a torch function; its result gets the origin of its arguments.

        If the function draws random numbers, it must draw them for every sample, so that samples do not share them.
        """
        before = None if self.paused else self._random()
        out = func(*args, **(kwargs or {}))
        if before is None:
            return out
        if not torch.equal(before, self._random()):
            self.require(all(map(self._has_all_samples, _tensors(out))))
        origin = max([Origin.PARAMETERS, *map(self.origin, _tensors((args, kwargs)))])
        if origin is not Origin.PARAMETERS:
            for tensor in _tensors(args[0] if func is Tensor.__setitem__ else out):
                self.put(tensor, origin)
        return out


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
