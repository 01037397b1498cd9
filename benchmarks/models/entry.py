"""One architecture of the table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SIZE = 64
"""The width and height of an image, if the architecture allows it."""

BATCH = 4
"""The number of examples."""


def images(size: int = SIZE, *, channels: int = 3) -> Callable[[], tuple[Tensor, ...]]:
    """Random images."""
    return lambda: (torch.randn(BATCH, channels, size, size),)


@dataclass(frozen=True)
class Entry:
    """An architecture with random weights.

    Attributes:
        library: The package that it comes from.
        name: Its name there.
        make: Builds it.
        inputs: Makes inputs for it, by position or by name.
        note: What was made smaller than usual.
    """

    library: str
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...] | dict[str, Any]]
    note: str = ""

    @property
    def key(self) -> str:
        """A unique name."""
        return f"{self.library}/{self.name}"
