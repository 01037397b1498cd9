"""Formula or kernel: the one place that decides between them for given tensors.

The kernels read dense float32 tensors from the CPU's memory. Everything else is computed by the formulas of
`vbdrop.functional`: other dtypes and devices, tensor subclasses, views with gaps, anything inside a transform of
`torch.func`, and everything if there is no C compiler or if ``VBDROP_NATIVE=0`` is set. Compiled code calls the kernels
as operators (`vbdrop.kernels.operators`), with contiguous inputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import autocast_is_on, transforms_are_on
from vbdrop.kernels import binding


def in_memory(*tensors: Tensor) -> bool:
    """Whether the kernels can read these tensors: plain ones of the same shape and memory order.

    Example:
        >>> in_memory(torch.ones(2), torch.ones(2)), in_memory(torch.ones(2).double())
        (True, False)
    """
    shape, in_order, compiling = tensors[0].shape, True, torch.compiler.is_compiling()
    for t in tensors:  # a loop, since it runs many times per step
        if t.dtype is not torch.float32 or not t.is_cpu or t.shape != shape:
            return False
        if type(t) is not Tensor and type(t) is not nn.Parameter:
            return False
        if not compiling and t.is_neg():  # the operators of compiled code handle it
            return False
        in_order = in_order and t.is_contiguous()
    return in_order or (not compiling and all(is_channels_last(t) for t in tensors))


def is_channels_last(tensor: Tensor) -> bool:
    """Whether a batch of images is stored with the channels innermost."""
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


_formulas_only = False


@contextmanager
def formulas_only() -> Iterator[None]:
    """Use the formulas inside this context, as with ``VBDROP_NATIVE=0``; it applies to the whole process.

    Example:
        >>> with formulas_only():
        ...     takes(torch.ones(2))
        False
    """
    global _formulas_only
    before, _formulas_only = _formulas_only, True
    try:
        yield
    finally:
        _formulas_only = before


def kernels_apply() -> bool:
    """Whether kernels exist, and nothing is active that must see the formula's operations."""
    return not transforms_are_on() and not _formulas_only and binding.available()


def takes(*tensors: Tensor) -> bool:
    """Whether a kernel is used for tensors of one shape.

    Example:
        >>> takes(torch.ones(2, 3).T)
        False
    """
    return kernels_apply() and in_memory(*tensors)


def takes_gates(x: Tensor, mean: Tensor, log_sigma2: Tensor, axis: int, noise: Tensor | None) -> bool:
    """Whether a kernel is used for gates: any given noise must have one number for each sample and unit."""
    if not (kernels_apply() and x.is_contiguous() and in_memory(x) and in_memory(mean, log_sigma2)):
        return False
    count = x.shape[: x.dim() + axis + 1].numel()
    return noise is None or (noise.numel() == count and noise.is_contiguous() and in_memory(noise))


def takes_linear(rows: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor | None, noise_axis: int) -> bool:
    """Whether a kernel with its own product is used: the matrices must match in shape, and autocast must be off.

    Args:
        rows: The features as a matrix, see `as_matrix`.
        weight: The weights, [outputs, inputs].
        bias: The bias, or None.
        noise: The noise, or None.
        noise_axis: The axis of ``weight`` that the noise belongs to: 0 for the outputs, 1 for the inputs.
    """
    if not kernels_apply() or not binding.has_products() or autocast_is_on():
        return False
    if rows.dim() != 2 or weight.dim() != 2 or rows.numel() == 0 or weight.numel() == 0:
        return False
    if rows.shape[1] != weight.shape[1] or not in_memory(rows) or not in_memory(weight):
        return False
    if bias is not None and not (bias.shape == weight.shape[:1] and in_memory(bias)):
        return False
    return noise is None or (noise.shape == (rows.shape[0], weight.shape[noise_axis]) and in_memory(noise))


def as_matrix(x: Tensor) -> Tensor:
    """Features with any number of axes as a matrix: one row for each position that a linear layer is applied to.

    Example:
        >>> as_matrix(torch.ones(4, 2, 3)).shape
        torch.Size([8, 3])
    """
    return x if x.dim() in (0, 2) or x.numel() == 0 else x.reshape(-1, x.shape[-1])


def readable(grad: Tensor) -> Tensor:
    """An incoming gradient in a form that the kernels can read."""
    return grad if grad.is_contiguous() and not grad.is_neg() else grad.resolve_neg().contiguous()


def in_order_of(like: Tensor, tensor: Tensor) -> Tensor:
    """A dense tensor in the memory order of ``like``, which has the same shape."""
    return tensor if in_memory(like, tensor) else torch.empty_like(like).copy_(tensor)


Layout = tuple[torch.Size, torch.dtype, bool, bool]
"""A tensor's shape and dtype, whether it is in the CPU's memory, and whether it is contiguous."""


def layouts(tensors: Iterable[Tensor | None]) -> list[Layout | None]:
    """The layouts that `check_unreplaced` compares; None where there is no tensor."""
    return [None if t is None else (t.shape, t.dtype, t.is_cpu, t.is_contiguous()) for t in tensors]


def check_unreplaced(tensors: Sequence[Tensor | None], before: list[Layout | None]) -> None:
    """Refuse a backward whose tensors changed since the forward: the kernels would use the old sizes.

    Autograd detects in-place changes of a tensor, but not that its storage was replaced.

    Args:
        tensors: The tensors, each of which may be None.
        before: Their `layouts` in the forward.

    Raises:
        RuntimeError: If one of them has a different shape, dtype, device or memory order.
    """
    now = layouts(tensors)
    if now == before or all(map(_is_unreplaced, now, before)):
        return
    said = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors if t is not None)
    raise RuntimeError(
        "a parameter or an input of a layer was replaced between forward and backward, for example by compression or "
        f"a cast: call backward first. Got {said}."
    )


def _is_unreplaced(now: Layout | None, before: Layout | None) -> bool:
    """A tensor that was offloaded in the meantime may come back contiguous."""
    if now is None or before is None:
        return now is before
    return now[:-1] == before[:-1] and (now[-1] or not before[-1])
