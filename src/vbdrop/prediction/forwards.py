"""Several samples of a model's outputs in one forward, if they provably match those of separate forwards."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.layers import Gate, NoisyLayer, Variational
from vbdrop.moments.noisy import has_rule, layer_moments
from vbdrop.prediction.value_origins import Following, Origin


def _repeated(x: Tensor, count: int) -> Tensor:
    """The batch repeated this many times."""
    return x.repeat(count, *[1] * (x.dim() - 1))


def shared_forward(model: nn.Module, x: Tensor, count: int) -> object:
    """A forward whose batch is repeated at its first noise; None if the model does not allow it.

    Noisy values must keep the samples of the batch on their first axis. If a model has something else there, shapes
    noisy values by the size of its inputs, adds its inputs to them, or draws other noise earlier, it is run on
    repeated inputs instead.
    """
    following = Following(x, x.shape[0] * count)
    out = _followed_forward(model, x, following, partial(_multiplied, following, x.shape[0], count))
    right = isinstance(out, Tensor) and following.origin(out) is Origin.NOISE and len(out) == len(x) * count
    return out if right else None


def repeated_forward(model: nn.Module, x: Tensor, count: int) -> object:
    """A forward on the repeated batch; None if its noise would differ from that of separate forwards.

    Noise on values that come from the inputs is drawn once per repetition; noise on a learned table is not.
    """
    repeated = _repeated(x, count)
    following = Following(repeated, len(repeated))
    return _followed_forward(model, repeated, following, partial(_grown, following))


def _followed_forward(model: nn.Module, x: Tensor, following: Following, instead: Callable[..., Tensor]) -> object:
    """Run the model with the forwards of all noisy modules replaced.

    Returns None if the forward fails, or if it draws other noise that does not grow with the batch.
    """
    modules = list(_drawing(model))
    if any("forward" in module.__dict__ or not isinstance(module, NoisyLayer | Gate) for module in modules):
        return None
    if any(isinstance(module, NoisyLayer) and module.draws_per_call for module in modules):
        return None
    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.__dict__.pop, "forward", None)
            forward = partial(type(module).forward, module)
            module.__dict__["forward"] = partial(following.apart, instead, module, forward)
        try:
            with following:
                out: object = model(x)
        except Exception:  # a forward may raise anything; its own errors recur in the next attempt
            return None
    return out if following.right else None


def _drawing(model: nn.Module) -> Iterator[Variational]:
    """The modules that draw noise: layers and stand-alone gates; the gates of a layer are part of it."""
    layers = [module for module in model.modules() if isinstance(module, NoisyLayer)]
    inside = {id(gate) for layer in layers for gate in layer.modules() if isinstance(gate, Gate)}
    for module in model.modules():
        if isinstance(module, Variational) and id(module) not in inside:
            yield module


def _multiplied(
    following: Following,
    rows: int,
    count: int,
    module: NoisyLayer | Gate,
    forward: Callable[..., Tensor],
    input: Tensor,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> Tensor:
    """The forward of a layer or gate, which repeats a batch that has no noise yet."""
    origin = following.origin(input)
    one_batch = origin is Origin.INPUTS and input.shape[0] == rows
    following.require(origin is Origin.NOISE or (one_batch and following.is_without_other_noise()))
    if origin is Origin.NOISE:
        return following.put(forward(input, *args, **kwargs), Origin.NOISE)
    if args or kwargs or isinstance(module, Gate) or not _is_additive(module):
        return following.put(forward(_repeated(input, count), *args, **kwargs), Origin.NOISE)
    moments = layer_moments(module, input, output_gate=False)
    noise = torch.randn(count, *moments.shape, dtype=moments.dtype, device=moments.device)
    out = (moments.mean_ + moments.variance.sqrt() * noise).flatten(0, 1).to(input.dtype)
    output_gate = module._modules.get("output_gate")
    return following.put(out if output_gate is None else output_gate(out), Origin.NOISE)


def _is_additive(layer: NoisyLayer) -> bool:
    """Whether a layer adds its noise to its products, as the library's layers without input gates do."""
    return layer.noise is not None and "gate" not in layer._modules and has_rule(layer)


def _grown(
    following: Following,
    module: NoisyLayer | Gate,
    forward: Callable[..., Tensor],
    input: Tensor,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> Tensor:
    """The forward of a layer or gate, if all samples of the batch are on axes before its units."""
    axis = module.axis if isinstance(module, Gate) else module.unit_axis
    drawn_apart = math.prod(input.shape[: input.dim() + axis])
    following.require(following.origin(input) is not Origin.PARAMETERS and drawn_apart % following.rows == 0)
    return following.put(forward(input, *args, **kwargs), Origin.INPUTS)
