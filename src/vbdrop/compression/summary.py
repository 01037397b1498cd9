"""Counts before and after: shapes, weights, non-zeros, bytes and multiply-adds, one row per layer."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression.evidence import EvidenceLoss
from vbdrop.compression.planning.plan import Plan

NEW_FORWARD = (
    "new forward: it takes only the arguments of the example, does in training what the class does in eval mode "
    "(no dropout), and lacks the class's other methods; rewrite=False keeps the class"
)
"""What a printed summary says about a model whose forward was replaced."""


def stored_bytes(tensor: Tensor) -> int:
    """The approximate size of a tensor in a file: dense, or one bit per value plus the nonzero values if that is less.

    Floating-point numbers count as float32. A list of increasing integers, which selects channels, counts as uint16 or
    as one bit per channel to select from; all other tensors count in full. The few bytes of names and headers are not
    counted.

    Example:
        >>> stored_bytes(torch.ones(80)), stored_bytes(torch.zeros(80)), stored_bytes(torch.arange(80))
        (320, 10, 10)
    """
    if not tensor.is_floating_point():
        if _is_selection(tensor):
            return min(2 * tensor.numel(), -(-(int(tensor[-1]) + 1) // 8))
        return tensor.numel() * tensor.element_size()
    return min(4 * tensor.numel(), -(-tensor.numel() // 8) + 4 * int(torch.count_nonzero(tensor)))


def _is_selection(tensor: Tensor) -> bool:
    if tensor.dim() != 1 or not tensor.numel() or tensor.is_complex() or tensor.dtype == torch.bool:
        return False
    return bool(tensor[0] >= 0) and bool((tensor[1:] > tensor[:-1]).all())


@dataclass(frozen=True)
class Counts:
    """The counts of a layer or a whole model.

    Attributes:
        weights: The number of weights (matrices and kernels; not biases or normalisation).
        nonzeros: How many of them are not zero.
        bytes: The approximate bytes of all its tensors in a file.
        macs: Multiply-adds per example, or None if they are unknown.
    """

    weights: int = 0
    nonzeros: int = 0
    bytes: int = 0
    macs: int | None = 0

    def __add__(self, other: "Counts") -> "Counts":
        macs = None if self.macs is None or other.macs is None else self.macs + other.macs
        return Counts(self.weights + other.weights, self.nonzeros + other.nonzeros, self.bytes + other.bytes, macs)


@dataclass(frozen=True)
class Layer:
    """One row of a summary.

    Attributes:
        name: The name of the layer's weight, without a trailing ``weight``.
        shape: Its shape before compression.
        small_shape: Its shape afterwards; None if the layer was removed.
        before: Its dense counts before compression.
        after: Its counts afterwards.
    """

    name: str
    shape: tuple[int, ...]
    small_shape: tuple[int, ...] | None
    before: Counts
    after: Counts


@dataclass(frozen=True)
class Summary:
    """The counts of a model before and after `vbdrop.compress`; readable when printed.

    Attributes:
        layers: One row per weight.
        other: The bytes of everything else: biases, normalisation, buffers.
        other_before: The same before compression.
        left: What keeps its channels, and why.
        evidence: The log evidence that the cut loses, or None if no weight could die.
        figures: The results of ``evaluate`` before and after, or None without it.
        new_forward: Whether the forward was replaced by a graph.
    """

    layers: list[Layer]
    other_before: Counts
    other: Counts
    left: dict[str, str]
    evidence: EvidenceLoss | None = None
    figures: tuple[float, float] | None = None
    new_forward: bool = False

    @property
    def before(self) -> Counts:
        """The counts of the whole model before compression."""
        return sum((layer.before for layer in self.layers), self.other_before)

    @property
    def after(self) -> Counts:
        """The counts of the whole model after compression."""
        return sum((layer.after for layer in self.layers), self.other)

    def __str__(self) -> str:
        rows = [["layer", "shape", "now", "weights", "now", "non-zero", "bytes", "now", "MACs", "now"]]
        for layer in self.layers:
            small = "gone" if layer.small_shape is None else _by(layer.small_shape)
            rows.append([layer.name, _by(layer.shape), small, *_numbers(layer.before, layer.after)])
        rows.append(["the rest", "", "", *_numbers(self.other_before, self.other)])
        rows.append(["total", "", "", *_numbers(self.before, self.after)])
        lines = _aligned(rows)
        if self.evidence is not None:
            lines.append(f"lost: {self.evidence}")
        if self.figures is not None:
            lines.append(f"evaluate: {self.figures[0]:.6g} before, {self.figures[1]:.6g} now")
        if self.new_forward:
            lines.append(NEW_FORWARD)
        lines += [f"left: {place}: {reason}" for place, reason in self.left.items()]
        return "\n".join(lines)

    __repr__ = __str__


def summarise(before: nn.Module, after: Mapping[str, Tensor], plan: Plan, left: dict[str, str]) -> Summary:
    """Count a model before and after compression.

    Args:
        before: The masked model.
        after: The state dict of the small model.
        plan: The plan between them.
        left: What keeps its channels, and why.
    """
    layers, other_before, other = [], Counts(), Counts()
    state = before.state_dict()
    parameters = dict(before.named_parameters())
    for (name, *_), small in each_once(before, after):
        if name in parameters and parameters[name].dim() > 1:
            layers.append(_layer(name, state[name], small, plan))
        else:
            other_before += Counts(bytes=_dense_bytes(state[name]) if name in state else 0)
            other += Counts(bytes=0 if small is None else stored_bytes(small))
    return Summary(layers, other_before, other, left, new_forward=plan.program is not None)


def each_once(before: nn.Module, after: Mapping[str, Tensor]) -> list[tuple[list[str], Tensor | None]]:
    """The tensors of a model and of its small state, each once.

    Args:
        before: The model. A tied tensor has several names, and so does a tensor of a module that appears several times.
        after: The state dict of the small model, which may have such a tensor under only one of its names.

    Returns:
        The names of each tensor, and the small tensor, or None if it was removed; tensors that were added come last.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> each_once(nn.Sequential(layer, layer), {"1.weight": torch.ones(1, 1)})
        [(['0.weight', '1.weight'], tensor([[1.]]))]
    """
    state = before.state_dict(keep_vars=True)
    modules = dict(before.named_modules(remove_duplicate=False))
    names: dict[object, list[str]] = {}
    for name, tensor in state.items():
        if isinstance(tensor, Tensor):  # not the extra state of a module
            names.setdefault(id(tensor), []).append(name)
    for name in (name for name in after if name not in state):
        path = owner(name)
        names.setdefault((id(modules[path]) if path in modules else path, name[len(path) :]), []).append(name)
    return [(each, next((after[name] for name in each if name in after), None)) for each in names.values()]


def _layer(name: str, tensor: Tensor, small: Tensor | None, plan: Plan) -> Layer:
    positions = plan.positions.get(name)
    title = owner(name) if name.endswith(".weight") else name
    full, none = tensor.numel(), Counts()
    before = Counts(full, full, _dense_bytes(tensor), None if positions is None else positions * full)
    if small is None:
        return Layer(title, tuple(tensor.shape), None, before, none)
    macs = None if positions is None else positions * small.numel()
    after = Counts(small.numel(), int(torch.count_nonzero(small)), stored_bytes(small), macs)
    return Layer(title, tuple(tensor.shape), tuple(small.shape), before, after)


def _dense_bytes(tensor: Tensor) -> int:
    return 4 * tensor.numel() if tensor.is_floating_point() else stored_bytes(tensor)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _numbers(before: Counts, after: Counts) -> list[str]:
    pairs = (before.weights, after.weights, after.nonzeros, before.bytes, after.bytes, before.macs, after.macs)
    return ["?" if number is None else f"{number:,}" for number in pairs]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines: words aligned left, numbers aligned right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
