"""The cost of a cut, estimated without data: the log evidence lost by setting weights and gates to zero."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.objective import ELBO, kl, noisy_tensors

LIMIT = 0.05
"""The share of the KL that a cut may lose: below this, the error of trained networks hardly changed."""


def lost_nats(log_alpha: Tensor) -> Tensor:
    r"""The log evidence that is lost by setting a weight to zero, in nats.

    The Savage-Dickey ratio with the optimal prior variance ``gamma = theta**2 + sigma2`` (Eq. 16),

    $$ -\log \frac{q(0)}{p(0)} = \frac{1}{2 \alpha} - \frac{1}{2} \log\left(1 + \frac{1}{\alpha}\right) \ge 0, $$

    with no constant dropped. A weight with a mean of zero, ``log_alpha = inf``, costs nothing.

    Args:
        log_alpha: The log of ``alpha = sigma2 / theta**2``, in float64 or any other type.

    Example:
        >>> [round(float(nats), 4) for nats in lost_nats(torch.tensor([-2.0, 0.0, 3.0]))]
        [2.6311, 0.1534, 0.0006]
    """
    inverse = torch.exp(-log_alpha.double())
    return torch.where(inverse < SERIES, inverse**2 / 4 - inverse**3 / 6, 0.5 * (inverse - torch.log1p(inverse)))


SERIES = 1e-4
"""Below this ``1 / alpha`` the difference is computed from its series, to avoid cancellation."""


@dataclass(frozen=True)
class EvidenceLoss:
    """The evidence that a cut loses.

    Attributes:
        nats: The log evidence lost, summed over all dead weights and gates.
        kl: The KL of the model before the cut.
        per_example: The approximate rise of the loss per training example, if an ELBO with a nonzero KL weight was
            given.
    """

    nats: float
    kl: float
    per_example: float | None = None

    @property
    def share(self) -> float:
        """The loss as a share of the KL."""
        return self.nats / self.kl if self.kl > 0 else 0.0

    @property
    def is_large(self) -> bool:
        """Whether the cut loses more than the limit."""
        return self.share > LIMIT

    def __str__(self) -> str:
        rise = "" if self.per_example is None else f", about {self.per_example:.3g} nats per example"
        return f"{self.nats:,.4g} nats of evidence, {self.share:.2g} of the KL{rise}"


@torch.no_grad()
def evidence_lost(model: nn.Module, threshold: float | None, elbo: ELBO | None = None) -> EvidenceLoss | None:
    """The evidence that a model loses at a threshold; None if nothing in it can die.

    Args:
        model: A converted model, or a plain one.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        elbo: The objective that the model was trained with, for its KL weight and number of examples.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> evidence_lost(model, None).nats
        0.0
    """
    entries = [entry for _, entry in noisy_tensors(model) if entry.threshold is not None]
    if not entries:
        return None
    nats = sum(float(lost_nats(entry.log_alpha_full())[entry.dead(threshold)].sum()) for entry in entries)
    per_example = None if elbo is None or not elbo.kl_weight else nats * elbo.kl_weight / elbo.n_train
    return EvidenceLoss(nats, float(kl(model)), per_example)


@torch.no_grad()
def evidence_threshold(model: nn.Module, nats: float) -> float:
    """The threshold that removes most while losing at most this much evidence; infinite if nothing can be removed.

    It lies halfway between the last weight that is removed and the first that is kept, so that rounding moves neither.

    Args:
        model: A converted model.
        nats: The log evidence that may be lost, summed over all dead weights and gates.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(3, 1)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> _ = model.weight.data.fill_(1.0), model.log_sigma2.data.copy_(torch.tensor([[-2.0, 0.0, 1.0]]))
        >>> evidence_threshold(model, 0.2), evidence_threshold(model, 0.0)  # 0.15 + 0.03 nats; 2.6 more for the other
        (-1.0, inf)
    """
    entries = [entry for _, entry in noisy_tensors(model) if entry.threshold is not None]
    if not entries:
        return math.inf
    log_alpha = torch.cat([entry.log_alpha_full().double().flatten() for entry in entries]).sort(descending=True).values
    spared = int((lost_nats(log_alpha).cumsum(0) <= nats).sum())
    if not spared:
        return math.inf
    return float(log_alpha[spared - 1 : spared + 1].mean()) if spared < len(log_alpha) else -math.inf
