"""Rules for converted layers, whose weights and gates are normal numbers in sampled eval mode."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vbdrop._torch_compat import ConvNd, ConvTransposeNd, output_padding
from vbdrop.functional import masked
from vbdrop.layers import Conv1d, ConvTranspose1d, Gate, Linear, NoisyLayer, Variational
from vbdrop.layers.noisy import NoisyTensor
from vbdrop.moments.gaussian import Moments, NoRuleError
from vbdrop.moments.products import Map, product

FORWARDS = frozenset({Linear.forward, Conv1d.forward, ConvTranspose1d.forward, Gate.forward})
"""The forwards that have a rule; convolutions in two and three dimensions share the one for one dimension."""


def has_rule(module: Variational) -> bool:
    """Whether a layer or gate uses this library's forward; another class may compute something else.

    Example:
        >>> from vbdrop.layers import Units
        >>> has_rule(Gate(1, -1, Units(), torch.ones(1)))
        True
    """
    kind = type(module)
    if issubclass(kind, NoisyLayer) and kind.noisy_forward is not NoisyLayer.noisy_forward:
        return False
    return kind.forward in FORWARDS


def variance_of(entry: NoisyTensor) -> Tensor:
    """The variance of every weight of a noisy tensor; zero for dead weights.

    Example:
        >>> import vbdrop
        >>> layer = nn.Linear(2, 1)
        >>> _ = vbdrop.convert_(layer, vbdrop.Weights())
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[3.0, 0.0]])), layer.log_sigma2.fill_(-1.0)
        >>> variance_of(next(layer.variational())).round(decimals=2)
        tensor([[0.3700, 0.0000]])
    """
    if entry.log_sigma2 is not None:
        variance = entry.log_sigma2.detach().exp().expand_as(entry.mean)
    else:
        variance = entry.log_alpha_full().exp() * entry.mean.detach().square()
    return masked(variance, ~entry.dead())


def gated(gate: Gate, x: Moments | Tensor) -> Moments:
    """The moments of a gate's output: ``z x`` with independent z and x.

    ``Var(z x) = Var(z) (Var(x) + E(x)^2) + E(z)^2 Var(x)``. One z is shared over space, which the variances of single
    values do not capture, so the variance of a sum over positions is underestimated.

    Example:
        >>> from vbdrop.layers import Units
        >>> gate = Gate(1, -1, Units(log_sigma2=-1.0), torch.ones(1))
        >>> gated(gate, torch.tensor([[2.0]])).variance.round(decimals=3)
        tensor([[1.4720]])
    """
    if not has_rule(gate):
        raise NoRuleError(f"the forward of {type(gate).__name__}")
    (entry,) = gate.variational()
    spread = (-1, *[1] * (-gate.axis - 1))
    mean = masked(entry.mean.detach(), ~entry.dead()).view(spread)
    variance = variance_of(entry).view(spread)
    if not isinstance(x, Moments):
        return Moments(x * mean, x.square() * variance)
    spread_of_x = x.variance * (mean.square() + variance)
    return Moments(x.mean_ * mean, x.mean_.square() * variance + spread_of_x)


def linear_map(layer: nn.Module, output_size: list[int] | None = None) -> Map:
    """The map of a linear layer or a convolution, with its stride and padding, for any weight.

    Args:
        layer: The layer.
        output_size: The requested output size of a transposed convolution, if any.

    Example:
        >>> linear_map(nn.Linear(2, 1))(torch.ones(1, 2), torch.ones(1, 2), None)
        tensor([[2.]])
    """
    if isinstance(layer, ConvTransposeNd):
        return _transposed_map(layer, output_size)
    if output_size is not None:
        raise NoRuleError(f"`output_size` of {type(layer).__name__}")
    if isinstance(layer, nn.Linear):
        return F.linear
    if isinstance(layer, ConvNd):
        convolve: Map = layer._conv_forward
        return convolve
    raise NoRuleError(type(layer).__name__)


def _transposed_map(layer: ConvTransposeNd, output_size: list[int] | None) -> Map:
    dims = len(layer.kernel_size)
    convolve: Callable[..., Tensor] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    stride, dilation = list(layer.stride), list(layer.dilation)
    padding = list(cast(tuple[int, ...], layer.padding))  # never a string for a transposed convolution

    def apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        extra = output_padding(layer, x, output_size)
        return convolve(x, weight, bias, stride, padding, extra, layer.groups, dilation)

    return apply


@torch.no_grad()
def layer_moments(
    layer: NoisyLayer, input: Moments | Tensor, output_size: list[int] | None = None, *, output_gate: bool = True
) -> Moments:
    """The moments of a converted layer's output.

    Args:
        layer: The layer.
        input: Its input.
        output_size: The requested output size of a transposed convolution, if any.
        output_gate: Whether to apply the gates on its outputs.

    Example:
        >>> import vbdrop
        >>> layer = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(layer, vbdrop.Weights(), vbdrop.Units())
        >>> layer_moments(layer, torch.ones(3, 4)).variance.shape
        torch.Size([3, 2])
    """
    if not has_rule(layer):
        raise NoRuleError(f"the forward of {type(layer).__name__}")
    for name in ("gate", "output_gate"):
        gate = layer._modules.get(name)
        if gate is not None and not isinstance(gate, Gate):
            raise NoRuleError(f"{type(gate).__name__}, the {name} of {type(layer).__name__}")
    if "gate" in layer._modules:
        input = gated(layer.gate, input)
    entry = next(layer.variational(), None)
    weight = layer.weight if entry is None else masked(layer.weight, ~entry.dead())
    variance = None if entry is None else variance_of(entry)
    out = product(linear_map(layer, output_size), input, weight, layer.bias, variance)
    return gated(layer.output_gate, out) if output_gate and "output_gate" in layer._modules else out
