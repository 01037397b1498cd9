"""Normalisations over channels that still count the channels that were removed.

A zero channel adds nothing to a sum over channels, but it counts in the mean: after its removal, the others must be
normalised as if it were still there. If ``k`` of ``n`` channels remain, with sum ``S``, then all ``n`` together have
the mean ``M = S / n`` and the variance ``(sum (x - M)^2 + (n - k) M^2) / n``, with the sum over those that remain,
and the mean square of all is ``k / n`` times theirs. Group normalisation with one group also normalises over the
positions.
"""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILONS = ("eps", "variance_epsilon", "epsilon")
"""The attributes under which normalisation classes store the constant that they add to the variance."""

SCALES = (1.0, 1e-4, 0.0)
"""The scales of the test inputs for a norm; the small ones reveal the constant that it adds."""


class CountedNorm(nn.Module):
    """The shared part of all kinds; `count_` turns a plain normalisation into one of them.

    Attributes:
        count: The number of channels over which the mean is taken.
        from_end: The channels' axis, counted from the end: 1 for the last one.
        scale: A factor for each channel, applied to the input as a gate was; None for no factor.
    """

    count: int
    from_end: int
    eps: float | None
    weight: Tensor | None
    bias: Tensor | None
    scale: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised features; their channels are last in memory, as torch's layer normalisation leaves them."""
        x = (x if self.from_end == 1 else x.movedim(-self.from_end, -1)).contiguous()
        x = self.normalised(x if self.scale is None else x * self.scale)
        return x if self.from_end == 1 else x.movedim(-1, -self.from_end)

    def normalised(self, x: Tensor) -> Tensor:
        """The features with their channels last, normalised."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The number of channels that remain, the number counted, and eps."""
        tensor = next((t for t in (self.weight, self.scale) if t is not None), None)
        return f"{self.count if tensor is None else len(tensor)} of {self.count} channels, eps={self.eps}"


class CountedLayerNorm(CountedNorm):
    """Layer normalisation over ``count`` channels, of which only some are present; the others are zero.

    Example:
        >>> x, norm = torch.tensor([[1.0, 2.0, 0.0]]), nn.LayerNorm(3)
        >>> small = count_(nn.LayerNorm(2), "layer", 3)
        >>> torch.allclose(small(x[:, :2]), norm(x)[:, :2], atol=1e-6)
        True
    """

    def normalised(self, x: Tensor) -> Tensor:
        """The features with their channels last, normalised."""
        if x.shape[-1] == self.count:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps or 0.0)
        return _affine(standardised(x, self.count, self.eps or 0.0), self.weight, self.bias)


def standardised(x: Tensor, count: int, eps: float, axis: int = -1, positions: tuple[int, ...] = ()) -> Tensor:
    """Normalise the remaining features by the mean and the variance of all of them.

    It uses sums of values and of squares, since `torch.var_mean` takes ten times as long on a CPU. Half precision is
    computed in float32, since a square can overflow.

    Args:
        x: The features.
        count: The number of channels, with those that were removed.
        eps: The constant that is added to the variance.
        axis: The axis of the channels.
        positions: The axes of the positions that are normalised together.

    Example:
        >>> x = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
        >>> torch.allclose(standardised(x[:, :2], 4, 1e-5), F.layer_norm(x, [4])[:, :2])
        True
    """

    def over_channels(t: Tensor) -> Tensor:
        total = t.sum(axis, keepdim=True)
        return total.mean(positions, keepdim=True) if positions else total

    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    total = over_channels(wide)
    centred = torch.sub(wide, total, alpha=1 / count)
    squares = over_channels(centred * centred)
    squares = torch.addcmul(squares, total, total, value=(1 - wide.shape[axis] / count) / count)
    return (centred * torch.rsqrt(squares * (1 / count) + eps)).to(x.dtype)


def _affine(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    x = x if scale is None else x * scale
    return x if shift is None else x + shift


class CountedGroupNorm(CountedNorm):
    """Group normalisation with one group of ``count`` channels; those not present are zero at every position.

    Example:
        >>> x, norm = torch.randn(2, 3, 4), nn.GroupNorm(1, 3)
        >>> x[:, 2] = 0.0
        >>> small = count_(nn.GroupNorm(1, 2), "group", 3, from_end=2)
        >>> torch.allclose(small(x[:, :2]), norm(x)[:, :2], atol=1e-6)
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        """The normalised features."""
        weight, bias, scale = (
            None if t is None else t.view(-1, *[1] * (x.dim() - 2)) for t in (self.weight, self.bias, self.scale)
        )
        x = x if scale is None else x * scale
        if x.shape[1] == self.count:
            return F.group_norm(x, 1, self.weight, self.bias, self.eps or 0.0)
        return _affine(standardised(x, self.count, self.eps or 0.0, 1, tuple(range(2, x.dim()))), weight, bias)


class CountedRMSNorm(CountedNorm):
    """RMS normalisation over ``count`` channels, of which only some are present; the others are zero.

    Example:
        >>> x, norm = torch.tensor([[1.0, 2.0, 0.0]]), nn.RMSNorm(3, eps=1e-6)
        >>> small = count_(nn.RMSNorm(2, eps=1e-6), "rms", 3)
        >>> torch.allclose(small(x[:, :2]), norm(x)[:, :2])
        True
    """

    def normalised(self, x: Tensor) -> Tensor:
        """The features with their channels last, normalised."""
        share = x.shape[-1] / self.count
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return F.rms_norm(x, x.shape[-1:], self.weight, eps / share) / math.sqrt(share)


KINDS: dict[str, type[CountedNorm]] = {"layer": CountedLayerNorm, "rms": CountedRMSNorm, "group": CountedGroupNorm}
"""The formulas, by name; files refer to them by their order."""

CENTRING = ("layer", "group")
"""The formulas that subtract a mean, so that a zero channel does not stay zero."""


def count_(module: nn.Module, kind: str, count: int, from_end: int = 1) -> CountedNorm:
    """Make a normalisation count channels that it no longer has, in place.

    Args:
        module: A normalisation; its parameters stay the same objects.
        kind: One of `KINDS`.
        count: The number of channels to count.
        from_end: The channels' axis, counted from the end.

    Raises:
        ValueError: If the constant that it adds to the variance is unknown; nothing is changed then.
    """
    check_epsilon(module, kind)
    parameters, attributes = module._parameters, {"count": count, "from_end": from_end, "eps": epsilon_of(module)}
    module.__class__ = KINDS[kind]
    for name in ("weight", "bias", "scale"):
        parameters.setdefault(name, None)
    module.__dict__.update(attributes)
    return module  # type: ignore[return-value]  # it is one now


def epsilon_of(module: nn.Module) -> float | None:
    """The constant that a normalisation adds to the variance; None for the machine epsilon of the input's dtype."""
    return next((value for name in EPSILONS if isinstance(value := getattr(module, name, None), float)), None)


def check_epsilon(module: nn.Module, kind: str) -> None:
    """Check that the constant that a normalisation adds to the variance is known.

    Raises:
        ValueError: If it is not known and the kind has no default.
    """
    if kind in CENTRING and epsilon_of(module) is None:
        raise ValueError(f"{type(module).__name__} must have a float under one of {', '.join(EPSILONS)}; it has none.")


def kind_of(module: nn.Module, count: int, from_end: int = 1) -> str | None:
    """The formula that a module computes, found by testing it; None if it is none of `KINDS`.

    Args:
        module: A module; it is tested only if it has no parameters besides ``weight`` and ``bias``.
        count: The number of its channels.
        from_end: The channels' axis, counted from the end.

    Example:
        >>> kind_of(nn.LayerNorm(4), 4), kind_of(nn.RMSNorm(4), 4), kind_of(nn.Linear(4, 4), 4)
        ('layer', 'rms', None)
    """
    if isinstance(module, CountedNorm):
        return next(name for name, kind in KINDS.items() if isinstance(module, kind))
    own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
    if set(own) - {"weight", "bias"} or any(t.shape != (count,) or t.is_meta for t in own.values()):
        return None
    if module._modules or any(True for _ in module.buffers()):
        return None
    return next((kind for kind in KINDS if _computes(module, kind, count, from_end)), None)


@torch.no_grad()
def _computes(module: nn.Module, kind: str, count: int, from_end: int) -> bool:
    sizes = [2, *[3] * max(1, from_end - 1)]
    sizes.insert(len(sizes) - from_end + 1, count)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sizes, generator=generator) * 2 + 1
    trial: Callable[[Tensor], Tensor] = copy.deepcopy(module).to("cpu", torch.float32).eval()
    try:
        counted = count_(copy.deepcopy(module).to("cpu", torch.float32), kind, count, from_end)
        for parameter in (*trial.parameters(), *counted.parameters()):  # type: ignore[attr-defined]  # a module
            parameter.copy_(torch.linspace(0.5, 1.5, count))
        pairs = [(trial(scale * x), counted(scale * x)) for scale in SCALES]
    except Exception:  # a forward that expects other inputs may raise anything
        return False
    return all(isinstance(found, Tensor) and found.shape == x.shape for found, _ in pairs) and all(
        torch.allclose(found, wanted, 1e-4, 1e-5, equal_nan=True) for found, wanted in pairs
    )
