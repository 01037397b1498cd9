"""The C functions, called with tensors; callers must first check with `choice` that a kernel accepts them."""

import threading
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vbdrop._torch_compat import constant_result
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.kernels.library import library

PARALLEL_FROM = 32_768
"""Tensors with fewer elements are processed by one thread."""
STEPS_OF_AN_ELEMENT = 64
"""This many steps of a product take about as long as the work on one element of a tensor."""


@constant_result
def available() -> bool:
    """Whether this process has kernels."""
    return library() is not None


@constant_result
def has_products() -> bool:
    """Whether the kernels have matrix products for this processor that are as fast as torch's."""
    return _has_products()


@lru_cache(maxsize=1)
def _has_products() -> bool:
    found = library()
    return found is not None and bool(found.vbdrop_has_products())


def _threads(work: int) -> int:
    """The number of threads for this many elements."""
    return torch.get_num_threads() if work >= PARALLEL_FROM else 1


def _call(name: str, threads: int, *arguments: Any) -> Any:  # noqa: ANN401 -- whatever the C function takes
    """Call a C function, passing tensors as addresses, None as NULL, and the number of threads last."""
    found = library()
    if found is None:
        raise RuntimeError("the compiled kernels are not available; check with `choice` first.")
    return getattr(found, name)(*[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments], threads)


@lru_cache(maxsize=256)
def room(name: str, threads: int, *sizes: int) -> int:
    """How many floats of scratch space a kernel needs for these sizes, according to the C function of this name."""
    return int(_call(name, threads, *sizes))


LARGEST_KEPT = 4_000_000
"""A thread keeps scratch space of at most this many floats from call to call, since new memory is slow to touch."""

_kept = threading.local()


def _scratch(count: int) -> Tensor:
    """Memory for at least this many floats, valid until the next call in this thread."""
    kept: Tensor | None = getattr(_kept, "space", None)
    if kept is None or kept.numel() < count:
        kept = torch.empty(count, dtype=torch.float32, device="cpu")
        if count <= LARGEST_KEPT and type(kept) is Tensor:  # not a tracer's fake tensor
            _kept.space = kept
    return kept


def _plan(x: Tensor, weight: Tensor) -> tuple[tuple[int, int, int], int]:
    """The samples, inputs and outputs of a linear layer, and the number of threads for its products."""
    samples, inputs = x.shape
    outputs = weight.shape[0]
    return (samples, inputs, outputs), _threads(samples * inputs * outputs // STEPS_OF_AN_ELEMENT)


def _drawing(noise: Tensor | None) -> tuple[int, int]:
    """Whether a kernel draws its own noise, and the seed: from torch's generator, so `torch.manual_seed` applies."""
    return (0, 0) if noise is not None else (1, int(torch.empty((), dtype=torch.int64, device="cpu").random_().item()))


def kl(
    name: str, theta: Tensor, log_sigma2: Tensor, scale: float, *, need_gradients: bool
) -> tuple[float, Tensor | None, Tensor | None]:
    """The sum from the C function of this name, and ``scale`` times the gradients of the KL."""
    by_theta = torch.empty_like(theta) if need_gradients else None
    by_log_sigma2 = torch.empty_like(log_sigma2) if need_gradients else None
    n = theta.numel()
    total: float = _call(name, _threads(n), theta, log_sigma2, scale, by_theta, by_log_sigma2, n)
    return total, by_theta, by_log_sigma2


def posterior(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """``theta`` masked where ``sigma2 >= limit * theta**2``, and ``sigma2 = exp(log_sigma2)``."""
    weight, sigma2, n = torch.empty_like(theta), torch.empty_like(log_sigma2), theta.numel()
    _call("vbdrop_posterior", _threads(n), theta, log_sigma2, limit, weight, sigma2, n)
    return weight, sigma2


def posterior_gradients(
    theta: Tensor, sigma2: Tensor, limit: float, by_weight: Tensor, by_sigma2: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of theta and log_sigma2 from those of the results of `posterior`."""
    given, n = (theta, sigma2, limit, by_weight, by_sigma2), theta.numel()
    by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(theta)
    _call("vbdrop_posterior_backward", _threads(n), *given, by_theta, by_log_sigma2, n)
    return by_theta, by_log_sigma2


def perturbed(mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``mean + deviation * noise``, and its derivative with respect to the variance; the noise is drawn if None."""
    drawing, out, n = _drawing(noise), torch.empty_like(mean), mean.numel()
    slope = torch.empty_like(mean) if noise is None else noise.clone()
    _call("vbdrop_sample", _threads(n), mean, variance, slope, DEVIATION_FLOOR, *drawing, out, n)
    return out, slope


def noisy_linear(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    log_alpha: Tensor | None,
    bias: Tensor | None,
    limit: float,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample the output of a layer whose weights have one log variance each, or whose inputs have one log alpha each.

    With ``log_sigma2``, weights are dead where ``sigma2 >= limit * theta**2``. With ``log_alpha``, the variances are
    ``alpha * theta**2``. The second result is the derivative of the output with respect to its variance.
    """
    sizes, threads = _plan(x, theta)
    out, drawing = x.new_empty(sizes[0], sizes[2]), _drawing(noise)
    slope = torch.empty_like(out) if noise is None else noise.clone()
    space = _scratch(room("vbdrop_noisy_linear_room", threads, *sizes))
    alpha = None if log_alpha is None else log_alpha.exp()
    given = x, theta, log_sigma2, alpha, bias, limit, DEVIATION_FLOOR, *drawing
    _call("vbdrop_noisy_linear", threads, *given, space, out, slope, *sizes)
    return out, slope


def noisy_linear_gradients(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    log_alpha: Tensor | None,
    slope: Tensor,
    limit: float,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
    """The gradients of `noisy_linear` with respect to x, theta, log_sigma2 or log alpha, and bias."""
    sizes, threads = _plan(x, theta)
    by_x, by_bias = torch.empty_like(x) if need_x else None, grad.new_empty(sizes[2]) if need_bias else None
    by_theta, by_rate = torch.empty_like(theta), torch.empty_like(theta if log_alpha is None else log_alpha)
    space = _scratch(room("vbdrop_noisy_linear_backward_room", threads, *sizes, need_x))
    alpha = None if log_alpha is None else log_alpha.exp()
    given = grad, x, theta, log_sigma2, alpha, slope, limit, space
    _call("vbdrop_noisy_linear_backward", threads, *given, by_x, by_theta, by_rate, by_bias, *sizes)
    return by_x, by_theta, by_rate, by_bias


def _gates(x: Tensor, mean: Tensor, noise: Tensor | None, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Memory for what the backward of gates needs: masked means, deviations, and noise per sample and unit."""
    noises = x.new_empty(count) if noise is None else noise.clone().view(count)
    return torch.empty_like(mean), torch.empty_like(mean), noises


def gate(
    x: Tensor, mean: Tensor, log_sigma2: Tensor, limit: float, space: int, noise: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Multiply units by their gates, with noise; ``mean`` is masked where ``sigma2 >= limit * mean**2``.

    ``x`` is read as [samples, units, space]. The noise is drawn if None. The results after the first are those of
    `_gates`.
    """
    units, out = mean.numel(), torch.empty_like(x)
    samples = x.numel() // max(1, units * space)
    drawing, gates = _drawing(noise), _gates(x, mean, noise, samples * units)
    sizes = samples, units, space
    _call("vbdrop_gate", _threads(x.numel()), x, mean, log_sigma2, limit, *gates, *drawing, out, *sizes)
    return out, *gates


def gate_gradients(
    grad: Tensor, x: Tensor, mean: Tensor, gate: Tensor, deviation: Tensor, noise: Tensor, need_x: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of `gate` with respect to x, mean and log_sigma2."""
    by_x = torch.empty_like(x) if need_x else None
    by_mean, by_log_sigma2 = torch.empty_like(mean), torch.empty_like(mean)
    given, count = (grad, x, mean, gate, deviation, noise), noise.numel()
    sizes = count // max(1, mean.numel()), mean.numel(), x.numel() // count if x.numel() else 1
    results = by_x, by_mean, by_log_sigma2
    _call("vbdrop_gate_backward", _threads(x.numel()), *given, *results, *sizes)
    return results


def gated_linear(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    limit: float,
    noise: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The output of a linear layer whose inputs are gated with noise, as by `gate`, and what its backward needs."""
    sizes, threads = _plan(x, weight)
    out, drawing = x.new_empty(sizes[0], sizes[2]), _drawing(noise)
    gates = _gates(x, mean, noise, sizes[0] * sizes[1])
    space = _scratch(room("vbdrop_gated_linear_room", threads, *sizes))
    given = x, mean, log_sigma2, weight, bias, limit
    _call("vbdrop_gated_linear", threads, *given, *gates, *drawing, space, out, *sizes)
    return out, *gates


def gated_linear_gradients(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    gate: Tensor,
    deviation: Tensor,
    noise: Tensor,
    weight: Tensor,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of `gated_linear` with respect to x, mean, log_sigma2, weight and bias."""
    sizes, threads = _plan(x, weight)
    by_x, by_bias = torch.empty_like(x) if need_x else None, grad.new_empty(sizes[2]) if need_bias else None
    results = by_x, torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(weight), by_bias
    space = _scratch(room("vbdrop_gated_linear_backward_room", threads, *sizes))
    given = grad, x, mean, gate, deviation, noise, weight, space
    _call("vbdrop_gated_linear_backward", threads, *given, *results, *sizes)
    return results
