"""Limits on the cost of a compressed model, and the threshold that meets them."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from torch import nn

from vbdrop.analysis.graph import Traced
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.masking import masked_copy
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import with_own_classes
from vbdrop.compression.rewriting.apply_plan import small_state
from vbdrop.compression.summary import Counts, summarise
from vbdrop.objective import noisy_tensors

UNITS = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

PRECISION = 0.01
"""The search for a threshold ends at this precision."""


@dataclass(frozen=True)
class SizeLimits:
    """The largest allowed cost of a compressed model; None for no limit.

    Attributes:
        bytes: Stored bytes, as `vbdrop.compression.summary.stored_bytes` counts them.
        macs: Multiply-adds per example.
        weights: Nonzero weights.

    Example:
        >>> SizeLimits.of("20 kB", None, None).bytes
        20000
    """

    bytes: int | None = None
    macs: int | None = None
    weights: int | None = None

    @classmethod
    def of(cls, max_bytes: str | int | None, max_macs: int | None, max_weights: int | None) -> "SizeLimits | None":
        """The limits that these arguments of `vbdrop.compress` set, or None if they set none."""
        for name, number in (("max_bytes", max_bytes), ("max_macs", max_macs), ("max_weights", max_weights)):
            is_text = isinstance(number, str) and name == "max_bytes"
            if number is not None and not is_text and not (type(number) is int and number >= 1):
                raise ValueError(f"`{name}` must be a whole number, at least 1; got {number!r}.")
        if max_bytes is None and max_macs is None and max_weights is None:
            return None
        return cls(parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes, max_macs, max_weights)

    def met_by(self, counts: Counts) -> bool:
        """Whether a model with these counts is within the limits."""
        if self.macs is not None and counts.macs is None:
            raise ValueError(
                "`max_macs` needs a model whose multiply-adds can be counted; for some layers they cannot."
            )
        pairs = ((self.bytes, counts.bytes), (self.macs, counts.macs), (self.weights, counts.nonzeros))
        return all(limit is None or (cost is not None and cost <= limit) for limit, cost in pairs)

    def __str__(self) -> str:
        parts = ((self.bytes, "bytes"), (self.macs, "multiply-adds"), (self.weights, "non-zero weights"))
        return " and ".join(f"{limit:,} {what}" for limit, what in parts if limit is not None)


def parse_bytes(text: str) -> int:
    """A size such as ``"20 kB"`` as a number of bytes.

    Example:
        >>> parse_bytes("1.5 MB"), parse_bytes("2KiB")
        (1500000, 2048)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if match is None or match[2] not in UNITS:
        raise ValueError(f"`max_bytes` must be a size such as '20 kB' (in {', '.join(UNITS)}); got {text!r}.")
    return int(float(match[1]) * UNITS[match[2]])


def counts_at(
    model: nn.Module,
    threshold: float | None,
    traced: Traced | None,
    *,
    rewrite: bool = True,
    round_to: int = 1,
    own_classes: Collection[str] = (),
) -> Counts:
    """The cost of a model after compression at a threshold.

    Args:
        model: A converted or plain model.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        traced: Its graph; if None, the masked model itself is counted.
        rewrite: Whether the forward may be replaced.
        round_to: The widths of layers that lose units are multiples of this.
        own_classes: The layers that keep the class that computes their weight.
    """
    plain = masked_copy(model, threshold, own_classes)
    if traced is None:
        return summarise(plain, plain.state_dict(), Plan(), {}).after
    draft = make_plan(traced, plain, rewritten=rewrite, round_to=round_to)
    if rewrite and draft.program is None and not draft.keeps_forward:
        draft = make_plan(traced, plain, rewritten=False, round_to=round_to)
    plan = draft.plan if draft.program is None else draft.program
    plan, more = with_own_classes(plan, model)
    plain = masked_copy(model, threshold, {*own_classes, *more}) if more else plain
    return summarise(plain, small_state(plan, plain), plan, {}).after


def threshold_for(
    limits: SizeLimits,
    model: nn.Module,
    threshold: float | None,
    traced: Traced | None,
    *,
    rewrite: bool = True,
    round_to: int = 1,
    own_classes: Collection[str] = (),
) -> float | None:
    """The threshold at which a model meets the limits: the given one if possible, else the highest one below it.

    It applies to all weights and gates. It is never so low that a live layer loses all of its weights.

    Args:
        limits: The limits.
        model: A converted model; a plain one has no thresholds, and either meets the limits or does not.
        threshold: Where to start; None starts from each one's own.
        traced: The model's graph.
        rewrite: Whether the forward may be replaced.
        round_to: The widths of layers that lose units are multiples of this.
        own_classes: The layers that keep the class that computes their weight.

    Raises:
        ValueError: If no threshold meets the limits; the message gives the smallest sizes that can be reached.
    """
    count = partial(counts_at, model, traced=traced, rewrite=rewrite, round_to=round_to, own_classes=own_classes)
    counts = count(threshold)
    if limits.met_by(counts):
        return threshold
    entries = [entry for _, entry in noisy_tensors(model) if entry.threshold is not None]
    if not entries:
        raise ValueError(f"the model has no learned rates and does not fit into {limits}: {_costs(counts)}.")
    starts = [entry.threshold if threshold is None else threshold for entry in entries]
    least = [float(entry.log_alpha_full().min()) for entry in entries]
    alive = [low for low, start in zip(least, starts, strict=True) if start is not None and low < start]
    low = max(alive, default=0.0) + PRECISION / 10  # higher by more than the rounding error
    high = max(start for start in starts if start is not None)
    counts = count(low)
    if not limits.met_by(counts):
        raise ValueError(
            f"no threshold fits the model into {limits}; the lowest one that leaves something of every layer, "
            f"{low:.2f}, gives {_costs(counts)}."
        )
    while high - low > PRECISION:
        middle = (low + high) / 2
        if limits.met_by(count(middle)):
            low = middle
        else:
            high = middle
    return low


def _costs(counts: Counts) -> str:
    macs = "" if counts.macs is None else f", {counts.macs:,} multiply-adds"
    return f"{counts.bytes:,} bytes, {counts.nonzeros:,} non-zero weights{macs}"
