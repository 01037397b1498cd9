"""What a variational module tells about each tensor of noisy weights that it holds."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.functional import JoinedKL, alive, kl_sum, upper_bounded
from vbdrop.functional.masks import LARGEST_THRESHOLD
from vbdrop.priors import Prior, log_alpha_of


@dataclass(frozen=True)
class NoisyTensor:
    """One tensor of noisy weights: its means, its rates and its prior.

    Exactly one of ``log_sigma2`` and ``log_alpha`` is set.

    Attributes:
        name: The means' parameter name in the module.
        mean: The means.
        prior: The prior of each of them.
        threshold: The ``log_alpha`` from which on a weight is dead, or None if none ever is.
        log_sigma2: The log variances, of the means' shape (the additive form).
        log_alpha: The log alphas, possibly shared by several weights (the multiplicative form).
        expand: Brings ``log_alpha`` to a shape that broadcasts against the means.
        joined_kl: Where the module's last forward left the KL, if it computes it too.
        removed: Which weights are dead for good, at every threshold (see `vbdrop.freeze_dead_`); None for none.
    """

    name: str
    mean: Tensor
    prior: Prior
    threshold: float | None
    log_sigma2: nn.Parameter | None = None
    log_alpha: nn.Parameter | None = None
    expand: Callable[[Tensor], Tensor] = lambda log_alpha: log_alpha
    joined_kl: JoinedKL | None = None
    removed: Tensor | None = None

    @property
    def rate(self) -> nn.Parameter:
        """The parameter that sets the dropout rates: ``log_sigma2`` or ``log_alpha``."""
        rate = self.log_sigma2 if self.log_alpha is None else self.log_alpha
        if rate is None:
            raise TypeError(f"the noisy tensor {self.name!r} has neither log_sigma2 nor log_alpha.")
        return rate

    @torch.no_grad()
    def log_alpha_full(self) -> Tensor:
        """The ``log_alpha`` of every weight, detached, of the means' shape."""
        if self.log_alpha is None:
            full = log_alpha_of(self.mean.to(self.rate.dtype), self.rate)
            return full if self.removed is None else full.masked_fill(self.removed, LARGEST_THRESHOLD)
        bounded = upper_bounded(self.log_alpha.detach(), self.prior.max_log_alpha)
        return self.expand(bounded).expand_as(self.mean)

    @torch.no_grad()
    def dead(self, threshold: float | None = None) -> Tensor:
        """Which weights are dead, at this threshold or at their own: a boolean tensor of the means' shape."""
        limit = self.threshold if threshold is None else threshold
        if self.threshold is None or limit is None:
            return torch.zeros_like(self.mean, dtype=torch.bool)
        if self.log_sigma2 is not None:
            dead = ~alive(self.mean, self.log_sigma2, limit)
            return dead if self.removed is None else dead | self.removed
        return self.log_alpha_full() >= limit

    def kl(self, *, joined: bool = False) -> Tensor:
        """The KL of these weights from their prior: the sum over all weights, also where they share a rate.

        Args:
            joined: For a loss that contains the module's last output too: the KL from the same graph, if it is there.
        """
        if self.log_sigma2 is not None:
            if self.removed is not None:
                keep = ~self.removed
                return kl_sum(self.mean[keep], self.log_sigma2[keep], self.prior)
            if joined and self.joined_kl is not None:
                ready = self.joined_kl.take(self.mean, self.log_sigma2)
                if ready is not None:
                    return ready
            return kl_sum(self.mean, self.log_sigma2, self.prior)
        if self.prior.scale_free:
            return self.prior.kl_at(self.rate).sum() * (self.mean.numel() / self.rate.numel())
        theta = self.mean.to(self.rate.dtype)
        log_sigma2 = self.expand(self.rate) - log_alpha_of(theta, torch.zeros_like(theta))
        return kl_sum(theta, log_sigma2, self.prior)
