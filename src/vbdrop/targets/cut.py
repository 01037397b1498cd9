"""Which elements to remove: those with the least evidence lost per unit saved, until a size is met exactly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.targets.cost_model import CostModel
from vbdrop.targets.prunable import Prunable, plain_without, prunables, worth
from vbdrop.targets.sizes import SizeCounter
from vbdrop.targets.target import Unit

SHARE_PER_STEP = 0.2
"""The largest share of a tensor's live elements that is removed per step on the path; one may always be removed."""

CLOSE = 0.97
"""If a cut ends below this share of its limit, another one is tried."""


@dataclass(frozen=True)
class Order:
    """All elements of a model, ordered by evidence lost per unit saved, the least first.

    Attributes:
        masks: For each tensor, which elements are alive.
        flat: The log evidence per unit of each element, for all tensors concatenated; infinite for elements that must
            stay.
        order: The elements of ``flat`` that may be removed, the least valuable first.
    """

    masks: list[Tensor]
    flat: Tensor
    order: Tensor

    def without(self, count: int, *others: int) -> list[Tensor]:
        """Masks of all removed elements, including the first ``count`` of the order and some others."""
        gone = torch.zeros(len(self.flat), dtype=torch.bool)
        gone[self.order[:count]] = True
        gone[list(others)] = True
        parts = torch.split(gone, [mask.numel() for mask in self.masks])
        return [~mask | part.view(mask.shape) for mask, part in zip(self.masks, parts, strict=True)]

    def part(self, tensor: int) -> Tensor:
        """The part of ``flat`` that belongs to one tensor."""
        return torch.split(self.flat, [mask.numel() for mask in self.masks])[tensor]

    def first_of_each(self, count: int) -> list[int]:
        """For each tensor, its first element after the first ``count`` of the order; the least valuable first."""
        ends = torch.tensor([mask.numel() for mask in self.masks]).cumsum(0)
        left = self.order[count:]
        tensors = torch.bucketize(left, ends, right=True)
        firsts = [int((tensors == tensor).nonzero()[0]) for tensor in set(tensors.tolist())]
        return [int(left[first]) for first in sorted(firsts)]


@torch.no_grad()
def order_of(found: Sequence[Prunable], costs: CostModel, *, limited: bool = False) -> Order:
    """Put all live elements in order.

    The best element of every tensor is always kept, so that no layer is ever emptied.

    Args:
        found: What can be removed.
        costs: What each element costs.
        limited: Whether at most `SHARE_PER_STEP` of each tensor may be removed.
    """
    masks = [one.alive() for one in found]
    values = []
    for one, mask, saving in zip(found, masks, costs.savings(masks), strict=True):
        value = worth(one, saving, mask)
        n_alive = len(value)
        may_go = min(n_alive - 1, max(1, int(SHARE_PER_STEP * n_alive))) if limited else n_alive - 1
        allowed = value.argsort()[: max(0, may_go)]
        spread = torch.full((mask.numel(),), torch.inf, dtype=value.dtype)
        spread[mask.flatten().nonzero()[:, 0][allowed]] = value[allowed]
        values.append(spread)
    flat = torch.cat(values)
    candidates = torch.isfinite(flat).nonzero()[:, 0]
    return Order(masks, flat, candidates[flat[candidates].argsort()])


def fewest(order: Order, size: Callable[[list[Tensor]], float], limit: float) -> int | None:
    """How many elements of the order must be removed until the size is within the limit; None if it never is.

    The size is nearly linear in their number, so the search alternates between linear interpolation and bisection.
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


def largest_cut(model: nn.Module, costs: CostModel) -> list[Tensor]:
    """Everything that can be removed from a model at once: a mask for each of `prunables`.

    Raises:
        ValueError: Nothing can be removed.
    """
    found = prunables(model)
    if not found:
        raise ValueError(
            "`model` must have weights or units that can be removed for a target; vbdrop.Rates removes nothing. "
            "Convert it with vbdrop.Weights() or vbdrop.Units(), with or without Rates."
        )
    order = order_of(found, costs)
    return order.without(len(order.order))


def least_kept(model: nn.Module, counter: SizeCounter, unit: Unit) -> float:
    """The size of one live weight in each noisy tensor that counts, which every layer needs.

    The best weights of two layers need not belong to the same unit. Compression would then remove both, and the size of
    the `largest_cut` would be that of a model without any weight.

    Args:
        model: A converted model.
        counter: The exact counter of the same model.
        unit: What is counted.

    Returns:
        The size, or 0 if the unit is a time.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> least_kept(model, SizeCounter(model, (torch.zeros(1, 4),)), "weights")
        2.0
    """
    if unit == "latency":
        return 0.0
    names = [f"{found.name}.{found.entry.name}".removeprefix(".") for found in prunables(model)]
    counted = [name for name in names if name in counter.counted]
    return float(sum(counter.positions.get(name, 0) if unit == "macs" else 1 for name in counted))


def exact_cut(
    model: nn.Module, costs: CostModel, size: Callable[[nn.Module], float], limit: float
) -> list[Tensor] | None:
    """What to remove from a model so that it meets a limit: a mask for each of `prunables`; None if no cut does.

    Elements are removed in order. If the last one leaves the model below `CLOSE` of the limit, another one is removed
    instead if that ends closer to the limit; elements that still fit are kept.

    Args:
        model: A converted model; it is not changed.
        costs: What each element costs.
        size: The exact size of a plain model with zeros.
        limit: The largest size.
    """
    order = order_of(prunables(model), costs)

    def size_of(gone: list[Tensor]) -> float:
        return size(plain_without(model, gone))

    count = fewest(order, size_of, limit)
    if count is None:
        return None
    gone = order.without(count)
    if count == 0 or (found := size_of(gone)) >= CLOSE * limit:
        return gone
    return with_spared(order, size_of, limit, *_nearest(order, count, size_of, limit, (gone, found)))[0]


def _nearest(
    order: Order, count: int, size: Callable[[list[Tensor]], float], limit: float, best: tuple[list[Tensor], float]
) -> tuple[list[Tensor], float]:
    """The cut with another last element: the first of each tensor in turn, until one ends near the limit."""
    for element in order.first_of_each(count):
        gone = order.without(count - 1, element)
        found = size(gone)
        if best[1] < found <= limit:
            best = gone, found
            if found >= CLOSE * limit:
                break
    return best


def with_spared(
    order: Order, size: Callable[[list[Tensor]], float], limit: float, gone: list[Tensor], found: float
) -> tuple[list[Tensor], float]:
    """A cut without unnecessary removals: of each tensor, the best elements that still fit the limit are kept."""
    for tensor, mask in enumerate(gone):
        while found < CLOSE * limit:
            cut = (mask & order.masks[tensor]).flatten().nonzero()[:, 0]
            if not len(cut):
                break
            best = cut[order.part(tensor)[cut].argmax()]
            mask.view(-1)[best] = False
            larger = size(gone)
            if larger > limit:
                mask.view(-1)[best] = True
                break
            found = larger
    return gone, found
