"""How a model was converted, as data: what a checkpoint needs to convert a fresh model in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from torch import nn

from vbdrop._torch_compat import unwrapped
from vbdrop.convert.conversion import convert_
from vbdrop.layers import Gate, NoisyLayer, Rates, Units, Weights
from vbdrop.layers.modes import Mode
from vbdrop.layers.recurrent import NoisyRecurrent
from vbdrop.priors import Prior, as_prior
from vbdrop.priors.table import PRIORS

MODES: dict[str, type[Weights] | type[Units] | type[Rates]] = {"Weights": Weights, "Units": Units, "Rates": Rates}
"""The modes by their names."""

_FILTERS = ("filter_fn", "outputs")


def describe_conversion(model: nn.Module) -> list[dict[str, Any]]:
    """How the layers of a model were converted, as strings, numbers and lists.

    Args:
        model: A converted model.

    Returns:
        For each mode with its settings: the layers that have it on what enters them, and those with gates on what
        leaves them.

    Raises:
        TypeError: If a prior is not one of vbdrop's own.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(per="layer", filter_fn=lambda module, name: name == "2"))
        >>> [(entry["mode"], entry["layers"]) for entry in describe_conversion(model)]
        [('Rates', ['2'])]
    """
    found: dict[Mode, tuple[list[str], list[str]]] = {}
    for name, module in unwrapped(model).named_modules():
        if not isinstance(module, NoisyLayer):
            continue
        if module.noise is not None:
            found.setdefault(module.noise, ([], []))[0].append(name)
        if isinstance(module, NoisyRecurrent) and (gates := module.own_unit_gates()):
            found.setdefault(gates[0].mode, ([], []))[0].append(name)
        for index, gate in enumerate((module._modules.get("gate"), module._modules.get("output_gate"))):
            if isinstance(gate, Gate):
                found.setdefault(gate.mode, ([], []))[index].append(name)
    return [
        {"mode": type(mode).__name__, "settings": _settings(mode), "layers": layers, "outputs": outputs}
        for mode, (layers, outputs) in found.items()
    ]


def convert_as_described_(model: nn.Module, description: Sequence[Mapping[str, Any]]) -> nn.Module:
    """Convert a plain model as another one was converted, in place.

    Args:
        model: A plain model with the same modules.
        description: What `describe_conversion` said of the other one.

    Returns:
        The same model.

    Raises:
        ValueError: If the description is not one, or names a layer that the model does not have or that cannot be
            converted; the model is as it was before.

    Example:
        >>> import vbdrop
        >>> model, fresh = nn.Linear(4, 3), nn.Linear(4, 3)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights(threshold=2.0))
        >>> convert_as_described_(fresh, describe_conversion(model)).noise.threshold
        2.0
    """
    modules = dict(model.named_modules())
    modes = []
    for entry in description:
        if set(entry) != {"mode", "settings", "layers", "outputs"} or entry["mode"] not in MODES:
            raise ValueError(f"`description` must be what describe_conversion gave; got the entry {entry!r}.")
        for name in (*entry["layers"], *entry["outputs"]):
            if name not in modules:
                raise ValueError(f"`model` must have the layers of the description; it has no {name!r}.")
        modes.append(_mode(entry))
    convert_(model, *modes)
    return model


def _settings(mode: Mode) -> dict[str, Any]:
    values = {field.name: getattr(mode, field.name) for field in fields(mode) if field.name not in _FILTERS}
    prior = as_prior(values["prior"])
    names = {kind: name for name, kind in PRIORS.items()}
    if type(prior) not in names:
        raise TypeError(f"a prior that is written down must be one of {', '.join(PRIORS)}; got {prior!r}.")
    return values | {"prior": {"name": names[type(prior)], "settings": asdict(prior)}}  # type: ignore[call-overload]


def _mode(entry: Mapping[str, Any]) -> Mode:
    settings = dict(entry["settings"])
    prior: Prior = PRIORS[settings["prior"]["name"]](**settings["prior"]["settings"])
    mode = MODES[entry["mode"]](**{**settings, "prior": prior})
    layers, outputs = frozenset(entry["layers"]), frozenset(entry["outputs"])
    chosen = replace(mode, filter_fn=lambda _, name: name in layers)
    return replace(chosen, outputs=lambda _, name: name in outputs) if isinstance(chosen, Units) else chosen
