"""The size of a model if it were compressed now, counted without building the small model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import TraceError, trace
from vbdrop.analysis.layer_shapes import owner
from vbdrop.analysis.weight_uses import positions
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.masking import masked_copy
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.removal import likely_plan
from vbdrop.compression.rewriting.apply_plan import small_state
from vbdrop.compression.summary import each_once, stored_bytes
from vbdrop.layers.modes import Filter


@dataclass(frozen=True)
class Sizes:
    """The size of a model in every unit of a target.

    Attributes:
        weights: Non-zero weights (matrices and kernels; not biases or normalization).
        parameters: All remaining parameters, zero or not.
        bytes: The approximate bytes in a file; see `vbdrop.compression.summary.stored_bytes`.
        macs: Multiply-adds per example.
        shapes: Weight -> its shape; a tied weight is listed under each of its names.
    """

    weights: int
    parameters: int
    bytes: int
    macs: int
    shapes: dict[str, tuple[int, ...]]


def size_in(sizes: Sizes, unit: str) -> int:
    """The size in the unit of a target."""
    return int(getattr(sizes, unit))


def in_words(size: float, unit: str) -> str:
    """A size with its unit.

    Example:
        >>> in_words(12345.0, "macs"), in_words(0.00025, "latency")
        ('12,345 macs', '0.25 ms')
    """
    return f"{size * 1e3:.3g} ms" if unit == "latency" else f"{size:,.0f} {unit}"


class SizeCounter:
    """Counts the size of a converted model after `vbdrop.compress`; the model is traced once.

    Args:
        model: The model, converted or plain, in its original shape.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        only: Selects the modules that are counted; None for all.
        rewrite: Whether the forward may be replaced.
        round_to: The widths of layers that lose units are multiples of this.

    Attributes:
        plain: The plain model that was traced.
        batch: The number of examples in its inputs.
        facts: The channels of its graph.
        positions: Weight -> how often it is used for one example.
        counted: The names of the tensors that are counted; a tied tensor counts if any of its modules is selected.
        before: The sizes of the whole model.

    Raises:
        ValueError: If the model cannot be traced.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> counter = SizeCounter(model, (torch.zeros(1, 4),))
        >>> _ = model[2].gate.log_sigma2.data[1].fill_(9.0)
        >>> counter.before.macs, counter.count(model).macs
        (18, 12)
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        *,
        only: Filter | None = None,
        rewrite: bool = True,
        round_to: int = 1,
    ) -> None:
        plain = masked_copy(model, None)
        try:
            self._traced = trace(plain, args, kwargs)
        except TraceError as error:
            raise ValueError(f"the sizes of the model cannot be counted: {error}.") from error
        self.rewrite, self.round_to = rewrite, round_to
        self.plain, self.batch = plain, self._traced.batch
        self.facts = propagate(self._traced, plain)
        self.positions = positions(self._traced)
        modules = dict(plain.named_modules(remove_duplicate=False))
        self.counted = set[str]()
        for names, _ in each_once(plain, plain.state_dict()):
            if only is None or any(only(modules[owner(name)], owner(name)) for name in names):
                self.counted.update(names)
        if not self.counted:
            raise ValueError("`only` must select at least one module that has parameters; it selected none.")
        self.before = _sizes(plain, plain.state_dict(), make_plan(self._traced, plain).plan, self.counted, dense=True)

    def count(self, model: nn.Module) -> Sizes:
        """The size of this model after compression; it has the structure of the traced one."""
        return self.count_plain(masked_copy(model, None))

    def count_plain(self, plain: nn.Module) -> Sizes:
        """The same for a plain model with zeros for what is dead."""
        plan = likely_plan(self._traced, plain, rewrite=self.rewrite, round_to=self.round_to)
        return _sizes(plain, small_state(plan, plain), plan, self.counted)


def _sizes(
    plain: nn.Module, state: Mapping[str, Tensor], plan: Plan, counted: set[str], *, dense: bool = False
) -> Sizes:
    nonzero: Callable[[Tensor], int] = Tensor.numel if dense else (lambda t: int(torch.count_nonzero(t)))
    parameters, before = dict(plain.named_parameters()), plain.state_dict().keys()
    there = [
        (names, t)
        for names, t in each_once(plain, state)
        if t is not None and (names[0] in counted or names[0] not in before)
    ]
    weights = [(names, t) for names, t in there if names[0] in parameters and parameters[names[0]].dim() > 1]
    return Sizes(
        weights=sum(nonzero(t) for _, t in weights),
        parameters=sum(
            t.numel()
            for names, t in there
            if names[0] in parameters or (names[0] not in before and t.is_floating_point())
        ),
        bytes=sum(4 * t.numel() if dense and t.is_floating_point() else stored_bytes(t) for _, t in there),
        macs=sum(plan.positions.get(names[0], 0) * t.numel() for names, t in weights),
        shapes={name: tuple(t.shape) for names, t in weights for name in names},
    )
