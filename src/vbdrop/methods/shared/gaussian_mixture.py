r"""The mixture of Gaussians that soft weight-sharing fits to all weights of a network.

.. math:: L^C = -\sum_i\log\sum_j \pi_j N(w_i | \mu_j, \lambda_j^{-1})

Component 0 has its mean at 0 and a fixed share :math:`\pi_0`. The sum runs over weights times components, so it is
computed in pieces, and its gradient in closed form from the responsibilities :math:`r_{ij}`: :math:`\partial
L^C/\partial w_i = \sum_j r_{ij}\lambda_j(w_i - \mu_j)`.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 16_384
"""The number of weights per piece, whose densities fit into the processor's cache."""

LOWEST = -60.0
"""Lower limit for log densities, relative to the largest: exponentials of lower ones, and their products with small
weights, would be subnormal numbers, with which a processor is many times slower."""


class Components(NamedTuple):
    r"""The components of a mixture: log shares :math:`\log\pi`, means :math:`\mu` and precisions :math:`\lambda`."""

    log_shares: Tensor
    means: Tensor
    precisions: Tensor


def _coefficients(components: Components) -> Tensor:
    r"""Rows of :math:`c_0 + c_1 w + c_2 w^2 = \log(\pi_j N(w|\mu_j,\lambda_j^{-1}))`."""
    log_shares, means, precisions = components
    constant = log_shares + 0.5 * (precisions.log() - math.log(2 * math.pi)) - 0.5 * precisions * means.square()
    return torch.stack([constant, precisions * means, -0.5 * precisions], dim=1)


def _powers(weights: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(weights), weights, weights.square()])


class _MixtureNLL(torch.autograd.Function):
    """The value and, from the same responsibilities, the gradients with respect to weights and coefficients."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, coefficients: Tensor) -> Tensor:  # noqa: ANN401 -- torch's own context
        by_weight = torch.empty_like(weights)
        by_coefficient = torch.zeros_like(coefficients)
        total = weights.new_zeros((), dtype=torch.float64)
        for piece, gradient in zip(torch.split(weights, PIECE), torch.split(by_weight, PIECE), strict=True):
            powers = _powers(piece)
            density = coefficients @ powers
            largest = density.amax(0)
            density.sub_(largest).clamp_(min=LOWEST).exp_()
            norm = density.sum(0)
            total -= (largest + norm.log()).sum(dtype=torch.float64)
            responsibility = density.div_(norm)
            by_coefficient -= responsibility @ powers.T
            slope = coefficients[:, 1:].T @ responsibility
            gradient.copy_(-(slope[0] + 2 * piece * slope[1]))
        ctx.save_for_backward(by_weight, by_coefficient)
        return total.to(weights.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        by_weight, by_coefficient = ctx.saved_tensors
        return by_weight * grad, by_coefficient * grad


def mixture_nll(weights: Tensor, components: Components) -> Tensor:
    r"""The negative log likelihood :math:`L^C` of the weights under the mixture: one number.

    Args:
        weights: The weights, as a vector.
        components: The mixture's components.

    Example:
        >>> one = Components(torch.zeros(1), torch.zeros(1), torch.ones(1))
        >>> round(mixture_nll(torch.zeros(2), one).item(), 4)  # twice log(2 pi) / 2
        1.8379
    """
    nll: Tensor = _MixtureNLL.apply(weights, _coefficients(components))  # type: ignore[no-untyped-call]
    return nll


def divergences(components: Components) -> Tensor:
    r"""The KL divergence of each component i from each component j, as a matrix.

    .. math:: \tfrac12\log(\lambda_i/\lambda_j) + \tfrac12\lambda_j(\lambda_i^{-1} + (\mu_i-\mu_j)^2) - \tfrac12

    Example:
        >>> divergences(Components(torch.zeros(2), torch.tensor([0.0, 1.0]), torch.ones(2)))
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])
    """
    _, means, precisions = components
    logs = precisions.log()
    squares = (means[:, None] - means[None, :]).square()
    return 0.5 * (logs[:, None] - logs[None, :]) + 0.5 * precisions * (1 / precisions[:, None] + squares) - 0.5


def merged(components: Components, threshold: float) -> Components:
    """Merge the two nearest components until none are closer than this divergence; the one nearest to 0 is set to 0.

    A merged component has the sum of the shares, and the weighted averages of means and variances.

    Example:
        >>> same = Components(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.2, 0.2]), torch.ones(2))
        >>> merged(same, 1e-10).means
        tensor([0.])
    """
    shares, means, variances = components.log_shares.exp(), components.means, 1 / components.precisions
    while len(means) > 1:
        distances = divergences(Components(shares.log(), means, 1 / variances)).fill_diagonal_(math.inf)
        first, second = divmod(int(distances.argmin()), len(means))
        if not distances[first, second] < threshold:
            break
        pair = torch.tensor([first, second])
        rest = torch.tensor([index for index in range(len(means)) if index not in (first, second)], dtype=torch.long)
        part = shares[pair] / shares[pair].sum()
        means = torch.cat([means[rest], (part * means[pair]).sum()[None]])
        variances = torch.cat([variances[rest], (part * variances[pair]).sum()[None]])
        shares = torch.cat([shares[rest], shares[pair].sum()[None]])
    means = means.clone()
    means[means.abs().argmin()] = 0.0
    return Components(shares.log(), means, 1 / variances)


def quantised(weights: Tensor, components: Components) -> Tensor:
    r"""The mean of each weight's most likely component, that of the largest :math:`\pi_j N(w|\mu_j,\lambda_j^{-1})`.

    Example:
        >>> two = Components(torch.tensor([0.9, 0.1]).log(), torch.tensor([0.0, 1.0]), torch.tensor([100.0, 100.0]))
        >>> quantised(torch.tensor([0.1, 0.9]), two)
        tensor([0., 1.])
    """
    coefficients = _coefficients(components)
    pieces = [components.means[(coefficients @ _powers(piece)).argmax(0)] for piece in torch.split(weights, PIECE)]
    return torch.cat(pieces)
