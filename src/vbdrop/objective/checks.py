"""Checks for problems in training that would otherwise go unnoticed.

Each is reported once: non-finite numbers, rates that no optimizer trains, rates under weight decay, layers in which
everything is dead, a warm-up that never ends, observers that are never called, and ranks of a process group that draw
the same noise.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import local_shard
from vbdrop.objective.decay import DecayWatch
from vbdrop.objective.divergence import noisy_tensors
from vbdrop.objective.ranks import RankWatch

LONG_EPOCH = 1000
"""Fewer calls than this without a change of `epoch` during a warm-up are not reported."""

SMALL_BATCH = 32
"""Nor are fewer calls than it takes to cover the training set in batches of this size."""


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> some(["a", "b", "c", "d", "e"])
        "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def describe_non_finite(model: nn.Module, parts: Mapping[str, Tensor]) -> str:
    """Which part of the loss is not finite, and which parameters, gradients or KL terms of the model are not.

    Args:
        model: The model.
        parts: The parts of the loss, by name.

    Returns:
        A sentence or two for an error.
    """
    values = ", ".join(f"{name} = {value.item()}" for name, value in parts.items())
    bad = []
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            bad.append(name)
        elif parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            bad.append(f"the gradient of {name}")
    with torch.no_grad():
        bad += [f"the KL of {name}" for name, entry in noisy_tensors(model) if not bool(entry.kl().isfinite())]
    where = f"Not finite: {some(bad)}." if bad else "All parameters, gradients and KL terms are finite."
    return f"the loss is not finite ({values}). {where}"


class RateWatch:
    """Detects rates that stay constant while other parameters move, which means that the optimizer does not have them.

    Args:
        model: A converted model, before the next step of its optimizer.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._start: dict[str, float] | None = _fingerprints(model)

    def resting(self) -> list[str]:
        """The noisy tensors whose rates have not moved since the start, reported once.

        If no parameter has moved, there was no step yet, and nothing is reported. Rates that were frozen on purpose
        (``requires_grad=False``) are ignored.
        """
        start = self._start
        if start is None or (now := _fingerprints(self._model)) == start:
            return []
        self._start = None
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        return [
            name
            for name, entry in noisy_tensors(self._model)
            if entry.rate.requires_grad
            and local_shard(entry.rate).numel()  # another rank may have all of them
            and now[names[id(entry.rate)]] == start.get(names[id(entry.rate)])
        ]


class DeadLayerWatch:
    """Detects layers in which everything is dead.

    Args:
        model: A converted model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._told = set[str]()

    def news(self) -> str | None:
        """A sentence about the noisy tensors in which everything is dead, each reported once; None if none is new."""
        dead = [
            name
            for name, entry in noisy_tensors(self._model)
            if entry.threshold is not None and name not in self._told and bool(entry.dead().all())
        ]
        self._told.update(dead)
        return (
            f"everything in {some(dead)} is dead, so what comes after it no longer depends on the data."
            if dead
            else None
        )


class TrainingWatch:
    """Watches a model in training.

    Args:
        model: A converted model, at the first call of its ELBO.
        n_train: The number of training examples.
    """

    def __init__(self, model: nn.Module, n_train: int) -> None:
        self._model, self._n_train = model, n_train
        self._rates, self._decay, self._ranks = RateWatch(model), DecayWatch(model), RankWatch(model)
        self._dead = DeadLayerWatch(model)
        self._told = set[str]()

    def note_call(self) -> None:
        """The check at every call of the ELBO, which is cheap."""
        self._decay.end(only_if_seen=True)

    def complaints(self, kl_weight: float, ramp: tuple[float, int] | None, waiting: int = 0) -> Iterator[str]:
        """The problems since the last call, each with advice on what to do.

        Args:
            kl_weight: The factor on the KL, without the warm-up.
            ramp: For a warm-up that has not ended: the share of the KL in this epoch, and the number of calls since
                `epoch` last changed.
            waiting: If there are observers: the number of calls since they were last told of a step, if it is too
                large.
        """
        if resting := self._rates.resting():
            yield (
                f"the weights are trained but the dropout rates of {some(resting)} have not moved: does the optimizer "
                "have them? Build it from vbdrop.param_groups(model), or add them to an existing one with "
                "optimizer.add_param_group."
            )
        self._decay.end()
        if dead := self._dead.news():
            yield (
                f"{dead} The KL is too strong for what the network has learned so far: lower `kl_weight` (now "
                f"{kl_weight:g}), hold the KL back with warmup=vbdrop.Warmup(hold=..., ramp=...), or start from a "
                "trained network."
            )
        if ramp is not None and "epoch" not in self._told:
            share, calls = ramp
            if calls >= max(LONG_EPOCH, self._n_train // SMALL_BATCH):
                self._told.add("epoch")
                yield (
                    f"`epoch` of the ELBO has not changed for {calls:,} calls, in which the warm-up kept the KL at "
                    f"{share:g} of its weight. Write `elbo.epoch = e` at the start of every epoch; if an epoch is "
                    "that long, set fractions of it: `elbo.epoch = step / steps_per_epoch`."
                )
        if waiting and "step" not in self._told:
            self._told.add("step")
            yield (
                f"`step` of the ELBO was not called for {waiting:,} losses, so its target and other observers do "
                "nothing. Call `elbo.step(optimizer)` before each `optimizer.step()`."
            )
        if twins := self._ranks.twins():
            yield (
                f"the ranks {', '.join(map(str, twins))} of the process group draw the same noise: their random "
                "generators have the same state, so their gradients are correlated. Call "
                "torch.manual_seed(seed + rank) on every rank after building the model."
            )


def _fingerprints(model: nn.Module) -> dict[str, float]:
    """One number per parameter, or per shard of this process, that changes with it."""
    return {name: _norm(parameter) for name, parameter in model.named_parameters() if parameter.is_floating_point()}


def _norm(parameter: Tensor) -> float:
    dtype = torch.float32 if parameter.device.type == "mps" else torch.float64  # MPS has no float64
    return float(torch.linalg.vector_norm(local_shard(parameter.detach()), dtype=dtype))
