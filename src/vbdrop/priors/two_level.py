r"""Two-level priors: a zero-mean Gaussian whose variance gamma has a hyper-prior (Eq. 10-12).

The variational posterior of gamma is a point, so the objective contains

.. math:: \min_\gamma\; D_{KL}(N(\theta, \sigma^2) \,\|\, N(0, \gamma)) - \log p(\gamma)

for each weight. A hyper-prior defines two functions: the best gamma for a given second moment
:math:`m = \theta^2 + \sigma^2`, and its own penalty :math:`-\log p(\gamma)`. These give the value and the gradient: at
the minimum over gamma the derivative through gamma is zero (the envelope theorem), so

.. math:: \partial/\partial\theta = \theta/\gamma^*, \qquad \partial/\partial\log\sigma^2 = (\sigma^2/\gamma^* - 1)/2.
"""

from abc import abstractmethod

from torch import Tensor

from vbdrop.priors.base import Prior


def kl_given_gamma(theta: Tensor, log_sigma2: Tensor, gamma: Tensor) -> Tensor:
    r"""The KL divergence of :math:`N(\theta, \sigma^2)` from :math:`N(0, \gamma)` (Eq. 14, in Eq. 12 and 15).

    .. math:: \tfrac12 \log\frac{\gamma}{\sigma^2} + \frac{\sigma^2 + \theta^2}{2\gamma} - \tfrac12

    Args:
        theta: Means, :math:`\theta`.
        log_sigma2: Log variances, :math:`\log\sigma^2 = \log(\alpha\theta^2)`.
        gamma: Variances of the prior, :math:`\gamma > 0`.

    Returns:
        One value per weight, zero where the two Gaussians are the same.

    Example:
        >>> import torch
        >>> float(kl_given_gamma(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(1.0)))
        0.0
    """
    second_moment = theta.square() + log_sigma2.exp()
    return 0.5 * (gamma.log() - log_sigma2) + second_moment / (2 * gamma) - 0.5


class TwoLevelPrior(Prior):
    """A Gaussian over the weight and a hyper-prior over its variance, with the variance at its optimum."""

    @abstractmethod
    def best_gamma(self, second_moment: Tensor) -> Tensor:
        """The prior variance that minimises the objective for a weight with this second moment."""

    @abstractmethod
    def hyper_penalty(self, gamma: Tensor) -> Tensor:
        """The negative log density of the hyper-prior at ``gamma``, up to a stated constant."""

    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        """The penalty of each weight at the best gamma."""
        gamma = self.best_gamma(theta.square() + log_sigma2.exp())
        return kl_given_gamma(theta, log_sigma2, gamma) + self.hyper_penalty(gamma)

    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients by the envelope theorem, for any hyper-prior."""
        gamma = self.best_gamma(theta.square() + sigma2)
        return theta / gamma, 0.5 * (sigma2 / gamma - 1)
