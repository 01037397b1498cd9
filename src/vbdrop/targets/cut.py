"""Which elements go: by the evidence that is lost per unit that is saved, until a size is met exactly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.targets.cost_model import CostModel
from vbdrop.targets.prunable import Prunable, plain_without, prunables, worth

SHARE_PER_STEP = 0.2
"""At most this share of the living elements of one tensor goes at one step on the path, but always one may."""


@dataclass(frozen=True)
class Order:
    """All elements of a model, those that lose the least evidence per unit saved first.

    Attributes:
        masks: For each tensor, which elements are alive.
        worth: For each tensor, the log evidence per unit of each element; infinite for what may not go.
        flat: The same in one vector.
        order: The elements of ``flat`` that may go, the least worth first.
    """

    masks: list[Tensor]
    worth: list[Tensor]
    flat: Tensor
    order: Tensor

    def without(self, count: int) -> list[Tensor]:
        """What is gone when the first ``count`` elements of the order go, too: for each tensor a mask."""
        gone = torch.zeros(len(self.flat), dtype=torch.bool)
        gone[self.order[:count]] = True
        parts = torch.split(gone, [mask.numel() for mask in self.masks])
        return [~mask | part.view(mask.shape) for mask, part in zip(self.masks, parts, strict=True)]


@torch.no_grad()
def order_of(found: Sequence[Prunable], costs: CostModel, *, limited: bool = False) -> Order:
    """Put all living elements in order.

    The best element of every tensor stays whatever it is worth, so that no layer is ever emptied.

    Args:
        found: What can be removed.
        costs: What each element costs.
        limited: Whether only `SHARE_PER_STEP` of each tensor may go.
    """
    masks = [one.alive() for one in found]
    values = []
    for one, mask, saving in zip(found, masks, costs.savings(masks), strict=True):
        value = torch.where(mask, worth(one, saving), torch.inf)
        n_alive = int(mask.sum())
        may_go = min(n_alive - 1, max(1, int(SHARE_PER_STEP * n_alive))) if limited else n_alive - 1
        lowest = value.flatten().argsort()[: max(0, may_go)]
        allowed = torch.zeros(mask.numel(), dtype=torch.bool)
        allowed[lowest] = True
        values.append(torch.where(allowed.view(mask.shape), value, torch.inf))
    flat = torch.cat([value.flatten() for value in values])
    order = flat.argsort()[: int(torch.isfinite(flat).sum())]
    return Order(masks, values, flat, order)


def fewest(order: Order, size: Callable[[list[Tensor]], float], limit: float) -> int | None:
    """How many elements of the order have to go until the size is within the limit; None if it never is.

    The size is nearly linear in their number, so the search tries where a line would end, and the middle in turn.
    """
    low, high = 0, len(order.order)
    size_low = size(order.without(low))
    if size_low <= limit:
        return low
    size_high = size(order.without(high))
    if size_high > limit:
        return None
    by_line = True
    while high - low > 1:  # `low` is above the limit, `high` is not
        middle = (low + high) // 2
        if by_line and size_low > size_high:
            middle = low + round((high - low) * (size_low - limit) / (size_low - size_high))
        middle, by_line = min(max(middle, low + 1), high - 1), not by_line
        found = size(order.without(middle))
        if found <= limit:
            high, size_high = middle, found
        else:
            low, size_low = middle, found
    return high


def exact_cut(
    model: nn.Module, costs: CostModel, size: Callable[[nn.Module], float], limit: float
) -> list[Tensor] | None:
    """What has to go from a model so that it meets a limit: for each of `prunables` a mask; None if it cannot.

    Args:
        model: A converted model; it is not changed.
        costs: What each element costs.
        size: The exact size of a plain model with zeros.
        limit: The largest size.
    """
    order = order_of(prunables(model), costs)
    count = fewest(order, lambda gone: size(plain_without(model, gone)), limit)
    return None if count is None else order.without(count)
