"""The compiled kernels: the C files of ``kernels``, built once a machine where there is a compiler, else not used.

Each takes float32 tensors on the CPU. What they compute is what the PyTorch code beside each call computes; with
``VBDROP_NATIVE=0`` in the environment, or without a compiler, that code runs instead.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vbdrop.kernels import library

PARALLEL_FROM = 32_768
"""Tensors with fewer elements are done by one thread."""
STEPS_OF_AN_ELEMENT = 64
"""So many steps of a product take about as long as the work on one element of a tensor."""


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can work on these tensors: plain ones of one shape, with their numbers in the same order."""
    shape, in_order = tensors[0].shape, True
    for t in tensors:  # a loop, since it is run many times a step
        if t.dtype is not torch.float32 or not t.is_cpu or t.shape != shape:
            return False
        if type(t) is not Tensor and type(t) is not nn.Parameter:
            return False
        in_order = in_order and t.is_contiguous()
    if not in_order and not all(is_channels_last(t) for t in tensors):
        return False
    return not _formulas_only and library() is not None


_formulas_only = False


@contextmanager
def formulas_only() -> Iterator[None]:
    """Compute with the PyTorch formulas inside this context, as with ``VBDROP_NATIVE=0``, whatever was compiled.

    It holds for the whole process. A forward and its backward must lie on the same side of it.
    """
    global _formulas_only
    before, _formulas_only = _formulas_only, True
    try:
        yield
    finally:
        _formulas_only = before


def check_unreplaced(*tensors: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Refuse a backward over tensors that are not as its forward saw them: the kernels would go by the old sizes.

    Autograd sees what is done to a tensor in place, but not that another memory was put behind it.

    Args:
        tensors: Those of one shape.
        shape: Their shape; that of the last one by default, which the forward has made itself.

    Raises:
        RuntimeError: One of them has another shape, dtype or order.
    """
    if not usable(*tensors) or (shape is not None and tensors[-1].shape != shape):
        raise RuntimeError(
            "a parameter or an input of a layer was replaced between forward and backward, as by compression or a "
            f"cast: call backward first. Got {', '.join(f'{tuple(t.shape)} {t.dtype}' for t in tensors)}."
        )


def is_channels_last(tensor: Tensor) -> bool:
    """Whether the numbers of a batch of images lie in memory with the channels innermost."""
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def kernels(work: int) -> tuple[ctypes.CDLL, int]:
    """The kernels, and the number of threads for so many elements."""
    found = library()
    if found is None:
        raise RuntimeError("the compiled kernels are not there; ask `usable` first.")
    return found, torch.get_num_threads() if work >= PARALLEL_FROM else 1


def kernels_for_product(samples: int, inputs: int, outputs: int) -> tuple[ctypes.CDLL, int]:
    """The kernels, and the number of threads for the products of a linear layer."""
    return kernels(samples * inputs * outputs // STEPS_OF_AN_ELEMENT)


@lru_cache(maxsize=1)
def has_products() -> bool:
    """Whether the kernels have products of matrices for this processor that are as quick as torch's own."""
    found = library()
    return found is not None and bool(found.vbdrop_has_products())


@lru_cache(maxsize=256)
def room(name: str, *sizes: int) -> int:
    """How many numbers of room a kernel needs for these sizes, by the kernel of this name that says so."""
    found, _ = kernels(0)
    return int(getattr(found, name)(*sizes))


def seed() -> int:
    """A seed for a kernel, drawn from torch's own generator, so that `torch.manual_seed` rules all noise."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_().item())


def posterior(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor, float]:
    """``theta`` masked where ``sigma2 >= limit * theta**2``; ``sigma2 = exp(log_sigma2)``; the hierarchical KL."""
    weight, sigma2 = torch.empty_like(theta), torch.empty_like(log_sigma2)
    n = theta.numel()
    found, threads = kernels(n)
    total: float = found.vbdrop_posterior(
        theta.data_ptr(), log_sigma2.data_ptr(), limit, weight.data_ptr(), sigma2.data_ptr(), n, threads
    )
    return weight, sigma2, 0.5 * total


def masked_mean(theta: Tensor, sigma2: Tensor, limit: float) -> Tensor:
    """``theta`` masked where ``sigma2 >= limit * theta**2``."""
    weight, n = torch.empty_like(theta), theta.numel()
    found, threads = kernels(n)
    found.vbdrop_masked_mean(theta.data_ptr(), sigma2.data_ptr(), limit, weight.data_ptr(), n, threads)
    return weight


def posterior_backward_(
    theta: Tensor, sigma2: Tensor, limit: float, by_theta: Tensor, by_sigma2: Tensor, kl_scale: float = 0.0
) -> None:
    """Take gradients towards weight and sigma2 to theta and log_sigma2, in place: mask and exponential.

    ``by_theta`` becomes zero where the mask takes a ``theta`` that is not zero, ``by_sigma2`` is multiplied by
    ``sigma2``; then ``kl_scale`` times the gradients of the hierarchical KL are added to them.
    """
    n = theta.numel()
    found, threads = kernels(n)
    saved = theta.data_ptr(), sigma2.data_ptr(), limit
    found.vbdrop_posterior_backward(*saved, kl_scale, by_theta.data_ptr(), by_sigma2.data_ptr(), n, threads)


def sample_(mean: Tensor, variance: Tensor, floor: float, noise: Tensor | None = None) -> Tensor:
    """Add ``deviation * noise`` to ``mean``, in place, and return ``noise / deviation`` (0 at the floor).

    The noise is drawn in the same pass if there is none; one that is given is overwritten with the result.
    """
    drawing = (1, seed()) if noise is None else (0, 0)
    ratio = torch.empty_like(mean) if noise is None else noise
    n = mean.numel()
    found, threads = kernels(n)
    found.vbdrop_sample(mean.data_ptr(), variance.data_ptr(), ratio.data_ptr(), floor, *drawing, n, threads)
    return ratio


class Gated(NamedTuple):
    """The results of `gate`: what the forward gives, and what its backward needs."""

    out: Tensor
    kl: float
    gate: Tensor
    deviation: Tensor
    noise: Tensor


def gate(x: Tensor, mean: Tensor, log_sigma2: Tensor, limit: float, space: int, noise: Tensor | None) -> Gated:
    """Multiply units by their gates, with noise; ``mean`` is masked where ``sigma2 >= limit * mean**2``.

    ``x`` is seen as samples, units and ``space`` numbers a unit. The noise is drawn in the same call if there is none.
    """
    units = mean.numel()
    samples = x.numel() // max(1, units * space)
    masked, deviation, out = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(x)
    drawing = (1, seed()) if noise is None else (0, 0)
    noise = x.new_empty(samples * units) if noise is None else noise
    found, threads = kernels(x.numel())
    parameters = x.data_ptr(), mean.data_ptr(), log_sigma2.data_ptr(), limit
    results = masked.data_ptr(), deviation.data_ptr(), noise.data_ptr(), *drawing, out.data_ptr()
    total: float = found.vbdrop_gate(*parameters, *results, samples, units, space, threads)
    return Gated(out, 0.5 * total, masked, deviation, noise)


def gate_gradients(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    gate: Tensor,
    deviation: Tensor,
    noise: Tensor,
    kl_scale: float,
    *,
    need_x: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of `gate` towards x, mean and log_sigma2, with ``kl_scale`` times those of the hierarchical KL."""
    by_x = torch.empty_like(x) if need_x else None
    by_mean, by_log_sigma2 = torch.empty_like(mean), torch.empty_like(mean)
    space = x.numel() // noise.numel() if x.numel() else 1
    sizes = (noise.numel() // max(1, mean.numel()), mean.numel(), space)
    found, threads = kernels(x.numel())
    saved = [t.data_ptr() for t in (grad, x, mean, gate, deviation, noise)]
    results = None if by_x is None else by_x.data_ptr(), by_mean.data_ptr(), by_log_sigma2.data_ptr()
    found.vbdrop_gate_backward(*saved, kl_scale, *results, *sizes, threads)
    return by_x, by_mean, by_log_sigma2


def hierarchical_kl(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """The sum of the hierarchical prior's KL."""
    n = theta.numel()
    found, threads = kernels(n)
    total = found.vbdrop_kl(theta.data_ptr(), log_sigma2.data_ptr(), n, threads)
    return torch.scalar_tensor(0.5 * total, dtype=theta.dtype, device="cpu")


def hierarchical_kl_gradients(theta: Tensor, log_sigma2: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """``scale`` times the gradients of `hierarchical_kl`."""
    return _kl_gradients("vbdrop_kl_backward", theta, log_sigma2, scale)


def log_uniform_kl(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """The sum of the log-uniform prior's KL, by the sigmoid approximation."""
    n = theta.numel()
    found, threads = kernels(n)
    total = found.vbdrop_log_uniform_kl(theta.data_ptr(), log_sigma2.data_ptr(), n, threads)
    return torch.scalar_tensor(total, dtype=theta.dtype, device="cpu")


def log_uniform_kl_gradients(theta: Tensor, log_sigma2: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """``scale`` times the gradients of `log_uniform_kl`."""
    return _kl_gradients("vbdrop_log_uniform_kl_backward", theta, log_sigma2, scale)


def _kl_gradients(name: str, theta: Tensor, log_sigma2: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(log_sigma2)
    n = theta.numel()
    found, threads = kernels(n)
    results = by_theta.data_ptr(), by_log_sigma2.data_ptr()
    getattr(found, name)(theta.data_ptr(), log_sigma2.data_ptr(), scale, *results, n, threads)
    return by_theta, by_log_sigma2
