"""Layers that a conversion must leave alone because the model does not use them through their own forward."""

from typing import Any

from torch import nn

from vbdrop.convert.example_inputs import as_arguments, copied
from vbdrop.layers import LAYERS
from vbdrop.layers.companions import weight_names
from vbdrop.layers.computed_weight import base_of
from vbdrop.objective.weight_reads import weight_reads


def why_unused(model: nn.Module, example_inputs: Any) -> dict[str, str]:  # noqa: ANN401 -- in any form
    """For each layer whose weight is not read by its own forward alone, the reason to leave it alone.

    Args:
        model: The model before its conversion; it is not changed.
        example_inputs: Inputs that it accepts: a tensor, a tuple of arguments or a dict of named ones.

    Raises:
        ValueError: If the model does not accept the inputs.

    Example:
        >>> import torch
        >>> class FirstOnly(nn.Sequential):
        ...     def forward(self, x):
        ...         return self[0](x)
        >>> why_unused(FirstOnly(nn.Linear(2, 2), nn.Linear(2, 2)), torch.zeros(1, 2))
        {'1': 'its forward is not called for the example inputs'}
    """
    args, kwargs = as_arguments(example_inputs)
    model = copied(model).eval()
    kinds = (*LAYERS, *LAYERS.values())
    layers = {
        name: m for name, m in model.named_modules() if (type(m) in kinds or base_of(m) is not None) and _has_weights(m)
    }
    try:
        reads = weight_reads(model, layers, args, kwargs)
    except Exception as error:
        raise ValueError(
            f"`example_inputs` must be inputs that the model accepts; it raised {type(error).__name__}: {error}"
        ) from error
    unused = dict.fromkeys(sorted(layers.keys() - reads.called), "its forward is not called for the example inputs")
    return unused | dict.fromkeys(sorted(reads.outside), "its weight is read outside its own forward")


def _has_weights(module: nn.Module) -> bool:
    """Whether all weights of a layer are parameters that can have a gradient."""
    weights = [module._parameters.get(name) for name in weight_names(module)]
    return all(weight is not None and weight.is_floating_point() for weight in weights)
