"""How a model was converted, as data, so that a checkpoint can convert a fresh model in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from torch import nn

from vbdrop._torch_compat import unwrapped
from vbdrop.convert.conversion import convert_
from vbdrop.layers import Gate, GatedAttention, GatedNorm, NoisyLayer, Rates, SharedGate, Units, Weights
from vbdrop.layers.modes import Mode
from vbdrop.layers.recurrent import NoisyRecurrent
from vbdrop.priors import Prior, as_prior
from vbdrop.priors.table import PRIORS

MODES: dict[str, type[Weights] | type[Units] | type[Rates]] = {"Weights": Weights, "Units": Units, "Rates": Rates}
"""The modes by name."""

_FILTERS = ("filter_fn", "outputs")


def describe_conversion(model: nn.Module) -> list[dict[str, Any]]:
    """How the layers of a model were converted, as strings, numbers and lists.

    Args:
        model: A converted model.

    Returns:
        For each mode with its settings: the layers that have it on their inputs, those with gates on their outputs, and
        those that share gates, including normalisations.

    Raises:
        TypeError: If a prior is not one of vbdrop's own.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(per="layer", filter_fn=lambda module, name: name == "2"))
        >>> [(entry["mode"], entry["layers"]) for entry in describe_conversion(model)]
        [('Rates', ['2'])]
    """
    found: dict[Mode, dict[str, list[str]]] = {}
    for name, module in unwrapped(model).named_modules():
        if not isinstance(module, NoisyLayer | GatedNorm | GatedAttention):
            continue
        if isinstance(module, NoisyLayer) and module.noise is not None:
            found.setdefault(module.noise, _nothing())["layers"].append(name)
        if isinstance(module, NoisyRecurrent) and (gates := module.own_unit_gates()):
            found.setdefault(gates[0].mode, _nothing())["layers"].append(name)
        for kind, gate in (("layers", module._modules.get("gate")), ("outputs", module._modules.get("output_gate"))):
            if isinstance(gate, Gate):
                found.setdefault(gate.mode, _nothing())[kind].append(name)
            elif isinstance(gate, SharedGate):
                found.setdefault(gate.all_gates[0].mode, _nothing())["shared"].append(name)
    return [{"mode": type(mode).__name__, "settings": _settings(mode), **names} for mode, names in found.items()]


def _nothing() -> dict[str, list[str]]:
    return {"layers": [], "outputs": [], "shared": []}


def convert_as_described_(
    model: nn.Module,
    description: Sequence[Mapping[str, Any]],
    example_inputs: Any = None,  # noqa: ANN401 -- in any form
) -> nn.Module:
    """Convert a plain model as another one was converted, in place.

    Args:
        model: A plain model with the same modules.
        description: The result of `describe_conversion` for the other model.
        example_inputs: Inputs that the model accepts; needed to find shared gates again if the other model has any.

    Returns:
        The same model.

    Raises:
        ValueError: If the description is invalid, names a layer that the model does not have or that cannot be
            converted, or has shared gates but ``example_inputs`` is None; the model is left unchanged.

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
        if set(entry) | {"shared"} != {"mode", "settings", *_nothing()} or entry["mode"] not in MODES:
            raise ValueError(f"`description` must be a result of describe_conversion; got the entry {entry!r}.")
        if entry.get("shared") and example_inputs is None:
            raise ValueError(
                "`example_inputs` must be inputs that the model accepts, since its layers share gates with others; "
                "got None."
            )
        for name in (*entry["layers"], *entry["outputs"], *entry.get("shared", ())):
            if name not in modules:
                raise ValueError(f"`model` must have the layers of the description; it has no {name!r}.")
        modes.append(_mode(entry))
    shares = any(entry.get("shared") for entry in description)
    convert_(model, *modes, example_inputs=example_inputs if shares else None)
    return model


def _settings(mode: Mode) -> dict[str, Any]:
    values = {field.name: getattr(mode, field.name) for field in fields(mode) if field.name not in _FILTERS}
    prior = as_prior(values["prior"])
    names = {kind: name for name, kind in PRIORS.items()}
    if type(prior) not in names:
        raise TypeError(f"a prior that is stored must be one of {', '.join(PRIORS)}; got {prior!r}.")
    return values | {"prior": {"name": names[type(prior)], "settings": asdict(prior)}}  # type: ignore[call-overload]


def _mode(entry: Mapping[str, Any]) -> Mode:
    settings = dict(entry["settings"])
    prior: Prior = PRIORS[settings["prior"]["name"]](**settings["prior"]["settings"])
    mode = MODES[entry["mode"]](**{**settings, "prior": prior})
    layers, outputs = frozenset((*entry["layers"], *entry.get("shared", ()))), frozenset(entry["outputs"])
    chosen = replace(mode, filter_fn=lambda _, name: name in layers)
    return replace(chosen, outputs=lambda _, name: name in outputs) if isinstance(chosen, Units) else chosen
