r"""The paper's prior: a zero-mean Gaussian whose variance is uniform on a wide interval (Eq. 11, Prop. 2-4).

At the best variance, :math:`\gamma^* = \theta^2 + \sigma^2` (Eq. 16), the penalty per weight is
:math:`\tfrac12\log(1 + \alpha^{-1})` (Prop. 3, Eq. 17). The same term follows from automatic relevance determination by
empirical Bayes (Kharitonov, Molchanov and Vetrov 2018) and from the variational information bottleneck (Dai et al.
2018).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from vbdrop.priors.two_level import TwoLevelPrior


@dataclass(frozen=True)
class Hierarchical(TwoLevelPrior):
    r"""VBD's prior, :math:`p(w|\gamma) = N(0, \gamma)` with :math:`\gamma \sim U(a, b)`.

    The density of the hyper-prior is the same for every gamma in the interval, so its :math:`\log(b - a)` is dropped.

    Example:
        >>> float(Hierarchical().kl(torch.tensor(1.0), torch.tensor(0.0)))  # alpha = 1: log(2) / 2
        0.3465...
    """

    scale_free: ClassVar[bool] = True

    def best_gamma(self, second_moment: Tensor) -> Tensor:
        r""":math:`\gamma^* = \theta^2 + \sigma^2` (Eq. 16)."""
        return second_moment

    def hyper_penalty(self, gamma: Tensor) -> Tensor:
        """Zero: the constant log(b - a) is dropped (Prop. 2)."""
        return torch.zeros_like(gamma)

    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        r""":math:`\tfrac12\log(1 + \theta^2/\sigma^2) = \tfrac12\log(1 + \alpha^{-1})` (Prop. 3).

        No logarithm of ``theta`` is needed. In float32 the relative error is below 1e-6 for ``log_alpha`` in [-12,
        12], and value and gradient are finite for ``log_sigma2`` in [-80, 80] and ``abs(theta)`` below 100.
        """
        return 0.5 * torch.log1p(theta.square() * torch.exp(-log_sigma2))

    def kl_at(self, log_alpha: Tensor) -> Tensor:
        r""":math:`\tfrac12\log(1 + e^{-\log\alpha})`, half of the softplus of minus ``log_alpha``."""
        return 0.5 * softplus(-log_alpha)

    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        r"""The rational gradients :math:`\theta/(\theta^2+\sigma^2)` and :math:`-\theta^2/2(\theta^2+\sigma^2)`."""
        gamma = torch.addcmul(sigma2, theta, theta)
        by_theta = theta / gamma
        return by_theta, torch.mul(theta, by_theta, out=gamma).mul_(-0.5)

    def kl_sum(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> Tensor:
        """The sum of `kl`, with one temporary tensor for all its passes."""
        return torch.mul(theta, theta).div_(sigma2).log1p_().sum() * 0.5
