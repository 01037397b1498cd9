"""Checks that an exported file gives the same outputs as the model, for one sample and for a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import pytree
from vbdrop.exporting.errors import ExportError, telling

Inputs = tuple[Tensor, ...]
Runtime = Callable[[Inputs], Sequence[Tensor]]

BATCH = 3
"""Samples in the second check; the first has one."""

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 8e-2}
"""The largest difference allowed, as a share of the largest output; for other narrow types `NARROW_TOLERANCE`.

A model in bfloat16, with 8 bits of precision, differs by a few percent from the same model in C, which has 24. Integers
and bools must be equal.
"""

NARROW_TOLERANCE = 2e-2


def resized(inputs: Inputs, batch: int) -> Inputs:
    """The inputs with another number of samples, repeated as often as needed.

    Example:
        >>> resized((torch.tensor([[1.0], [2.0]]),), 3)[0].flatten().tolist()
        [1.0, 2.0, 1.0]
    """
    return tuple(
        value[torch.arange(batch, device=value.device) % len(value)] if value.dim() else value for value in inputs
    )


def check_inputs(inputs: Inputs) -> list[Inputs]:
    """One sample as given, and a batch that varies in all but its first sample.

    Floating-point inputs get fresh noise of the same spread. Integers are drawn, position by position, from the samples
    given: an index stays within the table that this position looks up.
    """
    generator = torch.Generator().manual_seed(0)

    def varied(value: Tensor) -> Tensor:
        if not value.dim():
            return value
        if not value.is_floating_point():
            samples = torch.randint(len(value), (BATCH, *value.shape[1:]), generator=generator)
            samples[0] = 0
            return value.gather(0, samples)
        (value,) = resized((value,), BATCH)
        noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
        noise[:1] = 0
        return value + noise * (value.std(correction=0) + 0.1)

    return [resized(inputs, 1), tuple(varied(value) for value in inputs)]


def outputs_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """The tensors that a model returns, in order, from any nested structure.

    The model gets copies of the inputs, so it may write to them. If it draws random numbers, they are the same in every
    call.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        returned = model(*(value.clone() for value in inputs))
    return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, Tensor)]


def verify(model: nn.Module, run: Runtime, inputs: Inputs, path: Path) -> float:
    """Compare the outputs of `run` with those of the model.

    Returns:
        The largest absolute difference.

    Raises:
        ExportError: The outputs differ by more than the tolerance, or the model or the file cannot be run, perhaps only
            for some batch sizes.
    """
    largest = 0.0
    for batch in check_inputs(inputs):
        with telling(f"the model cannot be compared with {path.name}, which was not written"):
            expected = outputs_of(model, batch)
        if not expected:
            raise ExportError(f"the model returns no tensor to compare {path.name} with. Nothing was written.")
        with telling(f"{path.name} cannot be run, and was not written"):
            actual = list(run(batch))
        if [_extent(value) for value in expected] != [_extent(value) for value in actual]:
            given, wanted = ([tuple(value.shape) for value in values] for values in (actual, expected))
            raise ExportError(
                f"{path.name} gives outputs of shapes {given}, but the model gives {wanted}. Nothing was written."
            )
        try:
            largest = max([largest, *(_difference(a, b, path) for a, b in zip(expected, actual, strict=True))])
        except ExportError as error:
            if not _draws_random_numbers(model, batch):
                raise
            raise ExportError(
                f"{error} The model draws random numbers, and the file draws different ones: export a model that takes "
                "them as an input, or that draws none in eval mode."
            ) from error
    return largest


def _draws_random_numbers(model: nn.Module, inputs: Inputs) -> bool:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        model(*(value.clone() for value in inputs))
        return not torch.equal(torch.get_rng_state(), before)


def _extent(value: Tensor) -> tuple[int, int]:
    """Flatten to samples and values, since C has no other shapes."""
    return (len(value) if value.dim() else 0), value.numel()


def _difference(expected: Tensor, actual: Tensor, path: Path) -> float:
    a, b = expected.double().flatten(), actual.double().flatten()
    if a.numel() == 0:
        return 0.0
    precision = min((expected.dtype, actual.dtype), key=lambda dtype: dtype.itemsize)
    largest = max([1e-3, *a[a.isfinite()].abs().tolist()])
    is_rounded = expected.is_floating_point() or expected.is_complex()
    allowed = TOLERANCES.get(precision, NARROW_TOLERANCE) * largest if is_rounded else 0.0
    difference = float(torch.where(a == b, 0.0, (a - b).abs()).max())  # equal infinities are equal
    if not difference <= allowed:
        raise ExportError(
            f"{path.name} does not agree with the model: the largest difference is {difference:.3g}, at most "
            f"{allowed:.3g} is allowed for outputs as large as {float(a.abs().max()):.3g}. Nothing was written."
        )
    return difference
