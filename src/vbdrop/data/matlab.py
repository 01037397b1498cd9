"""Read the numeric arrays of a MATLAB 5 file.

Only plain arrays are supported, and every size is checked against the bytes that are there. SciPy reads far more kinds
of files, but a damaged file can crash the process in its compiled code.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vbdrop.data.errors import DataError

_HEADER = 128
_LITTLE_ENDIAN_5 = b"\x00\x01IM"
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}
_NUMERIC_CLASSES = range(6, 14)  # double, single, and the integers of 8 to 32 bits
_COMPLEX = 0x08
_LIMIT = 1 << 30  # bytes that one variable may unpack to

Element = tuple[int, memoryview]


def read_matlab(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read every real, full numeric array of a file; other variables are skipped.

    Args:
        path: A little-endian file of MATLAB 5 to 7, compressed or not. MATLAB 7.3 uses another format.

    Returns:
        The arrays by name, in their stored type and (Fortran) order.

    Raises:
        DataError: The file is missing, damaged or of another kind.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.mat"
        >>> _ = path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(128))
        >>> read_matlab(path)
        Traceback (most recent call last):
        vbdrop.data.errors.DataError: ...a.mat is not a MATLAB 5 file...
    """
    try:
        content = memoryview(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(content) < _HEADER or content[_HEADER - 4 : _HEADER] != _LITTLE_ENDIAN_5:
        raise DataError(f"{path} is not a MATLAB 5 file, or has another byte order")
    try:
        return dict(_variables(content[_HEADER:]))
    except (_DamageError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error


class _DamageError(Exception):
    """A file contradicts itself."""


def _variables(content: memoryview) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for element in _elements(content):
        for kind, data in _elements(_unpacked(element[1])) if element[0] == _COMPRESSED else [element]:
            if kind != _MATRIX:
                raise _DamageError(f"there is an element of type {kind} where a variable should be")
            parts = [part for part, _ in zip(_elements(data), range(4), strict=False)]
            if len(parts) == 4 and _is_real_and_full(parts[0]):
                yield parts[2][1].tobytes().decode("latin-1"), _array(parts[1], parts[3])


def _elements(data: memoryview) -> Iterator[Element]:
    """Split bytes into elements: a type, a size, and that many bytes, padded to a multiple of eight."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise _DamageError("it ends within a tag")
        kind, size = struct.unpack_from("<II", data, at)
        start = at + 8
        if kind >> 16:  # the short form: size and type in one number, and the bytes in place of the size
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        after = start + size
        if after > len(data) or (start == at + 4 and size > 4):
            raise _DamageError(f"an element promises {size} bytes, and there are fewer")
        yield kind, data[start:after]
        at = after if kind == _COMPRESSED else at + 8 * math.ceil((after - at) / 8)


def _unpacked(data: memoryview) -> memoryview:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data, _LIMIT)
    if not unpacker.eof:
        raise _DamageError("a compressed variable is cut off, or larger than a gigabyte")
    return memoryview(content)


def _is_real_and_full(flags: Element) -> bool:
    kind, data = flags
    return kind == 6 and len(data) == 8 and data[0] in _NUMERIC_CLASSES and not data[1] & _COMPLEX


def _array(sizes: Element, numbers: Element) -> npt.NDArray[Any]:
    if sizes[0] != 5 or len(sizes[1]) % 4 or numbers[0] not in _NUMBERS:
        raise _DamageError("the sizes or the numbers of an array are of an unknown type")
    shape = struct.unpack(f"<{len(sizes[1]) // 4}i", sizes[1])
    kind = np.dtype(_NUMBERS[numbers[0]])
    if not shape or min(shape) < 0 or math.prod(shape) * kind.itemsize != len(numbers[1]):
        raise _DamageError(f"an array of the shape {shape} has {len(numbers[1])} bytes")
    return np.frombuffer(numbers[1], kind).reshape(shape, order="F")
