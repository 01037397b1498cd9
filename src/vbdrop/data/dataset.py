"""A data set in memory."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bytes = npt.NDArray[np.uint8]
Groups = npt.NDArray[np.int32]


class Arrays(NamedTuple):
    """Decoded arrays: images as ``count x channels x height x width``, labels as ``count``, all uint8."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


@dataclass(frozen=True, eq=False)
class Dataset:
    """The images and labels of a data set, as tensors.

    Attributes:
        name: Its key in :data:`vbdrop.data.DATASETS`.
        train_images: uint8, ``count x channels x height x width``; :func:`vbdrop.data.normalise` makes them floats.
        train_labels: int64, ``count``.
        test_images: As ``train_images``.
        test_labels: As ``train_labels``.
        checksum: Identifies the contents, whatever files they came from.
        train_groups: int64, ``count``: training images with the same number belong together; None if unknown, or if no
            two do. Not part of the checksum.

    Example:
        >>> from vbdrop.data import load
        >>> digits = load("digits")
        >>> digits.input_shape, len(digits.train_labels)
        ((1, 28, 28), 8000)
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    checksum: str
    train_groups: Tensor | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.dtype != torch.uint8 or images.ndim != 4:
                raise ValueError(
                    f"`{part}_images` must be uint8 of shape count x channels x height x width; "
                    f"got {images.dtype} of shape {tuple(images.shape)}."
                )
            if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
                raise ValueError(
                    f"`{part}_labels` must be int64, one for each of the {len(images)} images; "
                    f"got {labels.dtype} of shape {tuple(labels.shape)}."
                )
        if self.train_groups is not None and self.train_groups.shape != self.train_labels.shape:
            raise ValueError(
                f"`train_groups` must have one number for each of the {len(self.train_labels)} training images; "
                f"got {tuple(self.train_groups.shape)}."
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image, channels first."""
        return tuple(self.train_images.shape[1:])


def in_memory(name: str, arrays: Arrays, checksum: str, groups: Groups | None = None) -> Dataset:
    """Make a data set from decoded arrays and, if known, the group of each training image.

    Memory is shared where possible.

    Example:
        >>> image, label = np.zeros((1, 1, 28, 28), np.uint8), np.array([7], np.uint8)
        >>> in_memory("tiny", Arrays(image, label, image, label), "").test_labels
        tensor([7])
    """
    return Dataset(
        name=name,
        train_images=torch.from_numpy(arrays.train_images),
        train_labels=torch.from_numpy(arrays.train_labels).long(),
        test_images=torch.from_numpy(arrays.test_images),
        test_labels=torch.from_numpy(arrays.test_labels).long(),
        checksum=checksum,
        train_groups=None if groups is None else torch.from_numpy(groups).long(),
    )
