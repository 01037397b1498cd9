"""A normalisation over channels with gated inputs, so that it reads a dead channel of a residual stream as zero."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.layers.counted_norm import CENTRING, CountedNorm, count_
from vbdrop.layers.shared_gate import Gated, SharedGate


class GatedNorm(Gated):
    """A normalisation whose channels have gates that it shares with the other readers of the stream.

    The input is multiplied by the gates. RMS normalisation then keeps a zero channel zero, but layer and group
    normalisation subtract the mean and add the shift, so their output is multiplied by the same draw too.

    `gate_norm_` changes the class of a module to a subclass of this one and of the module's own.
    """

    plain: ClassVar[type[nn.Module]] = nn.Module
    kind: str
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised features, with noise in training."""
        factor = self.gate.factor(x)
        out: Tensor = super().forward(x * factor)
        return out * factor if self.kind in CENTRING else out

    @torch.no_grad()
    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold the gates into the normalisation, which becomes a `CountedNorm` with a scale.

        Args:
            threshold: The ``log_alpha`` at or above which channels are dead; None uses each gate's own.
        """
        values, kind, from_end = self.gate.values(threshold), self.kind, -self.gate.axis
        self.strip_()
        count = self.count if isinstance(self, CountedNorm) else len(values)
        counted = count_(self, kind, count, from_end)
        tensor = next(self.parameters(recurse=False), values)
        values = values.to(tensor.dtype)
        counted.scale = nn.Parameter(values.clone(), tensor.requires_grad)
        if kind in CENTRING:
            if counted.weight is None:
                counted.weight = nn.Parameter(torch.ones_like(values), tensor.requires_grad)
            counted.weight.mul_(values)
            if counted.bias is not None:
                counted.bias.mul_(values)

    def strip_(self) -> None:
        """Remove the gates and restore the original class."""
        self._modules.pop("gate")
        self.__dict__.pop("kind")
        self.__class__ = type(self).plain  # type: ignore[assignment]  # the original class

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 -- as pickle requires
        return _blank, (type(self).plain,), self.__dict__


_CLASSES: dict[type[nn.Module], type[GatedNorm]] = {}


def gated_class(plain: type[nn.Module]) -> type[GatedNorm]:
    """The gated subclass of a normalisation class; the same class always gives the same subclass."""
    if plain not in _CLASSES:
        name, contents = f"Gated{plain.__name__}", {"__module__": __name__, "plain": plain}
        _CLASSES[plain] = type(name, (GatedNorm, plain), contents)
    return _CLASSES[plain]


def _blank(plain: type[nn.Module]) -> GatedNorm:
    """An instance for pickle and copy to fill."""
    kind = gated_class(plain)
    return kind.__new__(kind)


def gate_norm_(module: nn.Module, kind: str, gate: SharedGate) -> None:
    """Put gates before a normalisation over channels, in place.

    Args:
        module: The normalisation.
        kind: Its formula, as returned by `vbdrop.layers.counted_norm.kind_of`.
        gate: The gates.

    Example:
        >>> from vbdrop.layers import Gate, Units
        >>> norm, gate = nn.LayerNorm(2), Gate(2, -1, Units(), torch.ones(1))
        >>> gate_norm_(norm, "layer", SharedGate(-1, {"stream": gate}, [gate], torch.arange(2)))
        >>> norm.eval()(torch.tensor([[1.0, 3.0]])).round(decimals=2).tolist()
        [[-1.0, 1.0]]
    """
    module.__class__ = gated_class(type(module))
    module.__dict__["kind"] = kind
    module.add_module("gate", gate.train(module.training))
