"""Whether two models give the same outputs."""

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vbdrop._torch_compat import pytree
from vbdrop.analysis.key_value_cache import without_cache
from vbdrop.analysis.size_guards import OtherSize

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}
"""The largest difference, as a share of the scale of an output, that rounding can explain; see `_scale`."""

COARSE = 5e-2
"""The same for half precision."""

ROUNDINGS = 84
"""The number of roundings of the largest output for which there is room in any case."""

BATCHES = (1, 3)
"""The batch sizes that are tried besides the example's."""


LARGEST_TRIAL = 2**22
"""Inputs of another size are not tried if they have more elements than this."""

DIFFERS = "its output differs by"
"""How a description begins of outputs that differ, where nothing else is known."""

FEW = 2
"""The number of examples in inputs of another size."""


@dataclass(frozen=True)
class Check:
    """The outputs of a model for some inputs.

    Attributes:
        what: A description of the inputs.
        args: Inputs by position.
        kwargs: Inputs by name.
        expected: The outputs, in order.
        structure: Their container structure.
        calls: How often the model is called; the last outputs count.
    """

    what: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: list[Any]
    structure: pytree.TreeSpec
    calls: int = 1

    @classmethod
    def of(
        cls, what: str, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], calls: int = 1
    ) -> "Check":
        """The outputs of a model for these inputs."""
        return cls(what, args, dict(kwargs), *_flat_outputs(model, args, kwargs, calls), calls)

    @property
    def batch(self) -> int:
        """The number of examples."""
        return _batch((self.args, self.kwargs))

    @property
    def is_finite(self) -> bool:
        """Whether all outputs are finite."""
        return all(bool(leaf.isfinite().all()) for leaf in self.expected if isinstance(leaf, Tensor))

    def shows_as_much_as(self, other: "Check") -> bool:
        """Whether only those outputs are not finite that are not finite in another check of the model either."""
        pairs = zip(self.expected, other.expected, strict=False)
        return len(self.expected) == len(other.expected) and all(
            bool(one.isfinite().all()) or (not two.isfinite().all() and bool(one.isfinite().any()))
            for one, two in pairs
            if isinstance(one, Tensor) and isinstance(two, Tensor)
        )

    def disagreement(self, other: nn.Module) -> str | None:
        """How a model that should give the same outputs differs, and for which inputs; None if it agrees."""
        said = self._said(other)
        return said and f"{said} (for {self.what})"

    def _said(self, other: nn.Module) -> str | None:
        try:
            found, structure = _flat_outputs(other, self.args, self.kwargs, self.calls)
        except Exception as error:  # a forward that is no longer valid may raise anything
            return f"its forward fails: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
        if len(found) != len(self.expected):
            return f"it has {len(found)} outputs instead of {len(self.expected)}"
        if structure != self.structure:
            return "its outputs are in different containers, or have different names"
        pairs = zip(self.expected, found, strict=True)
        return next((said for pair in pairs if (said := _difference(*pair, self.batch))), None)


def disagreement(model: nn.Module, other: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Run copies of two models on the same inputs and compare the outputs.

    Args:
        model: The reference.
        other: The model that should give the same outputs.
        args: Inputs by position.
        kwargs: Inputs by name.

    Returns:
        How the second differs from the first, or None if they agree.

    Example:
        >>> disagreement(nn.ReLU(), nn.Tanh(), (torch.tensor([1.0, -1.0]),), {})
        'its output differs by 0.762, where the largest is 1'
    """
    return Check.of("these inputs", model, args, kwargs)._said(other)


def checks(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], sizes: Iterable[int] = ()
) -> list[Check]:
    """The outputs of a model for its example inputs, and for noise in batches of several sizes.

    An all-zero example would hide most mistakes, and a single batch size would hide those at other sizes. Inputs that
    the model does not accept are left out, and those for which outputs are not finite that are finite for the example.
    Integers get no noise. Of a mask whose values are all equal, some are also tried reversed. A model that keeps a
    state, and so gives other outputs in a second call, is also called twice.

    Args:
        model: The reference; it is not changed.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        sizes: More batch sizes to try.

    Example:
        >>> [check.what for check in checks(nn.Linear(2, 1), (torch.zeros(4, 2),), {})]
        ['the example inputs', 'noise, 4 in a batch', 'noise, 1 in a batch', 'noise, 3 in a batch']
    """
    found = [Check.of("the example inputs", model, args, kwargs)]
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    batch = _batch(leaves)
    noise = "noise, " if any(leaf.is_floating_point() for leaf in leaves) else ""
    for size in dict.fromkeys((batch, *BATCHES, *sizes)):
        if batch == 0 or (size == batch and not noise):
            continue
        try:
            check = Check.of(f"{noise}{size} in a batch", model, *_varied((args, dict(kwargs)), batch, size))
        except Exception:  # a forward that rejects such inputs may raise anything
            continue
        if check.shows_as_much_as(found[0]):
            found.append(check)
    masks = [leaf for leaf in leaves if _is_uniform_mask(leaf)]
    if masks:
        with suppress(Exception):  # a forward that rejects such inputs may raise anything
            masked = pytree.tree_map_only(Tensor, _reversed_in_part, (args, dict(kwargs)))
            found.append(Check.of("a mask that is reversed in part", model, *masked))
    again = Check.of("the example inputs, in a second call", model, args, kwargs, calls=2)
    if len(again.expected) != len(found[0].expected) or any(
        _difference(*pair, batch) for pair in zip(found[0].expected, again.expected, strict=True)
    ):
        twice = (Check.of(f"{each.what}, in a second call", model, each.args, each.kwargs, 2) for each in found[1:])
        found += [again, *twice]
    return found


def depends_on_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether different inputs give different outputs; floating-point inputs get noise, others are reversed.

    Args:
        model: The model; it is not changed.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Example:
        >>> constant = nn.Linear(2, 1)
        >>> _ = nn.init.zeros_(constant.weight)
        >>> depends_on_inputs(constant, (torch.zeros(3, 2),), {})
        False
    """
    generator = torch.Generator().manual_seed(0)

    def varied(leaf: Tensor) -> Tensor:
        return _with_noise(leaf, generator) if leaf.is_floating_point() else leaf.flip(tuple(range(leaf.dim())))

    try:
        other_args, other_kwargs = pytree.tree_map_only(Tensor, varied, (args, dict(kwargs)))
        pairs = zip(outputs_of(model, args, kwargs), outputs_of(model, other_args, other_kwargs), strict=True)
        return any(not torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor))
    except Exception:  # a forward that rejects such inputs may raise anything
        return True


@dataclass(frozen=True)
class OtherSizes:
    """The behaviour of a model for inputs of sizes other than the example's.

    Attributes:
        checks: Its outputs for the sizes that it accepts.
        untried: Descriptions of the sizes that are too large to try.
    """

    checks: list[Check]
    untried: list[str]

    def objection(self, other: nn.Module) -> str | None:
        """Why a model that agrees at the example's sizes may differ at others; None if it agrees wherever tried.

        Args:
            other: The model that should give the same outputs.
        """
        if self.untried:
            return f"inputs of another size may take another branch, but are too large to try: {self.untried[0]}"
        return next((said for check in self.checks if (said := check.disagreement(other))), None)


def at_other_sizes(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], sizes: Iterable[OtherSize]
) -> OtherSizes:
    """Run a model on inputs of other sizes, with a few noisy examples each.

    Args:
        model: The reference; it is not changed.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        sizes: The sizes to try.

    Example:
        >>> linear, wider = nn.Linear(2, 1), OtherSize(((0, 1),), 3, "twice the size of the example")
        >>> found = at_other_sizes(linear, (torch.zeros(4, 2),), {}, [wider])
        >>> found.checks, found.untried
        ([], [])
    """
    found = OtherSizes([], [])
    leaves = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    batch, accepted = _batch(leaves), set[tuple[tuple[int, int], ...]]()
    for other in sizes:
        if other.is_last_resort and other.axes in accepted:
            continue
        axes = dict.fromkeys(other.axes, other.size)
        for number, leaf in enumerate(leaves):
            if leaf.dim() and len(leaf) == batch > FEW:
                axes.setdefault((number, 0), FEW)
        what = f"inputs of size {other.size} on axis {', '.join(str(axis) for _, axis in other.axes)}: {other.reason}"
        more = _resized((args, dict(kwargs)), axes)
        if more is None:
            found.untried.append(what)
            continue
        try:
            check = Check.of(what, model, *more)
        except Exception:  # a forward that rejects such inputs may raise anything
            continue
        if check.is_finite:
            found.checks.append(check)
            accepted.add(other.axes)
    return found


def _batch(inputs: Any) -> int:  # noqa: ANN401 -- any structure of inputs
    """The size of the first axis of the first tensor that has axes; 0 if there is none."""
    return next((len(leaf) for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.dim()), 0)


@torch.no_grad()
def _resized(inputs: Any, axes: Mapping[tuple[int, int], int]) -> Any:  # noqa: ANN401 -- any structure of inputs
    """Inputs repeated to other sizes on some axes, with noise; None if they would be too large."""
    leaves, structure = pytree.tree_flatten(inputs)
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, i in enumerate(tensors):
        shape = [axes.get((number, axis), size) for axis, size in enumerate(leaves[i].shape)]
        if math.prod(shape) > LARGEST_TRIAL:
            return None
        for axis, size in enumerate(shape):
            if size != leaves[i].shape[axis]:
                positions = torch.arange(size, device=leaves[i].device) % leaves[i].shape[axis]
                leaves[i] = leaves[i].index_select(axis, positions)
        leaves[i] = _with_noise(leaves[i], torch.Generator().manual_seed(number))
    return pytree.tree_unflatten(leaves, structure)


def outputs_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The outputs of a model, in order; it runs on copies of the model and the inputs, since it may write into both."""
    return _flat_outputs(model, args, kwargs)[0]


def _check_features(module: nn.RNNBase, args: tuple[Any, ...]) -> None:
    """Refuse a packed sequence with the wrong number of features, for which torch would read beyond the weights."""
    data = args[0].data if args and isinstance(args[0], PackedSequence) else None
    if data is not None and data.shape[-1] != module.input_size:
        raise ValueError(f"`input` must have {module.input_size} features; got {data.shape[-1]}.")


@torch.no_grad()
def _flat_outputs(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], calls: int = 1
) -> tuple[list[Any], pytree.TreeSpec]:
    """The outputs of the last call and their container structure; random numbers are drawn with a fixed seed."""
    with torch.random.fork_rng(devices=[]), without_cache(copy.deepcopy(model)) as run:
        for module in run.modules():
            if isinstance(module, nn.RNNBase):
                module.register_forward_pre_hook(_check_features)
        for _ in range(calls):
            own_args, own_kwargs = pytree.tree_map_only(Tensor, Tensor.clone, (args, dict(kwargs)))
            torch.manual_seed(0)
            outputs, structure = pytree.tree_flatten(run(*own_args, **own_kwargs))
    return [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in outputs], structure


@torch.no_grad()
def _varied(inputs: Any, batch: int, size: int) -> Any:  # noqa: ANN401 -- any structure of inputs
    """Inputs with another batch size; floating-point inputs get noise of the same spread."""
    generator = torch.Generator().manual_seed(size)

    def varied(leaf: Tensor) -> Tensor:
        if leaf.dim() and len(leaf) == batch:
            leaf = leaf[torch.arange(size, device=leaf.device) % batch]
        return _with_noise(leaf, generator)

    return pytree.tree_map_only(Tensor, varied, inputs)


def _is_uniform_mask(leaf: Tensor) -> bool:
    is_mask = leaf.dtype == torch.bool and leaf.dim() > 1 and leaf.shape[-1] > 1
    return is_mask and bool(leaf.all() or not leaf.any())


def _reversed_in_part(leaf: Tensor) -> Tensor:
    """A mask, such as one for padding, with other values at the last position of every second row."""
    leaf = leaf.clone()
    if _is_uniform_mask(leaf):
        leaf[::2, ..., -1] ^= True
    return leaf


def _with_noise(leaf: Tensor, generator: torch.Generator) -> Tensor:
    """A floating-point tensor plus noise of the same spread; any other tensor unchanged."""
    if not leaf.is_floating_point():
        return leaf
    spread = float(leaf.double().std(correction=0)) or 1.0
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
    return leaf.detach() + (spread * noise).to(leaf)


def _difference(expected: object, found: object, batch: int) -> str | None:
    if not isinstance(expected, Tensor):
        return None if expected == found else f"it returns {found!r} instead of {expected!r}"
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return f"an output has the shape {list(getattr(found, 'shape', []))} instead of {list(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"an output is {found.dtype} instead of {expected.dtype}"
    if expected.is_complex():
        expected, found = (torch.view_as_real(tensor.resolve_conj()) for tensor in (expected, found))
    if not expected.is_floating_point():
        return None if torch.equal(expected, found) else "an integer output differs"
    share = TOLERANCES.get(expected.dtype, COARSE)
    own = min(share, ROUNDINGS * torch.finfo(expected.dtype).eps)
    if torch.allclose(found, expected, rtol=own, atol=share * _scale(expected, batch, own / share), equal_nan=True):
        return None
    if not torch.equal(expected.isfinite(), found.isfinite()):
        return f"{DIFFERS} infinity, or is no number where it should be one"
    finite = expected.isfinite()
    worst, largest = (expected - found)[finite].abs().max(), expected[finite].abs().max()
    return f"{DIFFERS} {float(worst):.3g}, where the largest is {float(largest):.3g}"


def _scale(output: Tensor, batch: int, least: float) -> float:
    """The size of what an output says about its inputs.

    A value that is huge for all examples, as the logit of a masked class or an added constant, would hide differences
    in all others. So where the output has an axis of examples, its scale is the largest difference between examples,
    but no less than a share of the largest value that differs; otherwise it is the largest value.

    Args:
        output: The output.
        batch: The number of examples.
        least: That share.
    """
    if output.numel() == 0:
        return 0.0
    values = torch.where(output.isfinite(), output, 0).double()
    if batch > 1 and output.dim() and len(output) == batch:
        spread, largest = values.amax(0) - values.amin(0), values.abs().amax(0)
        differs = spread > ROUNDINGS * torch.finfo(output.dtype).eps * largest
        if differs.any():
            return max(float(spread[differs].max()), least * float(largest[differs].max()))
    return float(values.abs().max())
