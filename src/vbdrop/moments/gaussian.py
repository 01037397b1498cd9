"""A random tensor: the mean and the variance of each of its entries."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

METADATA = ("shape", "dtype", "device", "ndim", "dim", "size", "numel", "is_floating_point")
"""What a forward may read of a tensor without using its values."""


class NoRuleError(TypeError):
    """An operation has no rule for means and variances.

    Example:
        >>> raise NoRuleError("cumsum")
        Traceback (most recent call last):
        vbdrop.moments.gaussian.NoRuleError: cumsum
    """


class Moments:
    """Independent normal numbers in place of a tensor: `torch` functions and methods of it return moments again.

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
        return cls.rules[name]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- any attribute of a tensor
        if name in METADATA:
            return getattr(self.mean_, name)
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"`Moments` has no attribute {name!r}")
        rule = self._rule(name)
        return lambda *args, **kwargs: rule(self, *args, **kwargs)

    def __getitem__(self, index: Any) -> "Moments":  # noqa: ANN401 -- any index of a tensor
        return self.each(lambda tensor: tensor[index])

    def __add__(self, other: "Moments | Tensor | float") -> "Moments":
        """The sum; two moments count as independent."""
        if isinstance(other, Moments):
            return Moments(self.mean_ + other.mean_, self.variance + other.variance)
        mean = self.mean_ + other
        return Moments(mean, self.variance.expand_as(mean))

    def __mul__(self, factor: "Moments | Tensor | float") -> "Moments":
        """The product with a constant."""
        if isinstance(factor, Moments):
            raise NoRuleError("a product of two noisy values")
        mean = self.mean_ * factor
        squared = torch.as_tensor(factor, dtype=mean.dtype, device=mean.device).square()
        return Moments(mean, self.variance * squared)

    def __neg__(self) -> "Moments":
        return Moments(-self.mean_, self.variance)

    def __sub__(self, other: "Moments | Tensor | float") -> "Moments":
        return self + -other

    def __rsub__(self, other: Tensor | float) -> "Moments":
        return -self + other

    def __truediv__(self, divisor: "Moments | Tensor | float") -> "Moments":
        if isinstance(divisor, Moments):
            raise NoRuleError("a quotient of two noisy values")
        return self * (1 / divisor)

    __radd__ = __add__
    __rmul__ = __mul__
