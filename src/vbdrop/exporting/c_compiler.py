"""Compiles and calls exported C, to check an export and to time it."""

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vbdrop.exporting.errors import ExportError
from vbdrop.kernels import find_compiler

# Every warning is an error: the source must pass a strict build.
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O2")
# As a user would build it for this machine; strict C99 alone would not fuse products and sums.
FAST = ("-std=c99", "-O3", "-march=native", "-ffp-contract=fast")


class CompiledNetwork:
    """A compiled network, called through `ctypes`.

    Attributes:
        predict: The C function for one sample, called with two addresses.
        predict_batch: The C function for several samples, called with two addresses and their number.
    """

    def __init__(self, library: Path, name: str, input_size: int, output_size: int) -> None:
        self.input_size, self.output_size = input_size, output_size
        loaded = ctypes.CDLL(str(library))
        address = ctypes.c_void_p
        self.predict = loaded[f"{name}_predict"]
        self.predict.argtypes, self.predict.restype = (address, address), None
        self.predict_batch = loaded[f"{name}_predict_batch"]
        self.predict_batch.argtypes, self.predict_batch.restype = (address, address, ctypes.c_size_t), None

    def __call__(self, batch: NDArray[np.floating]) -> NDArray[np.float32]:
        """The outputs for a batch, one row per sample."""
        samples = np.ascontiguousarray(batch, dtype=np.float32).reshape(len(batch), self.input_size)
        outputs = np.empty((len(samples), self.output_size), dtype=np.float32)
        if len(samples) == 1:
            self.predict(samples.ctypes.data, outputs.ctypes.data)
        else:
            self.predict_batch(samples.ctypes.data, outputs.ctypes.data, len(samples))
        return outputs


def compile_network(source: Path, options: Sequence[str]) -> CompiledNetwork:
    """Compile a network whose header is beside it, in a separate folder, and load it.

    Raises:
        ExportError: There is no compiler, or it rejects the source.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ExportError("no C compiler on the PATH (looked for cc, gcc and clang, and for the variable CC).")
    name = identifier(source)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"{name}.so"
        command = [compiler, *options, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
        outcome = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if outcome.returncode != 0:
            raise ExportError(f"{compiler} rejects {source.name}:\n{outcome.stderr.strip()}")
        sizes = (_macro(source, f"{name.upper()}_{which}_SIZE") for which in ("INPUT", "OUTPUT"))
        return CompiledNetwork(library, name, *sizes)


def _macro(source: Path, name: str) -> int:
    header = header_of(source)
    found = re.search(rf"#define {name} (\d+)", header.read_text(encoding="ascii"))
    if found is None:
        raise ExportError(f"{header.name} does not define {name}.")
    return int(found[1])


def identifier(path: Path) -> str:
    """A C identifier from the name of a file.

    Example:
        >>> identifier(Path("models/lenet-5.c")), identifier(Path("300.c"))
        ('lenet_5', 'net_300')
    """
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in path.stem)
    return name if name[0].isalpha() else f"net_{name}"


def header_of(source: Path) -> Path:
    """The header beside a source; a character that not every `#include` accepts becomes its code point, in hex.

    Example:
        >>> header_of(Path("models/lenet-5.c")).name, header_of(Path("modèle.c")).name
        ('lenet-5.h', 'mod_e8le.h')
    """
    name = "".join(letter if _can_be_included(letter) else f"_{ord(letter):x}" for letter in source.stem)
    return source.with_name(f"{name}.h")


def _can_be_included(letter: str) -> bool:
    return letter.isascii() and letter.isprintable() and letter not in "\"'\\?"
