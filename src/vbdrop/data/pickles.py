"""Read the Python 2 pickles in which CIFAR-10 is published, without running code that a pickle may ask for.

A pickle is a program for a small machine, and two of its instructions call functions. Here the program is read
first, and refused unless it has only the instructions and the three names that a dict of lists, strings and NumPy
byte arrays needs. The names are then replaced by inert records, so that NumPy is not called either.
"""

import math
import pickle
import pickletools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vbdrop.data.errors import DataError

_INSTRUCTIONS = frozenset(
    """PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 SHORT_BINSTRING BINSTRING
    EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS TUPLE TUPLE1 TUPLE2 TUPLE3
    BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL REDUCE BUILD""".split()  # noqa: SIM905 (words read better than 28 lines)
)
_MEMO_LIMIT = 1 << 20  # the machine allocates memory up to the highest slot that is named


@dataclass
class _Record:
    """Stands in for an object of the pickle: the arguments it was called with, and its state."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = field(default=None, init=False)

    def __call__(self, *arguments: Any) -> "_Record":  # noqa: ANN401 (whatever the pickle holds)
        return _Record(self.name, arguments)

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401
        self.state = state


_NAMES = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Record:
        if f"{module} {name}" not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Record(name)


def read_pickle(path: Path) -> dict[bytes, Any]:
    """Read a pickled dict of lists, strings, numbers and NumPy arrays of bytes.

    Strings come back as ``bytes``, arrays as uint8.

    Raises:
        DataError: The file is missing or damaged, or it asks for anything else.

    Example:
        >>> import os, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "batch"
        >>> _ = path.write_bytes(pickle.dumps({"run": os.system}))
        >>> read_pickle(path)
        Traceback (most recent call last):
        vbdrop.data.errors.DataError: ...batch is refused: it is not a pickle of plain arrays...
    """
    try:
        with path.open("rb") as file:
            _check(path, file.read())
            file.seek(0)
            content = _Unpickler(file, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    except DataError:
        raise
    except Exception as error:  # a damaged pickle makes the machine fail in any way
        raise DataError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a dict; got {type(content).__name__}")
    return {key: _array(value, path) if isinstance(value, _Record) else value for key, value in content.items()}


def _check(path: Path, program: bytes) -> None:
    for instruction, argument, _ in pickletools.genops(program):
        wanted = instruction.name in _INSTRUCTIONS
        if instruction.name == "GLOBAL":
            wanted = argument in _NAMES
        elif wanted and isinstance(argument, int) and "PUT" in instruction.name:
            wanted = argument < _MEMO_LIMIT
        if not wanted:
            what = instruction.name if argument is None else f"{instruction.name} {str(argument)[:80]}"
            raise DataError(f"{path} is refused: it is not a pickle of plain arrays, it has the instruction {what}")


def _array(record: _Record, path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    match record.name, record.state:
        case "_reconstruct", (1, tuple(shape), _Record(name="dtype", arguments=(b"u1", *_)), False, bytes(data)):
            if all(isinstance(size, int) and size >= 0 for size in shape) and math.prod(shape) == len(data):
                return np.frombuffer(bytearray(data), np.uint8).reshape(shape)
    raise DataError(f"{path} is damaged: it holds an array that is not of bytes, or not of the stated size")
