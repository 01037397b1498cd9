"""The interface of a prior: the KL divergence of a weight's posterior from it, and its gradient."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

SMALLEST_SQUARE = 2.0**-126
"""Lower limit for squares inside a logarithm: the smallest normal number of float32 and bfloat16.

Anything smaller becomes zero on a processor that flushes subnormal numbers, and its logarithm infinite.
"""


def log_alpha_of(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    r"""The log dropout variance ``log_alpha = log_sigma2 - log(theta**2)`` (Eq. 4).

    Args:
        theta: Means of the weights, :math:`\theta`.
        log_sigma2: Log variances of the weights, :math:`\log \sigma^2 = \log(\alpha \theta^2)`.

    Returns:
        :math:`\log \alpha`, finite even where ``theta`` is zero.

    Example:
        >>> import math
        >>> float(log_alpha_of(torch.tensor(0.5), torch.tensor(math.log(0.25))))
        0.0
    """
    return log_sigma2 - theta.square().clamp_min(SMALLEST_SQUARE).log()


class Prior(ABC):
    r"""A prior over one weight, as the penalty that it puts on a posterior :math:`N(\theta, \sigma^2)`.

    A prior is a small immutable object without parameters; a layer *has* one.
    """

    scale_free: ClassVar[bool] = False
    """True if the KL depends on ``alpha`` alone, and not on ``theta`` at a fixed ``alpha`` (Prop. 1 and 3)."""

    max_log_alpha: ClassVar[float | None] = None
    """The largest ``log_alpha`` for which the prior's KL is valid, or None if there is no limit."""

    @abstractmethod
    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        """The KL divergence of each weight: the plain formula, which autograd can differentiate.

        Args:
            theta: Means of the weights.
            log_sigma2: Log variances of the weights, of the same shape.

        Returns:
            One value per weight, to be *summed* for the objective.
        """

    @abstractmethod
    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of `kl` with respect to ``theta`` and ``log_sigma2``, in closed form.

        Args:
            theta: Means of the weights.
            log_sigma2: Log variances of the weights.
            sigma2: Their exponentials, which the caller has already computed.

        Returns:
            Two new tensors, not for autograd; the caller may write into them.
        """

    def kl_sum(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> Tensor:
        """The sum of `kl`; a prior overrides it if it can compute the sum in fewer passes from ``sigma2``.

        It has no gradient; `vbdrop.kernels.kl_sum` has one.
        """
        return self.kl(theta, log_sigma2).sum()

    def kl_at(self, log_alpha: Tensor) -> Tensor:
        """The KL divergence of a weight with this ``log_alpha`` and any mean; for scale-free priors only."""
        if not self.scale_free:
            raise TypeError(f"the KL of {self!r} depends on theta, not on alpha alone; use `kl`.")
        return self.kl(torch.ones_like(log_alpha), log_alpha)
