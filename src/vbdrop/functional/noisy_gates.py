"""The training forward of gates as one step of autograd, by the compiled kernels; `apply_gate` is the plain formula."""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.gates import apply_gate, check_units
from vbdrop.functional.joined_kl import JoinedKL, can_join, spend
from vbdrop.functional.masks import alive, largest_alpha, masked
from vbdrop.functional.once import once


class _NoisyGates(torch.autograd.Function):
    """The gated features and the hierarchical KL of the gates; stores x, and one number a sample and unit."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        mean: Tensor,
        log_sigma2: Tensor,
        limit: float,
        axis: int,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        space = x.shape[axis + 1 :].numel() if axis < -1 else 1
        gated = native.gate(x, mean, log_sigma2, limit, space, noise)
        ctx.save_for_backward(x, mean, log_sigma2, gated.gate, gated.deviation, gated.noise)
        ctx.set_materialize_grads(False)
        return gated.out, torch.scalar_tensor(gated.kl, dtype=mean.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        spend(ctx)
        x, mean, log_sigma2, gate, deviation, noise = ctx.saved_tensors
        native.check_unreplaced(mean, log_sigma2, gate)
        kl_scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(mean, log_sigma2, kl_scale), None, None, None
        grad = grad.contiguous()
        native.check_unreplaced(x, grad)
        gradients = native.gate_gradients(
            grad, x, mean, gate, deviation, noise, kl_scale, need_x=ctx.needs_input_grad[0]
        )
        return *gradients, None, None, None


def noisy_gates_reference(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    axis: int,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """`noisy_gates` by the plain formula, differentiated by autograd; no mask keeps a mean of zero from learning."""
    used = mean if threshold is None else masked(mean, alive(mean, log_sigma2, threshold) | (mean == 0))
    return apply_gate(x, used, torch.exp(0.5 * log_sigma2), axis, noise)


def noisy_gates(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    axis: int,
    threshold: float | None = None,
    noise: Tensor | None = None,
    joined_kl: JoinedKL | None = None,
) -> Tensor:
    """Multiply each unit by its gate, a draw of ``N(mean, exp(log_sigma2))`` per sample and unit.

    Args:
        x: The features.
        mean: The gates' means, one a unit.
        log_sigma2: Their log variances.
        axis: The units' axis, counted from the end.
        threshold: The ``log_alpha`` from which on a gate's mean counts as zero (its variance stays); None for never.
        noise: Standard normal numbers, one per sample and unit; drawn here if None.
        joined_kl: Takes the hierarchical KL of the gates, where it comes with the sample at little cost.

    Returns:
        The gated features, in the dtype of ``x``.

    Example:
        >>> noisy_gates(torch.ones(1, 2), torch.tensor([2.0, 0.5]), torch.zeros(2), -1, noise=torch.ones(1, 2))
        tensor([[3.0000, 1.5000]])
    """
    if torch.compiler.is_compiling():
        return noisy_gates_reference(x, mean, log_sigma2, axis, threshold, noise)
    if not (x.is_contiguous() and native.usable(x) and can_join(mean, log_sigma2) and _is_one_each(noise, x, axis)):
        if joined_kl is not None:
            joined_kl.clear()
        return noisy_gates_reference(x, mean, log_sigma2, axis, threshold, noise)
    check_units(x, mean, axis)
    limit = float("inf") if threshold is None else largest_alpha(threshold)
    out, kl = _NoisyGates.apply(x, mean, log_sigma2, limit, axis, noise)  # type: ignore[no-untyped-call]
    if joined_kl is not None:
        joined_kl.put(kl, mean, log_sigma2)
    gated: Tensor = out
    return gated


def _is_one_each(noise: Tensor | None, x: Tensor, axis: int) -> bool:
    """Whether the noise is what the kernel takes: none yet, or a number in memory for each sample and unit."""
    if noise is None:
        return True
    return noise.numel() == x.shape[: x.dim() + axis + 1].numel() and noise.is_contiguous() and native.usable(noise)
