"""Add the gradient of the KL right before an optimizer's step, for trainers whose loss cannot be changed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from vbdrop.layers.noisy import NoisyTensor, kl_of
from vbdrop.objective.divergence import entries_of

AT_ONCE = 1_000_000
"""The gradients of this many weights may exist at once, beside those of the model."""

Owned = tuple[NoisyTensor, list[Tensor]]
"""A noisy tensor, and those of its parameters that an optimizer trains."""


class Handle:
    """The handle that `ELBO.attach` returns.

    Args:
        remove: Undoes the attachment; called at most once.
    """

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Detach the KL from the optimizer. Further calls have no effect."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()


def check_optimizer(model: nn.Module, optimizer: object) -> Optimizer:
    """Return the optimizer if the KL of the model can be added before its steps.

    Raises:
        TypeError: If it is not an optimizer, or if it evaluates the loss several times per step.
        ValueError: If it trains no noisy tensor of the model.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`optimizer` must be a torch.optim.Optimizer; got {type(optimizer).__name__}.")
    if isinstance(optimizer, LBFGS):
        raise TypeError(
            "`optimizer` must not be LBFGS: its line search compares losses, which would lack the KL. "
            "Put the KL into the loss with elbo(nll)."
        )
    if not any(True for _ in _owned(model, optimizer)):
        raise ValueError(
            "`optimizer` has no trainable parameter of a converted layer, so there is nothing to add the KL to. "
            "Build it from vbdrop.param_groups(model)."
        )
    return optimizer


def _owned(model: nn.Module, optimizer: Optimizer) -> Iterator[Owned]:
    """The noisy tensors of the model that this optimizer trains, each with its trained parameters."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    for entry in entries_of(model):
        if found := [p for p in (entry.mean, entry.rate) if id(p) in own]:
            yield entry, found


def has_rate_gradients(model: nn.Module, optimizer: Optimizer) -> bool:
    """Whether any rate that this optimizer trains has a nonzero gradient."""
    return any(entry.rate.grad is not None and bool(entry.rate.grad.any()) for entry, _ in _owned(model, optimizer))


@torch.no_grad()
def add_kl_gradients_(model: nn.Module, optimizer: Optimizer, scale: float) -> None:
    """Add ``scale`` times the gradient of the KL to the ``.grad`` of the parameters that the optimizer trains.

    If a `torch.amp.GradScaler` leaves the unscaling to the optimizer, the existing gradients are still scaled by
    ``optimizer.grad_scale``, so the added ones are scaled too.
    """
    grad_scale = getattr(optimizer, "grad_scale", None)
    if grad_scale is not None:
        scale *= float(grad_scale)
    if scale == 0:
        return
    for batch in _batches(_owned(model, optimizer)):
        _add_gradients_of(batch, scale)


def _batches(pairs: Iterable[Owned]) -> Iterator[list[Owned]]:
    """Noisy tensors with at most `AT_ONCE` weights together, or a single larger one."""
    batch, size = list[Owned](), 0
    for entry, parameters in pairs:
        count = entry.mean.numel()
        if batch and size + count > AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append((entry, parameters))
        size += count
    if batch:
        yield batch


def _add_gradients_of(batch: Sequence[Owned], scale: float) -> None:
    """Add the gradients of some noisy tensors; they are freed before those of others are computed."""
    parameters = list({id(p): p for _, found in batch for p in found}.values())
    with torch.enable_grad():
        scaled, _ = kl_of([entry for entry, _ in batch], scale)
    if not scaled.requires_grad:  # the KL of `Rates` depends on the rates alone, which may be frozen
        return
    gradients = torch.autograd.grad(scaled, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.add_(gradient)


def hook_before_step(optimizer: Optimizer, start: Callable[[], None], add: Callable[[], None]) -> Callable[[], None]:
    """Call ``start`` before every step, and ``add`` once the step's gradients exist.

    They exist before the step or, if it has a closure, after the closure has run, which first zeroes the gradients.

    Returns:
        A function that removes the hook.
    """

    def before_step(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        start()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            add()
            return None

        def closure_and_kl() -> Any:  # noqa: ANN401 -- whatever the closure returns
            loss = closure()
            add()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": closure_and_kl}
        return (args[0], closure_and_kl, *args[2:]), kwargs

    return optimizer.register_step_pre_hook(before_step).remove
