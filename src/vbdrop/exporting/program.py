"""The `.pt2` file: the program of `torch.export`, which loads without the model's class."""

import inspect
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from vbdrop._torch_compat import pytree
from vbdrop.analysis.causal_masks import masks_as_given
from vbdrop.exporting.agreement import BATCH, Inputs, Runtime, outputs_of, resized
from vbdrop.exporting.errors import ExportError, telling
from vbdrop.exporting.quiet import quiet_torch

FIXED_BATCH = (
    "its forward treats the number of examples as a constant. In a trace, `len(x)` and `int(x.shape[0])` are "
    "constants, too; write `x.shape[0]`, or `x.flatten(1)` instead of `x.view(len(x), -1)`."
)
"""Why a forward that, once traced, is valid for only one batch size cannot be exported."""


def batch_shapes(model: nn.Module, inputs: Inputs) -> dict[str, Any]:
    """The dynamic shapes for `torch.export`: the first axis of every input is the batch, of any size."""
    batch = Dim("batch")
    arguments = inspect.signature(model.forward).bind(*inputs).arguments
    return {
        name: pytree.tree_map(lambda leaf: {0: batch} if isinstance(leaf, Tensor) and leaf.dim() else None, value)
        for name, value in arguments.items()
    }


@contextmanager
def tracing(failure: str) -> Iterator[None]:
    """Run torch on a model quietly, and turn any exception into an `ExportError`: the failure and the reason.

    Example:
        >>> with tracing("torch.export cannot trace the model"):
        ...     raise RuntimeError("an operation is missing")
        Traceback (most recent call last):
        ...
        vbdrop.exporting.errors.ExportError: torch.export cannot trace the model: an operation is missing
    """
    with telling(failure), quiet_torch(), torch.no_grad():
        yield


def trace_program(model: nn.Module, inputs: Inputs) -> ExportedProgram:
    """Trace a model in eval mode for batches of any size.

    Raises:
        ExportError: `torch.export` cannot trace it, or it works for only one batch size.
    """
    several = resized(inputs, BATCH)  # with one sample, torch would fix the batch size at 1
    with tracing("torch.export cannot trace the model for batches of any size"), masks_as_given():
        try:
            return torch.export.export(model, several, dynamic_shapes=batch_shapes(model, several))
        except Exception as error:  # torch's class for this error is private
            if "specialized it to be a constant" not in str(error):
                raise
            raise ExportError(FIXED_BATCH) from error


def write_program(model: nn.Module, path: Path, inputs: Inputs) -> tuple[Path, ...]:
    """Write the program of `model` to `path`."""
    program, content = trace_program(model, inputs), io.BytesIO()
    with quiet_torch():
        torch.export.save(program, content)  # not to the file: torch aborts the process if the disk is full
    path.write_bytes(content.getvalue())
    return (path,)


def load_program(path: Path) -> nn.Module:
    """The program in the file, as a module."""
    with quiet_torch():
        return torch.export.load(path).module()


def run_program(path: Path) -> Runtime:
    """The program in the file, as a function for the check."""
    module = load_program(path)
    return lambda inputs: outputs_of(module, inputs)
