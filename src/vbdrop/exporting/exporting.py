"""`export`: writes a model as a file for another runtime, and checks it against the model first."""

import copy
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from vbdrop.analysis.key_value_cache import drop_cache_
from vbdrop.compression import Compressed
from vbdrop.convert import deterministic_
from vbdrop.exporting.agreement import Inputs, verify
from vbdrop.exporting.table import FORMATS
from vbdrop.files import write_atomically


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        paths: The files; the requested one comes first.
        bytes: Their total size.
        verified: Whether the file itself was run and gave the model's outputs.
        difference: The largest difference from the model's outputs; None if the file could not be run.
        note: Why it was not verified; empty if it was.
    """

    paths: tuple[Path, ...]
    bytes: int
    verified: bool
    difference: float | None
    note: str = ""

    @property
    def path(self) -> Path:
        """The requested file."""
        return self.paths[0]

    def __str__(self) -> str:
        files = " and ".join(path.name for path in self.paths)
        check = f"verified, largest difference {self.difference:.1e}" if self.verified else f"NOT verified: {self.note}"
        return f"{files}, {self.bytes:,} bytes, {check}"


def export(small: Compressed | nn.Module, path: str | Path, example_inputs: Tensor | Inputs | None = None) -> Exported:
    """Write a model as ``.onnx``, ``.pt2`` or ``.c``, and check that the file gives the same outputs as the model.

    The check runs the real thing: ONNX Runtime, the reloaded program, or the compiled C, on one sample and on a batch.
    If they disagree, an error is raised and no file is left behind. Without a C compiler, the C source is written and
    reported as not verified. Existing files are replaced only at the very end, all of them or none.

    The file agrees with the model for finite inputs. A NaN or an infinity can spread differently: ONNX may multiply
    inputs that the model does not use by zero, and C may skip weights that are zero.

    Args:
        small: The result of `vbdrop.compress`, or any plain `torch.nn.Module`; exported in eval mode, and not changed.
        path: The file; its ending chooses the format. ``net.c`` comes with a header ``net.h``.
        example_inputs: A batch of inputs, for a plain model.

    Returns:
        The files, their size, and the largest difference from the model; it can be printed.

    Raises:
        TypeError: ``small`` is not a model, or ``path`` is not a path.
        ValueError: The ending is unknown, the folder does not exist, or there are no example inputs.
        ImportError: The format needs a package that is not installed.
        ExportError: The model cannot be written in this format (the message names the operation), or the file does not
            agree with it.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exported = export(model, f"{folder}/net.pt2", torch.zeros(1, 4))
        >>> exported.path.name, exported.verified
        ('net.pt2', True)
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"`path` must be a str or a Path; got {path!r}.")
    path = Path(path)
    check_format(path)
    model, inputs = plain_copy(small, example_inputs)
    writer = FORMATS[path.suffix]
    with tempfile.TemporaryDirectory(prefix="vbdrop-") as folder:
        written = writer.write(model, Path(folder) / path.name, inputs)
        run = writer.run(written[0])
        difference = None if run is None else verify(model, run, inputs, path)
        contents = {path.parent / file.name: file.read_bytes() for file in written}
    _write_together(contents)
    size = sum(map(len, contents.values()))
    return Exported(tuple(contents), size, run is not None, difference, "" if run is not None else writer.without)


def _write_together(contents: dict[Path, bytes]) -> None:
    """Write several files; if one cannot be written, restore those that were written before it."""
    with ExitStack() as undo:
        for path, content in reversed(contents.items()):  # the header of a C file first
            old = path.read_bytes() if path.is_file() else None
            write_atomically(path, content)
            undo.callback(path.unlink if old is None else partial(write_atomically, path, old))
        undo.pop_all()


def check_format(path: Path) -> None:
    """Check, before any work is done, that this file can be exported.

    Raises:
        ValueError: The ending is unknown, or the file cannot be written there.
        ImportError: The format needs a package that is not installed.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"`path` must end in one of {', '.join(FORMATS)}; got {str(path)!r}.")
    for file in FORMATS[path.suffix].files(path):
        check_place(file)
    FORMATS[path.suffix].require()


def check_place(path: Path) -> None:
    """Check that a file can be written at this path.

    Raises:
        ValueError: The folder does not exist, or the path is a folder, or a link into a folder that does not exist.
    """
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise ValueError(
            f"`path` must lie in a folder that exists; for {str(path)!r} there is no folder {str(folder)!r}."
        )
    if path.is_dir():
        raise ValueError(f"`path` must be a file; {str(path)!r} is a folder.")


def plain_copy(small: Compressed | nn.Module, example_inputs: Tensor | Inputs | None) -> tuple[nn.Module, Inputs]:
    """A copy of the model, on the CPU, in eval mode, without noise or key-value cache, and a copy of the inputs for it.

    Raises:
        TypeError: It is neither a model nor the result of `vbdrop.compress`.
        ValueError: There are no inputs, or the model does not accept them.
    """
    if not isinstance(small, nn.Module | Compressed):
        raise TypeError(f"`small` must be a torch.nn.Module or from vbdrop.compress; got {type(small).__name__}.")
    model = small.model if isinstance(small, Compressed) else small
    if example_inputs is None and isinstance(small, Compressed):
        example_inputs = small.example_inputs
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else example_inputs
    if not isinstance(inputs, Sequence) or not inputs or not all(isinstance(value, Tensor) for value in inputs):
        raise ValueError(f"`example_inputs` must be a tensor or a tuple of tensors; got {example_inputs!r}.")
    if any(value.dim() and len(value) == 0 for value in inputs):
        raise ValueError("`example_inputs` must hold at least one sample.")
    copied = deterministic_(copy.deepcopy(model)).cpu().eval()
    drop_cache_(copied)
    inputs = tuple(value.detach().cpu().clone() for value in inputs)
    try:
        copied(*(value.clone() for value in inputs))
    except Exception as error:
        shapes = ", ".join(str(tuple(value.shape)) for value in inputs)
        raise ValueError(f"`example_inputs` of the shape {shapes} do not fit the model: {error}") from error
    return copied, inputs
