"""The sum of a prior's KL over a tensor of weights: the plain formula, and its value and gradient in one pass."""

import torch
from torch import Tensor

from vbdrop.priors import Prior


def kl_sum_reference(theta: Tensor, log_sigma2: Tensor, prior: Prior, factor: float | Tensor = 1.0) -> Tensor:
    """The KL divergence of all these weights from their prior, differentiated by autograd.

    Args:
        theta: Means of the weights.
        log_sigma2: Log variances of the weights, of the same shape, float32 or float64.
        prior: The prior of each weight.
        factor: A factor on the KL of each weight: one number, or a tensor that broadcasts against the weights.

    Returns:
        The sum over the weights: one number.

    Example:
        >>> from vbdrop.priors import Hierarchical
        >>> float(kl_sum_reference(torch.ones(2), torch.zeros(2), Hierarchical()))  # log(2) / 2 each
        0.693...
    """
    each = prior.kl(theta.to(log_sigma2.dtype), log_sigma2)
    return (each * factor).sum() if isinstance(factor, Tensor) else each.sum() * factor


@torch.no_grad()
def kl_and_gradients_reference(
    theta: Tensor, log_sigma2: Tensor, prior: Prior, factor: float | Tensor = 1.0, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The value of `kl_sum_reference`, and ``scale`` times its gradients with respect to ``theta`` and ``log_sigma2``.

    The gradients are in closed form, and the exponential is computed only once. The other arguments are those of
    `kl_sum_reference`.

    Example:
        >>> from vbdrop.priors import Hierarchical
        >>> kl_and_gradients_reference(torch.ones(1), torch.zeros(1), Hierarchical())
        (tensor(0.3466), tensor([0.5000]), tensor([-0.2500]))
    """
    wide, sigma2 = theta.to(log_sigma2.dtype), log_sigma2.exp()
    by_theta, by_log_sigma2 = prior.kl_gradients(wide, log_sigma2, sigma2)
    if isinstance(factor, Tensor):
        value = (prior.kl(wide, log_sigma2) * factor).sum()
    else:
        value = prior.kl_sum(wide, log_sigma2, sigma2) * factor
    slope = factor * scale
    return value, by_theta.mul_(slope).to(theta.dtype), by_log_sigma2.mul_(slope)
