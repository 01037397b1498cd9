"""What can go wrong in silence: numbers that are not finite, and rates that nobody trains."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vbdrop.objective.divergence import noisy_tensors


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> some(["a", "b", "c", "d", "e"])
        "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def describe_non_finite(model: nn.Module, parts: Mapping[str, Tensor]) -> str:
    """Which part of the loss is not finite, and in which parameters, gradients or KL terms of the model it is seen.

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
    """Notices rates that rest while other parameters move, as they do if the optimizer does not have them.

    Args:
        model: A converted model, before the next step of its optimizer.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._start: dict[str, float] | None = _fingerprints(model)

    def resting(self) -> list[str]:
        """The noisy tensors whose rates have not moved since the start, told once.

        As long as no parameter has moved at all, there was no step, and nothing is told yet. Rates that were frozen on
        purpose (``requires_grad=False``) do not count.
        """
        start = self._start
        if start is None or (now := _fingerprints(self._model)) == start:
            return []
        self._start = None
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        return [
            name
            for name, entry in noisy_tensors(self._model)
            if entry.rate.requires_grad and now[names[id(entry.rate)]] == start.get(names[id(entry.rate)])
        ]


def _fingerprints(model: nn.Module) -> dict[str, float]:
    """A number a parameter that changes when the parameter does."""
    return {name: _norm(parameter) for name, parameter in model.named_parameters() if parameter.is_floating_point()}


def _norm(parameter: Tensor) -> float:
    dtype = torch.float32 if parameter.device.type == "mps" else torch.float64  # MPS has no float64
    return float(torch.linalg.vector_norm(parameter.detach(), dtype=dtype))
