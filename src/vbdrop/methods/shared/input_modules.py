"""Modules through which a layer's inputs pass: dropout noise of any kind, and gates on units.

A plain layer takes the class of its noisy counterpart, which passes its input through its submodule ``gate`` and its
output through ``output_gate``. Here those submodules belong to a method. The layers, their names and parameters do not
change, and afterwards the layers are plain again.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd
from vbdrop.convert import convert_, deterministic_
from vbdrop.layers import LAYERS, NoisyLayer, Units
from vbdrop.train.sparsity import weight_layers

GATES = ("gate", "output_gate")
"""The names of the submodules: on the input, and on the output."""


def put_before_(model: nn.Module, make: Callable[[NoisyLayer, bool], nn.Module | None]) -> None:
    """Put a module before every linear and convolutional layer.

    Args:
        model: A plain model.
        make: Maps a layer, and whether it is the first one, to the module; None to leave the layer as it is.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> put_before_(model, lambda layer, first: None if first else nn.Dropout(0.5))
        >>> [name for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
        ['2.gate']
    """
    layers: list[nn.Module] = [layer for _, layer in weight_layers(model) if type(layer) in LAYERS]
    for index, layer in enumerate(layers):
        plain = type(layer)
        layer.__class__ = LAYERS[plain]
        module = make(cast(NoisyLayer, layer), index == 0)
        if module is None:
            layer.__class__ = plain
        else:
            layer.add_module("gate", module)


def last_convolution(model: nn.Module) -> nn.Module | None:
    """The convolution that is followed by a linear layer: no input gate of a convolution covers its output channels.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> model = LeNet5()
        >>> last_convolution(model) is model.conv2
        True
    """
    layers = [layer for _, layer in weight_layers(model)]
    for layer, following in pairwise(layers):
        if isinstance(layer, ConvNd) and isinstance(following, nn.Linear):
            return layer
    return None


def unit_gates(mode: Units, model: nn.Module) -> Units:
    """This mode, with additional gates on the output channels of the last convolution.

    Every unit of an MLP (including its inputs), every channel and every hidden unit of a convolutional network then has
    its own gate; in LeNet-5, all of 20-50-800-500 do.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> model = LeNet5()
        >>> unit_gates(Units(), model).outputs(model.conv2, "conv2")
        True
    """
    last = last_convolution(model)
    return replace(mode, outputs=lambda module, _: module is last)


def put_gates_(model: nn.Module, make: Callable[[int, int, bool], nn.Module]) -> None:
    """Put a method's own gates where `vbdrop.Units` has them, and on the output channels of the last convolution.

    Args:
        model: A plain model.
        make: Maps the number of units, their axis counted from the end, and whether they are the network's inputs, to
            the module.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> put_gates_(model, lambda units, axis, inputs: nn.PReLU(units))
        >>> [(layer.n_inputs, type(gate).__name__) for layer, _, gate in gates_of(model)]
        [(4, 'PReLU'), (3, 'PReLU')]
    """
    first: nn.Module = next(layer for _, layer in weight_layers(model))
    convert_(model, unit_gates(Units(), model))
    for layer, name, _ in list(gates_of(model)):
        entering = name == "gate"
        units = layer.n_inputs if entering else layer.n_outputs
        layer.add_module(name, make(units, layer.unit_axis, entering and layer is first))


def gates_of(model: nn.Module) -> Iterator[tuple[NoisyLayer, str, nn.Module]]:
    """Every layer's gates: the layer, the gate's name in it, and the gate.

    Example:
        >>> list(gates_of(nn.Linear(4, 2)))
        []
    """
    for layer in model.modules():
        if isinstance(layer, NoisyLayer):
            for name in GATES:
                gate = layer._modules.get(name)
                if gate is not None:
                    yield layer, name, gate


def gate_groups(model: nn.Module, *, lr: float, gate_lr: float) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer: the weights, and the gates without weight decay.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> put_before_(model, lambda layer, first: nn.PReLU(4))
        >>> [(group["lr"], len(group["params"])) for group in gate_groups(model, lr=0.1, gate_lr=0.5)]
        [(0.1, 2), (0.5, 1)]
    """
    gates = [parameter for _, _, gate in gates_of(model) for parameter in gate.parameters()]
    of_gates = {id(parameter) for parameter in gates}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in of_gates]
    return [{"params": weights, "lr": lr}, {"params": gates, "lr": gate_lr, "weight_decay": 0.0}]


@torch.no_grad()
def take_out_(model: nn.Module, values: Callable[[nn.Module], Tensor | None]) -> nn.Module:
    """Make the model plain again: fold each gate's values into the weights around it and remove the gate.

    Args:
        model: A model with gates.
        values: Maps a gate to its factors in eval mode; None if it has none.

    Returns:
        The same model, with plain layers.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> put_before_(model, lambda layer, first: nn.Dropout(0.5))
        >>> take_out_(model, lambda gate: None)
        Linear(in_features=4, out_features=2, bias=True)
    """
    for layer, name, gate in list(gates_of(model)):
        factor = values(gate)
        if factor is not None:
            factor = factor.to(layer.weight.dtype)
            layer.weight.mul_(layer.per_input(factor) if name == "gate" else layer.per_output(factor))
            if name == "output_gate" and layer.bias is not None:
                layer.bias.mul_(factor)
        del layer._modules[name]
    return deterministic_(model)
