"""Training data in the usual forms: loaders, data sets, tensors, arrays, dicts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler

from vbdrop._torch_compat import pytree

TARGETS = ("labels", "label", "targets", "target", "y")
"""The keys under which a batch that is a dict may have its targets."""

Split = Callable[[Any], tuple[Any, Any]]
"""Splits a batch into its inputs (a tensor, a tuple or a dict) and its targets."""


@dataclass(frozen=True)
class ModelBatch:
    """One batch, ready for a model.

    Attributes:
        args: Inputs by position.
        kwargs: Inputs by name.
        targets: What the model should predict.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Any

    def __len__(self) -> int:
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), 1)

    def __str__(self) -> str:
        """The contents of the batch, for messages."""
        return f"inputs {described(self.kwargs or self.args)} and targets {described(self.targets)}"

    @property
    def is_finite(self) -> bool:
        """Whether all inputs and targets are finite numbers."""
        leaves = pytree.tree_leaves((self.args, self.kwargs, self.targets))
        return all(bool(leaf.isfinite().all()) for leaf in leaves if isinstance(leaf, Tensor))

    def outputs(self, model: nn.Module) -> Any:  # noqa: ANN401 -- whatever a model returns
        """The outputs of a model."""
        return model(*self.args, **self.kwargs)

    def first(self, count: int) -> "ModelBatch":
        """The first few examples."""
        size = len(self)

        def cut(leaf: Any) -> Any:  # noqa: ANN401
            return leaf[:count] if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size else leaf

        return ModelBatch(*pytree.tree_map(cut, (self.args, self.kwargs, self.targets)))


def described(tree: Any) -> str:  # noqa: ANN401 -- inputs, outputs or targets
    """The dtypes and shapes of tensors, for messages.

    Example:
        >>> described((torch.zeros(2, 3), {"mask": torch.ones(2).bool()}, ["a", "b"]))
        '(float32 [2, 3], {mask: bool [2]}, list)'
    """
    if isinstance(tree, Tensor):
        return f"{str(tree.dtype).removeprefix('torch.')} {list(tree.shape)}"
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{name}: {described(value)}" for name, value in tree.items()) + "}"
    if isinstance(tree, list | tuple) and any(isinstance(part, Tensor) for part in tree):
        parts = ", ".join(map(described, tree))
        return parts if len(tree) == 1 else f"({parts})"
    return type(tree).__name__


class Batches:
    """Batches for a model, from data in any of the usual forms.

    Args:
        data: A `torch.utils.data.DataLoader` or another iterable of batches with a length; a data set; or a tuple or
            dict of tensors or arrays with one entry per example.
        what: The name of the argument, for error messages.
        model: The model, whose device and precision the batches take.
        batch_size: The examples in a batch, for data that does not come in batches. If a single example would be left
            over, the last batch has one more, since BatchNorm cannot train on one example.
        shuffle: Whether such data is visited in random order.
        split: Splits a batch, if the default does not fit: the last element of a tuple is the targets; in a dict they
            are under ``labels``, ``label``, ``targets``, ``target`` or ``y``.

    Example:
        >>> batches = Batches((np.zeros((10, 3)), np.arange(10)), "train", nn.Linear(3, 2), batch_size=4)
        >>> len(batches), batches.n_examples, [len(batch) for batch in batches]
        (3, 10, [4, 4, 2])
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401
        what: str,
        model: nn.Module,
        *,
        batch_size: int = 100,
        shuffle: bool = False,
        split: Split | None = None,
    ) -> None:
        self.what, self._split = what, split
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self._device, self._dtype = like.device, like.dtype
        self._arrays: Any = None
        self._batch_size, self._shuffle = batch_size, shuffle
        self._source: Iterable[Any] = ()
        if _is_arrays(data, what):
            self._arrays = pytree.tree_map(self._as_tensor, data)
            sizes = {len(leaf) for leaf in pytree.tree_leaves(self._arrays)}
            if len(sizes) != 1:
                raise ValueError(f"`{what}` must have as many targets as inputs; got {_listed(sorted(sizes))} entries.")
            self.n_examples = sizes.pop()
            self._length = _n_batches(self.n_examples, batch_size)
        else:
            self._source = _loader(data, what, batch_size, shuffle)
            self._length = len(self._source)  # type: ignore[arg-type]
            self.n_examples = _examples(self._source)
        if self._length == 0 or self.n_examples == 0:
            raise ValueError(f"`{what}` must hold at least one batch; it is empty.")
        self.example = self._checked_example()
        if self.n_examples is None:
            with torch.random.fork_rng(devices=[]):
                self.n_examples = sum(len(batch) for batch in self)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[ModelBatch]:
        """The batches of one epoch; a random order is drawn from torch's own generator."""
        if self._arrays is None:
            for raw in self._source:
                yield self._batch(raw)
            return
        order = torch.randperm(self.n_examples) if self._shuffle else torch.arange(self.n_examples)
        for chosen in _in_batches(order, self._batch_size):
            yield self._batch(pytree.tree_map(lambda leaf, chosen=chosen: leaf[chosen], self._arrays))

    def generators(self) -> list[torch.Generator]:
        """The loader's own random generators, which decide its order in place of torch's global one."""
        inner = getattr(self._source, "batch_sampler", None)
        owners = self._source, getattr(self._source, "sampler", None), inner, getattr(inner, "sampler", None)
        found = [getattr(owner, "generator", None) for owner in owners]
        return list(dict.fromkeys(each for each in found if isinstance(each, torch.Generator)))

    def _checked_example(self) -> ModelBatch:
        with torch.random.fork_rng(devices=[]):
            first = next(iter(self), None)
        if first is None or len(first) == 0:
            raise ValueError(f"`{self.what}` must hold at least one batch; it is empty.")
        return first

    def _batch(self, raw: Any) -> ModelBatch:  # noqa: ANN401
        inputs, targets = self._split(raw) if self._split else self._apart(raw)
        inputs, targets = pytree.tree_map(self._moved, (inputs, targets))
        if isinstance(inputs, Mapping):
            return ModelBatch((), dict(inputs), targets)
        return ModelBatch(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}, targets)

    def _apart(self, raw: Any) -> tuple[Any, Any]:  # noqa: ANN401
        if isinstance(raw, Mapping):
            key = next((name for name in TARGETS if name in raw), None)
            if key is None:
                raise ValueError(
                    f"a batch of `{self.what}` that is a dict must have its targets under one of "
                    f"{', '.join(map(repr, TARGETS))}; got the keys {', '.join(map(repr, raw))}. Or pass split=."
                )
            return {name: value for name, value in raw.items() if name != key}, raw[key]
        if isinstance(raw, tuple | list) and len(raw) >= 2:
            inputs = tuple(raw[:-1])
            return (inputs if len(inputs) > 1 else inputs[0]), raw[-1]
        raise TypeError(
            f"a batch of `{self.what}` must be a tuple (inputs, ..., targets) or a dict with targets; got "
            f"{type(raw).__name__}. Or pass split=, a function of a batch that returns (inputs, targets)."
        )

    def _moved(self, leaf: Any) -> Any:  # noqa: ANN401
        tensor = self._as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf
        if not isinstance(tensor, Tensor):
            return leaf
        return tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)

    def _as_tensor(self, array: Any) -> Tensor:  # noqa: ANN401
        """A tensor from an array: integers as int64, others as they are."""
        if isinstance(array, Tensor):
            return array
        if array.dtype.kind not in "biufc":
            raise TypeError(
                f"`{self.what}` must hold numbers; got an array of {array.dtype}. Pass classes as integers from 0."
            )
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor if tensor.is_floating_point() or tensor.dtype == torch.bool else tensor.long()


def _n_batches(n_examples: int, batch_size: int) -> int:
    """The number of batches, of which the last takes a single example that would be left over."""
    whole, rest = divmod(n_examples, batch_size)
    return whole + (rest > (1 if whole else 0))


def _in_batches(order: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Split the order of examples into batches."""
    starts = range(batch_size, _n_batches(len(order), batch_size) * batch_size, batch_size)
    return torch.tensor_split(order, list(starts))


class _BatchSampler(Sampler[list[int]]):
    """Draws the batches of a data set; torch's own would leave a single example over."""

    def __init__(self, sampler: RandomSampler | SequentialSampler, batch_size: int) -> None:
        self.sampler, self._batch_size = sampler, batch_size

    def __len__(self) -> int:
        return _n_batches(len(self.sampler), self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in _in_batches(torch.tensor(list(self.sampler)), self._batch_size))


def _is_arrays(data: Any, what: str) -> bool:  # noqa: ANN401
    if isinstance(data, Tensor | np.ndarray):
        raise TypeError(
            f"`{what}` must have inputs and targets, such as a tuple (x, y); got one {type(data).__name__}."
        )
    leaves = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else []
    return bool(leaves) and all(isinstance(leaf, Tensor | np.ndarray) for leaf in leaves)


def _loader(data: Any, what: str, batch_size: int, shuffle: bool) -> Iterable[Any]:  # noqa: ANN401
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        if not isinstance(data, Sized):
            raise TypeError(f"`{what}` must have a length; {type(data).__name__} has no __len__.")
        sampler = RandomSampler(data) if shuffle and len(data) else SequentialSampler(data)
        return DataLoader(data, batch_sampler=_BatchSampler(sampler, batch_size))
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        raise TypeError(
            f"`{what}` must be a DataLoader, a data set, or a tuple or dict of tensors or arrays; "
            f"got {type(data).__name__}."
        )
    try:
        has_length = isinstance(data, Sized) and len(data) >= 0
    except TypeError:  # a loader over an iterable data set
        has_length = False
    if not has_length:
        raise TypeError(f"`{what}` must have a length, the number of its batches; {type(data).__name__} has none.")
    return data


def _examples(source: Any) -> Any:  # noqa: ANN401
    dataset = getattr(source, "dataset", None)
    return len(dataset) if isinstance(dataset, Sized) else None


def _listed(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))
