"""A forward hook for the first training steps, of which copies of the model take nothing along."""

import weakref
from typing import Any, Protocol

import torch
from torch import nn


class Reader(Protocol):
    """What a `ReadHook` reports to."""

    def note_forward(self, inputs: tuple[Any, ...], outputs: Any) -> None:  # noqa: ANN401 -- any structure of tensors
        """Called after every forward of a layer in training mode."""


class ReadHook:
    """A forward hook that reports a layer's training forwards as long as somebody listens.

    It does not keep the reader alive. Without one it removes itself at the layer's next forward, and so does every
    copy, pickled or deep, since a copy has no reader.

    Args:
        reader: What to report to; None for a hook that only removes itself.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> handle = layer.register_forward_hook(ReadHook())
        >>> _ = layer(torch.zeros(1, 2))
        >>> len(layer._forward_hooks)
        0
    """

    only_observes = True

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = None if reader is None else weakref.ref(reader)

    def __reduce__(self) -> tuple[type["ReadHook"], tuple[()]]:
        return ReadHook, ()

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], outputs: Any) -> None:  # noqa: ANN401
        """Report one forward of the layer, or leave it."""
        if torch.compiler.is_compiling():
            return
        reader = None if self._reader is None else self._reader()
        if reader is None:
            remove_read_hooks_(layer)
        elif layer.training:
            reader.note_forward(inputs, outputs)


def remove_read_hooks_(layer: nn.Module) -> None:
    """Remove every `ReadHook` from a layer, which may be a copy on whose hooks nobody has a handle.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> _ = layer.register_forward_hook(ReadHook())
        >>> remove_read_hooks_(layer)
        >>> len(layer._forward_hooks)
        0
    """
    for key in [key for key, hook in layer._forward_hooks.items() if isinstance(hook, ReadHook)]:
        del layer._forward_hooks[key]
