"""The elements that a target may remove: noisy weights and gates, with the value and the cost of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import is_sharded, whole_copy
from vbdrop.compression.evidence import lost_nats
from vbdrop.convert import deterministic_
from vbdrop.layers import NoisyTensor, Variational
from vbdrop.layers.companions import companion
from vbdrop.layers.variational import NO_VARIANCE

LARGEST = 80.0
"""``log_alpha`` is clamped to plus or minus this value, so that the logarithm of the evidence is finite."""


@dataclass(frozen=True)
class Prunable:
    """One noisy tensor with elements that can be removed.

    Attributes:
        name: The dotted name of its module.
        module: The module.
        entry: The noisy tensor.
    """

    name: str
    module: Variational
    entry: NoisyTensor

    def alive(self) -> Tensor:
        """Which elements have not been removed: a boolean tensor on the CPU, of the shape of the means."""
        removed = self.module.removed_mask_of(self.entry.name)
        return torch.ones(self.entry.mean.shape, dtype=torch.bool) if removed is None else ~removed.cpu()

    def remove_(self, mask: Tensor) -> None:
        """Remove elements for good, in place."""
        mask = mask.to(self.entry.mean.device)
        self.module.remove_(mask, self.entry.name)
        self.entry.zero_means_(mask)


def prunables(model: nn.Module) -> list[Prunable]:
    """All noisy tensors of a model whose elements can die; those of `Rates` cannot.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> [found.name for found in prunables(model)]
        ['0.gate']
    """
    return [
        Prunable(name, module, entry)
        for name, module in model.named_modules()
        if isinstance(module, Variational)
        for entry in module.variational()
        if entry.threshold is not None
    ]


def whole_model(model: nn.Module) -> nn.Module:
    """The model itself or, if ``fully_shard`` has distributed it, a copy with gathered parameters.

    In that case all ranks must call it; all of them get the same bits, so that they count and cut alike.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> whole_model(model) is model
        True
    """
    return whole_copy(model) if is_sharded(model) else model


def log_evidence(log_alpha: Tensor) -> Tensor:
    """The log of the evidence that is lost with each element; finite at both ends.

    Example:
        >>> log_evidence(torch.zeros(1)).exp()
        tensor([0.1534], dtype=torch.float64)
    """
    return lost_nats(log_alpha.double().clamp(-LARGEST, LARGEST)).log()


@torch.no_grad()
def worth(found: Prunable, saving: Tensor, alive: Tensor) -> Tensor:
    """The logarithm of the evidence lost per unit saved: the least is removed first.

    The KL of an element is multiplied by its ``kl_factor``, and so is its evidence.

    Args:
        found: A noisy tensor.
        saving: What each element saves.
        alive: The elements to consider.

    Returns:
        One number for each live element, in order.
    """
    factor = torch.as_tensor(found.entry.kl_factor).detach().cpu().double().expand(alive.shape)[alive]
    evidence = log_evidence(found.entry.log_alpha_full().cpu()[alive])
    return evidence + factor.clamp_min(1e-12).log() - saving[alive].clamp_min(1e-12).log()


@torch.no_grad()
def plain_without(model: nn.Module, removed: Sequence[Tensor]) -> nn.Module:
    """A plain copy of a model in eval mode, without these elements but with all others, even those dead by their rates.

    Args:
        model: A converted model; it is not changed.
        removed: For each of `prunables`, which elements are removed.
    """
    small = whole_copy(model)
    for found, mask in zip(prunables(small), removed, strict=True):
        found.entry.mean.masked_fill_(mask.to(found.entry.mean.device), 0.0)
        found.entry.rate.fill_(NO_VARIANCE)
        found.module._buffers.pop(companion(found.entry.name, "removed"), None)
    return deterministic_(small).eval()
