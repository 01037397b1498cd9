"""The learned dropout rates of a model, one row per layer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from vbdrop._torch_compat import unwrapped
from vbdrop.layers.lost_gates import check_watched
from vbdrop.objective import noisy_tensors


@dataclass(frozen=True)
class Rate:
    """The rates that one layer (or gate) has learned.

    Attributes:
        p: The mean dropout rate of its weights or units, ``alpha / (1 + alpha)``.
        count: How many weights or units it has.
        dead: How many of them are dead.
    """

    p: float
    count: int
    dead: int

    @property
    def dead_share(self) -> float:
        """The share of dead weights or units, between 0 and 1."""
        return self.dead / self.count


class RateTable(Mapping[str, Rate]):
    """Layer name -> `Rate`; readable when printed, and in a notebook."""

    def __init__(self, rows: dict[str, Rate]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Rate:
        if name not in self._rows:
            raise KeyError(f"no layer {name!r} has rates; those that have are {', '.join(map(repr, self._rows))}")
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        width = max(len("layer"), *(len(name) for name in self._rows)) if self._rows else len("layer")
        lines = [f"{'layer':<{width}}  {'rate p':>7}  {'count':>9}  {'dead':>9}  {'dead %':>7}"]
        for name, rate in self._rows.items():
            lines.append(
                f"{name:<{width}}  {rate.p:7.3f}  {rate.count:>9,}  {rate.dead:>9,}  {100 * rate.dead_share:7.2f}"
            )
        return "\n".join(lines)

    __repr__ = __str__


@torch.no_grad()
def rates(model: nn.Module) -> RateTable:
    """The learned dropout rates of a converted model.

    Args:
        model: A model converted by `vbdrop.convert_`. Within `torch.nn.parallel.DistributedDataParallel`, its layers
            keep their own names. If ``fully_shard`` has distributed its parameters, call this on all ranks.

    Returns:
        One row per layer and per gate (named ``layer.gate``): the mean rate p and the number of dead weights or units.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(8, 4)
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(per="layer", rate=0.2))
        >>> round(vbdrop.rates(model)["weight"].p, 3)
        0.2
    """
    rows = {}
    model = unwrapped(model)
    for name, entry in noisy_tensors(model):
        p = float(torch.sigmoid(entry.log_alpha_full()).mean())
        rows[name] = Rate(p, entry.mean.numel(), int(entry.dead().sum()))
    check_watched(model)
    if not rows:
        raise ValueError("`model` has no converted layer, so it has no rates; call vbdrop.convert_(model, ...) first.")
    return RateTable(rows)
