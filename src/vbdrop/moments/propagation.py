"""One pass through a converted model with means and variances in place of values."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.layers import Gate, NoisyLayer, Variational
from vbdrop.moments import operations  # noqa: F401 -- importing it registers the rules
from vbdrop.moments.gaussian import Moments, NoRuleError
from vbdrop.moments.noisy import gated, layer_moments


@torch.no_grad()
def propagate_moments(model: nn.Module, x: Tensor) -> Moments:
    """The mean and the variance of each output of a converted model in sampled eval mode, in one forward.

    Every value is treated as normal and independent of all others. Under this assumption, the means and variances of
    linear layers, convolutions, averages, batch normalisation and piecewise linear activations (ReLU, leaky ReLU,
    ReLU6, hardtanh) are exact. Other activations are integrated with 32 nodes, which is approximate if the standard
    deviation is large compared with the function's scale; maxima are taken two at a time. Covariances are ignored:
    between units that share an input, between the terms of a residual sum, and between positions that share a gate.

    Args:
        model: A converted model in eval mode.
        x: A batch of inputs.

    Raises:
        NoRuleError: If an operation has no rule; the message names it and the module.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(rate=0.5))
        >>> propagate_moments(model, torch.ones(2, 4)).variance.shape
        torch.Size([2, 3])
    """
    with _watched(model) as inside, ExitStack() as stack:
        for path, module in model.named_modules():
            if not isinstance(module, Variational):
                continue
            if not isinstance(module, NoisyLayer | Gate):
                raise NoRuleError(_said(type(module).__name__, path))
            if "forward" in module.__dict__:
                raise NoRuleError(_said(f"the forward of {type(module).__name__}", path))
            rule = partial(layer_moments, module) if isinstance(module, NoisyLayer) else partial(gated, module)
            stack.enter_context(_forward_replaced(module, rule))
        try:
            out = model(x)
        except NoRuleError as error:
            raise NoRuleError(_said(str(error), inside[-1] if inside else "")) from error
    if isinstance(out, Moments):
        return out
    if isinstance(out, Tensor):
        return Moments(out, torch.zeros_like(out))
    raise NoRuleError(_said(f"an output of type {type(out).__name__}", ""))


def _said(operation: str, path: str) -> str:
    place = f" in {path!r}" if path else ""
    return f"`method='moments'` has no rule for {operation}{place}; use method='samples'."


@contextmanager
def _forward_replaced(module: nn.Module, rule: Callable[..., Moments]) -> Iterator[None]:
    """Make the call of a layer or gate return its moments, inside a ``with`` block."""
    module.__dict__["forward"] = rule
    try:
        yield
    finally:
        del module.__dict__["forward"]


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules whose forward is currently running."""
    inside: list[str] = []
    handles = []

    def leave(module: nn.Module, args: Any, out: Any) -> None:  # noqa: ANN401 -- a hook's
        inside.pop()

    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda module, args, path=path: inside.append(path)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield inside
    finally:
        for handle in handles:
            handle.remove()
