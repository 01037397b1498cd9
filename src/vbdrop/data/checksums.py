"""Checks that a data set is the published one, by sha256 sums of the decoded arrays.

They do not depend on how the files are packed, so a gzipped copy, a plain one and a PNG version all pass.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vbdrop.data.dataset import Arrays, Bytes
from vbdrop.data.errors import DataError


def of_bytes(array: Bytes) -> str:
    """Return the sha256 of an array's bytes, in the order of its axes.

    Example:
        >>> import numpy as np
        >>> of_bytes(np.arange(3, dtype=np.uint8))[:16]
        'ae4b3280e56e2faf'
    """
    return hashlib.sha256(array.tobytes()).hexdigest()


def of_channels_last(array: Bytes) -> str:
    """Return the sha256 of images with the channels as the last axis; labels are hashed as they are.

    Example:
        >>> import numpy as np
        >>> image = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)
        >>> of_channels_last(image) == of_bytes(np.ascontiguousarray(image.transpose(0, 2, 3, 1)))
        True
    """
    return of_bytes(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array)


@dataclass(frozen=True)
class Checksums:
    """The expected sums of a data set.

    Attributes:
        arrays: Array name (``train_images``, ...) -> the sum of the decoded array.
        digest: Computes the sum of an array.
        files: File name -> the sha256 of a published file. If all files of a set match these, the arrays need not
            match: for a set that exists in two editions.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    digest: Callable[[Bytes], str] = of_bytes
    files: Mapping[str, str] = field(default_factory=dict)


def verify(arrays: Arrays, expected: Checksums, folder: Path) -> str:
    """Check the arrays decoded from ``folder``, and return one sum for all of them.

    Raises:
        DataError: An array is not the expected one.

    Example:
        >>> import numpy as np
        >>> tiny = Arrays(*(np.zeros(1, np.uint8) for _ in range(4)))
        >>> verify(tiny, Checksums({"test_labels": "ab" * 32}), Path("here"))
        Traceback (most recent call last):
        vbdrop.data.errors.DataError: the test labels in here are not the published ones: ...
    """
    found = {name: expected.digest(array) for name, array in arrays._asdict().items()}
    wrong = [name for name, digest in expected.arrays.items() if found[name] != digest]
    if wrong and not _published(folder, expected.files):
        name = wrong[0]
        raise DataError(
            f"the {name.replace('_', ' ')} in {folder} are not the published ones: their sha256 must be "
            f"{expected.arrays[name]}; got {found[name]}"
        )
    return hashlib.sha256("\n".join(found.values()).encode()).hexdigest()


def _published(folder: Path, files: Mapping[str, str]) -> bool:
    return bool(files) and all(_of_file(folder / name) == digest for name, digest in files.items())


def _of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
