"""The table of operations that have a rule for means and variances."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vbdrop.moments.gaussian import Moments, NoRuleError
from vbdrop.moments.pointwise import clipped, leaky, quadrature, rectified
from vbdrop.moments.pooling import adaptive_average_pool, average_pool, max_pool
from vbdrop.moments.products import known_product, normalised

MOVING = (
    *("flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "clone", "movedim"),
    *("unflatten", "expand", "detach", "float", "double", "select", "narrow", "swapaxes", "t"),
)
"""Methods that change shape, order or dtype in the same way for means and variances."""

SMOOTH: dict[str, Callable[..., Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "log_sigmoid": F.logsigmoid,
    "exp": torch.exp,
    "square": torch.square,
}
"""Pointwise functions that are integrated numerically."""


def _moved(name: str) -> Callable[..., Moments]:
    def rule(x: Moments, *args: Any, **kwargs: Any) -> Moments:  # noqa: ANN401 -- those of the method
        return x.each(lambda tensor: getattr(tensor, name)(*args, **kwargs))

    return rule


def _pointwise(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a function that also has an in-place variant."""

    def apply(x: Moments | Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        if not inplace:
            return rule(x, *args, **kwargs)
        if not isinstance(x, Moments):
            raise NoRuleError(f"{name}_ into a plain tensor")
        return x.overwrite_(rule(x, *args, **kwargs))

    return apply


def _concatenated(tensors: Sequence[Moments | Tensor], dim: int = 0) -> Moments:
    known = [each if isinstance(each, Moments) else Moments(each, torch.zeros_like(each)) for each in tensors]
    return Moments(torch.cat([each.mean_ for each in known], dim), torch.cat([each.variance for each in known], dim))


def _averaged(x: Moments, dim: Any = None, keepdim: bool = False) -> Moments:  # noqa: ANN401 -- an axis or several
    averaged = x.each(lambda tensor: tensor.mean(dim, keepdim))
    count = x.mean_.numel() // max(averaged.mean_.numel(), 1)
    return Moments(averaged.mean_, averaged.variance / count)


def _kept(x: Moments, p: float = 0.5, training: bool = True, inplace: bool = False) -> Moments:
    """The rule for dropout, which must be off."""
    if training and p > 0:
        raise NoRuleError("dropout that is on")
    return x


def _sum(x: Moments | Tensor, other: Moments | Tensor, *, alpha: float = 1) -> Moments | Tensor:
    return x + other * alpha if isinstance(x, Moments) else other * alpha + x


def _difference(x: Moments | Tensor, other: Moments | Tensor, *, alpha: float = 1) -> Moments | Tensor:
    return _sum(x, -other, alpha=alpha)


def _scaled(x: Moments | Tensor, other: Moments | Tensor) -> Moments | Tensor:
    return x * other if isinstance(x, Moments) else other * x


PLAIN: dict[str, Callable[..., Any]] = {
    "linear": known_product(F.linear),
    "conv1d": known_product(F.conv1d),
    "conv2d": known_product(F.conv2d),
    "conv3d": known_product(F.conv3d),
    "conv_transpose1d": known_product(F.conv_transpose1d),
    "conv_transpose2d": known_product(F.conv_transpose2d),
    "conv_transpose3d": known_product(F.conv_transpose3d),
    "batch_norm": normalised,
    "cat": _concatenated,
    "mean": _averaged,
    **dict.fromkeys(("__add__", "__radd__"), _sum),
    "__sub__": _difference,
    **dict.fromkeys(("__mul__", "__rmul__"), _scaled),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _kept),
}

POINTWISE: dict[str, Callable[..., Any]] = {
    "relu": rectified,
    "leaky_relu": leaky,
    "hardtanh": clipped,
    "relu6": partial(clipped, min_val=0.0, max_val=6.0),
    "add": _sum,
    "sub": _difference,
    "mul": _scaled,
    **{name: quadrature(function) for name, function in SMOOTH.items()},
}
"""Functions that also have in-place variants: such as ``relu_``, or with ``inplace=True``."""

POOLS = {
    f"{name}{dims}d": rule(dims)
    for dims in (1, 2, 3)
    for name, rule in (
        ("max_pool", max_pool),
        ("_max_pool", max_pool),
        ("avg_pool", average_pool),
        ("adaptive_avg_pool", adaptive_average_pool),
    )
}

RULES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **PLAIN,
        **POOLS,
        **{name: _moved(name) for name in MOVING},
        **{name: _pointwise(name, rule) for name, rule in POINTWISE.items()},
        **{f"{name}_": partial(_pointwise(name, rule), inplace=True) for name, rule in POINTWISE.items()},
    }
)
"""Name of a torch function or tensor method -> its rule."""

Moments.rules = RULES
