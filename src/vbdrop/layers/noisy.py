"""How a variational module describes each tensor of noisy weights that it holds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import local_shard, shard_like, whole_tensor
from vbdrop.functional import alive, upper_bounded
from vbdrop.functional.masks import LARGEST_THRESHOLD
from vbdrop.kernels import KLTerm, kl_total
from vbdrop.kernels.kl import scaled as scaled_by
from vbdrop.priors import Prior, log_alpha_of


@dataclass(frozen=True)
class NoisyTensor:
    """One tensor of noisy weights: its means, its rates and its prior.

    Exactly one of ``log_sigma2`` and ``log_alpha`` is set.

    Attributes:
        name: The means' parameter name in the module.
        mean: The means.
        prior: The prior of each of them.
        threshold: The ``log_alpha`` at or above which a weight is dead, or None if no weight ever is.
        log_sigma2: The log variances, of the means' shape (the additive form).
        log_alpha: The log alphas, possibly shared by several weights (the multiplicative form).
        expand: Brings ``log_alpha`` to a shape that broadcasts against the means.
        removed: Which weights are dead for good, at every threshold (see `vbdrop.freeze_dead_`); None for none.
        kl_factor: A factor on the KL of each weight: one number, or a tensor that broadcasts against the means.
    """

    name: str
    mean: Tensor
    prior: Prior
    threshold: float | None
    log_sigma2: nn.Parameter | None = None
    log_alpha: nn.Parameter | None = None
    expand: Callable[[Tensor], Tensor] = lambda log_alpha: log_alpha
    removed: Tensor | None = None
    kl_factor: float | Tensor = 1.0

    @property
    def rate(self) -> nn.Parameter:
        """The parameter that sets the dropout rates: ``log_sigma2`` or ``log_alpha``."""
        rate = self.log_sigma2 if self.log_alpha is None else self.log_alpha
        if rate is None:
            raise TypeError(f"the noisy tensor {self.name!r} has neither log_sigma2 nor log_alpha.")
        return rate

    @torch.no_grad()
    def log_alpha_full(self) -> Tensor:
        """The ``log_alpha`` of every weight, detached, in the means' shape; gathered if it is distributed."""
        rate = whole_tensor(self.rate.detach())
        if self.log_alpha is None:
            full = log_alpha_of(whole_tensor(self.mean.detach()).to(rate.dtype), rate)
            return full if self.removed is None else full.masked_fill(self.removed, LARGEST_THRESHOLD)
        return self.expand(upper_bounded(rate, self.prior.max_log_alpha)).expand(self.mean.shape)

    @torch.no_grad()
    def dead(self, threshold: float | None = None) -> Tensor:
        """Which weights are dead, at this threshold or at their own: a boolean tensor of the means' shape.

        If the parameters are distributed over processes (``DTensor``), all processes must call this; each gets the
        whole result.
        """
        limit = self.threshold if threshold is None else threshold
        if self.threshold is None or limit is None:
            return torch.zeros(self.mean.shape, dtype=torch.bool, device=self.mean.device)
        if self.log_sigma2 is not None:
            mean, log_sigma2 = (whole_tensor(part.detach()) for part in (self.mean, self.log_sigma2))
            dead = ~alive(mean, log_sigma2, limit)
            return dead if self.removed is None else dead | self.removed
        return self.log_alpha_full() >= limit

    @torch.no_grad()
    def zero_means_(self, mask: Tensor) -> None:
        """Set these means to zero, in place; the mask covers the whole tensor even if it is distributed."""
        local_shard(self.mean).masked_fill_(shard_like(mask, self.mean), 0.0)

    def kl(self) -> Tensor:
        """The KL of these weights from their prior: the sum over all weights, even if they share a rate."""
        return kl_of([self])[0]

    def _additive(self) -> tuple[Tensor, Tensor, float | Tensor]:
        """The means and log variances whose KL is summed, and the factors on it."""
        if self.log_sigma2 is not None:
            mean, log_sigma2, factor = local_shard(self.mean), local_shard(self.log_sigma2), self.kl_factor
            if isinstance(factor, Tensor) and mean is not self.mean:
                factor = shard_like(factor.expand(self.mean.shape), self.mean)
            if self.removed is None:
                return mean, log_sigma2, factor
            keep = ~shard_like(self.removed, self.mean)
            if isinstance(factor, Tensor):
                factor = factor.expand_as(mean)[keep]
            return mean[keep], log_sigma2[keep], factor
        if local_shard(self.rate) is not self.rate:
            raise NotImplementedError(
                f"the KL of rates that are distributed over processes must depend on alpha alone; got {self.prior!r}."
            )
        theta = self.mean.to(self.rate.dtype)
        return theta, self.expand(self.rate) - log_alpha_of(theta, torch.zeros_like(theta)), self.kl_factor

    def _shared(self) -> Tensor | None:
        """The KL of weights that share rates, if it depends on alpha alone; None otherwise."""
        if self.log_sigma2 is not None or not self.prior.scale_free:
            return None
        each = self.prior.kl_at(local_shard(self.rate))
        if not isinstance(self.kl_factor, Tensor):
            return each.sum() * (self.kl_factor * self.mean.numel() / self.rate.numel())
        return (self.expand(each).expand_as(self.mean) * self.kl_factor).sum()


def kl_of(entries: Iterable[NoisyTensor], scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """The KL of several noisy tensors, each times its ``kl_factor``, in one pass over each.

    For parameters that are distributed over processes (``DTensor``), it is the KL of this process's shards.

    Args:
        entries: The tensors, at least one.
        scale: A factor on the result.

    Returns:
        ``scale`` times the sum over all weights, with its gradient; and the sum itself, detached.

    Example:
        >>> import vbdrop
        >>> layer = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(layer, vbdrop.Weights())
        >>> scaled, total = kl_of(layer.variational(), scale=0.5)
        >>> bool(scaled == 0.5 * total)
        True
    """
    terms: list[KLTerm] = []
    tensors: list[Tensor] = []
    shared: list[Tensor] = []
    for entry in entries:
        kl = entry._shared()
        if kl is not None:
            shared.append(kl)
            continue
        mean, log_sigma2, factor = entry._additive()
        terms.append(KLTerm(entry.prior, factor))
        tensors += [mean, log_sigma2]
    parts = [kl_total(terms, tensors, scale)] if terms else []
    parts += [(scaled_by(kl, scale), kl.detach()) for kl in shared]
    if not parts:
        raise ValueError("`entries` must hold at least one noisy tensor; got none.")
    scaled, total = parts[0]
    for other_scaled, other in parts[1:]:
        scaled, total = scaled + other_scaled.to(scaled.device), total + other.to(total.device)
    return scaled, total
