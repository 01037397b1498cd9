"""SVHN, cropped digits: two MATLAB files.

Several digits come from one photograph, and the published files do not say which: if a validation split is drawn digit
by digit, the training data contain neighbours of its digits, and its error is a little too low. If the file
``train_photo.i32`` is beside them (one little-endian int32 per training digit, the number of its photograph), whole
photographs can be held out. Without it, blocks of neighbouring digits can be: the digits of a photograph are adjacent
in the files, so that only the ends of a block share a photograph with the other side.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vbdrop.data.checksums import Checksums, of_channels_last
from vbdrop.data.dataset import Arrays, Bytes, Groups
from vbdrop.data.errors import DataError
from vbdrop.data.matlab import read_matlab
from vbdrop.data.spec import FileLayout, Mirror, Spec

FILES = ("train_32x32.mat", "test_32x32.mat")
PHOTOGRAPHS = "train_photo.i32"
"""The index of photographs; it may be missing."""


def read(folder: Path) -> Arrays:
    """Read the two files of a folder; label 10 in the files is the digit 0.

    Raises:
        DataError: A file is missing or damaged, or does not hold digits.
    """
    return Arrays(*_read_part(folder / FILES[0]), *_read_part(folder / FILES[1]))


def read_photographs(folder: Path) -> Groups | None:
    """Read the photograph of each training digit; None if the index is missing."""
    path = folder / PHOTOGRAPHS
    return np.fromfile(path, dtype="<i4").astype(np.int32) if path.is_file() else None


def _read_part(path: Path) -> tuple[Bytes, Bytes]:
    content = read_matlab(path)
    images, labels = content.get("X"), content.get("y")
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise DataError(f"{path} must hold `X`, bytes of shape 32 x 32 x 3 x count; got {_described(images)}")
    count = images.shape[3]
    if labels is None or labels.shape != (count, 1) or count == 0:
        raise DataError(f"{path} must hold `y`, a label for each of {count} images; got {_described(labels)}")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise DataError(f"{path} must hold labels from 1 to 10 in `y`")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), (labels[:, 0] % 10).astype(np.uint8)


def _described(array: npt.NDArray[Any] | None) -> str:
    return "nothing of the kind" if array is None else f"{array.dtype} of shape {array.shape}"


_LAYOUT = FileLayout(folders=("svhn", "SVHN", "."), files=FILES, read=read, read_groups=read_photographs)

SVHN = Spec(
    title="SVHN",
    summary="house numbers, 73,257 + 26,032 colour images of 32 x 32 (cropped digits)",
    layouts=(_LAYOUT,),
    sources=(Mirror("https://ufldl.stanford.edu/housenumbers/", files=FILES, layout=_LAYOUT),),
    checksums=Checksums(
        # An edition re-cropped from the photographs, in which 7 of 3,326,976 compared bytes differ by 1.
        {
            "train_images": "48063b48df71aee0101eb5addd95efb9272727e2c7e3d052997128be94035dd7",
            "train_labels": "6a6e359bb9ecc6ce40896703f7b224715776155fe39710e0ddb8008a18172c6f",
            "test_images": "087e0ada253ee6fa9fea6b27a60cdf4d36218753423c085b2a2b5943108e80a4",
            "test_labels": "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a",
        },
        digest=of_channels_last,
        files={
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
    ),
)
