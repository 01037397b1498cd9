"""Gates that several layers share, as data: which gate each input of a layer has, and what the gates are."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from vbdrop.layers import LAYERS, Gate, NoisyLayer, SharedGate, Units
from vbdrop.layers.recurrent import NoisyRecurrent


def describe_shared_gates(model: nn.Module) -> dict[Units, dict[str, Any]]:
    """Which layers of a model share gates, for each mode of these gates, as strings, numbers and lists.

    Raises:
        TypeError: If the layer of a shared gate is of a kind that cannot be written down.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units(), example_inputs=torch.zeros(1, 4))
        >>> ((mode, layers),) = describe_shared_gates(model).items()
        >>> layers["1"]["gates"], layers["1"]["index"]
        (['1.gate.0_channels'], [0, 1, 2])
    """
    names = {id(module): name for name, module in model.named_modules() if isinstance(module, Gate)}
    found: dict[Units, dict[str, Any]] = {}
    for name, module in model.named_modules():
        if not isinstance(module, SharedGate):
            continue
        layer, _, place = name.rpartition(".")
        owner = model.get_submodule(layer)
        if isinstance(owner, NoisyRecurrent) and {id(gate) for gate in module.all_gates} <= set(
            map(id, owner.modules())
        ):
            continue  # it shares them with itself alone, and makes them again by itself
        if place != "gate" or not isinstance(owner, NoisyLayer):
            raise TypeError(f"the gates of {layer!r}, a {type(owner).__name__}, have no description.")
        found.setdefault(module.all_gates[0].mode, {})[layer] = {
            "own": {
                own: {"units": gate.weight.numel(), "kl_factor": float(gate.current_kl_factor)}
                for own, gate in module.own.items()
            },
            "gates": [names[id(gate)] for gate in module.all_gates],
            "index": module.index.tolist(),
        }
    return found


def share_described_gates_(model: nn.Module, mode: Units, layers: Mapping[str, Any]) -> None:
    """Put shared gates in place as another model has them.

    Args:
        model: A model with the same layers, without gates there.
        mode: Prior, threshold and initial variance.
        layers: What `describe_shared_gates` said for this mode.

    Raises:
        ValueError: If it does not fit the model; some gates may be in place then.
    """
    gates: dict[str, Gate] = {}
    noisy: dict[str, NoisyLayer] = {}
    for path, entry in layers.items():
        layer = model.get_submodule(path)
        if type(layer) in LAYERS:
            layer.__class__ = LAYERS[type(layer)]
        if not isinstance(layer, NoisyLayer) or "gate" in layer._modules:
            raise ValueError(f"`model` must have a layer that can get gates at {path!r}; got {type(layer).__name__}.")
        noisy[path] = layer
        for name, facts in entry["own"].items():
            if type(facts["units"]) is not int or not 1 <= facts["units"] <= layer.n_inputs or "." in name:
                raise ValueError(f"the gates {name!r} of {path!r} must fit its {layer.n_inputs} inputs; got {facts!r}.")
            gate = Gate(facts["units"], layer.unit_axis, mode, layer.weight)
            gate.kl_factor = float(facts["kl_factor"])
            gates[f"{path}.gate.{name}"] = gate
    for path, layer in noisy.items():
        entry = layers[path]
        if not entry["gates"] or not set(entry["gates"]) <= set(gates):
            raise ValueError(f"the gates of {path!r} must be those of a layer; got {entry['gates']!r}.")
        used = [gates[name] for name in entry["gates"]]
        index = torch.tensor(entry["index"], dtype=torch.long)
        if index.shape != (layer.n_inputs,) or not -1 <= int(index.min()) <= int(index.max()) < sum(
            gate.weight.numel() for gate in used
        ):
            raise ValueError(f"`index` of {path!r} must have a gate, or -1, for each of its {layer.n_inputs} inputs.")
        own = {name: gates[f"{path}.gate.{name}"] for name in entry["own"]}
        layer.share_gate_(SharedGate(layer.unit_axis, own, used, index))
