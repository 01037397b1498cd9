"""What reads the weights of a layer: its own forward, which adds the noise and the mask, or other code.

A module may pass ``self.qkv.weight`` to ``F.linear`` itself, as torchvision's Swin attention does, or decode with
``self.encoder.weight.t()``. Such a read sees the plain mean: no noise in training, no mask in eval mode. The autograd
graph shows every read that a gradient flows through.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from vbdrop._torch_compat import pytree
from vbdrop.layers import NoisyLayer, Variational
from vbdrop.layers.companions import weight_names
from vbdrop.objective.autograd_graph import reads, starts, walk
from vbdrop.objective.checks import some
from vbdrop.objective.penalties import without_penalties
from vbdrop.objective.read_hook import ReadHook, remove_read_hooks_

WATCHED_STEPS = 5
"""A layer is reported if none of this many first training steps used it."""

RECOMPUTED = "CheckpointFunctionBackward"
"""The operation of `torch.utils.checkpoint` with ``use_reentrant=True``: the graph does not show what is inside."""

REMEDY = (
    "Convert with vbdrop.convert_(model, ..., example_inputs=...), which leaves such layers alone, or leave them out "
    "with the mode's filter_fn"
)


UNUSED = (
    "only the KL trains these layers, and everything in them will die. Use the mode's filter_fn to leave out what the "
    "forward does not use"
)


def bare_reads(names: Sequence[str]) -> str:
    """The message for layers whose weights are used without their noise, with advice on what to do."""
    return (
        f"the loss uses the weights of {some(names)} without their noise: they are read outside the layer's own "
        "forward, or the class passed to vbdrop.register_layer has no noisy forward. Their rates would "
        f"learn from the KL alone, and everything would die. {REMEDY}. If the only read is a penalty of your own in a "
        "step that does not use these layers otherwise, leave such layers out of the penalty in that step."
    )


@dataclass(frozen=True)
class WeightReads:
    """Where one forward read the weights of some layers.

    Attributes:
        called: The layers whose own forward ran.
        outside: The layers whose weight was read outside their own forward.
    """

    called: set[str]
    outside: set[str]


def weight_reads(
    model: nn.Module, layers: Mapping[str, nn.Module], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> WeightReads:
    """Run a model once and find where the weights of some of its layers are read.

    Args:
        model: The model; pass a copy, since the forward may write into it and its parameters are set to require
            gradients.
        layers: The layers to inspect, by name.
        args: Inputs by position.
        kwargs: Inputs by name.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> reads = weight_reads(model, dict(model.named_children()), (torch.zeros(1, 2),), {})
        >>> sorted(reads.called), reads.outside
        (['0', '1'], set())
    """
    weights = {name: [weight.requires_grad_() for weight in _weights(layer)] for name, layer in layers.items()}
    args, kwargs = pytree.tree_map_only(Tensor, Tensor.clone, (args, dict(kwargs)))
    with torch.enable_grad(), _own_reads(layers) as (called, own):
        outputs = model(*args, **kwargs)
    found = reads(walk(starts(outputs)), [weight for each in weights.values() for weight in each])
    outside = {name for name, each in weights.items() if _all_reads(found, each) - own}
    return WeightReads(called, outside)


def check_weight_reads(model: nn.Module, args: tuple[Any, ...]) -> None:
    """Run a copy of a converted model once in eval mode, and check that its layers' own forwards read their weights.

    Args:
        model: The model; it is not changed.
        args: Inputs by position.

    Raises:
        RuntimeError: If the weight of a layer is used but the layer's own forward is not.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> check_weight_reads(model, (torch.zeros(1, 2),))
    """
    trial = copy.deepcopy(model).eval()
    layers = {name: module for name, module in trial.named_modules() if isinstance(module, NoisyLayer)}
    reads = weight_reads(trial, layers, args, {})
    if bare := sorted(reads.outside - reads.called):
        raise RuntimeError(bare_reads(bare))
    if unused := sorted(layers.keys() - reads.called):
        warnings.warn(f"the forward does not use {some(unused)}: {UNUSED}.", stacklevel=4)


class WeightWatch:
    """Checks the first training steps for converted layers whose noise has no effect on the loss.

    Args:
        model: A converted model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._steps = 0
        self._unused: set[str] | None = None
        self._doubtful: dict[str, NoisyLayer] = {}
        self._own: set[Node] = set()
        self._handles: list[Any] = []

    def step(self, nll: Tensor) -> bool:
        """Check one training step.

        Args:
            nll: The loss without its KL, before its backward.

        Returns:
            Whether no further step needs checking.

        Raises:
            RuntimeError: If the weight of a layer is used but its noise is not.
        """
        layers = dict(_trained(self._model))
        if nll.grad_fn is None or not layers:
            return False
        watched = {id(p): p for layer in layers.values() for p in (*_weights(layer), *_rates(layer))}
        nodes = list(walk(without_penalties(nll.grad_fn, self._model.parameters())))
        found = reads(nodes, watched.values())
        if not any(found.values()):
            return True  # parameters were swapped or recomputed: the graph does not show them
        noisy = {name for name, layer in layers.items() if any(found[id(rate)] for rate in _rates(layer))}
        bare = [name for name, layer in layers.items() if name not in noisy and _all_reads(found, _weights(layer))]
        if not bare:
            self._note_doubtful(layers, found)
        unused = set[str]() if any(node.name() == RECOMPUTED for node in nodes) else set(layers) - noisy
        return self._judge(unused, bare) and not self._doubtful

    def step_by_gradients(self, parameters: Iterable[Tensor]) -> bool:
        """Check one training step whose loss is unknown, by the gradients that it left.

        Weights that are read both inside and outside their layer's own forward cannot be detected here.

        Args:
            parameters: The parameters that the optimizer trains, with the gradients of the loss without its KL.

        Returns:
            Whether no further step needs checking.

        Raises:
            RuntimeError: If the weight of a layer is used but its noise is not.
        """
        own = {id(parameter) for parameter in parameters}
        trained = _trained(self._model)
        layers = {name: layer for name, layer in trained if all(id(weight) in own for weight in _weights(layer))}
        noisy = {name for name, layer in layers.items() if any(rate.grad is not None for rate in _rates(layer))}
        used = {name for name, layer in layers.items() if any(w.grad is not None for w in _weights(layer))}
        bare = [name for name in layers if name in used - noisy]
        return self._judge(set(layers) - noisy, bare)

    def _judge(self, unused: set[str], bare: list[str]) -> bool:
        """Raise or warn if noise has no effect on the loss; return whether no further step needs checking."""
        if bare:
            self.stop()
            raise RuntimeError(bare_reads(bare))
        self._steps += 1
        self._unused = unused if self._unused is None else self._unused & unused
        if self._unused and self._steps >= WATCHED_STEPS:
            when = f"took no part in the loss of the first {self._steps} steps"
            warnings.warn(f"{some(sorted(self._unused))} {when}: {UNUSED}.", stacklevel=4)
        return not self._unused or self._steps >= WATCHED_STEPS

    def _note_doubtful(self, layers: dict[str, NoisyLayer], reads: Mapping[int, set[Node]]) -> None:
        """Judge layers by the hooks that saw this step; at the first step, hook layers with several weight reads."""
        if self._handles:
            outside = [
                name
                for name, layer in self._doubtful.items()
                if (found := _all_reads(reads, _weights(layer))) & self._own and found - self._own
            ]
            self.stop()
            if outside:
                warnings.warn(
                    f"the weights of {some(outside)} are also read outside the layers' own forward, where they have "
                    "neither noise nor mask: vbdrop.compress cannot remove anything from them if any of their weights "
                    f"are dead. If that is not a penalty of your own, change it: {REMEDY[0].lower()}{REMEDY[1:]}.",
                    stacklevel=4,
                )
        elif self._steps == 0:
            more = {name for name, layer in layers.items() if any(len(reads[id(w)]) > 1 for w in _weights(layer))}
            self._doubtful = {name: layer for name, layer in layers.items() if name in more}
            for layer in self._doubtful.values():
                remove_read_hooks_(layer)  # of another ELBO: the layer is reported once
                self._handles.append(layer.register_forward_hook(ReadHook(self)))

    def note_forward(self, inputs: tuple[Any, ...], outputs: Any) -> None:  # noqa: ANN401 -- any structure of tensors
        """Note the operations inside one forward of a doubtful layer."""
        self._own |= set(walk(starts(outputs), starts(inputs)))

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no hooks, and operations of a graph cannot be copied."""
        return self.__dict__ | {"_handles": [], "_doubtful": {}, "_own": set()}

    def stop(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._doubtful, self._own = [], {}, set()


def _trained(model: nn.Module) -> Iterator[tuple[str, NoisyLayer]]:
    """The converted layers in training mode whose weights are plain parameters, not shards of a process group."""
    for name, module in model.named_modules():
        is_watched = isinstance(module, NoisyLayer) and module.training
        is_watched = is_watched and all(type(weight) is nn.Parameter for weight in _weights(module))
        if is_watched and any(rate.requires_grad for rate in _rates(module)):
            yield name, module


def _weights(layer: nn.Module) -> list[Tensor]:
    """The weights of a layer that are or can be noisy."""
    return [getattr(layer, name) for name in weight_names(layer)]


def _all_reads(reads: Mapping[int, set[Node]], weights: Iterable[Tensor]) -> set[Node]:
    """The operations that read any of these weights."""
    return set[Node]().union(*(reads[id(weight)] for weight in weights))


def _rates(layer: NoisyLayer) -> list[nn.Parameter]:
    """The rates of a layer's weights and gates."""
    return [entry.rate for part in layer.modules() if isinstance(part, Variational) for entry in part.variational()]


@contextmanager
def _own_reads(layers: Mapping[str, nn.Module]) -> Iterator[tuple[set[str], set[Node]]]:
    """Inside the block, collect the layers that are called and the operations inside their forwards."""
    called, own = set[str](), set[Node]()
    names = {id(layer): name for name, layer in layers.items()}

    def remember(layer: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:  # noqa: ANN401
        called.add(names[id(layer)])
        own.update(walk(starts(outputs), starts((inputs, kwargs))))

    handles = [layer.register_forward_hook(remember, with_kwargs=True) for layer in layers.values()]
    try:
        yield called, own
    finally:
        for handle in handles:
            handle.remove()
