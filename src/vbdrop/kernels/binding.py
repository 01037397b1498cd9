"""The C functions as functions of tensors; the caller has checked with `choice` that they accept them."""

import ctypes
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.kernels.library import library

PARALLEL_FROM = 32_768
"""Tensors with fewer elements are processed by one thread."""
STEPS_OF_AN_ELEMENT = 64
"""So many steps of a product take about as long as the work on one element of a tensor."""


def _kernels(work: int) -> tuple[ctypes.CDLL, int]:
    """The kernels, and the number of threads for so many elements."""
    found = library()
    if found is None:
        raise RuntimeError("the compiled kernels are not there; ask `choice` first.")
    return found, torch.get_num_threads() if work >= PARALLEL_FROM else 1


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def available() -> bool:
    """Whether there are kernels in this process."""
    return library() is not None


def _kernels_for_product(samples: int, inputs: int, outputs: int) -> tuple[ctypes.CDLL, int]:
    """The kernels, and the number of threads for the products of a linear layer."""
    return _kernels(samples * inputs * outputs // STEPS_OF_AN_ELEMENT)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_products() -> bool:
    """Whether the kernels have products of matrices for this processor that are as quick as torch's own."""
    return _has_products()


@lru_cache(maxsize=1)
def _has_products() -> bool:
    found = library()
    return found is not None and bool(found.vbdrop_has_products())


@lru_cache(maxsize=256)
def room(name: str, *sizes: int) -> int:
    """How many floats of scratch space a kernel needs for these sizes, from the C function of this name."""
    found, _ = _kernels(0)
    return int(getattr(found, name)(*sizes))


def _seed() -> int:
    """A seed for a kernel, drawn from torch's own generator, so that `torch.manual_seed` rules all noise."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_().item())


def _drawing(noise: Tensor | None) -> tuple[int, int]:
    """Whether a kernel draws its noise, and from which seed."""
    return (1, _seed()) if noise is None else (0, 0)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def kl(
    name: str, theta: Tensor, log_sigma2: Tensor, scale: float, *, need_gradients: bool
) -> tuple[float, Tensor | None, Tensor | None]:
    """What the C function of this name sums up, and ``scale`` times the gradients of the KL."""
    by_theta = torch.empty_like(theta) if need_gradients else None
    by_log_sigma2 = torch.empty_like(log_sigma2) if need_gradients else None
    n = theta.numel()
    found, threads = _kernels(n)
    results = _address(by_theta), _address(by_log_sigma2)
    total: float = getattr(found, name)(theta.data_ptr(), log_sigma2.data_ptr(), scale, *results, n, threads)
    return total, by_theta, by_log_sigma2


def posterior(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """``theta`` masked where ``sigma2 >= limit * theta**2``, and ``sigma2 = exp(log_sigma2)``."""
    weight, sigma2 = torch.empty_like(theta), torch.empty_like(log_sigma2)
    n = theta.numel()
    found, threads = _kernels(n)
    found.vbdrop_posterior(
        theta.data_ptr(), log_sigma2.data_ptr(), limit, weight.data_ptr(), sigma2.data_ptr(), n, threads
    )
    return weight, sigma2


def posterior_gradients(
    theta: Tensor, sigma2: Tensor, limit: float, by_weight: Tensor, by_sigma2: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients towards theta and log_sigma2 from those towards the results of `posterior`."""
    by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(theta)
    n = theta.numel()
    found, threads = _kernels(n)
    pointers = [t.data_ptr() for t in (by_weight, by_sigma2, by_theta, by_log_sigma2)]
    found.vbdrop_posterior_backward(theta.data_ptr(), sigma2.data_ptr(), limit, *pointers, n, threads)
    return by_theta, by_log_sigma2


def perturbed(mean: Tensor, variance: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """``mean + deviation * noise``, and its derivative by the variance; the noise is drawn if there is none."""
    drawing, out = _drawing(noise), torch.empty_like(mean)
    slope = torch.empty_like(mean) if noise is None else noise.clone()
    n = mean.numel()
    found, threads = _kernels(n)
    pointers = [t.data_ptr() for t in (mean, variance, slope)]
    found.vbdrop_sample(*pointers, DEVIATION_FLOOR, *drawing, out.data_ptr(), n, threads)
    return out, slope


def noisy_linear(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    alpha: Tensor | None,
    bias: Tensor | None,
    limit: float,
    noise: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Sample the output of a layer whose weights have a log variance each, or whose inputs have an alpha each.

    With ``log_sigma2``, weights are dead where ``sigma2 >= limit * theta**2``. With ``alpha``, the variances are
    ``alpha * theta**2``. The second result is the derivative of the output by its variance.
    """
    sizes = samples, _, outputs = *x.shape, theta.shape[0]
    out, drawing = x.new_empty(samples, outputs), _drawing(noise)
    slope = torch.empty_like(out) if noise is None else noise.clone()
    found, threads = _kernels_for_product(*sizes)
    space = x.new_empty(room("vbdrop_noisy_linear_room", *sizes, threads))
    given = [_address(t) for t in (x, theta, log_sigma2, alpha, bias)]
    results = [t.data_ptr() for t in (space, out, slope)]
    found.vbdrop_noisy_linear(*given, limit, DEVIATION_FLOOR, *drawing, *results, *sizes, threads)
    return out, slope


def noisy_linear_gradients(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    alpha: Tensor | None,
    slope: Tensor,
    limit: float,
    *,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
    """The gradients of `noisy_linear` towards x, theta, log_sigma2 or log alpha, and bias."""
    sizes = _, _, outputs = *x.shape, theta.shape[0]
    by_x = torch.empty_like(x) if need_x else None
    by_theta, by_rate = torch.empty_like(theta), torch.empty_like(theta if alpha is None else alpha)
    by_bias = grad.new_empty(outputs) if need_bias else None
    found, threads = _kernels_for_product(*sizes)
    space = x.new_empty(room("vbdrop_noisy_linear_backward_room", *sizes, need_x, threads))
    given = [_address(t) for t in (grad, x, theta, log_sigma2, alpha, slope)]
    results = [_address(t) for t in (space, by_x, by_theta, by_rate, by_bias)]
    found.vbdrop_noisy_linear_backward(*given, limit, *results, *sizes, threads)
    return by_x, by_theta, by_rate, by_bias


class Gates(NamedTuple):
    """What the backward of gates needs of their forward.

    Attributes:
        gate: The masked means.
        deviation: The standard deviations.
        noise: One number for each sample and unit.
    """

    gate: Tensor
    deviation: Tensor
    noise: Tensor


def _gates(x: Tensor, mean: Tensor, noise: Tensor | None, count: int) -> Gates:
    """Room for what a forward of gates gives to its backward."""
    return Gates(torch.empty_like(mean), torch.empty_like(mean), x.new_empty(count) if noise is None else noise)


def gate(
    x: Tensor, mean: Tensor, log_sigma2: Tensor, limit: float, space: int, noise: Tensor | None
) -> tuple[Tensor, Gates]:
    """Multiply units by their gates, with noise; ``mean`` is masked where ``sigma2 >= limit * mean**2``.

    ``x`` is seen as samples, units and ``space`` numbers for each of them. The noise is drawn if there is none.
    """
    units, out = mean.numel(), torch.empty_like(x)
    samples = x.numel() // max(1, units * space)
    drawing, gates = _drawing(noise), _gates(x, mean, noise, samples * units)
    found, threads = _kernels(x.numel())
    given = x.data_ptr(), mean.data_ptr(), log_sigma2.data_ptr()
    results = [t.data_ptr() for t in gates]
    found.vbdrop_gate(*given, limit, *results, *drawing, out.data_ptr(), samples, units, space, threads)
    return out, gates


def gate_gradients(
    grad: Tensor, x: Tensor, mean: Tensor, gates: Gates, *, need_x: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of `gate` towards x, mean and log_sigma2."""
    by_x = torch.empty_like(x) if need_x else None
    by_mean, by_log_sigma2 = torch.empty_like(mean), torch.empty_like(mean)
    count = gates.noise.numel()
    sizes = count // max(1, mean.numel()), mean.numel(), x.numel() // count if x.numel() else 1
    found, threads = _kernels(x.numel())
    pointers = [_address(t) for t in (grad, x, mean, *gates, by_x, by_mean, by_log_sigma2)]
    found.vbdrop_gate_backward(*pointers, *sizes, threads)
    return by_x, by_mean, by_log_sigma2


def gated_linear(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    limit: float,
    noise: Tensor | None,
) -> tuple[Tensor, Gates]:
    """The output of a linear layer whose inputs are gated with noise, as by `gate`."""
    sizes = samples, inputs, outputs = *x.shape, weight.shape[0]
    out, drawing = x.new_empty(samples, outputs), _drawing(noise)
    gates = _gates(x, mean, noise, samples * inputs)
    found, threads = _kernels_for_product(*sizes)
    space = x.new_empty(room("vbdrop_gated_linear_room", *sizes, threads))
    given = [_address(t) for t in (x, mean, log_sigma2, weight, bias)]
    made = [t.data_ptr() for t in gates]
    found.vbdrop_gated_linear(*given, limit, *made, *drawing, space.data_ptr(), out.data_ptr(), *sizes, threads)
    return out, gates


def gated_linear_gradients(
    grad: Tensor, x: Tensor, mean: Tensor, gates: Gates, weight: Tensor, *, need_x: bool, need_bias: bool
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of `gated_linear` towards x, mean, log_sigma2, weight and bias."""
    sizes = _, _, outputs = *x.shape, weight.shape[0]
    by_x = torch.empty_like(x) if need_x else None
    by_mean, by_log_sigma2, by_weight = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(weight)
    by_bias = grad.new_empty(outputs) if need_bias else None
    found, threads = _kernels_for_product(*sizes)
    space = x.new_empty(room("vbdrop_gated_linear_backward_room", *sizes, threads))
    given = [t.data_ptr() for t in (grad, x, mean, *gates, weight, space)]
    results = [_address(t) for t in (by_x, by_mean, by_log_sigma2, by_weight, by_bias)]
    found.vbdrop_gated_linear_backward(*given, *results, *sizes, threads)
    return by_x, by_mean, by_log_sigma2, by_weight, by_bias
