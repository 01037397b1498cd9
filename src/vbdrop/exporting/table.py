"""The table of file formats: the ending of a file -> how to write it, and how to run it for the check."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from vbdrop.exporting.agreement import Inputs, Runtime
from vbdrop.exporting.c import run_c, write_c
from vbdrop.exporting.c_compiler import header_of
from vbdrop.exporting.onnx import require_packages, run_onnx, write_onnx
from vbdrop.exporting.program import run_program, write_program


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        write: Writes a model; returns the files, the main one first.
        run: Returns the file as a function, or None if this machine cannot run it.
        summary: What it is, in one line.
        without: What is missing if it cannot be run.
        require: Raises an ImportError with the installation command if a package is missing.
        files: The requested file -> all files that are written, in the order of `write`.
    """

    write: Callable[[nn.Module, Path, Inputs], tuple[Path, ...]]
    run: Callable[[Path], Runtime | None]
    summary: str
    without: str = ""
    require: Callable[[], None] = lambda: None
    files: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)


FORMATS: dict[str, Format] = {
    ".onnx": Format(write_onnx, run_onnx, "ONNX, for ONNX Runtime and others", require=require_packages),
    ".pt2": Format(write_program, run_program, "a program of torch.export"),
    ".c": Format(
        write_c,
        run_c,
        "C99, a source and a header",
        without="there is no C compiler on the PATH",
        files=lambda path: (path, header_of(path)),
    ),
}
