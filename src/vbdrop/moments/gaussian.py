"""A random tensor: the mean and the variance of each of its entries."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

METADATA = ("shape", "dtype", "device", "ndim", "dim", "size", "numel", "is_floating_point")
"""The attributes and methods of a tensor that a forward may use without reading its values."""

OPERATORS = (
    *("__pow__", "__rpow__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__matmul__"),
    *("__rmatmul__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__and__", "__or__", "__xor__"),
    *("__invert__", "__abs__", "__bool__", "__float__", "__int__"),
)
"""The operators without a rule; otherwise Python would compare by identity, or raise an error without the module."""


class NoRuleError(TypeError):
    """An operation has no rule for means and variances.

    Example:
        >>> raise NoRuleError("cumsum")
        Traceback (most recent call last):
        vbdrop.moments.gaussian.NoRuleError: cumsum
    """


class Moments:
    """Independent normal numbers in place of a tensor; torch functions and tensor methods return moments again.

    Args:
        mean: The mean of each entry.
        variance: The variance of each entry, of the same shape.

    Example:
        >>> x = Moments(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25]))
        >>> y = 2 * x + 1
        >>> y.mean_, y.variance
        (tensor([3., 5.]), tensor([2., 1.]))
    """

    rules: Mapping[str, Callable[..., Any]] = {}
    """Name of a torch function or tensor method -> what it does to moments; see `vbdrop.moments.operations`."""

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        if mean.shape != variance.shape:
            raise ValueError(
                f"`variance` must have the shape of `mean`, {list(mean.shape)}; got {list(variance.shape)}."
            )
        self.mean_, self.variance = mean, variance

    def each(self, change: Callable[[Tensor], Tensor]) -> "Moments":
        """Apply the same change of shape or order to means and variances."""
        return Moments(change(self.mean_), change(self.variance))

    def overwrite_(self, other: "Moments") -> "Moments":
        """Write other moments into these tensors, so that all references and views see them, as after `relu_`.

        Means and variances are viewed or copied exactly where the forward views or copies values.
        """
        self.mean_.copy_(other.mean_)
        self.variance.copy_(other.variance)
        return self

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 -- whatever the function returns
        """Apply the rule of a torch function."""
        return cls._rule(func.__name__)(*args, **(kwargs or {}))

    @classmethod
    def _rule(cls, name: str) -> Callable[..., Any]:
        if name not in cls.rules:
            raise NoRuleError(name)
        return partial(_applied, name, cls.rules[name])

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- any attribute of a tensor
        if name in METADATA:
            return getattr(self.mean_, name)
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"`Moments` has no attribute {name!r}")
        return partial(self._rule(name), self)

    def __len__(self) -> int:
        return len(self.mean_)

    def __getitem__(self, index: Any) -> "Moments":  # noqa: ANN401 -- any index of a tensor
        return self.each(lambda tensor: tensor[index])

    def __setitem__(self, index: Any, value: "Moments | Tensor | float") -> None:  # noqa: ANN401
        mean, variance = (value.mean_, value.variance) if isinstance(value, Moments) else (value, 0.0)
        self.mean_[index], self.variance[index] = mean, variance

    def __add__(self, other: "Moments | Tensor | float") -> "Moments":
        """The sum; two moments are treated as independent."""
        if isinstance(other, Moments):
            return Moments(self.mean_ + other.mean_, self.variance + other.variance)
        mean = self.mean_ + other
        return Moments(mean, self.variance.expand_as(mean).clone())

    def __mul__(self, factor: "Moments | Tensor | float") -> "Moments":
        """The product with a constant."""
        if isinstance(factor, Moments):
            raise NoRuleError("a product of two noisy values")
        mean = self.mean_ * factor
        squared = torch.as_tensor(factor, dtype=mean.dtype, device=mean.device).square()
        return Moments(mean, self.variance * squared)

    def __neg__(self) -> "Moments":
        return Moments(-self.mean_, self.variance.clone())

    def __sub__(self, other: "Moments | Tensor | float") -> "Moments":
        return self + -other

    def __rsub__(self, other: Tensor | float) -> "Moments":
        return -self + other

    def __truediv__(self, divisor: "Moments | Tensor | float") -> "Moments":
        if isinstance(divisor, Moments):
            raise NoRuleError("a quotient of two noisy values")
        return self * (1 / divisor)

    def __iadd__(self, other: "Moments | Tensor | float") -> "Moments":
        return self.overwrite_(self + other)

    def __isub__(self, other: "Moments | Tensor | float") -> "Moments":
        return self.overwrite_(self - other)

    def __imul__(self, factor: "Moments | Tensor | float") -> "Moments":
        return self.overwrite_(self * factor)

    def __itruediv__(self, divisor: "Moments | Tensor | float") -> "Moments":
        return self.overwrite_(self / divisor)

    __radd__ = __add__
    __rmul__ = __mul__


def _applied(name: str, rule: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Apply a rule; arguments that it does not accept raise `NoRuleError`."""
    if "input" in kwargs:
        args = (kwargs.pop("input"), *args)
    try:
        return rule(*args, **kwargs)
    except NoRuleError:
        raise
    except TypeError as error:
        raise NoRuleError(f"{name} with these arguments") from error


def _without_rule(name: str) -> Callable[..., Any]:
    def refuse(*operands: object) -> None:
        raise NoRuleError(name)

    return refuse


for _operator in OPERATORS:
    setattr(Moments, _operator, _without_rule(_operator))
