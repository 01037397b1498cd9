r"""Linear maps of independent normal numbers, with weights that are constant or normal.

For :math:`y = \sum_i w_i x_i + b` with :math:`w_i \sim N(\theta_i, s_i^2)`,

.. math:: E\,y = \sum_i\theta_i\mu_i + b, \qquad
    Var\,y = \sum_i\theta_i^2\sigma_i^2 + s_i^2(\mu_i^2 + \sigma_i^2).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vbdrop.moments.gaussian import Moments, NoRuleError

Map = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Maps an input, a weight and a bias to an output; linear in the input and in the weight."""


def product(apply: Map, x: Moments | Tensor, weight: Tensor, bias: Tensor | None, variance: Tensor | None) -> Moments:
    """The moments of a linear map.

    Args:
        apply: The map.
        x: The input.
        weight: The means of the weights.
        bias: The bias, or None.
        variance: The variances of the weights; None for constant weights.

    Example:
        >>> linear = torch.nn.functional.linear
        >>> y = product(linear, torch.tensor([[2.0, 1.0]]), torch.ones(1, 2), None, torch.full((1, 2), 0.5))
        >>> y.mean_, y.variance
        (tensor([[3.]]), tensor([[2.5000]]))
    """
    mean_in = x.mean_ if isinstance(x, Moments) else x
    dtype = torch.promote_types(mean_in.dtype, torch.float32)
    mean_in, weight, bias = mean_in.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    mean = apply(mean_in, weight, bias)
    total = torch.zeros_like(mean)
    if isinstance(x, Moments):
        total = apply(x.variance.to(dtype), weight.square(), None)
    if variance is not None:
        square = mean_in.square() + (x.variance.to(dtype) if isinstance(x, Moments) else 0.0)
        total = total + apply(square, variance.to(dtype), None)
    return Moments(mean, total)


def known_product(function: Callable[..., Tensor]) -> Callable[..., Moments]:
    """The rule of `torch.nn.functional.linear` or a convolution with constant weights.

    Example:
        >>> rule = known_product(torch.nn.functional.linear)
        >>> rule(Moments(torch.ones(1, 2), torch.ones(1, 2)), torch.full((1, 2), 3.0)).variance
        tensor([[18.]])
    """

    def rule(input: Moments, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Moments:  # noqa: ANN401
        return product(lambda x, w, b: function(x, w, b, *args, **kwargs), input, weight, bias, None)

    return rule


def normalised(
    x: Moments,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Moments:
    """The rule of `torch.nn.functional.batch_norm` in eval mode, an affine map of each channel.

    Example:
        >>> x = Moments(torch.ones(1, 2), torch.ones(1, 2))
        >>> y = normalised(x, torch.zeros(2), torch.full((2,), 4.0), eps=0.0)
        >>> y.mean_, y.variance
        (tensor([[0.5000, 0.5000]]), tensor([[0.2500, 0.2500]]))
    """
    if training or running_mean is None or running_var is None:
        raise NoRuleError("batch_norm with batch statistics")
    dtype = x.mean_.dtype
    scale = torch.rsqrt(running_var.to(dtype) + eps) * (1.0 if weight is None else weight.to(dtype))
    shift = (0.0 if bias is None else bias.to(dtype)) - running_mean.to(dtype) * scale
    spread = (1, -1, *[1] * (x.mean_.dim() - 2))
    return x * scale.view(spread) + shift.view(spread)
