r"""Pooling of independent normal numbers: averages are exact, maxima are taken two at a time (Clark 1961).

The maximum of :math:`x_i \sim N(\mu_i, \sigma_i^2)`, with :math:`\theta^2 = \sigma_1^2 + \sigma_2^2` and
:math:`a = (\mu_1 - \mu_2)/\theta`, has

.. math:: E = \mu_1\Phi(a) + \mu_2\Phi(-a) + \theta\varphi(a), \qquad
    E_2 = (\mu_1^2+\sigma_1^2)\Phi(a) + (\mu_2^2+\sigma_2^2)\Phi(-a) + (\mu_1+\mu_2)\theta\varphi(a).

It is not normal, but the next comparison treats it as if it were; for more than two numbers the result is therefore
an approximation.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vbdrop.moments.gaussian import Moments, NoRuleError
from vbdrop.moments.pointwise import normal_density, standardised

NEVER = 12.0
"""Padding lies this many standard deviations below all values, so that it is never the maximum."""


def larger(first: Moments, second: Moments) -> Moments:
    """The moments of the larger of two independent normal numbers.

    Example:
        >>> standard = Moments(torch.zeros(1), torch.ones(1))
        >>> y = larger(standard, standard)
        >>> y.mean_.round(decimals=4), y.variance.round(decimals=4)
        (tensor([0.5642]), tensor([0.6817]))
    """
    gap = first.mean_ - second.mean_
    theta = (first.variance + second.variance).sqrt()
    a = standardised(gap, theta)
    above, below, density = torch.special.ndtr(a), torch.special.ndtr(-a), normal_density(a)
    lift = gap * above + theta * density  # of the mean above the mean of the second
    # the variance around the mean, E_2 - E^2, written without the difference of two large numbers
    variance = first.variance * above + second.variance * below - (theta * density - gap * below) * lift
    return Moments(second.mean_ + lift, variance.clamp_min(0.0))


def max_pool(dims: int) -> Callable[..., Moments]:
    """The rule of max-pooling over this many dimensions.

    Example:
        >>> x = Moments(torch.tensor([[[1.0, 5.0, 2.0, 2.0]]]), torch.zeros(1, 1, 4))
        >>> max_pool(1)(x, 2).mean_
        tensor([[[5., 2.]]])
    """

    def rule(
        x: Moments,
        kernel_size: Any,  # noqa: ANN401 -- a number, or one per dimension
        stride: Any = None,  # noqa: ANN401
        padding: Any = 0,  # noqa: ANN401
        dilation: Any = 1,  # noqa: ANN401
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Moments:
        size, pad = _each(kernel_size, dims), _each(padding, dims)
        step = size if stride in (None, [], ()) else _each(stride, dims)
        if ceil_mode or return_indices or set(_each(dilation, dims)) != {1}:
            raise NoRuleError(f"max_pool{dims}d with ceil_mode, return_indices or dilation")
        if any(pad):
            sides = [side for each in reversed(pad) for side in (each, each)]
            lowest = x.mean_.min() - NEVER * x.variance.max().sqrt() - 1
            x = Moments(F.pad(x.mean_, sides, value=lowest.item()), F.pad(x.variance, sides))
        windows = x.each(lambda tensor: _windows(tensor, size, step))
        values = [windows[..., index] for index in range(prod(size))]
        while len(values) > 1:  # as in a tournament, so that errors accumulate over few rounds
            values = [larger(*pair) for pair in zip(values[::2], values[1::2], strict=False)] + values[
                len(values) & ~1 :
            ]
        return values[0].each(Tensor.clone)  # a window of one number is a view of the input

    return rule


def average_pool(dims: int) -> Callable[..., Moments]:
    """The rule of average pooling over this many dimensions: the variance of the average of independent numbers.

    Example:
        >>> x = Moments(torch.tensor([[[1.0, 5.0, 2.0, 2.0]]]), torch.ones(1, 1, 4))
        >>> y = average_pool(1)(x, 2)
        >>> y.mean_, y.variance
        (tensor([[[3., 2.]]]), tensor([[[0.5000, 0.5000]]]))
    """
    pool: Callable[..., Tensor] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]

    def rule(
        x: Moments,
        kernel_size: Any,  # noqa: ANN401
        stride: Any = None,  # noqa: ANN401
        padding: Any = 0,  # noqa: ANN401
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Moments:
        if ceil_mode or divisor_override is not None or (any(_each(padding, dims)) and not count_include_pad):
            raise NoRuleError(f"avg_pool{dims}d with ceil_mode, divisor_override or count_include_pad=False")
        averaged = x.each(lambda tensor: pool(tensor, kernel_size, stride or kernel_size, padding))
        return Moments(averaged.mean_, averaged.variance / prod(_each(kernel_size, dims)))

    return rule


def adaptive_average_pool(dims: int) -> Callable[..., Moments]:
    """The rule of adaptive average pooling, for sizes where every output averages the same number of inputs.

    Example:
        >>> x = Moments(torch.ones(1, 3, 4, 4), torch.ones(1, 3, 4, 4))
        >>> adaptive_average_pool(2)(x, 1).variance.flatten()
        tensor([0.0625, 0.0625, 0.0625])
    """

    def rule(x: Moments, output_size: Any) -> Moments:  # noqa: ANN401
        sizes = x.mean_.shape[-dims:]
        wanted = [size if want is None else want for want, size in zip(_each(output_size, dims), sizes, strict=True)]
        if any(size % want for size, want in zip(sizes, wanted, strict=True)):
            raise NoRuleError(f"adaptive_avg_pool{dims}d to a size that does not divide the size of its input")
        kernel = tuple(size // want for size, want in zip(sizes, wanted, strict=True))
        return average_pool(dims)(x, kernel)

    return rule


def _each(value: Any, dims: int) -> tuple[Any, ...]:  # noqa: ANN401 -- a number or a sequence
    """One number per dimension."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    return values * dims if len(values) == 1 else values


def _windows(tensor: Tensor, size: tuple[int, ...], step: tuple[int, ...]) -> Tensor:
    """The windows of the last axes, each flattened into one further axis."""
    for index, (kernel, stride) in enumerate(zip(size, step, strict=True)):
        tensor = tensor.unfold(index - len(size) - index, kernel, stride)
    return tensor.flatten(-len(size))
